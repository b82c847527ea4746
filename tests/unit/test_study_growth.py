"""What a study makes of its runs besides means: exponents of growth, outages, and tests of equality."""

from itertools import combinations
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from msgspec.structs import replace

from harness.studies.claims import judge, show_finding
from harness.studies.figures import draw_figure
from harness.studies.form import Bounds, ClaimSpec, FigureSpec, GrowthSpec, Shown, TableSpec
from harness.studies.growth import fit_exponent
from harness.studies.point_run import Row
from harness.studies.results import mean_of, reduce_run
from harness.studies.store import Result
from harness.studies.tables import make_table, write_csv, write_markdown
from metrics.intervals import interval

COPIES, SIZE = Shown("copies_per_member_reached"), "group_size_mean"


def run(nodes: float | str, seed: int, copies: float | None, size: float | None = None, **others: float) -> Result:
    values = {COPIES.of: copies, SIZE: size, **others}
    rows = tuple(Row(name, None, None, value) for name, value in values.items() if value is not None)
    return Result(f"{nodes}-{seed}", {"nodes": nodes}, seed, "", 1.0, 1, rows)


def windows(seed: int, *values: tuple[float, float]) -> Result:
    rows = tuple(Row("members_reached_ratio", at_s, None, value) for at_s, value in values)
    return Result(f"w-{seed}", {"nodes": 1}, seed, "", 1.0, 1, rows)


@given(st.floats(-3, 3), st.floats(0.01, 100), st.lists(st.integers(1, 10_000), min_size=2, max_size=6, unique=True))
def test_the_exponent_of_a_power_law_is_found(exponent: float, factor: float, sizes: list[int]) -> None:
    runs = [run(size, seed, seed * factor * size**exponent) for size in sizes for seed in (1, 2)]
    found = fit_exponent(runs, "nodes", "nodes", COPIES)
    assert found is not None
    assert found.mean == pytest.approx(exponent, abs=1e-6)
    assert found.half_width == pytest.approx(0, abs=1e-5)
    assert found.n == 2


def test_an_exponent_is_the_slope_of_the_least_squares_line_and_its_interval_is_over_the_seeds() -> None:
    runs = [run(x, 1, y) for x, y in ((1, 1), (10, 100), (100, 100))] + [run(x, 2, x * x) for x in (1, 10, 100)]
    assert fit_exponent(runs, "nodes", "nodes", COPIES) == pytest.approx(interval([1.0, 2.0]))


def test_an_exponent_may_be_over_a_measure_and_leaves_out_what_has_no_logarithm() -> None:
    runs = [run("a", 1, 2.0, 10.0), run("b", 1, 4.0, 100.0), run("c", 1, 0.0, 1000.0), run("d", 1, None, 1.0)]
    slope = fit_exponent([*runs, run("a", 2, 5.0, 3.0)], "nodes", SIZE, COPIES)
    assert slope is not None
    assert (slope.mean, slope.n) == (pytest.approx(0.30103), 1)
    assert fit_exponent([run(9, 1, 2.0), run(9, 1, 3.0)], "nodes", "nodes", COPIES) is None
    assert fit_exponent([], "nodes", "nodes", COPIES) is None


def test_a_table_may_have_a_column_of_exponents() -> None:
    runs = [run(nodes, 1, nodes**0.5, 2.0 * nodes) for nodes in (4, 16)]
    spec = TableSpec("t", "T", ("measure",), "nodes", (COPIES, SIZE), growth_over="nodes")
    table = make_table(spec, runs)
    assert "| measure | nodes = 4 | nodes = 16 | exponent |" in write_markdown(table)
    assert f"| {COPIES.of} | 2.00 | 4.00 | 0.50 |" in write_markdown(table)
    assert write_csv(table).splitlines()[-1].startswith(f"{SIZE},exponent,1.0")


