"""What is shipped to machines, as files: the same bytes for the same sources."""

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

import peer
from harness.deployment.workspace import hash_files
from peer.plugins import shipped_files

DEPENDENCIES = ("msgspec", "prometheus_client", "uvloop")
"""The packages that a peer imports besides the standard library (``[project] dependencies`` in pyproject.toml)."""

STAGE_DEPENDENCIES = (
    *DEPENDENCIES,
    *("bcrypt", "cryptography", "fabric", "invoke", "paramiko", "mininet", "pyyaml", "rich", "numpy"),
    *("pyarrow", "scapy"),
)
"""The packages that the running stage of a testbed imports besides (the extra ``harness`` in pyproject.toml)."""

MIN_PYTHON = (3, 11)

PARTS = ("peer", "topologies", "metrics", "harness")
"""The packages of Trellis."""


class Package(Struct, frozen=True):
    """A gzipped tar of ``peer/`` and the plugins, and ``workspace.hash_files`` of its files.

    The hash names the package's folder on a machine.
    """

    archive: bytes
    sha256: str


def build_package(source: Path | None = None) -> Package:
    """Pack the peer package of this checkout (or installation), and the plugins.

    Times, owners and modes are fixed, so that equal sources give equal hashes on any machine.
    """
    source = source or Path(peer.__file__).parent
    contents = {str(Path("peer") / path.relative_to(source)): path.read_bytes() for path in source.rglob("*.py")}
    contents |= shipped_files({"peer"})
    return Package(_pack(contents), hash_files(contents))


def pack_trellis() -> bytes:
    """Return all packages of this checkout (or installation) and the plugins, with their data, as a gzipped tar."""
    root = Path(peer.__file__).parents[1]
    files = (path for part in PARTS for path in (root / part).rglob("*"))
    own = {str(path.relative_to(root)): path.read_bytes() for path in files if path.is_file() and _is_source(path)}
    return _pack(own | shipped_files(PARTS))


def _is_source(path: Path) -> bool:
    return "__pycache__" not in path.parts


def pack_folder(folder: Path) -> bytes:
    """Return the files of a folder as a gzipped tar."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return _pack({str(path.relative_to(folder)): path.read_bytes() for path in files})


def _pack(contents: Mapping[str, bytes]) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name, content in sorted(contents.items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.mode = 0o644
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)
