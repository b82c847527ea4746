"""Opens files of a run directory for writing: no other module does so.

If a name exists already, it may be a link that somebody else made. So a file is written under a free name, and takes
its place by a rename, which replaces a link and does not follow it. Only a log is opened in place, and only if it is a
regular file with this one name.
"""

import os
import stat
from pathlib import Path
from typing import IO

import msgspec

from metrics.storage import Place, StorePath

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOG = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def write_file(path: Place, content: bytes) -> None:
    """Write a file, which appears whole or not at all, and takes the place of an older one."""
    if isinstance(path, StorePath):
        path.write_bytes(content)
        return
    unfinished = path.with_name(f"{path.name}.part")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, _NEW, 0o666)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(content)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def write_document(path: Place, value: object) -> None:
    """Write a value as indented JSON (see ``write_file``)."""
    write_file(path, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")


def open_log(path: Path) -> IO[bytes]:
    """Open a log for reading and appending; it is made if it is not there.

    Raises:
        OSError: it cannot be opened, or is not a regular file with one name.
    """
    descriptor = os.open(path, _LOG, 0o666)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            raise OSError(None, "expected a regular file with one name", str(path))
        return open(descriptor, "a+b", buffering=0)  # noqa: PTH123 - a descriptor
    except BaseException:
        os.close(descriptor)
        raise