def test_a_claim_may_be_about_an_exponent() -> None:
    runs = [run(nodes, seed, nodes ** (0.5 + seed / 10)) for nodes in (4, 16) for seed in (1, 2)]
    claim = ClaimSpec("it is", "so", COPIES, Bounds(at_most=1), growth=GrowthSpec("nodes"))
    assert show_finding(judge(claim, runs))[2:] == ("0.650 ± 0.635", "≤ 1", "undecided")
    assert judge(replace(claim, met=Bounds(at_most=1.3)), runs).verdict == "met"
    assert judge(claim, runs[:2]).verdict == "not measured"


def test_a_recovery_ends_at_the_next_value_of_1_and_an_outage_at_the_first_after_the_last_below() -> None:
    name = "outage members_reached_ratio"
    broken = windows(1, (30.0, 0.9), (20.0, 1.0), (25.0, 0.5), (35.0, 1.0), (40.0, 0.8), (45.0, 1.0), (50.0, 1.0))
    whole, lasting = windows(2, (20.0, 1.0), (25.0, 1.0)), windows(3, (20.0, 1.0), (25.0, 0.9))
    assert [reduce_run(each, name) for each in (broken, whole, lasting)] == [20.0, 0.0, None]
    assert mean_of([broken, whole], name) == interval([20.0, 0.0])
    assert mean_of([broken, whole, lasting], name) is None
    name = "recovery members_reached_ratio"
    assert [reduce_run(each, name) for each in (broken, whole, lasting)] == [10.0, 0.0, None]
    assert mean_of([broken, whole], name) == interval([10.0, 0.0])
    assert mean_of([broken, lasting], name) is None
    assert reduce_run(windows(4), name) is None


def equal(*pairs: tuple[float, float], nodes: int = 1) -> list[Result]:
    return [run(nodes, seed, one, hops_mean=other) for seed, (one, other) in enumerate(pairs)]


def test_two_measures_are_the_same_unless_a_paired_test_finds_a_difference() -> None:
    claim = ClaimSpec("it is", "so", COPIES, same_as="hops_mean", digits=2)
    alike = equal((1.0, 2.0), (5.0, 4.0), (9.0, 9.5))
    assert show_finding(judge(claim, alike))[3:] == ("no difference (paired t tests)", "met")
    assert judge(claim, alike).values == (pytest.approx(15 / 15.5),)
    # the measures themselves vary far more than they differ: only the pairs tell
    apart = equal((1.0, 2.0), (5.0, 6.01), (9.0, 9.99), nodes=2)
    assert judge(claim, apart).verdict == "not met"
    both = judge(claim, [*alike, *apart])
    assert both.verdict == "partly met"
    assert show_finding(both)[2].startswith("0.83 to 0.97 (2 points, smallest p 6.7e-05)")
    assert judge(claim, equal((1.0, 1.0), (2.0, 2.0))).verdict == "met"
    assert judge(claim, equal((1.0, 2.0))).verdict == "not measured"


def test_the_tests_of_many_points_are_adjusted() -> None:
    claim = ClaimSpec("it is", "so", COPIES, same_as="hops_mean")
    one = equal((1.0, 2.0), (1.0, 2.0 + sqrt(3) / 2), (1.0, 2.0 - sqrt(3) / 2))  # t = 2: p = 0.184
    near = equal((1.0, 2.0), (1.0, 2.3), (1.0, 1.7))  # t = 5.77: p = 0.029
    assert judge(claim, near).verdict == "not met"
    several = [Result(each.key, {"nodes": place}, each.seed, "", 1.0, 1, each.rows) for place in (1, 2) for each in one]
    assert (
        judge(claim, [*several, *(Result(r.key, {"nodes": 3}, r.seed, "", 1.0, 1, r.rows) for r in near)]).verdict
        == "met"
    )


def at(place: str, *values: float) -> list[Result]:
    return [
        Result(f"{place}{each.key}", {"place": place}, each.seed, "", 1.0, 1, each.rows)
        for each in (run(1, seed, value) for seed, value in enumerate(values))
    ]


