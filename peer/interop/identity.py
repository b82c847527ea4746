"""The names that libp2p derives from public keys: peer IDs."""

from typing import Final

_ED25519: Final = bytes.fromhex("002408011220")
"""The beginning of an identity multihash of 36 bytes, which are a protobuf of an ed25519 key."""

_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def encode_peer_id(public_key: bytes) -> str:
    """Return the peer ID of an ed25519 key of 32 bytes, as text."""
    return encode_base58(_ED25519 + public_key)


def encode_base58(data: bytes) -> str:
    """Return bytes in base58 with Bitcoin's alphabet. Leading zeros are kept, as digits 1."""
    value, digits = int.from_bytes(data), ""
    while value:
        value, rest = divmod(value, len(_BASE58))
        digits = _BASE58[rest] + digits
    return _BASE58[0] * (len(data) - len(data.lstrip(b"\0"))) + digits
