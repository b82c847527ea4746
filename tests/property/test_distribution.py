"""What is kept of many values, against NumPy over all of them."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.measures.distribution import SHARES, STEPS, Distribution, of_counts, pool
from metrics.measures.measure import count_values, largest, mean, quantile, total
from metrics.tables.runs import SortedRuns, find_label, write_labelled_run, write_run
from tests.examples import examples

floats = st.floats(-1e12, 1e12) | st.sampled_from([-0.0, 0.0, 5e-324, -5e-324])
integers = st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-2, 2)
parts = st.lists(st.lists(floats, max_size=8), max_size=4)


def distribute(values: list[np.ndarray], unit: float = 1.0) -> tuple[SortedRuns, Distribution]:
    with tempfile.TemporaryDirectory() as folder:
        runs = SortedRuns([write_run(Path(folder) / f"{number}.npy", each) for number, each in enumerate(values)])
        return runs, runs.distribution(unit)


@settings(deadline=None)
@given(parts | st.lists(st.lists(integers, max_size=8), max_size=4))
def test_few_values_are_all_kept(parts: list[list[float]]) -> None:
    kind = np.int64 if all(isinstance(value, int) for part in parts for value in part) else np.float64
    arrays = [np.array(part, kind) for part in parts]
    runs, found = distribute(arrays)
    everything = np.sort(np.concatenate([np.empty(0, kind), *arrays]))
    assert list(found.values) == [float(each) for each in everything]
    assert (runs.count, found.count, len(found)) == (len(everything),) * 3
    values, upto = found.steps
    assert (values.tolist(), upto.tolist()) == (list(found.values), list(range(1, 1 + len(everything))))


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 5000), st.integers(1, 5), st.integers(0, 2**32), st.sampled_from([1.0, 1e6]))
def test_statistics_are_those_of_the_array(count: int, parts: int, seed: int, unit: float) -> None:
    random = np.random.default_rng(seed)
    values = random.integers(-(10**6), 10**9, count)
    _, found = distribute(np.array_split(values, parts), unit)
    scaled = values / unit
    for share in SHARES:
        assert quantile(found, share) == quantile(scaled, share)
    assert largest(found) == largest(scaled)
    assert mean(found) == pytest.approx(mean(scaled), rel=1e-12)
    kept, upto = found.steps
    assert np.array_equal(np.sort(scaled)[upto - 1], kept)
    assert min(count, STEPS) <= len(kept) <= STEPS + 2 * len(SHARES)
    assert upto[0] == 1 and upto[-1] == count and np.diff(upto).max(initial=1) <= max(1, 1 + count // (STEPS - 1))


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.integers(-3, 3), max_size=3000) | st.lists(st.integers(0, 10**6), max_size=900))
def test_counts_of_integers_are_as_good_as_the_integers(values: list[int]) -> None:
    distinct, counts = np.unique(values, return_counts=True)
    found = of_counts([int(value) for value in distinct], counts.tolist())
    _, expected = distribute([np.array(values, np.int64)])
    assert found == expected
    assert total(found) == total(np.array(values, np.int64)) == sum(values)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.lists(st.integers(-20, 20), max_size=2000), max_size=4))
def test_several_distributions_together_have_the_curve_of_all_values(parts: list[list[int]]) -> None:
    arrays = [np.array(part, np.float64) for part in parts]
    values, upto = pool([distribute([each])[1] for each in arrays])
    everything = np.sort(np.concatenate([np.empty(0), *arrays]))
    assert upto[-1:].tolist() == [len(everything)][: len(everything)] and (np.diff(values) >= 0).all()
    short = np.searchsorted(everything, values, "right")[np.flatnonzero(np.diff(values, append=np.inf))]
    short -= upto[np.flatnonzero(np.diff(values, append=np.inf))]
    kept = [len(each) // (STEPS - 1) for each in arrays]
    assert ((short >= 0) & (short <= sum(kept))).all()


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.lists(st.tuples(floats, st.integers(-4, 4)), max_size=6), max_size=4), st.sampled_from([0.5, 0.9]))
def test_the_label_is_the_least_one_of_the_quantile(parts: list[list[tuple[float, int]]], share: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        runs = [
            write_labelled_run(
                Path(folder) / f"{number}.npy",
                np.array([value for value, _ in part], np.float64),
                np.array([label for _, label in part], np.int64),
            )
            for number, part in enumerate(parts)
        ]
        found = find_label(runs, share)
    every = [each for part in parts for each in part]
    if not every:
        assert found is None
        return
    wanted = np.quantile([value for value, _ in every], share, method="inverted_cdf")
    assert found == min(label for value, label in every if value == wanted)


def test_of_nothing_there_is_no_statistic() -> None:
    _, found = distribute([])
    assert [mean(found), largest(found), quantile(found, 0.5)] == [None] * 3


def test_what_is_not_kept_is_refused() -> None:
    _, found = distribute([np.arange(100_000)])
    with pytest.raises(ValueError, match=r"the quantile 0.123456 of 100000 values is not kept"):
        found.quantile(0.123456)
    with pytest.raises(TypeError, match="not every value is known"):
        count_values(found)
