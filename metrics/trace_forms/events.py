"""The events of a trace of any form: the events of ``peer.trace`` with names in place of numbers."""

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from msgspec import Struct

MOST_EVENT_BYTES: Final = 1 << 20
"""The most bytes of an event in a file. The tools of go-libp2p-pubsub have the same limit."""

MOST_NAME_BYTES: Final = 4096
"""The most bytes of the name of a node, a topic or a message."""

LATEST_NS: Final = 2**61
"""The latest instant of a run (``metrics.rundir.bounds.Instant``): in the year 2043."""

IDENTITY: Final = "identity"
"""The event that reports another name (``peer``) of the node. No trace of ours has it."""

_GZIP: Final = b"\x1f\x8b"


class Event(Struct, frozen=True, gc=False):
    """An event of a trace. The fields are those of ``peer.trace.TraceEvent``.

    Attributes:
        event: a name of ``peer.trace.EVENTS``, or ``IDENTITY``.
        ts_ns: ns since the epoch, by the clock of the node's machine.
        node: the name of the node that traced it.
        peer: the name of the other node; None = not known, or the event has none.
        message: the message's identifier.
        topics: names; None = the event does not say.
        kind: the kind of the frame, for ``send``, ``receive`` and ``drop``.
        reason: the reason of a ``reject``.
        len_bytes: the length of the payload of a ``publish``, or of a frame.
    """

    event: str
    ts_ns: int
    node: bytes
    peer: bytes | None = None
    message: bytes | None = None
    topics: tuple[str, ...] | None = None
    kind: int | None = None
    reason: str | None = None
    len_bytes: int | None = None

    @property
    def names(self) -> Iterator[bytes]:
        """All names in the event."""
        yield from (name for name in (self.node, self.peer, self.message) if name is not None)
        yield from (topic.encode() for topic in self.topics or ())


class Reading(Struct, frozen=True):
    """How traces of a form are read.

    Attributes:
        read: yields the events of a file; raises ``TraceError`` if it is malformed, and ``CutOffError`` if it ends
            inside an event.
        told: the events that such traces can have.
        find: lists the files of a source; None = the source is a file, or a folder of files.
    """

    read: Callable[[Path], Iterator[Event]]
    told: frozenset[str]
    find: Callable[[Path], list[Path]] | None = None


class TraceError(Exception):
    """A trace or a mapping cannot be read, or a trace cannot be written. ``place`` is a file, with a line or byte."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")
        self.place = place
        self.problem = problem


class CutOffError(Exception):
    """A trace ends inside an event, as when its writer was killed. All events before it were read."""


class _Inflated(io.RawIOBase):
    """Compressed content, also if its end is missing: then ``GzipFile.read`` would drop what it has."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._file.read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def require_new(folder: Path) -> None:
    """Check that a folder can be made.

    Raises:
        TraceError: something with its name exists.
    """
    if folder.exists() or folder.is_symlink():
        raise TraceError(str(folder), "there is something already; name a new folder")


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a trace, which may be compressed with gzip.

    Raises:
        TraceError: it cannot be read.
        CutOffError: the compressed data end too early.
    """
    try:
        with path.open("rb") as file:
            if file.peek(len(_GZIP)).startswith(_GZIP):
                yield io.BufferedReader(_Inflated(gzip.GzipFile(fileobj=file)))
            else:
                yield file
    except EOFError:
        raise CutOffError from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(str(path), f"expected gzip: {error}") from None
    except OSError as error:
        raise TraceError(str(path), error.strerror or "cannot be read") from None


def read_lines(path: Path, file: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield the lines of a file that are not blank, with their places.

    Raises:
        TraceError: a line has more than ``MOST_EVENT_BYTES``.
    """
    number = 0
    while line := file.readline(MOST_EVENT_BYTES + 1):
        number += 1
        if len(line) > MOST_EVENT_BYTES:
            raise TraceError(f"{path}:{number}", f"expected at most {MOST_EVENT_BYTES:,} bytes per line")
        if line.strip():
            yield f"{path}:{number}", line
