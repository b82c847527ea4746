"""Private keys that cannot be used are refused with the reason, before any machine is asked."""

import base64
import struct
import subprocess
from pathlib import Path

import pytest

from harness.deployment.answers import StepError
from harness.deployment.connecting import load_key

RSA = ("-t", "rsa", "-b", "2048")
"""Longer keys take several times as long to make."""


def make_key(folder: Path, *options: str, passphrase: str = "") -> Path:
    """Make a key of the type that takes the least time, or with these options."""
    path = folder / "key"
    options = options or ("-t", "ed25519")
    subprocess.run(["ssh-keygen", "-q", "-N", passphrase, "-f", str(path), *options], check=True)
    return path


def packed(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def security_key(folder: Path) -> Path:
    """A file as ``ssh-keygen -t ed25519-sk`` writes it."""
    public = packed(b"sk-ssh-ed25519@openssh.com") + packed(bytes(32)) + packed(b"ssh:")
    private = bytes(8) + public + b"\x01" + packed(bytes(64)) + packed(b"") + packed(b"comment")
    private += bytes(range(1, 1 + -len(private) % 8))
    content = b"openssh-key-v1\0" + packed(b"none") * 2 + packed(b"") + struct.pack(">I", 1)
    text = base64.encodebytes(content + packed(public) + packed(private)).decode()
    path = folder / "key"
    path.write_text(f"-----BEGIN OPENSSH PRIVATE KEY-----\n{text}-----END OPENSSH PRIVATE KEY-----\n")
    return path


@pytest.mark.parametrize("kind", [("-t", "ed25519"), ("-t", "ecdsa"), RSA], ids=lambda kind: kind[1])
def test_keys_of_every_common_type_are_read(tmp_path: Path, kind: tuple[str, ...]) -> None:
    path = make_key(tmp_path, *kind)
    public = path.with_suffix(".pub").read_text().split()
    assert load_key(str(path)).get_base64() == public[1]
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert load_key(str(path)).get_base64() == public[1]


def test_keys_in_pem_format_are_read(tmp_path: Path) -> None:
    path = make_key(tmp_path, *RSA, "-m", "PEM")
    assert load_key(str(path)).get_name() == "ssh-rsa"


@pytest.mark.parametrize("form", [(), (*RSA, "-m", "PEM"), (*RSA, "-m", "PKCS8")])
def test_an_encrypted_key_is_refused(tmp_path: Path, form: tuple[str, ...]) -> None:
    path = make_key(tmp_path, *form, passphrase="long enough")
    with pytest.raises(StepError, match=f"{path}: the key is encrypted; use one without a passphrase"):
        load_key(str(path))


def test_a_security_key_is_refused_with_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"key: .*on security keys \(sk-\.\.\.\), are not supported"):
        load_key(str(security_key(tmp_path)))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8, 0.98])
def test_a_cut_key_is_refused(tmp_path: Path, share: float) -> None:
    path = make_key(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(StepError, match="key: not a whole private key"):
        load_key(str(path))


def test_a_public_key_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    path = make_key(tmp_path)
    with pytest.raises(StepError, match=r"key\.pub: not a whole private key"):
        load_key(str(path.with_suffix(".pub")))
    with pytest.raises(StepError, match="nothing: No such file or directory"):
        load_key(str(tmp_path / "nothing"))
    with pytest.raises(StepError, match="Is a directory"):
        load_key(str(tmp_path))
