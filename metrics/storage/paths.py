"""Paths by URI, with the methods of ``pathlib.Path`` that readers and writers of runs use."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, cast
from urllib.parse import parse_qsl, quote, urlencode, urlsplit
from uuid import uuid4

from metrics.storage.names import StoreError, inner_name

if TYPE_CHECKING:
    import pyarrow.fs as pafs

SCHEMES: Final = ("s3", "gs", "hdfs")
"""The schemes of stores, apart from ``file``. Only S3 is tested."""


_RANGE_BYTES: Final = 1 << 20
"""The least number of bytes in a request to a store."""


_GS_RETRY_S: Final = "15"
"""How long to repeat requests to a Google store that does not answer, or for which there are no keys: pyarrow's own
limit is 15 minutes."""


class Size(NamedTuple):
    """The part of ``os.stat_result`` that an object has; 0 bytes for a folder."""

    st_size: int


def place(text: str | Path) -> Place:
    """Return the place that a user names: a path, or a URI such as ``s3://bucket/run``. ``file:///run`` is a path.

    Raises:
        StoreError: a URI of an unknown scheme, without a bucket or host, or with a password in it.
    """
    scheme, separator, _ = str(text).partition("://")
    if isinstance(text, Path) or not separator:
        return Path(text)
    if scheme == "file":
        return Path(text.removeprefix("file://"))
    if scheme not in SCHEMES:
        raise StoreError(f"{text}: '{scheme}' is not among the known schemes: file, {', '.join(SCHEMES)}")
    return StorePath.parse(text)


def local_path(text: str) -> Path:
    """Return a path on this machine's file system.

    Raises:
        StoreError: it names an object in a store.
    """
    found = place(text)
    if isinstance(found, StorePath):
        raise StoreError(
            f"{found}: only a folder of this machine will do; `trellis copy` copies runs to and from stores"
        )
    return found


class StorePath:
    """A file or folder of a store. It can be pickled, hashed and sorted.

    ``str`` is the URI without its options. Keys (the part after the bucket) are taken as they are typed: ``%20`` is
    not a space.

    Args:
        root: the URI of the bucket or host, with the store's options.
        key: the path in it, without a slash at either end; empty = the root.
        size: the size of the object, if it is known.
    """

    __slots__ = ("_key", "_root", "_size")

    def __init__(self, root: str, key: str, size: int | None = None) -> None:
        self._root = root
        self._key = key
        self._size = size

    @classmethod
    def parse(cls, uri: str) -> StorePath:
        """Read a URI.

        Values for an S3 store that the URI lacks come from the environment, so that tasks on other machines find the
        same store: ``AWS_ENDPOINT_URL_S3`` or ``AWS_ENDPOINT_URL``, ``AWS_REGION`` or ``AWS_DEFAULT_REGION``.

        Raises:
            StoreError: it has no bucket or host, has a password, or leads out of its folder (``names.inner_name``).
        """
        parts = urlsplit(uri)
        if not parts.netloc:
            raise StoreError(f"{uri}: it names no bucket or host")
        if "@" in parts.netloc:
            raise StoreError(f"{parts.scheme}://...: keys do not belong in a URI; put them into the environment")
        options = dict(parse_qsl(parts.query))
        if parts.scheme == "s3":
            options = _of_environment() | options
        if parts.scheme == "gs":
            options = {"retry_limit_seconds": _GS_RETRY_S} | options
        query = f"?{urlencode(options)}" if options else ""
        root, key = f"{parts.scheme}://{parts.netloc}", parts.path.strip("/")
        return cls(f"{root}{query}", inner_name(key, root) if key else "")

    # ------------------------------------------------------------------------------------------------- names

    @property
    def name(self) -> str:
        return self._key.rpartition("/")[2]

    @property
    def stem(self) -> str:
        return PurePosixPath(self.name).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> StorePath:
        return StorePath(self._root, self._key.rpartition("/")[0])

    def with_name(self, name: str) -> StorePath:
        return self.parent / name

    def absolute(self) -> StorePath:
        return self

    def resolve(self) -> StorePath:
        return self

    def __truediv__(self, name: str) -> StorePath:
        return StorePath(self._root, f"{self._key}/{inner_name(name, self)}".strip("/"))

    def __str__(self) -> str:
        return f"{self._root.partition('?')[0]}/{self._key}"

    def __repr__(self) -> str:
        return f"StorePath('{self}')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorePath) and (self._root, self._key) == (other._root, other._key)

    def __lt__(self, other: StorePath) -> bool:
        return (self._root, self._key) < (other._root, other._key)

    def __hash__(self) -> int:
        return hash((self._root, self._key))

    def __reduce__(self) -> tuple[type[StorePath], tuple[str, str, int | None]]:
        return StorePath, (self._root, self._key, self._size)

    # ----------------------------------------------------------------------------------------------- looking

    @property
    def filesystem(self) -> pafs.FileSystem:
        """The store as pyarrow knows it; ``key`` is this path in it."""
        with self.in_words():
            return _connect(self._root)[0]

    @property
    def key(self) -> str:
        """This path in ``filesystem``."""
        with self.in_words():
            return f"{_connect(self._root)[1]}/{self._key}".rstrip("/")

    def exists(self) -> bool:
        return self._kind() != "NotFound"

    def is_file(self) -> bool:
        return self._kind() == "File"

    def is_dir(self) -> bool:
        return self._kind() == "Directory"

    def stat(self) -> Size:
        """Return the object's size.

        Raises:
            FileNotFoundError: there is no such object.
        """
        if self._size is None:
            info = self._info()
            if info.type.name == "NotFound":
                raise FileNotFoundError(f"{self}: there is no such object")
            self._size = info.size or 0
        return Size(self._size)

    def iterdir(self) -> Iterator[StorePath]:
        """Yield what is directly in this folder, sorted. Objects know their sizes.

        Raises:
            FileNotFoundError: there is no such folder.
            StoreError: a name leads out of the folder.
        """
        names = sorted((info.base_name, info.size) for info in self._list() if info.base_name)
        yield from (self._inner(name, size) for name, size in names)

    def glob(self, pattern: str) -> Iterator[StorePath]:
        """Yield the paths directly in this folder whose name matches a pattern; none if there is no such folder."""
        try:
            yield from (each for each in self.iterdir() if fnmatchcase(each.name, pattern))
        except FileNotFoundError:
            return

    def walk(self) -> list[StorePath]:
        """Return every object below this folder, sorted.

        Raises:
            StoreError: a name leads out of the folder.
        """
        start = len(self.key) + 1
        files = [info for info in self._list(allow_not_found=True, recursive=True) if info.type.name == "File"]
        return sorted(self._inner(info.path[start:], info.size) for info in files)

    def _inner(self, name: str, size: int) -> StorePath:
        """Return a path that the store lists in this folder."""
        return StorePath(self._root, f"{self._key}/{inner_name(name, self)}".strip("/"), size)

    def _list(self, **options: bool) -> list[pafs.FileInfo]:
        from pyarrow.fs import FileSelector

        with self.in_words():
            return cast("list[pafs.FileInfo]", self.filesystem.get_file_info(FileSelector(self.key, **options)))

    def _kind(self) -> str:
        """Return ``File``, ``Directory`` or ``NotFound``."""
        return str(self._info().type.name)

    def _info(self) -> pafs.FileInfo:
        with self.in_words():
            return self.filesystem.get_file_info(self.key)

    # ----------------------------------------------------------------------------------- reading and writing

    def open(self, mode: Literal["rb"] = "rb") -> IO[bytes]:
        """Open the object for reading; each read requests a range of it from the store.

        Raises:
            FileNotFoundError: there is no such object.
        """
        assert mode == "rb", "objects are written by create"
        with self.in_words():
            return io.BufferedReader(self.filesystem.open_input_file(self.key), _RANGE_BYTES)

    def read_bytes(self) -> bytes:
        with self.in_words(), self.open("rb") as file:
            return file.read()

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    @contextmanager
    def create(self, *, directly: bool = False) -> Iterator[IO[bytes]]:
        """Write the object in the block. It takes the place of an older one when the block ends well, otherwise not.

        The bytes go to an object with a name of its own, which the store then copies: a stream to S3 that is given up
        would leave an object with a part of them.

        Args:
            directly: write without that copy, since S3 copies no objects above 5 GB.
        """
        attempt = self if directly else self.with_name(f".{self.name}.{uuid4().hex}")
        with self.in_words():
            try:
                with self.filesystem.open_output_stream(attempt.key) as file:
                    yield file
                if attempt is not self:
                    self.filesystem.move(attempt.key, self.key)
            except BaseException:
                with suppress(OSError):
                    attempt.unlink(missing_ok=True)
                raise

    def write_bytes(self, content: bytes) -> None:
        """Write the object, which appears whole."""
        with self.create() as file:
            file.write(content)

    def write_text(self, text: str, encoding: str = "utf-8") -> None:
        self.write_bytes(text.encode(encoding))

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: folders of a store need not be made."""

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove the object."""
        with self.in_words():
            if missing_ok and not self.is_file():
                return
            self.filesystem.delete_file(self.key)

    def remove_tree(self) -> None:
        """Remove this folder and everything in it, if it is there."""
        with self.in_words():
            if self.is_dir():
                self.filesystem.delete_dir(self.key)

    @contextmanager
    def in_words(self) -> Iterator[None]:
        """Convert errors of the store to one line. A missing object is not an error of the store."""
        try:
            yield
        except (FileNotFoundError, StoreError):
            raise
        except (OSError, ValueError) as error:  # pyarrow raises either
            said = " ".join(str(error).split())
            raise StoreError(f"{self}: the store cannot be used: {said}") from None


Place: TypeAlias = Path | StorePath


def _of_environment() -> dict[str, str]:
    """Return options of S3 from the variables that other programs use, too."""
    found = {}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        scheme, separator, host = endpoint.rstrip("/").rpartition("://")
        found = {"endpoint_override": host, "scheme": scheme if separator else "https"}
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region or endpoint:
        found["region"] = region or "us-east-1"  # the name that other servers than Amazon's use
    return found


@lru_cache(maxsize=64)
def _connect(root: str) -> tuple[pafs.FileSystem, str]:
    """Connect to a store, and return the path of its root in it; do so once per process."""
    from pyarrow.fs import FileSystem

    base, _, query = root.partition("?")
    scheme, _, netloc = base.partition("://")
    filesystem, path = FileSystem.from_uri(f"{scheme}://{quote(netloc, safe=':')}/{f'?{query}' if query else ''}")
    return filesystem, path.rstrip("/")
