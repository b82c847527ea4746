"""Verdicts on claims: intervals that cross a bound, points together, statements that count once, claims not judged."""

from math import inf

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from harness.studies.claims import Finding, by_source, combine_verdicts, judge, judge_statements, show_finding
from harness.studies.form import Bounds, ClaimSpec, GrowthSpec
from harness.studies.point_run import Row
from harness.studies.store import Result
from metrics.intervals import difference_of_pairs, quotient_ends

MET, PARTLY, UNDECIDED, NOT_MET = "met", "partly met", "undecided", "not met"
IRREPRODUCIBLE, REPORTED, NOT_MEASURED = "irreproducible", "reported", "not measured"


def seeds(place: object, measure: str, *values: float, moment: float | None = None) -> list[Result]:
    """The runs of a point, one per seed."""
    rows = [(Row(measure, moment, None, value),) for value in values]
    return [Result(f"{place}-{seed}", {"at": place}, seed, "", 1.0, 1, each) for seed, each in enumerate(rows)]


def verdict(measure: str, values: list[float], met: Bounds, partly: Bounds | None = None) -> str:
    moment = 1.0 if measure in ("topics_partitioned", "degree_mean") else None
    claim = ClaimSpec("it is", "so", measure, met, partly=partly)
    return judge(claim, seeds(1, measure, *values, moment=moment)).verdict


@pytest.mark.parametrize(
    ("values", "met", "partly", "expected"),
    [
        ([10, 10.1, 9.9], Bounds(at_most=10.5), None, MET),
        ([10, 10.1, 9.9], Bounds(at_most=10.1), None, UNDECIDED),
        ([10, 10.1, 9.9], Bounds(at_most=9.9), None, UNDECIDED),
        ([10, 10.1, 9.9], Bounds(at_most=9.5), None, NOT_MET),
        ([10.3], Bounds(at_most=10.2), None, NOT_MET),
        ([10.1], Bounds(at_most=10.2), None, MET),
        ([10, 10, 10], Bounds(at_most=10), None, MET),
        ([10, 10.1, 9.9], Bounds(9.5, 10.5), None, MET),
        ([10, 11, 9], Bounds(9.5, 10.5), None, UNDECIDED),
        ([20, 12, 4], Bounds(13, 14), None, UNDECIDED),
        ([10, 10.1, 9.9], Bounds(at_most=9), Bounds(at_most=11), PARTLY),
        ([10, 10.1, 9.9], Bounds(at_most=9), Bounds(at_most=10.1), UNDECIDED),
        ([10, 10.1, 9.9], Bounds(at_most=9.9), Bounds(at_most=11), UNDECIDED),
        ([10, 10.1, 9.9], Bounds(at_most=9), Bounds(at_most=9.5), NOT_MET),
        # within what meets the claim, a bound of the wider range says nothing
        ([10, 10.1, 9.9], Bounds(9, 11), Bounds(at_least=8), MET),
    ],
)
def test_a_value_is_undecided_if_its_interval_crosses_a_bound(
    values: list[float], met: Bounds, partly: Bounds | None, expected: str
) -> None:
    assert verdict("degree_mean", values, met, partly) == expected


def test_an_interval_ends_at_what_a_measure_can_be() -> None:
    assert verdict("delivery_ratio", [1, 1, 0.9999], Bounds(at_least=1)) == NOT_MET
    assert verdict("delivery_ratio", [1, 1, 1], Bounds(at_least=1)) == MET
    assert verdict("delivery_ratio", [0.99, 0.97, 0.999], Bounds(at_least=0.98)) == UNDECIDED
    assert verdict("topics_partitioned", [0, 0, 1], Bounds(at_most=0)) == NOT_MET
    assert verdict("topics_partitioned", [0, 0, 1], Bounds(at_least=0)) == MET
    assert verdict("hops_mean", [1, 1.01, 0.99], Bounds(at_most=1)) == UNDECIDED, "hops are no shares"


def test_a_score_may_be_negative() -> None:
    claim = ClaimSpec("it is", "so", "last score_mean", Bounds(at_least=0))
    assert judge(claim, seeds(1, "score_mean", -0.2, -0.1, 0.15, moment=1.0)).verdict == UNDECIDED
    assert judge(claim, seeds(1, "score_mean", -0.2, -0.21, -0.19, moment=1.0)).verdict == NOT_MET


