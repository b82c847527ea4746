"""``trellis compare``: groups, differences, conditions and outputs, of fabricated runs that need no analysis."""

import csv
import json
import re
import shutil
from math import comb
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins
from msgspec.structs import replace

from harness import cli
from harness.experiment.loader import decode_experiment
from metrics.comparison.conditions import Condition, ConditionError, Outcome, judge, parse_condition
from metrics.comparison.differences import ERROR_RATE, Comparison, compare
from metrics.comparison.error_rates import RUNS, SPREADS, rates
from metrics.comparison.groups import Group, group_runs, own_settings
from metrics.comparison.power import POWER, more_needed
from metrics.comparison.resampling import RESAMPLED, draw_measures, sample_run
from metrics.comparison.rows import DeliveryRows
from metrics.intervals import (
    Difference,
    difference,
    difference_of_pairs,
    estimate,
    holm,
    interval,
    mean_of_pairs,
    subtract,
    subtract_several,
    t_quantile,
    t_within,
)
from metrics.measures.deliveries import DELIVERIES
from metrics.measures.registry import HEADLINE
from metrics.report.comparison import degree_figure, delay_figure, describe_cell
from metrics.rundir import RunDir
from tests.fabricate import Fabrication

PAIRS = 20

EXPERIMENT: dict[str, Any] = to_builtins(decode_experiment({"name": "x", "underlay": {"hosts": 30}}))


def most_false_alarms(pairs: int, rate: float = 0.05, tail: float = 0.005) -> int:
    """The smallest count that fair tests exceed with a probability below ``tail``."""
    return next(
        most
        for most in range(pairs)
        if sum(comb(pairs, k) * rate**k * (1 - rate) ** (pairs - k) for k in range(most + 1, pairs + 1)) < tail
    )


def make_rows(random: np.random.Generator, messages: int = 150, factor: float = 1.0) -> DeliveryRows:
    """Deliveries whose delay is the sum of a message's, which all its deliveries share, and one of their own."""
    subscribers = random.integers(4, 12, messages)
    ids = np.repeat(np.arange(messages), subscribers)
    own = random.normal(100, 8, messages)[ids] + random.normal(0, 8, len(ids))
    missing = random.random(len(ids)) < 0.03
    deliveries = pa.table(
        {
            "message_id": ids,
            "node": random.integers(0, 30, len(ids)),
            "delivered_ns": pa.array(np.zeros(len(ids), np.int64), mask=missing),
            "known": np.ones(len(ids), np.bool_),
            "latency_ms": pa.array(own * factor, mask=missing),
            "hops": pa.array(random.integers(1, 5, len(ids)), mask=missing),
        }
    )
    copies = np.repeat(ids, 2)
    at_relay = random.random(len(copies)) < 0.2
    received = pa.table(
        {
            "message_id": copies,
            "dst_node": random.integers(0, 30, len(copies)),
            "is_dup": np.arange(len(copies)) % 2 == 1,
            "is_relay": at_relay & (np.arange(len(copies)) % 2 == 0),
            "at_relay": at_relay,
        }
    )
    return DeliveryRows(messages, deliveries, received)


class FewRows:
    """A run in memory: its rows, and the headline numbers of them."""

    def __init__(self, rows: DeliveryRows, seed: int = 1) -> None:
        self.rows = rows
        numbers = {name: value for name, value in DELIVERIES.numbers(rows.facts).items() if name in HEADLINE}
        self.summary = SimpleNamespace(headline=numbers, verdict="valid")
        self.plan = SimpleNamespace(seed=seed)
        self.experiment = EXPERIMENT


@pytest.fixture
def in_memory(monkeypatch) -> None:
    """Runs are ``FewRows``, and each is drawn 80 times instead of 400."""
    monkeypatch.setattr("metrics.comparison.resampling.read_adversaries", lambda run: frozenset())
    monkeypatch.setattr("metrics.comparison.resampling.read_delivery_rows", lambda run, adversaries: run.rows)
    monkeypatch.setattr("metrics.comparison.differences.sample_run", lambda run: sample_run(run, draws=80))


def compared(*groups: list[DeliveryRows]) -> Comparison:
    made: Any = [[FewRows(rows, seed) for seed, rows in enumerate(group)] for group in groups]
    return compare([Group(f"group {place}", tuple(runs), {}) for place, runs in enumerate(made)])


def real_measures(comparison: Comparison) -> list[str]:
    ((_, names),) = comparison.real
    return names


