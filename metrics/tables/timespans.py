"""Rows that last from one instant to another, as arrays: which follow, which last at an instant, and how many.

Keys are dense numbers of groups, from ``metrics.pcap.flows.factorise``. Time spans are half open. A *grid* is (zero_ns,
first, last): its instants are zero_ns + k seconds, k = first..last.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from metrics.pcap.flows import factorise
from metrics.pcap.walk import Bools, Ints
from metrics.tables.columns import Column, codes, numbers

SECOND_NS: Final = 1_000_000_000
FOREVER: Final = 2**63 - 1
_FAR_NS: Final = 2**62
"""An instant after all others; sums with other instants do not overflow."""

Grid: TypeAlias = tuple[int, int, int]
Spans: TypeAlias = tuple[Ints, Ints, Ints]
"""Time spans on a grid: the key, the first k, and the k after the last one."""


def common_keys(*several: Sequence[Column]) -> list[Ints]:
    """Return keys for the rows of several tables: equal if all of their columns, of integers or strings, are equal."""
    columns = []
    for same in zip(*several, strict=True):
        if pa.types.is_string(same[0].type):
            chunks = [chunk for column in same for chunk in _chunks(column)]
            columns.append(codes(pa.chunked_array(chunks, pa.string())))
        else:
            columns.append(np.concatenate([numbers(column, -1) for column in same]))
    key, _ = factorise(*columns)
    return np.split(key, np.cumsum([len(columns[0]) for columns in several])[:-1])


def _chunks(column: Column) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def next_instants(key: Ints, at_ns: Ints, last_ns: int) -> Ints:
    """Return when the next row of the same key follows, in order of time, then of rows; ``last_ns`` if none does.

    Args:
        key: (n,) the key of each row.
        at_ns: (n,) the instant of each row.
        last_ns: the result for rows that no row of their key follows.
    """
    order = np.lexsort((at_ns, key))
    found = np.full(len(key), last_ns)
    same = np.flatnonzero(key[order[1:]] == key[order[:-1]])
    found[order[same]] = at_ns[order[same + 1]]
    return found


def latest_end(key: Ints, from_ns: Ints, to_ns: Ints, asked: Ints, at_ns: Ints) -> pa.Array:
    """Return the latest end of the spans of a key that have begun by an instant; null if none has.

    Args:
        key: the key of each span.
        from_ns: the begin of each span.
        to_ns: the end of each span.
        asked: (n,) keys.
        at_ns: (n,) an instant for each of these keys.
    """
    ends, rank = np.unique(to_ns, return_inverse=True)
    begun, when, size = _places(key, from_ns, asked, at_ns)
    order = np.argsort(begun, kind="stable")
    steps = len(ends) + 1
    best = np.maximum.accumulate(key[order] * steps + rank[order])  # a greater key exceeds all smaller ones
    place = np.searchsorted(begun[order], when, "right") - 1
    known = (place >= 0) & (begun[order][place] // size == asked) if len(key) else np.zeros(len(asked), np.bool_)
    found = np.zeros(len(asked), np.int64)
    found[known] = ends[best[place[known]] % steps]
    return pa.array(found, mask=~known)


def first_since(key: Ints, at_ns: Ints, asked: Ints, from_ns: Ints) -> pa.Array:
    """Return the first instant of a key that is not before another; null if there is none.

    Args:
        key: the key of each instant.
        at_ns: the instants.
        asked: (n,) keys.
        from_ns: (n,) where to begin for each of these keys.
    """
    there, when, size = _places(key, at_ns, asked, from_ns)
    order = np.argsort(there, kind="stable")
    place = np.minimum(np.searchsorted(there[order], when), max(len(key) - 1, 0))
    later = there[order][place] if len(key) else np.full(len(asked), -1)
    known = (later >= when) & (later // size == asked)
    found = np.zeros(len(asked), np.int64)
    found[known] = at_ns[order][place[known]]
    return pa.array(found, mask=~known)


def _places(key: Ints, at_ns: Ints, asked: Ints, asked_ns: Ints) -> tuple[Ints, Ints, int]:
    """Return numbers in the order of (key, instant), and the difference between those of two neighbouring keys."""
    instants, rank = np.unique(np.concatenate((at_ns, asked_ns)), return_inverse=True)
    size = max(len(instants), 1)
    return key * size + rank[: len(key)], asked * size + rank[len(key) :], size


def on_grid(key: Ints, from_ns: Ints, to_ns: Ints, grid: Grid) -> Spans:
    """Return the spans that contain instants of the grid.

    Args:
        key: (n,) the key of each span.
        from_ns: (n,) the begin of each span.
        to_ns: (n,) the end of each span.
        grid: the instants.
    """
    zero_ns, first, last = grid
    since, until = (np.clip(each, -_FAR_NS, _FAR_NS) - zero_ns for each in (from_ns, to_ns))
    begin = np.maximum(-(-since // SECOND_NS), first)
    end = np.minimum(-(-until // SECOND_NS), last + 1)
    lasts = begin < end
    return key[lasts], begin[lasts], end[lasts]


def unite(spans: Spans) -> Spans:
    """Return the same instants of each key in spans that do not overlap."""
    key, begin, end = spans
    order = np.lexsort((begin, key))
    key, begin, end = key[order], begin[order], end[order]
    if not len(key):
        return key, begin, end
    low = int(begin.min())
    size = int(end.max()) - low + 1
    reached = np.maximum.accumulate(key * size + end - low)
    is_new = np.ones(len(key), np.bool_)
    is_new[1:] = key[1:] * size + begin[1:] - low > reached[:-1]
    head = np.flatnonzero(is_new)
    tail = np.append(head[1:], len(key)) - 1
    return key[head], begin[head], reached[tail] % size + low


def count_lasting(row: Ints, begin: Ints, end: Ints, rows: int, grid: Grid) -> Ints:
    """Count the spans that last at each instant of the grid, (rows, instants).

    Args:
        row: the row of each span, from 0.
        begin: the first k of each span.
        end: the k after the last one of each span.
        rows: how many rows there are.
        grid: the instants.
    """
    _, first, last = grid
    changes = np.zeros((rows, max(last - first + 2, 1)), np.int64)
    np.add.at(changes, (row, begin - first), 1)
    np.add.at(changes, (row, end - first), -1)
    return np.cumsum(changes, axis=1)[:, :-1]


def compare_lasting(words: Mapping[str, Spans]) -> dict[frozenset[str], int]:
    """Count, for each set of names, the (key, instant) pairs that the spans of exactly these names contain.

    Args:
        words: spans by name, with common keys.
    """
    united = [unite(spans) for spans in words.values()]
    key = np.concatenate([each[0] for each in united for _ in range(2)])
    at = np.concatenate([each[side] for each in united for side in (1, 2)])
    step = np.concatenate([np.full(len(each[0]), sign << bit) for bit, each in enumerate(united) for sign in (1, -1)])
    order = np.lexsort((at, key))
    state = np.cumsum(step[order])[:-1]  # each span adds its bit at its begin and removes it at its end
    length = np.where(np.diff(key[order]) == 0, np.diff(at[order]), 0)
    counted = np.bincount(state, length, 1 << len(united)).astype(np.int64).tolist()
    return {
        frozenset(name for bit, name in enumerate(words) if number >> bit & 1): count
        for number, count in enumerate(counted)
        if number
    }


def contained(key: Ints, from_ns: Ints, to_ns: Ints, asked: Ints, at_ns: Ints) -> Bools:
    """Return whether a span of the key contains the instant (for the arguments see ``latest_end``)."""
    return numbers(latest_end(key, from_ns, to_ns, asked, at_ns), -FOREVER) > at_ns