def test_a_change_may_be_negative_and_an_outage_may_last_longer_than_a_second() -> None:
    moving = [
        Result(
            str(seed),
            {"at": 1},
            seed,
            "",
            1.0,
            1,
            tuple(
                Row("delivery_ratio", at, None, at_value)
                for at, at_value in ((1.0, 1.0), (2.0, 0.5 + seed / 100), (9.0, 0.6 + seed / 50), (12.0, 1.0))
            ),
        )
        for seed in range(3)
    ]
    fallen = [replace(each, rows=each.rows[:3]) for each in moving]
    claim = ClaimSpec("it is", "so", "change delivery_ratio", Bounds(at_most=-0.3))
    assert judge(claim, fallen).verdict == MET
    assert judge(replace(claim, met=Bounds(at_most=-0.39)), fallen).verdict == UNDECIDED
    lasting = judge(ClaimSpec("it is", "so", "outage delivery_ratio", Bounds(at_least=5)), moving)
    assert (lasting.values, lasting.ends, lasting.verdict) == ((10.0,), ((10.0, 10.0),), MET)


WIDE, SURE, FAR, NEAR = [10, 11, 9], [8, 8.1, 7.9], [20, 20.1, 19.9], [12, 12.1, 11.9]


@pytest.mark.parametrize(
    ("points", "partly", "expected"),
    [
        ([SURE, SURE], None, MET),
        ([SURE, WIDE], None, UNDECIDED),
        ([WIDE, FAR], None, UNDECIDED),
        ([SURE, FAR], None, PARTLY),
        ([SURE, WIDE, FAR], None, PARTLY),
        ([FAR, FAR], None, NOT_MET),
        ([SURE, NEAR], Bounds(at_most=15), PARTLY),
        ([SURE, WIDE], Bounds(at_most=15), UNDECIDED),
        ([NEAR, WIDE], Bounds(at_most=15), UNDECIDED),
        ([SURE, WIDE, FAR], Bounds(at_most=15), NOT_MET),
    ],
)
def test_points_are_judged_together(points: list[list[float]], partly: Bounds | None, expected: str) -> None:
    claim = ClaimSpec("it is", "so", "hops_mean", Bounds(at_most=10), partly=partly)
    results = [run for place, values in enumerate(points) for run in seeds(place, "hops_mean", *values)]
    assert judge(claim, results).verdict == expected
    missing = judge(claim, results, [{"at": place} for place in range(len(points) + 1)])
    assert missing.missing == 1
    assert missing.verdict == (
        PARTLY if expected == MET or (expected == UNDECIDED and SURE in points and not partly) else expected
    )


def test_an_exponent_is_undecided_if_its_interval_crosses_its_bound() -> None:
    runs = [
        Result(f"{nodes}-{seed}", {"at": nodes}, seed, "", 1.0, 1, (Row("hops_mean", None, None, nodes**power),))
        for nodes in (4, 16)
        for seed, power in enumerate((0.7, 0.8, 0.9))
    ]
    claim = ClaimSpec("it is", "so", "hops_mean", Bounds(at_most=1), growth=GrowthSpec("at"))
    assert judge(claim, runs).verdict == UNDECIDED
    assert judge(replace(claim, met=Bounds(at_most=1.1)), runs).verdict == MET
    assert judge(replace(claim, met=Bounds(at_most=-0.5)), runs).verdict == NOT_MET, "exponents may be negative"


def test_only_what_is_not_met_is_irreproducible() -> None:
    runs = seeds(1, "hops_mean", 10, 10.1, 9.9)
    claim = ClaimSpec("it is", "so", "hops_mean", Bounds(at_most=5), irreproducible="Nothing is as fast.")
    assert judge(claim, runs).verdict == IRREPRODUCIBLE
    assert judge(replace(claim, met=Bounds(at_most=11)), runs).verdict == MET
    assert judge(replace(claim, partly=Bounds(at_most=11)), runs).verdict == PARTLY
    assert judge(replace(claim, met=Bounds(at_most=10.1)), runs).verdict == UNDECIDED
    assert judge(claim, []).verdict == NOT_MEASURED