def headline_runs(random: np.random.Generator, runs: int, shift: float = 0.0, first_seed: int = 1) -> Any:
    """Runs that have headline numbers alone: of many kinds, some of them small integers."""
    named = {name: random.normal(100, 5, runs) for name in HEADLINE[:12]}
    named |= {name: random.lognormal(0, 1, runs) for name in HEADLINE[12:18]}
    named |= {name: random.integers(2, 4, runs).astype(float) for name in HEADLINE[18:24]}
    named[HEADLINE[0]] += shift
    rows = [dict(zip(named, values, strict=True)) for values in zip(*named.values(), strict=True)]
    return tuple(
        SimpleNamespace(
            summary=SimpleNamespace(headline=row, verdict="valid"),
            plan=SimpleNamespace(seed=first_seed + place),
            experiment=EXPERIMENT,
        )
        for place, row in enumerate(rows)
    )


# ---------------------------------------------------------------------------------------------------- the statistics


@pytest.mark.parametrize(
    ("t", "degrees", "within"),
    # closed forms for 1 and 2 degrees of freedom
    [(1.0, 1, 0.5), (2.0, 2, 2 / 6**0.5), (0.0, 3.7, 0.0), (float("inf"), 2.5, 1.0)],
)
def test_the_distribution_at_known_values(t, degrees, within):
    assert t_within(t, degrees) == pytest.approx(within, abs=1e-10)


@given(st.floats(1, 300), st.floats(0.1, 20))
def test_between_whole_degrees_the_distribution_rises(degrees, t):
    assert t_within(t, np.floor(degrees)) - 1e-9 <= t_within(t, degrees) <= t_within(t, np.ceil(degrees)) + 1e-9


def test_welch_at_a_known_example():
    """Wikipedia's worked example of the t test with unequal variances: t = 1.959, 7.031 degrees, p = 0.09077."""
    one, base = (30.02, 29.99, 30.11, 29.97, 30.01, 29.99), (29.89, 29.93, 29.72, 29.98, 30.02, 29.98)
    found = difference(estimate(one), estimate(base))
    assert found.value == pytest.approx(0.095)
    assert found.p == pytest.approx(0.09077, abs=1e-5)
    assert found.half_width == pytest.approx(t_quantile(0.95, 7.031) * 0.095 / 1.959, rel=1e-3)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_never_lowers_and_keeps_the_order(p_values):
    adjusted = holm(p_values)
    assert all(p <= each <= 1 for p, each in zip(p_values, adjusted, strict=True))
    assert min(adjusted) == min(1, len(p_values) * min(p_values))
    ranked = [adjusted[place] for place in np.argsort(p_values, kind="stable")]
    assert ranked == sorted(ranked)


def test_holm_at_a_known_example():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_intervals_of_differences_cover_as_often_as_they_say():
    random = np.random.default_rng(5)
    covered, trials = {"welch": 0, "one": 0}, 1500
    for _ in range(trials):
        found = difference(estimate(random.normal(3, 2, 4).tolist()), estimate(random.normal(1, 2, 5).tolist()))
        covered["welch"] += abs(found.value - 2) <= found.half_width
        alone = subtract_several(random.normal(3, 2), estimate(random.normal(1, 2, 4).tolist())).judged
        covered["one"] += abs(alone.value - 2) <= alone.half_width
    # 4 standard deviations of the binomial with 0.95 are 0.0225
    assert all(abs(count / trials - 0.95) < 0.0225 for count in covered.values()), covered


def test_values_without_variation():
    ones, twos = estimate([1.0, 1.0]), estimate([2.0, 2.0])
    assert difference(ones, ones) == (0.0, 0.0, 1.0)
    assert difference(twos, ones) == (1.0, 0.0, pytest.approx(1 / 3))
    assert difference(estimate([2.0] * 5), estimate([1.0] * 5)).p == pytest.approx(2 / 252)
    assert difference(twos, estimate([1.0] * 5)).p == pytest.approx(1 / 21)
    assert subtract_several(2.0, estimate([1.0] * 4)).judged == (1.0, 0.0, 1 / 5)
    assert subtract_several(1.0, ones).judged == (0.0, 0.0, 1.0)
    assert difference_of_pairs([1.0] * 3) == (1.0, 0.0, 1 / 4)
    assert difference_of_pairs([0.0] * 3) == (0.0, 0.0, 1.0)
    assert difference(estimate([1.0]), estimate([2.0])) == (-1.0, None, None)
    assert interval([1.0, 3.0]).half_width == pytest.approx(t_quantile(0.95, 1))


def test_messages_are_drawn_whole():
    """The mean's error is that of the messages, five times that of independent deliveries."""
    random = np.random.default_rng(3)
    ids = np.repeat(np.arange(200), 25)
    delays = random.normal(100, 10, 200)[ids]
    deliveries = pa.table({"message_id": ids, "delivered_ns": ids, "latency_ms": delays, "hops": ids % 3})
    deliveries = deliveries.append_column("known", pa.array(np.ones(len(ids), np.bool_)))
    flags = {name: pa.array(np.zeros(len(ids), bool)) for name in ("is_dup", "is_relay", "at_relay")}
    rows = DeliveryRows(200, deliveries, pa.table({"message_id": ids, "dst_node": ids % 7} | flags))
    drawn = draw_measures(rows, 400)
    errors = {name: each.error for name, each in drawn.items()}
    assert {len(each.messages) for each in drawn.values()} == {200}
    assert errors["propagation_delay_ms_mean"] == pytest.approx(delays[::25].std(ddof=1) / 200**0.5, rel=0.15)
    assert errors["delivery_ratio"] == 0
    two = DeliveryRows(2, deliveries[:50], rows.received[:50])
    expected = abs(delays[0] - delays[25]) / 2
    assert draw_measures(two, 1000)["propagation_delay_ms_mean"].error == pytest.approx(expected, rel=0.1)
    assert draw_measures(rows, 400) == drawn


