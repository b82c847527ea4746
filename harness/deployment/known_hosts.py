"""The host keys of one machine, from a ``known_hosts`` file as OpenSSH writes and reads it (sshd(8)).

Paramiko's own reader fails at marker lines and damaged lines, even those of other machines, and knows no patterns.
"""

import base64
import hmac
import re
from pathlib import Path

import paramiko  # type: ignore[import-untyped]

from harness.deployment.answers import StepError

MOST_BYTES = 16 << 20


def known_as(host: str, port: int) -> str:
    """Return the name of an endpoint in ``known_hosts``."""
    return host if port == 22 else f"[{host}]:{port}"


def read_host_keys(path: Path, host: str, port: int) -> list[paramiko.PKey]:
    """Return the keys that a machine may show, in the order of the file.

    Lines of other machines are skipped, whatever they contain. So are certificate authorities and types of keys that
    Paramiko lacks. A key on an ``@revoked`` line of this machine is not accepted.

    Raises:
        StepError: the file cannot be read, or a line of this machine is damaged; names the file and the line.
    """
    name = known_as(host, port).lower()
    keys: dict[str, paramiko.PKey] = {}
    revoked = set()
    for number, line in enumerate(_read(path).splitlines(), 1):
        marker, names, kind, text = _split(line)
        if not _has_name(names, name):
            continue
        if marker == "@revoked":
            revoked.add(text)
        elif not marker and (key := _decode(kind, text, f"{path}:{number}")) is not None:
            keys[text] = key
    return [key for text, key in keys.items() if text not in revoked]


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES).decode(errors="replace")
    except OSError as error:
        raise StepError(f"{path}: {error.strerror or error}") from None


def _split(line: str) -> tuple[str, str, str, str]:
    """Return a line's marker, names, type of key and key. Missing ones are empty, as are those of a comment."""
    words = [] if line.lstrip().startswith("#") else line.split()
    marker = words.pop(0) if words and words[0].startswith("@") else ""
    names, kind, text = [*words, "", "", ""][:3]
    return marker, names, kind, text


def _has_name(names: str, name: str) -> bool:
    """Return whether a list of names and patterns, some of them negated or hashed, contains a name."""
    found = [word for word in names.split(",") if _matches(word.removeprefix("!"), name)]
    return bool(found) and not any(word.startswith("!") for word in found)


def _matches(word: str, name: str) -> bool:
    if word.startswith("|1|"):
        return _is_hash_of(word, name)
    pattern = re.escape(word.lower()).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(pattern, name) is not None


def _is_hash_of(word: str, name: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part) for part in word.removeprefix("|1|").split("|"))
    except ValueError:  # it is no hash of anything
        return False
    return hmac.digest(salt, name.encode(), "sha1") == digest


def _decode(kind: str, text: str, place: str) -> paramiko.PKey | None:
    """Return a key; None if Paramiko does not know its type.

    Raises:
        StepError: the key is damaged.
    """
    damaged = StepError(f"{place}: expected NAMES TYPE KEY, but the key of this machine is damaged")
    if not text:
        raise damaged
    try:
        content = base64.b64decode(text, validate=True)
        key = paramiko.PKey.from_type_string(kind, content)
    except paramiko.UnknownKeyType:
        return None
    except (ValueError, IndexError, TypeError, paramiko.SSHException):
        raise damaged from None
    if key.asbytes() != content:  # Paramiko takes a cut number for a smaller one
        raise damaged
    return key
