"""Copy objects to files of this machine, and back, in pieces."""

import mmap
import os
import shutil
import tempfile
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final
from uuid import uuid4
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from metrics.storage.names import inner_name
from metrics.storage.paths import Place, StorePath

PIECE_BYTES: Final = 8 << 20
"""How much of an object is in memory while it is copied."""

_MOST_COPIED_BYTES: Final = 5_000_000_000
"""The largest object that S3 copies in one request."""

_COPIES = 8
"""How many files are copied at a time."""

_mapped: "WeakValueDictionary[StorePath, mmap.mmap]" = WeakValueDictionary()
_locks: dict[StorePath, threading.Lock] = {}


def scratch_folder() -> str:
    """Return the folder of temporary copies: on Spark's executors their own one, otherwise TMPDIR."""
    own = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    return own if own and Path(own).is_dir() else tempfile.gettempdir()


def map_bytes(path: Place) -> npt.NDArray[np.uint8]:
    """Return the bytes of a file, (n,), mapped rather than read: parts that are not used cost nothing.

    An object is first copied to a file in ``scratch_folder``, which has no name, so that it is removed with the
    process.
    Tasks of one process that map an object at the same time share the copy.
    """
    if not isinstance(path, StorePath):
        with path.open("rb") as file:
            return _array(_map(file))
    with _locks.setdefault(path, threading.Lock()):
        found = _mapped.get(path)
        if found is None:
            with tempfile.TemporaryFile(prefix="trellis-", dir=scratch_folder()) as file:
                _fetch(path, file)
                found = _map(file)
            if found is not None:
                _mapped[path] = found
    return _array(found)


def map_chunks(*chunks: Iterable[bytes]) -> npt.NDArray[np.uint8]:
    """Return bytes that come in chunks, (n,), mapped from a file without a name in ``scratch_folder``."""
    with tempfile.TemporaryFile(prefix="trellis-", dir=scratch_folder()) as file:
        file.writelines(chain(*chunks))
        file.flush()
        return _array(_map(file))


def _map(file: IO[bytes]) -> mmap.mmap | None:
    """Return the mapped file; None if it is empty."""
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.seek(0, 2) else None


def _array(mapped: mmap.mmap | None) -> npt.NDArray[np.uint8]:
    return np.empty(0, np.uint8) if mapped is None else np.frombuffer(mapped, np.uint8)


def map_array(path: Place) -> npt.NDArray[Any]:
    """Return the array of a ``.npy`` file, mapped."""
    found: npt.NDArray[Any]
    if not isinstance(path, StorePath):
        found = np.load(path, mmap_mode="r")
        return found
    with tempfile.TemporaryFile(prefix="trellis-", dir=scratch_folder()) as file:
        _fetch(path, file)
        found = np.load(f"/proc/self/fd/{file.fileno()}", mmap_mode="r")  # a map outlasts the file's name
        return found


def copy_file(source: Place, target: Place) -> None:
    """Copy a file or object. The copy appears when all of it is there (an object above 5 GB also if it fails)."""
    if isinstance(target, StorePath):
        directly = source.stat().st_size > _MOST_COPIED_BYTES
        with source.open("rb") as read, target.create(directly=directly) as written:
            shutil.copyfileobj(read, written, PIECE_BYTES)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    attempt = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        with source.open("rb") as read, attempt.open("xb") as written:
            shutil.copyfileobj(read, written, PIECE_BYTES)
        attempt.replace(target)
    finally:
        attempt.unlink(missing_ok=True)


def copy_files(files: Mapping[str, Place], target: Place) -> None:
    """Copy some files and objects, several at a time.

    Args:
        files: the files by the paths of their copies.
        target: the folder to which these paths are relative.
    """
    with ThreadPoolExecutor(_COPIES) as pool:
        copies = [pool.submit(copy_file, source, target / inner_name(name, target)) for name, source in files.items()]
        try:
            for copy in copies:
                copy.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def files_below(folder: Place) -> dict[str, Place]:
    """Return every file or object in a folder and below, by its path from there. Links are left out."""
    if isinstance(folder, StorePath):
        return {str(path).removeprefix(f"{folder}/"): path for path in folder.walk()}
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())
    return {path.relative_to(folder).as_posix(): path for path in found}


def _fetch(source: StorePath, file: IO[bytes]) -> None:
    with source.open("rb") as stream:
        shutil.copyfileobj(stream, file, PIECE_BYTES)
    file.flush()
