"""The keys that programs of gossipsub-interop derive from their node's number, and so their libp2p peer IDs."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from peer.core.identifiers import NodeId
from peer.interop.identity import encode_peer_id

_SEED_BYTES = 32


def find_peer_id(node: NodeId) -> str:
    """Return the peer ID of a node: its key is an ed25519 key with the node's number, little-endian, as its seed."""
    private_key = Ed25519PrivateKey.from_private_bytes(node.to_bytes(_SEED_BYTES, "little"))
    return encode_peer_id(private_key.public_key().public_bytes_raw())