def test_one_message_has_no_error():
    rows = make_rows(np.random.default_rng(1), messages=1)
    assert draw_measures(rows, 10) == {}


@pytest.mark.usefixtures("in_memory")
def test_twenty_pairs_of_equal_runs_differ_by_no_more_than_noise() -> None:
    pairs = [np.random.default_rng(seed) for seed in range(PAIRS)]
    found = [compared([make_rows(random)], [make_rows(random)]) for random in pairs]
    assert all(cell.is_real is not None for row in found[0].rows for cell in row.cells[1:] if row.name in RESAMPLED)
    assert sum(bool(real_measures(each)) for each in found) <= most_false_alarms(PAIRS)


@pytest.mark.usefixtures("in_memory")
def test_three_percent_between_two_single_runs_are_found() -> None:
    random = np.random.default_rng(99)
    comparison = compared([make_rows(random, 600)], [make_rows(random, 600, factor=1.03)])
    (row,) = [row for row in comparison.rows if row.name == "propagation_delay_ms_mean"]
    assert row.cells[1].is_real
    assert (row.cells[0].estimate.n, row.cells[0].estimate.degrees, row.cells[0].over) == (600, 599, "messages")
    assert row.cells[1].difference.value == pytest.approx(0.03 * row.cells[0].estimate.value, abs=1)
    assert set(real_measures(comparison)) <= {name for name in HEADLINE if name.startswith("propagation_delay_ms")}


@pytest.mark.parametrize("other_seed", [1, 100], ids=["paired", "unpaired"])
@pytest.mark.parametrize("runs", [2, 3, 6])
def test_groups_of_equal_runs_differ_as_seldom_as_is_said(runs: int, other_seed: int) -> None:
    """In at most 5 % of the comparisons, however many measures there are, and of whatever kind."""
    random, pairs = np.random.default_rng(runs), 100

    def make(count: int, shift: float = 0.0) -> list[Group]:
        first, second = headline_runs(random, count), headline_runs(random, count, shift, other_seed)
        return [Group("a", first, {}), Group("b", second, {})]

    alarms = sum(bool(real_measures(compare(make(runs)))) for _ in range(pairs))
    assert alarms <= most_false_alarms(pairs, ERROR_RATE)
    assert real_measures(compare(make(10, shift=25.0))) == [HEADLINE[0]]


def test_the_error_rate_is_five_percent_and_said() -> None:
    assert ERROR_RATE == 0.05
    random = np.random.default_rng(1)
    groups = {runs: Group(f"{runs} runs", headline_runs(random, runs), {}) for runs in (2, 6)}
    several = compare([groups[2], groups[6]])
    judged = len(several.rows)
    assert f"at least one of the {judged} judged differences is called real in at most 5 %" in several.notes[0]
    assert "only one of them has the seeds 3, 4, 5, 6" in several.notes[1]
    assert "fewer than 5 runs" in several.notes[2]
    assert compare([groups[6], replace(groups[6], label="b")]).notes[1:] == [
        "Compared with the baseline in pairs of runs of one seed: b."
    ]
    assert compare([groups[6]]).notes == []


def values(measure: str, numbers: list[float], first_seed: int = 1) -> Any:
    """Runs that have one headline number, of consecutive seeds."""
    return tuple(
        SimpleNamespace(
            summary=SimpleNamespace(headline={measure: number}, verdict="valid"),
            plan=SimpleNamespace(seed=first_seed + place),
            experiment=EXPERIMENT,
        )
        for place, number in enumerate(numbers)
    )


def outcome(condition: str, base: list[float], new: list[float], first_seed: int = 1) -> Outcome:
    """Judge a condition of two groups; ``first_seed`` of the new group, 1 = the baseline's."""
    measure = parse_condition(condition).measure
    groups = [Group("base", values(measure, base), {}), Group("new", values(measure, new, first_seed), {})]
    (found,) = judge([parse_condition(condition)], compare(groups))
    return found


