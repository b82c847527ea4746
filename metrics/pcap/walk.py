"""From one record's start to the next: a capture is a linked list, walked by many cursors at once.

Each record says its length, so a plain walk is a Python loop. The vectorised walk guesses borders spread over the file,
lets one cursor start at each of them, moves all in lock-step, and accepts the result only if every cursor lands exactly
on the next one's start. By induction from the first, whose start is known, that proves every guess; anything else is
walked again by the loop. A capture whose payload is itself a capture costs time, never a record.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_CURSORS = 256
_MIN_STRIDE_BYTES = 32 * 1024
_FIRST_WINDOW_BYTES = 4096
_LAST_WINDOW_BYTES = 512 * 1024
_CHAIN = 3

NONE = 1 << 48
"""A record's length where there can be no record: beyond the end of any file."""


class Layout(Protocol):
    """How a format says where its records end.

    ``minimum`` is the length of the smallest record; all start at multiples of ``alignment``.
    """

    minimum: int
    alignment: int

    def length(self, at: int) -> int:
        """The length that the record at ``at`` claims, ``NONE`` if there can be none."""

    def lengths(self, at: Ints) -> Ints:
        """The same for many, none of which is nearer to the file's end than the smallest record is long."""

    def plausible(self, at: Ints) -> Bools:
        """Whether a record may start at each offset: a guess, that decides about speed only."""


def word_view(data: Bytes, order: str) -> npt.NDArray[np.uint32]:
    """The 32-bit word at every byte offset of ``data``, unaligned and without a copy; ``order`` is "<" or ">"."""
    return np.ndarray((max(len(data) - 3, 0),), f"{order}u4", data, 0, (1,))


def walk(layout: Layout, start: int, end: int) -> tuple[Ints, int]:
    """The offsets of the whole records from ``start`` on, and where they end: what follows up to ``end`` is none."""
    borders = _borders(layout, start, end)
    proven = _lockstep(layout, borders) if len(borders) > 1 else None
    if proven is None:
        return _loop(layout, start, end)
    tail, stop = _loop(layout, int(borders[-1]), end)
    return np.concatenate((proven, tail)), stop


def _borders(layout: Layout, start: int, end: int) -> Ints:
    count = min(_CURSORS, (end - start) // _MIN_STRIDE_BYTES)
    guesses = [start]
    for position in np.linspace(start, end, count + 1)[1:-1].astype(int):
        if position > guesses[-1] and (border := _border(layout, position, end)) is not None:
            guesses.append(border)
    return np.array(guesses, dtype=np.int64)


def _border(layout: Layout, position: int, end: int) -> int | None:
    """The first offset from ``position`` that several plausible records in a row follow."""
    window = _FIRST_WINDOW_BYTES
    while window <= _LAST_WINDOW_BYTES:
        first = -(-position // layout.alignment) * layout.alignment
        candidates = np.arange(first, min(first + window, end - layout.minimum), layout.alignment, dtype=np.int64)
        candidates = candidates[layout.plausible(candidates)]
        ahead = candidates
        for _ in range(_CHAIN):
            ahead = ahead + layout.lengths(ahead)
            good = ahead <= end - layout.minimum
            good[good] = layout.plausible(ahead[good])
            candidates, ahead = candidates[good], ahead[good]
        if len(candidates):
            return int(candidates[0])
        window *= 8
    return None


def _lockstep(layout: Layout, borders: Ints) -> Ints | None:
    """The records from the first border to the last one, None if the borders do not all prove true."""
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