def test_a_quotient_is_judged_by_the_pairs_of_its_seeds() -> None:
    claim = ClaimSpec("more", "so", COPIES, Bounds(at_least=1), {"place": "b"}, {"place": "a"}, digits=1)
    ones = at("a", 10.0, 14.0, 18.0)
    # the two vary far more than they differ: only the pairs tell
    more = judge(claim, [*ones, *at("b", 11.0, 15.01, 18.99)])
    assert more.verdict == "met"
    assert show_finding(more)[2:4] == ("1.1 (1.0 to 1.2) = 15.0 ± 9.9 / 14.0 ± 9.9", "≥ 1")
    assert judge(claim, [*ones, *at("b", 11.0, 14.0, 18.0)]).verdict == "undecided"
    assert judge(claim, [*ones, *at("b", 9.0, 14.0, 18.0)]).verdict == "undecided"
    assert judge(claim, [*ones, *at("b", 10.0, 14.0, 18.0)]).verdict == "met", "equal in every pair"
    assert judge(claim, [*ones, *at("b", 9.0, 13.01, 16.99)]).verdict == "not met"
    # pairs are the runs of the same seed, in whatever order
    assert judge(claim, [*ones, *reversed(at("b", 11.0, 15.01, 18.99))]).verdict == "met"
    # what may be divided by 0 has no interval with ends
    assert judge(claim, [*at("a", 1.0, 5.0, 9.0), *at("b", 2.0, 6.01, 9.99)]).verdict == "undecided"


@pytest.mark.parametrize("ends", [(10, 100), (15, 60), (100, 10_000), (1, 3)])
def test_labels_of_logarithmic_axes_are_plain_and_do_not_touch(ends: tuple[int, int]) -> None:
    runs = [run(nodes, 1, float(nodes)) for nodes in ends]
    canvas = draw_figure(FigureSpec("f", "F", "nodes", (COPIES,), kind="log-log"), runs)
    FigureCanvasAgg(canvas).draw()
    for axis in (canvas.axes[0].xaxis, canvas.axes[0].yaxis):
        assert not any(label.get_text() for label in axis.get_minorticklabels())
        low, high = axis.get_view_interval()
        shown = [
            label
            for label, value in zip(axis.get_majorticklabels(), axis.get_majorticklocs(), strict=True)
            if low <= value <= high
        ]
        assert len(shown) > 1
        assert all(float(label.get_text().replace(",", "")) for label in shown)
        boxes = [label.get_window_extent() for label in shown]
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_intervals_do_not_make_an_axis_of_shares_longer_than_1() -> None:
    runs = [run(nodes, seed, value) for nodes in (1, 2) for seed, value in enumerate((0.5, 0.9, 1.0))]
    axes = draw_figure(FigureSpec("f", "F", "nodes", (COPIES,), ymax=1), runs).axes[0]
    assert axes.get_ylim()[1] == 1
    assert axes.dataLim.intervaly[1] > 1


def test_an_axis_ends_above_a_flat_curve() -> None:
    runs = [run(nodes, 1, value) for nodes, value in ((1, 10.0), (2, 10.01))]
    axes = draw_figure(FigureSpec("f", "F", "nodes", (COPIES,)), runs).axes[0]
    assert axes.get_ylim() == (0, pytest.approx(10.5, abs=0.05))


def test_lines_may_be_on_logarithmic_axes() -> None:
    runs = [run(nodes, 1, float(nodes)) for nodes in (10, 100)]
    axes = draw_figure(FigureSpec("f", "F", "nodes", (COPIES,), kind="log-log"), runs).axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    half = draw_figure(FigureSpec("f", "F", "nodes", (COPIES,), kind="log-y"), runs).axes[0]
    assert (half.get_xscale(), half.get_yscale()) == ("linear", "log")
    assert len(axes.lines) == 1