def test_runs_of_equal_seeds_are_paired() -> None:
    """What differs between the seeds alone is no noise of the difference, and equal runs differ by exactly 0."""
    base, new = [100.0, 200.0, 400.0], [101.0, 201.5, 400.5]
    groups = [Group(name, values("messages_published", each), {}) for name, each in (("a", base), ("b", new))]
    (row,) = compare(groups).rows
    paired = difference_of_pairs([1.0, 1.5, 0.5])
    assert row.cells[1].difference == paired and paired.p < 0.08
    other = Group("b", values("messages_published", new, first_seed=2), {})
    (row,) = compare([groups[0], other]).rows
    assert row.cells[1].difference == difference(estimate(new), estimate(base)), "of other seeds"
    twice = Group("b", (*groups[1].runs, groups[1].runs[0]), {})
    assert not twice.is_paired_with(groups[0]) and groups[1].is_paired_with(groups[0])
    (row,) = compare([groups[0], replace(groups[0], label="b")]).rows
    assert row.cells[1].difference == (0.0, 0.0, 1.0)


def test_pairs_are_of_the_seeds_that_have_a_value() -> None:
    base, new = values("diameter", [1.0, 2.0, 4.0]), list(values("diameter", [1.5, 2.0, 4.0]))
    new[1] = SimpleNamespace(**{**vars(new[1]), "summary": SimpleNamespace(headline={"diameter": None})})
    (row,) = compare([Group("a", base, {}), Group("b", tuple(new), {})]).rows
    assert row.cells[1].difference == difference_of_pairs([0.5, 0.0])


@pytest.mark.usefixtures("in_memory")
def test_lone_runs_of_one_seed_are_paired_by_message() -> None:
    """The same messages 1 % later: their own differences are no noise of the difference."""
    rows, later = (make_rows(np.random.default_rng(1), factor=factor) for factor in (1.0, 1.01))
    (row,) = [row for row in compared([rows], [later]).rows if row.name == "propagation_delay_ms_mean"]
    half_width = row.cells[1].difference.half_width
    assert half_width < 0.1 * row.cells[0].estimate.half_width and row.cells[1].is_real
    itself = compared([rows], [rows])
    assert {row.cells[1].difference for row in itself.rows if row.name in RESAMPLED} == {(0.0, 0.0, 1.0)}


@pytest.mark.parametrize(
    ("new", "state"),
    [
        ([1.0, 1.0, 1.0], "not met"),
        ([1.04, 1.0, 0.98], "undecided"),  # its interval has both sides of the bound
        ([1.02, 1.01, 1.0], "not met"),
        ([1.31, 1.0, 1.62], "undecided"),  # a regression of 31 % that could be noise is not accepted
        ([1.31, 1.30, 1.32], "met"),
    ],
)
def test_a_condition_has_three_outcomes(new: list[float], state: str) -> None:
    base = [100.0, 120.0, 90.0]
    found = outcome("clustering > +5%", base, [value * factor for value, factor in zip(base, new, strict=True)])
    assert found.state == state
    assert ("more pairs of runs decide it" in found.words) == (state == "undecided")
    negative = [-value for value in base], [value * (factor - 2) for value, factor in zip(base, new, strict=True)]
    assert outcome("clustering > +5%", *negative).state == state, "percents are of the baseline's size"
    lower = [value * (2 - factor) for value, factor in zip(base, new, strict=True)]
    assert outcome("clustering < -5%", base, lower).state == state


@pytest.mark.parametrize(
    ("condition", "new", "words"),
    [
        (
            "clustering > +5%",
            [1.02, 1.01, 1.0],
            "the runs show that it is not more than 5 % above the baseline: difference +1.067 (+1.03 %), "
            "within the bound by 4.1 ± 1.6 (90 % interval; one-sided p = 0.009)",
        ),
        (
            "clustering > +5%",
            [1.31, 1.30, 1.32],
            "the runs show that it is more than 5 % above the baseline: difference +31.93 (+30.90 %), "
            "beyond the bound by 26.8 ± 4.9 (90 % interval; one-sided p = 0.002)",
        ),
        (
            "clustering > +0.01",
            [1.31, 1.0, 1.62],
            "the runs do not show whether it is above the baseline by more than 0.01: difference +28.93 (+28.00 %), "
            "beyond the bound by 28.9 ± 47 (90 % interval; one-sided p = 0.11); about 5 more pairs of runs decide it",
        ),
        (
            "clustering < -0",
            [1.0, 1.0, 1.0],
            "the runs show that it is not below the baseline: difference +0 (+0.00 %), within the bound in every run",
        ),
    ],
)
def test_an_outcome_is_said_in_words_with_the_interval_that_decided(
    condition: str, new: list[float], words: str
) -> None:
    base = [100.0, 120.0, 90.0]
    found = outcome(condition, base, [value * factor for value, factor in zip(base, new, strict=True)])
    assert found.words == words


