"""Walk from one record's start to the next, with many cursors at once: a capture is a linked list.

Each record has its length, so a plain walk is a Python loop. The vectorised walk guesses borders spread over the file,
starts one cursor at each of them, moves all in lock-step, and accepts the result only if every cursor lands exactly on
the next one's start. By induction from the first, whose start is known, that proves every guess. Otherwise the loop
walks the file again. A capture whose payload is itself a capture costs time, but never a record.
"""

from typing import Protocol

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CURSORS = 512
_MIN_STRIDE_BYTES = 32 * 1024
_WINDOWS_BYTES = (1024, 4096)  # searched for a guess; longer records are few enough for a loop
_CHAIN = 3

NONE = 1 << 48
"""A record's length where there can be no record: beyond the end of any file."""


class Layout(Protocol):
    """Finds the ends of records in a format.

    ``minimum`` is the length of the smallest record; all start at multiples of ``alignment``.
    """

    minimum: int
    alignment: int

    def length(self, at: int) -> int:
        """Return the length that the record at ``at`` claims, ``NONE`` if there can be none."""

    def lengths(self, at: Ints) -> Ints:
        """Return the same for many records, which are further from the file's end than the smallest record is long."""

    def plausible(self, at: Ints) -> Bools:
        """Return whether a record may start at each offset: a guess that affects only speed."""


def word_view(data: Bytes, order: str) -> npt.NDArray[np.uint32]:
    """Return the 32-bit word at every byte offset of ``data``, without a copy; ``order`` is "<" or ">"."""
    return np.ndarray((max(len(data) - 3, 0),), f"{order}u4", data, 0, (1,))


def gather(data: Bytes, at: Ints, layout: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """Return the structures at these offsets, each wholly inside the file, as fast as a single word of each.

    Args:
        data: the file.
        at: (n,) offsets in the file.
        layout: the type of the structures.
    """
    if not len(at):
        return np.empty(0, layout)
    pieces = np.ndarray((len(data) - layout.itemsize + 1,), f"V{layout.itemsize}", data, 0, (1,))
    return pieces[at].view(layout)


def big_endian_16(data: Bytes, at: Ints) -> Ints:
    """Return the 16-bit word at each offset, in network byte order."""
    return data[at].astype(np.int64) << 8 | data[at + 1]


def as_slice(rows: Ints) -> Ints | slice:
    """Return ``rows`` as a slice if each follows the one before it: reading and writing then need no index."""
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (rows[1:] > rows[:-1]).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def walk(layout: Layout, start: int, end: int) -> tuple[Ints, int]:
    """Return the offsets of the whole records from ``start`` on, and where they end (at most ``end``).

    Args:
        layout: the format of the records.
        start: the offset of the first record.
        end: the end of the bytes to walk.
    """
    borders = _borders(layout, start, end)
    proven = lockstep(layout, borders) if len(borders) > 1 else None
    if proven is None:
        return _loop(layout, start, end)
    tail, stop = _loop(layout, int(borders[-1]), end)
    return np.concatenate((proven, tail)), stop


def _borders(layout: Layout, start: int, end: int) -> Ints:
    """Return the start, and after each of many positions in the file the first guess, if there is one nearby."""
    count = min(CURSORS, (end - start) // _MIN_STRIDE_BYTES)
    positions = np.linspace(start, end, count + 1)[1:-1].astype(np.int64) // layout.alignment * layout.alignment
    borders = [np.array([start], np.int64)]
    for window in _WINDOWS_BYTES:
        guesses = _guesses(layout, positions, window, end)
        which, first = np.unique(np.searchsorted(positions, guesses, "right") - 1, return_index=True)
        borders.append(guesses[first])
        positions = np.delete(positions, which)
    return np.unique(np.concatenate(borders))


def _guesses(layout: Layout, positions: Ints, window: int, end: int) -> Ints:
    """Return the offsets within ``window`` bytes of ``positions`` that several plausible records in a row follow."""
    guesses = (positions[:, None] + np.arange(0, window, layout.alignment)).ravel()
    guesses = guesses[guesses < end - layout.minimum]
    guesses = guesses[layout.plausible(guesses)]
    ahead = guesses
    for _ in range(_CHAIN):
        ahead = ahead + layout.lengths(ahead)
        good = ahead <= end - layout.minimum
        good[good] = layout.plausible(ahead[good])
        guesses, ahead = guesses[good], ahead[good]
    return guesses


def lockstep(layout: Layout, borders: Ints) -> Ints | None:
    """Return the records from the first border to the last one; None if some border is wrong."""
    cursors, limits = borders[:-1], borders[1:]
    steps: list[Ints] = []
    while len(cursors):
        steps.append(cursors)
        cursors = cursors + layout.lengths(cursors)
        moving = cursors < limits
        if not moving.all():
            if (cursors > limits).any():
                return None
            cursors, limits = cursors[moving], limits[moving]
    return np.sort(np.concatenate(steps))


def _loop(layout: Layout, start: int, end: int) -> tuple[Ints, int]:
    offsets: list[int] = []
    at, length = start, layout.length
    while at + layout.minimum <= end:
        claimed = length(at)
        if at + claimed > end:
            break
        offsets.append(at)
        at += claimed
    return np.array(offsets, dtype=np.int64), at