def test_what_has_no_bound_is_reported_with_its_value() -> None:
    claim = ClaimSpec("it is", "a little", "hops_mean", reported=True, digits=1)
    assert show_finding(judge(claim, seeds(1, "hops_mean", 10, 10.1, 9.9)))[2:] == (
        "10.0 ± 0.2",
        "not judged",
        REPORTED,
    )
    assert judge(claim, []).verdict == NOT_MEASURED


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([MET, MET], MET),
        ([MET, NOT_MET], PARTLY),
        ([MET, IRREPRODUCIBLE], PARTLY),
        ([MET, UNDECIDED], UNDECIDED),
        ([MET, UNDECIDED, NOT_MET], PARTLY),
        ([MET, NOT_MEASURED], UNDECIDED),
        ([MET, REPORTED], MET),
        ([PARTLY, PARTLY], PARTLY),
        ([PARTLY, NOT_MET], PARTLY),
        ([PARTLY, UNDECIDED], PARTLY),
        ([PARTLY, MET], PARTLY),
        ([NOT_MET, NOT_MET, NOT_MEASURED], NOT_MET),
        ([NOT_MET, UNDECIDED], UNDECIDED),
        ([NOT_MET, IRREPRODUCIBLE], NOT_MET),
        ([IRREPRODUCIBLE, REPORTED], IRREPRODUCIBLE),
        ([REPORTED, NOT_MEASURED], REPORTED),
        ([NOT_MEASURED], NOT_MEASURED),
    ],
)
def test_several_claims_about_a_statement_have_one_verdict(verdicts: list[str], expected: str) -> None:
    assert combine_verdicts(verdicts) == expected
    assert combine_verdicts(reversed(verdicts)) == expected


def finding(value: float, number: str = "", reading: str = "", *, ours: bool = False) -> Finding:
    """A claim that is met up to 5."""
    claim = ClaimSpec("it is", "so", "hops_mean", Bounds(at_most=5), number=number, reading=reading, ours=ours)
    return judge(claim, seeds(1, "hops_mean", value))


def test_claims_with_the_same_number_are_one_statement_and_others_one_each() -> None:
    found = [finding(4), finding(4), finding(4, "a"), finding(9, "b"), finding(9, "a"), finding(4, "c")]
    assert judge_statements(found) == [MET, MET, PARTLY, NOT_MET, MET]


def test_the_reading_that_was_chosen_decides_where_it_is_judged() -> None:
    found = [finding(4, "a", "one"), finding(9, "a", "two"), finding(9, "b", "two"), finding(9, "a")]
    assert judge_statements(found) == [PARTLY, NOT_MET]
    assert judge_statements(found, "one") == [MET, NOT_MET]
    assert judge_statements(found, "two") == [NOT_MET, NOT_MET]
    assert judge_statements(found, "three") == [PARTLY, NOT_MET]


def test_the_papers_claims_come_before_ours_and_a_part_without_any_is_left_out() -> None:
    paper, ours = finding(4), finding(4, ours=True)
    assert by_source([ours, paper]) == [("Claims of the paper", [paper]), ("Beyond the paper", [ours])]
    assert by_source([ours]) == [("Beyond the paper", [ours])]
    assert by_source([]) == []


values = st.lists(st.tuples(st.floats(1, 100), st.floats(1, 100)), min_size=2, max_size=8)


@given(values)
def test_at_the_ends_of_the_interval_of_a_quotient_a_paired_test_is_at_its_level(
    pairs: list[tuple[float, float]],
) -> None:
    ones, others = [one for one, _ in pairs], [other for _, other in pairs]
    ends = quotient_ends(ones, others)
    assert ends is not None
    assert ends[0] <= sum(ones) / sum(others) * (1 + 1e-9) and sum(ones) / sum(others) <= ends[1] * (1 + 1e-9)
    assume(-inf < ends[0] < ends[1] < inf and ends[1] - ends[0] > 1e-6)
    for end in ends:
        p = difference_of_pairs([one - end * other for one, other in pairs]).p
        assert p == pytest.approx(0.05, rel=1e-2)


@given(st.floats(0.01, 100), st.lists(st.floats(0.1, 1000), min_size=2, max_size=6))
def test_pairs_with_the_same_quotient_have_an_interval_without_width(quotient: float, others: list[float]) -> None:
    ends = quotient_ends([quotient * other for other in others], others)
    assert ends == pytest.approx((quotient, quotient))
    assert ends is not None and ends[0] == ends[1]


def test_an_interval_of_a_quotient_needs_pairs_and_a_divisor_that_is_not_0() -> None:
    assert quotient_ends([1.0], [2.0]) is None
    assert quotient_ends([], []) is None
    assert quotient_ends([1.0, 2.0], [1.0, -1.0]) == (-inf, inf)
    assert quotient_ends([1.0, 2.0], [0.1, 9.0]) == (-inf, inf), "it may be 0"