@pytest.mark.parametrize("condition", ["clustering > +5%", "clustering > +2", "clustering < -2"])
@pytest.mark.parametrize("swing", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("change", [-4.0, 0.0, 2.0, 5.0, 9.0])
def test_the_interval_of_one_condition_excludes_the_bound_where_it_decides(
    condition: str, swing: float, change: float
) -> None:
    base = [100.0, 120.0, 90.0, 110.0]
    new = [value + change + swing * sign for value, sign in zip(base, (1, -1, 0.5, -0.5), strict=True)]
    found = outcome(condition, base, new)
    margin = re.search(r"by (\S+) ± (\S+) \(90 %", found.words)
    assert margin is not None
    assert (float(margin[1]) > float(margin[2])) == (found.state != "undecided")


def test_without_variation_a_condition_is_met_with_enough_runs_only() -> None:
    assert outcome("delivery_ratio < -0.01", [1.0] * 3, [1.0] * 3).state == "not met"
    assert outcome("topics_partitioned > +0", [0.0] * 3, [0.0] * 3).state == "not met"
    few = outcome("topics_partitioned > +0", [0.0] * 3, [1.0] * 3)
    assert few.state == "undecided" and "about 1 more runs in each group" in few.words
    assert outcome("topics_partitioned > +0", [0.0] * 4, [1.0] * 4).state == "met"


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("spread", SPREADS)
def test_a_gate_errs_as_seldom_as_it_says(runs: int, spread: float) -> None:
    """At the bound, 5 % are met and 5 % not met; a difference far from the bound never errs more often."""
    at_bound = rates(0.05, runs, spread)
    assert at_bound["not met"] == pytest.approx(ERROR_RATE, abs=0.025)  # 3.6 standard deviations of the binomial
    assert at_bound["met"] == pytest.approx(ERROR_RATE, abs=0.025)
    assert rates(0.0, runs, spread)["met"] <= ERROR_RATE + 0.01
    assert rates(0.3, runs, spread)["not met"] <= ERROR_RATE + 0.01


def test_of_other_seeds_the_groups_are_judged() -> None:
    found = outcome("clustering > +5%", [100.0, 120.0, 90.0], [110.0, 130.0, 95.0], first_seed=7)
    assert found.state == "undecided" and "more runs in each group decide it" in found.words
    assert outcome("clustering > +5%", [100.0, 101.0], [150.0, 151.0], first_seed=7).state == "met"


def test_the_runs_that_are_advised_decide_as_often_as_is_said() -> None:
    """With the advised number of pairs in all, the true difference is found in about 80 %."""
    spread, excess = 4.0, 2.0
    pilot = mean_of_pairs([excess - spread, excess, excess + spread])
    total = 3 + (more_needed(pilot, 0.05) or 0)
    assert total == 27  # (1.645 + 0.842)^2 * (4 / 2)^2 + 1.645^2 / 2 = 26.1
    random = np.random.default_rng(1)
    found = [mean_of_pairs(random.normal(excess, spread, total).tolist()).p_above for _ in range(2000)]
    assert sum(p < 0.05 for p in found) / 2000 == pytest.approx(POWER, abs=0.03)
    groups = subtract(estimate([6.0, 10.0, 2.0]), estimate([4.0, 8.0, 0.0]))
    assert 3 + (more_needed(groups, 0.05) or 0) == 51  # (1.645 + 0.842)^2 * 2 * (4 / 2)^2 + 1.645^2 / 4 = 50.2
    assert more_needed(mean_of_pairs([0.001, -1.0, 1.0]), 0.05) is None
    assert more_needed(mean_of_pairs([0.0, -1.0, 1.0]), 0.05) is None


def test_conditions_are_met_together_and_not_met_each_by_itself() -> None:
    """That a condition is met is judged by the number of conditions; that one is not met, by itself."""
    names = HEADLINE[:20]
    runs = [
        [dict.fromkeys(names, 100.0 + seed) for seed in range(5)],
        [{name: (110.0 if name == names[0] else 100.0) + seed + swing for name in names} for seed, swing in SWINGS],
    ]
    base, new = (
        tuple(SimpleNamespace(**{**vars(run), "summary": SimpleNamespace(headline=row)}) for run, row in each)
        for each in (zip(values("x", [0.0] * 5), rows, strict=True) for rows in runs)
    )
    comparison = compare([Group("base", base, {}), Group("new", new, {})])
    conditions = [parse_condition(f"{name} > +5") for name in names]
    assert judge(conditions[:1], comparison)[0].state == "met"
    together = judge(conditions, comparison)
    assert [each.state for each in together] == ["undecided", *["not met"] * 19]


SWINGS = list(enumerate([-4.0, 4.0, -3.0, 3.0, 0.0]))


def test_a_comparison_says_that_a_group_is_a_complete_graph() -> None:
    groups = [
        Group("base", values("degree_mean", [28.9, 29.0]), {}),
        Group("new", values("degree_mean", [5.0, 5.0]), {}),
    ]
    remarks = [note for note in compare(groups).notes if "every other one" in note]
    assert [remark.split(":")[0] for remark in remarks] == ["base"] and "mean degree 28.9 of 29" in remarks[0]


def test_only_results_of_deliveries_are_resampled():
    assert set(RESAMPLED) & set(HEADLINE) >= {"delivery_ratio", "propagation_delay_ms_p99", "relay_ratio"}
    assert not {"messages", "deliveries_expected", "hops_max", "hops_p50"} & set(RESAMPLED)


# --------------------------------------------------------------------------------------------------------- conditions


@given(st.sampled_from(HEADLINE), st.booleans(), st.decimals(0, 999, places=2), st.booleans())
def test_conditions_are_read_as_they_are_printed(name, above, bound, in_percent):
    condition = Condition(name, above, float(bound), in_percent)
    assert parse_condition(str(condition)) == condition
    assert parse_condition(str(condition).replace(" ", "")) == condition


@given(st.text(max_size=40))
def test_other_texts_are_refused_in_words(text):
    with pytest.raises(ConditionError):
        parse_condition(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "propagation_delay_p99 > +5%",
            "no measure is called 'propagation_delay_p99'; similar: propagation_delay_ms_p99",
        ),
        ("hops_mean > 5%", "the sign says that the bound is of a difference"),
        ("hops_mean > -5%", "'>' needs a bound with '+'"),
        ("hops_mean < +5", "'<' one with '-'"),
        ("hops_mean >= +5", "is not a condition"),
    ],
)
def test_refusals_say_what_to_write(text, words):
    with pytest.raises(ConditionError) as raised:
        parse_condition(text)
    assert words in str(raised.value)


