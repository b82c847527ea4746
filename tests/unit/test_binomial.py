"""The tails of the binomial distribution, by which lost packets are judged."""

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.intervals import binomial_tails, proportion_interval


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


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 40, 0.0, 0.0881), (1, 40, 0.0006, 0.1316), (20, 20, 0.8316, 1.0), (5, 10, 0.1871, 0.8129)],
)
def test_interval_of_a_proportion(successes: int, trials: int, low: float, high: float) -> None:
    """Values of Clopper's and Pearson's interval as tables have them."""
    assert proportion_interval(successes, trials) == pytest.approx((low, high), abs=5e-5)


def test_no_trials_have_no_proportion() -> None:
    with pytest.raises(ValueError, match="0 of 0"):
        proportion_interval(0, 0)
