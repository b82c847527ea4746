"""Simulate how often a condition is not met, undecided and met: the table of docs/results.md."""

from collections import Counter

import numpy as np

from metrics.comparison.conditions import Condition, State, decide, excess_of
from metrics.comparison.samples import Sample

CONDITION = Condition("propagation_delay_ms_p99", True, 5, True)
CHANGES = (0.0, 0.05, 0.3)
"""True differences, as shares of the baseline's value: none, at the bound of the condition, and far beyond it."""

RUNS = (3, 5, 10)
SPREADS = (0.02, 0.1)
"""The standard deviation of a run's value around its seed's value, as a share of the latter."""

BETWEEN_SEEDS = 0.2
"""The standard deviation of the seeds' values, as a share of their mean; both groups share the seeds."""

TRIALS = 1000
STATES: tuple[State, ...] = ("not met", "undecided", "met")

HEAD = ("a run's own variation", "runs per group", *(f"true {change:+.0%}" for change in CHANGES))


def tabulate_rates() -> list[list[str]]:
    """Return the rows below ``HEAD``: in each cell, how often the condition is not met, undecided and met."""
    return [
        [f"{spread:.0%}".replace("%", " %"), str(runs), *(_show(rates(change, runs, spread)) for change in CHANGES)]
        for spread in SPREADS
        for runs in RUNS
    ]


def rates(change: float, runs: int, spread: float, trials: int = TRIALS) -> dict[State, float]:
    """Judge ``CONDITION`` on random groups with the same seeds, and return the share of each outcome.

    Args:
        change: the true difference, as a share of the baseline's value.
        runs: the number of runs in each group.
        spread: one of ``SPREADS``.
        trials: how many pairs of groups are drawn.
    """
    random = np.random.default_rng([round(1000 * change), runs, round(1000 * spread)])
    seeds = tuple(range(runs))
    found: Counter[State] = Counter()
    for _ in range(trials):
        shared = 100 * random.normal(1, BETWEEN_SEEDS, runs)
        base = shared * random.normal(1, spread, runs)
        new = shared * (1 + change) * random.normal(1, spread, runs)
        one, baseline = (Sample(seeds, tuple(values.tolist()), False) for values in (new, base))
        excess = excess_of(CONDITION, one, baseline, paired=True)
        assert excess.p_above is not None, "there are at least two runs"
        found[decide(excess, excess.p_above)] += 1
    return {state: found[state] / trials for state in STATES}


def _show(shares: dict[State, float]) -> str:
    return " / ".join(f"{100 * shares[state]:.0f}" for state in STATES)