def test_bounds_in_percent_are_of_the_baseline():
    assert Condition("hops_mean", True, 5, True).limit(2.0)(3.0) == pytest.approx(3.15)
    assert Condition("hops_mean", False, 5, True).limit(2.0)(3.0) == pytest.approx(2.85)
    assert Condition("hops_mean", True, 5, True).limit(-2.0)(-3.0) == pytest.approx(-2.85)
    assert Condition("hops_mean", False, 0.01, False).limit(0.0)(3.0) == pytest.approx(2.99)


# ------------------------------------------------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def template_run(tmp_path_factory) -> Path:
    return Fabrication(seed=1, messages=4).write(tmp_path_factory.mktemp("comparison") / "run")


class Runs:
    """Makes analysed runs with given settings and random delays."""

    def __init__(self, template_run: Path, folder: Path) -> None:
        self.template_run, self.folder = template_run, folder

    def make(self, seed: int, factor: float = 1.0, revision: str = "a", verdict: str = "valid", **settings) -> str:
        run_dir = self.folder / f"{len(list(self.folder.iterdir()))}"
        shutil.copytree(self.template_run, run_dir)
        plan, manifest = (json.loads((run_dir / f"{name}.json").read_text()) for name in ("plan", "manifest"))
        plan["seed"] = plan["experiment"]["seed"] = seed
        plan["experiment"] |= settings
        manifest["versions"] = {"trellis revision": revision}
        rows = make_rows(np.random.default_rng([seed, len(run_dir.name), int(factor * 100)]), 120, factor)
        tables = run_dir / "tables"
        tables.mkdir()
        pq.write_table(rows.deliveries, tables / "deliveries.parquet")
        numbers = {name: value for name, value in DELIVERIES.numbers(rows.facts).items() if name in HEADLINE}
        summary = {"verdict": verdict, "reasons": [], "headline": numbers | {"diameter": 3}, "checks": []}
        summary |= {"run_id": "", "name": "fabricated", "seed": seed, "protocol": plan["experiment"]["protocol"]}
        for name, document in {"plan": plan, "manifest": manifest, "summary": summary}.items():
            (run_dir / f"{name}.json").write_text(json.dumps(document))
        return str(run_dir)


@pytest.fixture
def runs(template_run: Path, tmp_path: Path, monkeypatch) -> Runs:
    folder = tmp_path / "runs"
    folder.mkdir()
    # the tables are cut to what is resampled, and lack most columns of a real analysis
    monkeypatch.setattr("metrics.report.run.require_tables", lambda run: None)

    def read(run: RunDir, adversaries: frozenset[int]) -> DeliveryRows:
        plain = pq.read_table(run.tables / "deliveries.parquet")
        return DeliveryRows(120, plain, make_rows(np.random.default_rng(7), 120).received)

    monkeypatch.setattr("metrics.comparison.resampling.read_delivery_rows", read)
    return Runs(template_run, folder)


def test_groups_are_by_what_differs_but_the_seed(runs):
    paths = [
        runs.make(1),
        runs.make(1, protocol="stan"),
        runs.make(2, description="another", name="other"),
        runs.make(2, protocol="stan"),
        runs.make(2, protocol="stan", time_dilation=2.0),
    ]
    groups = group_runs([RunDir(Path(path)) for path in paths])
    labels = ["random", "stan, time_dilation=1.0", "stan, time_dilation=2.0"]
    assert [group.label for group in groups] == labels
    assert [[str(run.path) for run in group.runs] for group in groups] == [paths[0::2][:2], paths[1:4:2], paths[4:]]
    assert groups[0].settings == {"protocol": "random", "time_dilation": 1.0}


