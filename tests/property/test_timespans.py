"""Time spans as arrays against loops over the spans."""

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from metrics.tables.timespans import (
    FOREVER,
    SECOND_NS,
    common_keys,
    compare_lasting,
    contained,
    count_lasting,
    first_since,
    latest_end,
    next_instants,
    on_grid,
    unite,
)

GRID = (3 * SECOND_NS // 2, -2, 6)
keys = st.integers(0, 3)
instants = st.integers(-4, 20).map(lambda halves: halves * SECOND_NS // 2)
ends = instants | st.just(FOREVER)
spans = st.lists(st.tuples(keys, instants, ends), max_size=12)
questions = st.lists(st.tuples(keys, instants), max_size=12)


def arrays(rows: list[tuple[int, ...]], width: int) -> list[np.ndarray]:
    return [np.array([row[column] for row in rows], np.int64) for column in range(width)]


def on(at_k: int) -> int:
    return GRID[0] + at_k * SECOND_NS


def instants_of(rows: list[tuple[int, int, int]]) -> dict[int, Counter[int]]:
    """How many spans of each key last at each k."""
    ks = range(GRID[1], GRID[2] + 1)
    return {
        key: Counter(k for own, since, until in rows if own == key for k in ks if since <= on(k) < until)
        for key in range(4)
    }


@given(questions)
def test_the_next_instant_is_that_of_the_next_row_of_the_key(rows: list[tuple[int, int]]) -> None:
    found = next_instants(*arrays(rows, 2), FOREVER).tolist()
    for number, (key, at) in enumerate(rows):
        later = [(other_at, other) for other, (own, other_at) in enumerate(rows) if own == key]
        following = [other_at for other_at, other in sorted(later) if (other_at, other) > (at, number)]
        assert found[number] == (following[0] if following else FOREVER)


@given(spans, questions)
def test_latest_ends_and_containment(rows: list[tuple[int, int, int]], asked: list[tuple[int, int]]) -> None:
    found = latest_end(*arrays(rows, 3), *arrays(asked, 2)).to_pylist()
    inside = contained(*arrays(rows, 3), *arrays(asked, 2)).tolist()
    for (key, at), latest, holds in zip(asked, found, inside, strict=True):
        begun = [until for own, since, until in rows if own == key and since <= at]
        assert latest == max(begun, default=None)
        assert holds == any(own == key and since <= at < until for own, since, until in rows)


@given(questions, questions)
def test_first_instants(rows: list[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
    found = first_since(*arrays(rows, 2), *arrays(asked, 2)).to_pylist()
    for (key, since), first in zip(asked, found, strict=True):
        assert first == min((at for own, at in rows if own == key and at >= since), default=None)


@given(spans)
def test_spans_on_the_grid_united_and_counted(rows: list[tuple[int, int, int]]) -> None:
    expected = instants_of(rows)
    placed = on_grid(*arrays(rows, 3), GRID)
    counts = count_lasting(*placed, 4, GRID)
    assert counts.shape == (4, GRID[2] - GRID[1] + 1)
    united = unite(placed)
    single = count_lasting(*united, 4, GRID)
    for key, ks in expected.items():
        for k in range(GRID[1], GRID[2] + 1):
            assert counts[key, k - GRID[1]] == ks[k]
            assert single[key, k - GRID[1]] == min(ks[k], 1)
    assert all(
        not (own == other and begin <= until and since <= end)
        for number, (own, begin, end) in enumerate(zip(*united, strict=True))
        for other, since, until in list(zip(*united, strict=True))[:number]
    ), "spans of a key neither overlap nor touch"


@given(spans, spans, spans)
def test_words_are_compared_at_every_key_and_instant(
    one: list[tuple[int, int, int]], two: list[tuple[int, int, int]], three: list[tuple[int, int, int]]
) -> None:
    words = {"one": one, "two": two, "three": three}
    said = {name: instants_of(rows) for name, rows in words.items()}
    expected = Counter(
        frozenset(name for name in words if said[name][key][k]) for key in range(4) for k in range(GRID[1], GRID[2] + 1)
    )
    del expected[frozenset()]
    found = compare_lasting({name: on_grid(*arrays(rows, 3), GRID) for name, rows in words.items()})
    assert {words: count for words, count in found.items() if count} == expected


rows_of_strings = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-1, 1) | st.none()), max_size=8)


@given(rows_of_strings, rows_of_strings)
def test_rows_of_two_tables_have_equal_keys_where_they_are_equal(one: list[tuple], two: list[tuple]) -> None:
    tables = [
        [pa.array([row[0] for row in rows], pa.string()), pa.array([row[1] for row in rows], pa.int32())]
        for rows in (one, two)
    ]
    rows = [(name, -1 if number is None else number) for name, number in one + two]
    key = np.concatenate(common_keys(*tables)).tolist()
    assert all((key[a] == key[b]) == (rows[a] == rows[b]) for a in range(len(rows)) for b in range(a))
