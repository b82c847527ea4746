"""The tails of the binomial distribution, by which lost packets are judged."""

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.intervals import binomial_tails


@given(st.integers(1, 60), st.integers(0, 60), st.floats(0.001, 0.999))
def test_tails_are_sums_of_all_terms(trials: int, successes: int, p: float) -> None:
    successes = min(successes, trials)
    terms = [comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(trials + 1)]
    low, high = binomial_tails(successes, trials, p)
    assert low == pytest.approx(sum(terms[: successes + 1]), abs=1e-12)
    assert high == pytest.approx(sum(terms[successes:]), abs=1e-12)


def test_tails_of_certain_outcomes_and_of_many_trials() -> None:
    assert binomial_tails(0, 9, 0.0) == (1.0, 1.0)
    assert binomial_tails(1, 9, 0.0) == (1.0, 0.0)
    assert binomial_tails(8, 9, 1.0) == (0.0, 1.0)
    low, high = binomial_tails(10_000, 1_000_000, 0.01)
    assert low == pytest.approx(0.5, abs=0.01)
    assert high == pytest.approx(0.5, abs=0.01)
    assert binomial_tails(9_000, 1_000_000, 0.01)[0] < 1e-20