def test_equal_experiments_are_grouped_by_the_revision(runs):
    groups = group_runs([RunDir(Path(runs.make(seed, revision=name))) for seed in (1, 2) for name in "ab"])
    assert [(group.label, len(group.runs)) for group in groups] == [("revision=a", 2), ("revision=b", 2)]


def test_settings_of_one_protocol_alone_are_apart(runs, tmp_path, capsys):
    paths = [
        runs.make(1, random={"degree": 4}, stan={}),
        runs.make(1, protocol="stan", random={}, stan={"view": 5, "period_s": 1.0}),
        runs.make(1, protocol="stan", random={}, stan={"view": 6, "period_s": 1.0}, time_dilation=2.0),
    ]
    groups = group_runs([RunDir(Path(path)) for path in paths])
    assert own_settings(groups) == {"random.degree": "random", "stan.period_s": "stan"}
    assert cli.main(["compare", *paths, "--html", str(tmp_path / "c.html")]) == 0
    shown = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line}
    assert {"protocol", "stan.view", "time_dilation", "own"} <= shown
    assert not {"random.degree", "stan.period_s"} & shown
    assert "<th>stan.period_s</th>" in (tmp_path / "c.html").read_text().split("<details>")[1].split("</details>")[0]
    same = group_runs([RunDir(Path(path)) for path in paths[1:]])
    assert own_settings(same) == {}, "all groups are of one protocol, so that every setting tells them apart"


def test_a_seed_that_ran_twice_elsewhere_is_a_sample(runs, capsys):
    assert cli.main(["compare", runs.make(1), runs.make(1)]) == 0
    assert "copies" not in capsys.readouterr().out


def test_groups_of_equal_labels_are_numbered(runs):
    long = "x" * 50
    paths = [runs.make(1, scenario=f"{long}{number}") for number in range(2)]
    labels = [group.label for group in group_runs([RunDir(Path(path)) for path in paths])]
    assert labels[1] == f"{labels[0]} #2"


def test_cells_say_value_difference_and_noise():
    random = np.random.default_rng(6)
    groups = [Group(name, headline_runs(random, 8, shift), {}) for name, shift in (("a", 0.0), ("b", 60.0))]
    first, second, *_ = compare(groups).rows
    base = first.cells[0].estimate
    value, change, noise = describe_cell(first.cells[1], base.value)
    assert value == f"{first.cells[1].estimate.value:.4g} ± {first.cells[1].estimate.half_width:.3g} (n=8)"
    assert change.startswith(f"+{first.cells[1].difference.value:.4g} ± ") and change.endswith("%)")
    assert noise == "more than noise (two-sided p < 0.001, adjusted < 0.001)"
    assert describe_cell(second.cells[1], 1.0)[2].startswith("could be noise (two-sided p = 0.")
    assert describe_cell(first.cells[0], base.value)[1:] == ("", "")
    lower = replace(first.cells[1], difference=Difference(-3.0, 1.0, 0.5))
    assert "(-33.3%)" in describe_cell(lower, -9.0)[1]


def test_curves_are_of_all_runs_of_a_group(monkeypatch):
    latencies, degrees = {"one": [10, np.nan], "two": [30]}, {"one": [2], "two": [4, 6]}

    def read(path: str) -> SimpleNamespace:
        latency, degree = (pd.DataFrame({"latency_ms": latencies[path]}), pd.DataFrame({"degree": degrees[path]}))
        return SimpleNamespace(honest=lambda name: latency, last=lambda name: degree)

    monkeypatch.setattr("metrics.report.comparison.Run", read)
    groups: Any = [SimpleNamespace(label="g", runs=[SimpleNamespace(path=path) for path in ("one", "two")])]
    (delay,), (degree,) = (draw(groups).canvas.axes[0].get_lines() for draw in (delay_figure, degree_figure))
    assert delay.get_xdata().tolist() == [10, 30]
    assert delay.get_ydata().tolist() == pytest.approx([1 / 3, 2 / 3]), "of expected deliveries"
    assert degree.get_xdata().tolist() == [2, 4, 6]


def test_a_seed_that_was_simulated_twice_is_named(runs, capsys):
    assert cli.main(["compare", runs.make(1, testbed="simulated"), runs.make(1, testbed="simulated")]) == 0
    assert "These runs are copies and not samples" in " ".join(capsys.readouterr().out.split())


