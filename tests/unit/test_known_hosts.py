"""The reader of ``known_hosts``: it takes the keys of one machine, and no line of another machine stops it."""

import subprocess
from pathlib import Path

import paramiko  # type: ignore[import-untyped]
import pytest

from harness.deployment.answers import StepError
from harness.deployment.known_hosts import read_host_keys

OWN, OTHER = (paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate())
RSA = paramiko.RSAKey.generate(2048)
SK = "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIA=="


def line(names: str, key: paramiko.PKey, marker: str = "", comment: str = "") -> str:
    return f"{marker} {names} {key.get_name()} {key.get_base64()} {comment}".strip()


def read(folder: Path, *lines: str, host: str = "box.example.org", port: int = 22) -> list[str]:
    path = folder / "known_hosts"
    path.write_text("\n".join(lines) + "\n")
    return [key.get_base64() for key in read_host_keys(path, host, port)]


@pytest.mark.parametrize(
    ("names", "host", "port", "is_named"),
    [
        ("box.example.org", "box.example.org", 22, True),
        ("a,box.example.org,b", "box.example.org", 22, True),
        ("Box.Example.ORG", "box.example.org", 22, True),
        ("box.example.org", "Box.example.org", 22, True),
        ("box.example.org", "box.example.org", 2222, False),
        ("[box.example.org]:2222", "box.example.org", 2222, True),
        ("[box.example.org]:2222", "box.example.org", 22, False),
        ("*.example.org", "box.example.org", 22, True),
        ("*.example.org,!box.example.org", "box.example.org", 22, False),
        ("!box.example.org", "other.example.org", 22, False),
        ("box?example.org", "box.example.org", 22, True),
        ("[2001:db8::1]:2222", "2001:db8::1", 2222, True),
        ("box.example", "box.example.org", 22, False),
        ("|1|no hash", "box.example.org", 22, False),
        ("|1|AAAA", "box.example.org", 22, False),
    ],
)
def test_names_are_read_as_openssh_reads_them(tmp_path: Path, names: str, host: str, port: int, is_named: bool) -> None:
    found = read(tmp_path, line(names, OWN), host=host, port=port)
    assert found == ([OWN.get_base64()] if is_named else [])


def test_hashed_names_of_ssh_keygen_are_read(tmp_path: Path) -> None:
    path = tmp_path / "hashed"
    path.write_text(f"{line('box.example.org', OWN)}\n{line('[10.0.0.1]:2222', RSA)}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(path)], check=True, capture_output=True)
    assert "box" not in path.read_text()
    assert [key.get_base64() for key in read_host_keys(path, "box.example.org", 22)] == [OWN.get_base64()]
    assert [key.get_base64() for key in read_host_keys(path, "10.0.0.1", 2222)] == [RSA.get_base64()]


def test_lines_that_do_not_concern_the_machine_are_skipped(tmp_path: Path) -> None:
    other_lines = [
        "",
        "# box.example.org, a comment",
        line("*.example.org", OTHER, "@cert-authority"),
        line("other.example.org", OWN, "@revoked"),
        line("box.example.org", OTHER, "@new-marker"),
        "other.example.org ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA",  # cut
        "other.example.org ecdsa-sha2-nistp256 !!!",
        "other.example.org",
        "@revoked",
        f"box.example.org {SK}",
        "\ufeff\x00 binary",
    ]
    assert read(tmp_path, *other_lines, line("box.example.org", OWN, comment="me@home")) == [OWN.get_base64()]


def test_a_revoked_key_is_not_accepted(tmp_path: Path) -> None:
    lines = [line("box.example.org", OWN), line("box.example.org", RSA), line("*", OWN, "@revoked")]
    assert read(tmp_path, *lines) == [RSA.get_base64()]


@pytest.mark.parametrize("key", [OWN, RSA], ids=["ecdsa", "rsa"])
def test_every_cut_of_the_machines_own_key_is_named_with_its_line(tmp_path: Path, key: paramiko.PKey) -> None:
    whole = line("box.example.org", key)
    first = whole.index("AAAA") + 1
    for length in range(first, len(whole), 7):
        with pytest.raises(StepError, match=r"known_hosts:2: expected NAMES TYPE KEY"):
            read(tmp_path, "# the machine", whole[:length])
    with pytest.raises(StepError, match=r"known_hosts:1: expected NAMES TYPE KEY"):
        read(tmp_path, "box.example.org")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="nothing: No such file or directory"):
        read_host_keys(tmp_path / "nothing", "box", 22)
