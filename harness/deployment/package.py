"""The peer package as a file to ship: the same bytes for the same sources."""

import gzip
import io
import tarfile
from pathlib import Path

from msgspec import Struct

import peer
from harness.deployment.workspace import hash_files

DEPENDENCIES = ("msgspec", "prometheus_client", "uvloop")
"""The packages that a peer imports besides the standard library (``[project] dependencies`` in pyproject.toml)."""

MIN_PYTHON = (3, 11)


class Package(Struct, frozen=True):
    """A gzipped tar of ``peer/``, and ``workspace.hash_files`` of its files, which names its folder on a machine."""

    archive: bytes
    sha256: str


def build_package(source: Path | None = None) -> Package:
    """Pack the peer package of this checkout (or installation).

    Times, owners and modes are fixed, so that equal sources give equal hashes on any machine.
    """
    source = source or Path(peer.__file__).parent
    contents = {str(Path("peer") / path.relative_to(source)): path.read_bytes() for path in source.rglob("*.py")}
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name, content in sorted(contents.items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.mode = 0o644
            archive.addfile(member, io.BytesIO(content))
    return Package(gzip.compress(plain.getvalue(), mtime=0), hash_files(contents))