def test_three_percent_are_found_and_written_down(runs, tmp_path, capsys):
    base = [runs.make(seed) for seed in range(1, 7)]
    slow = [runs.make(seed, factor=1.03, protocol="stan") for seed in range(1, 7)]
    outputs = {kind: tmp_path / f"c.{kind}" for kind in ("html", "csv", "json")}
    asked = [word for kind, path in outputs.items() for word in (f"--{kind}", str(path))]
    failing = ["--fail-if", "propagation_delay_ms_mean > +2%"]
    assert cli.main(["compare", *base, *slow, *asked, *failing]) == 4
    met = "met: propagation_delay_ms_mean > +2%: stan: the runs show that it is more than 2 % above the baseline"
    assert met in capsys.readouterr().out.splitlines()[-1].partition(": difference +")[0]
    rows = {(row["measure"], row["group"]): row for row in csv.DictReader(outputs["csv"].open())}
    row = rows["propagation_delay_ms_mean", "stan"]
    assert row["is_real"] == "True"
    assert float(row["difference_ratio"]) == pytest.approx(0.03, abs=0.02)
    assert (row["n"], row["interval_over"], row["runs"]) == ("6", "runs", "6")
    assert float(row["p"]) <= float(row["p_adjusted"])
    assert rows["propagation_delay_ms_mean", "random"]["difference"] == ""
    document = json.loads(outputs["json"].read_text())
    assert document["baseline"] == "random"
    assert [each["state"] for each in document["conditions"]] == ["met"]
    assert {each["measure"] for each in document["measures"]} == {name for name, _ in rows}
    page = outputs["html"].read_text()
    assert "prefers-color-scheme: dark" in page
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("<svg ") == page.count('role="img"') == 2
    assert cli.main(["compare", *base, *slow, "--fail-if", "propagation_delay_ms_mean > +20%"]) == 0
    faster = ["--baseline", "stan", "--fail-if", "propagation_delay_ms_mean < -2%"]
    assert cli.main(["compare", *base, *slow, *faster]) == 4, "with the other group as the baseline"
    assert cli.main(["compare", *base, *slow, "--baseline", slow[2], *faster[2:]]) == 4


def test_single_runs_are_judged_by_their_messages(runs, capsys):
    pair = [runs.make(1), runs.make(2, factor=1.1, protocol="stan")]
    assert cli.main(["compare", *pair, "--fail-if", "propagation_delay_ms_mean > +1%"]) == 4
    assert "covers only the variation between the messages" in " ".join(capsys.readouterr().out.split())


def test_what_cannot_be_judged_has_its_own_status(runs, capsys):
    pair = [runs.make(1), runs.make(2, protocol="stan")]
    summary = Path(pair[1]) / "summary.json"
    summary.write_text(summary.read_text().replace('"diameter": 3', '"diameter": 4'))
    assert cli.main(["compare", *pair, "--fail-if", "diameter > +5%"]) == 3
    said = capsys.readouterr().out
    assert "undecided: diameter > +5%: stan: the runs do not show whether it is more than 5 % above" in said
    assert ": difference +1 (+33.33 %), whose noise is unknown" in said
    assert cli.main(["compare", *pair, "--fail-if", "clustering > +5%"]) == 3
    assert "no value" in capsys.readouterr().out
    pair[1] = runs.make(2, protocol="stan", verdict="invalid")
    assert cli.main(["compare", *pair, "--fail-if", "diameter > +5%"]) == 3
    assert cli.main(["compare", *pair]) == 0
    assert f"invalid run: {pair[1]}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--fail-if", "diametre > +5%"], "--fail-if: no measure is called 'diametre'; similar: diameter"),
        (["--measure", "diametre"], "--measure: no measure is called 'diametre'"),
        (["--baseline", "x"], "--baseline: no group has the label or the run 'x'; the groups: 'random'"),
        (["--fail-if", "diameter > +5%"], "all runs are of one group"),
    ],
)
def test_usage_errors(runs, capsys, options, words):
    assert cli.main(["compare", runs.make(1), runs.make(2), *options]) == 2
    assert words in capsys.readouterr().err


def test_a_lone_run_is_judged_by_the_runs_of_the_other_group(runs, tmp_path, capsys):
    base = [runs.make(seed) for seed in (1, 2, 3)]
    path = tmp_path / "c.json"
    lone = runs.make(4, factor=1.5, protocol="stan")
    shown = ["--measure", "propagation_delay_ms_mean"]
    assert cli.main(["compare", *base, lone, *shown, "--json", str(path)]) == 0
    rows = {row["group"]: row for row in json.loads(path.read_text())["measures"]}
    assert len(rows) == 2
    width = rows["random"]["ci95_half_width"]
    assert rows["stan"]["difference_ci95_half_width"] == pytest.approx(width * 4**0.5)
    assert rows["stan"]["is_real"]
    assert cli.main(["compare", *base, lone, *shown, "--json", str(path), "--baseline", lone]) == 0
    swapped = {row["group"]: row for row in json.loads(path.read_text())["measures"]}
    assert swapped["random"]["difference"] == pytest.approx(-rows["stan"]["difference"])
