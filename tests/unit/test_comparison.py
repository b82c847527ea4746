"""``trellis compare``: groups, differences, conditions and outputs, of fabricated runs that need no analysis."""

import re
from functools import partial
from math import comb
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from metrics.comparison.conditions import Condition, ConditionError, Outcome, judge, parse_condition
from metrics.comparison.differences import ERROR_RATE, Comparison, compare
from metrics.comparison.error_rates import RUNS, SPREADS, rates
from metrics.comparison.groups import Group
from metrics.comparison.power import POWER, more_needed
from metrics.comparison.resampling import RESAMPLED, draw_measures, sample_run
from metrics.comparison.rows import DeliveryRows
from metrics.intervals import (
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
from tests.compared_runs import EXPERIMENT, headline_runs, make_rows
from tests.examples import long_unless

PAIRS = 20


def most_false_alarms(pairs: int, rate: float = 0.05, tail: float = 0.005) -> int:
    """The smallest count that fair tests exceed with a probability below ``tail``."""
    return next(
        most
        for most in range(pairs)
        if sum(comb(pairs, k) * rate**k * (1 - rate) ** (pairs - k) for k in range(most + 1, pairs + 1)) < tail
    )


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
    monkeypatch.setattr("metrics.comparison.differences.sample_run", partial(sample_run, draws=80))


def compared(*groups: list[DeliveryRows]) -> Comparison:
    made: Any = [[FewRows(rows, seed) for seed, rows in enumerate(group)] for group in groups]
    return compare([Group(f"group {place}", tuple(runs), {}) for place, runs in enumerate(made)])


def real_measures(comparison: Comparison) -> list[str]:
    ((_, names),) = comparison.real
    return names


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
    expected, drawn = abs(delays[0] - delays[25]) / 2, draw_measures(two, 1000)
    assert drawn["propagation_delay_ms_mean"].error == pytest.approx(expected, rel=0.1)
    assert draw_measures(two, 1000) == drawn


def test_one_message_has_no_error():
    rows = make_rows(np.random.default_rng(1), messages=1)
    assert draw_measures(rows, 10) == {}


def test_only_the_measures_that_are_asked_for_are_drawn(monkeypatch) -> None:
    rows = make_rows(np.random.default_rng(1))
    assert draw_measures(rows, 10, ["delivery_ratio"]) == {"delivery_ratio": draw_measures(rows, 10)["delivery_ratio"]}
    run: Any = FewRows(rows)
    run.summary.headline["diameter"] = 3

    def read(*_: object) -> None:
        raise AssertionError("no message is drawn for a measure of the overlay")

    monkeypatch.setattr("metrics.comparison.resampling.read_delivery_rows", read)
    assert sample_run(run, ["diameter"])["diameter"].values == (3.0,)


@pytest.mark.long
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
@pytest.mark.parametrize("runs", long_unless([2], [2, 3, 6]))
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
            manifest=SimpleNamespace(has_ability=lambda _: False),
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


@pytest.mark.parametrize("runs", long_unless([3], RUNS))
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
