"""From runs to what a study shows: intervals, reductions, tables and figures."""

from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harness.studies.figures import draw_figure, make_curves
from harness.studies.form import FigureSpec, PaperCurve, PaperTable, Shown, TableSpec
from harness.studies.point_run import Row
from harness.studies.results import aggregate, mean_of, reduce_run
from harness.studies.store import Result
from harness.studies.tables import make_table, write_csv, write_markdown
from metrics.intervals import Interval, interval, t_quantile, t_within

# Student's t, two-sided, as printed in textbooks (three decimals)
TABLE = {
    0.95: {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 10: 2.228, 29: 2.045, 30: 2.042, 120: 1.980},
    0.99: {1: 63.657, 2: 9.925, 5: 4.032, 10: 3.169, 30: 2.750, 120: 2.617},
}


@pytest.mark.parametrize(("level", "degrees"), [(level, degrees) for level in TABLE for degrees in TABLE[level]])
def test_quantiles_are_those_of_the_textbooks(level, degrees):
    assert t_quantile(level, degrees) == pytest.approx(TABLE[level][degrees], abs=0.0005)


@given(degrees=st.integers(1, 200), level=st.floats(0.01, 0.999))
def test_the_quantile_is_the_inverse_of_the_distribution(degrees, level):
    assert t_within(t_quantile(level, degrees), degrees) == pytest.approx(level, abs=1e-9)


def test_the_interval_of_three_values():
    assert interval([1, 2, 3]) == pytest.approx((2.0, 4.30265 / sqrt(3), 3), abs=1e-4)


def test_a_single_value_has_no_interval_and_equal_ones_an_empty_one():
    assert interval([7.5]) == Interval(7.5, None, 1)
    assert interval([4.0, 4.0]) == Interval(4.0, 0.0, 2)


def result(nodes: int, seed: int, *rows: tuple) -> Result:
    return Result(f"{nodes}-{seed}", {"nodes": nodes}, seed, "code", 1.0, 1, tuple(Row(*row) for row in rows))


def test_overlay_measures_are_of_the_last_snapshot_and_others_of_the_whole_run():
    run = result(
        9,
        1,
        ("degree_mean", 20.0, None, 6.0),
        ("degree_mean", 10.0, None, 8.0),
        ("delivery_ratio", None, None, 0.9),
        ("delivery_ratio", 0.0, None, 0.8),
        ("delivery_ratio", 1.0, None, 1.0),
    )
    degrees = {how: reduce_run(run, f"{how} degree_mean") for how in ("first", "last", "mean", "min", "max", "change")}
    assert degrees == {"first": 8, "last": 6, "mean": 7, "min": 6, "max": 8, "change": -0.25}
    assert reduce_run(run, "degree_mean") == 6
    assert reduce_run(run, "delivery_ratio") == 0.9
    assert reduce_run(run, "change delivery_ratio") == pytest.approx(0.25)
    assert reduce_run(run, "diameter") is None


def test_a_count_that_a_run_lacks_is_zero_but_a_measure_that_it_lacks_is_none():
    runs = [
        result(9, 1, ("degrees", 5.0, 3, 4.0), ("degree_mean", 5.0, None, 3.0)),
        result(9, 2, ("degrees", 5.0, 4, 2.0)),
    ]
    means = {(mean.measure, mean.by): mean.over for mean in aggregate(runs)}
    assert means[("degrees", 3)] == interval([4.0, 0.0])
    assert means[("degrees", 4)] == interval([2.0, 0.0])
    assert means[("degree_mean", None)] == Interval(3.0, None, 1)
    assert mean_of(runs, "degree_mean") == Interval(3.0, None, 1)
    assert mean_of(runs, "degrees", 3) == interval([4.0, 0.0])
    assert mean_of(runs, "degrees", 9) == interval([0.0, 0.0])
    assert mean_of(runs, "in_degrees", 3) is None


RUNS = [
    result(nodes, seed, ("view_size_unique_mean", at_s, None, value + seed))
    for nodes, first, last in ((1000, 64.0, 28.0), (2000, 70.0, 30.0))
    for seed in (0, 1, 2)
    for at_s, value in ((1.0, first), (90.0, last))
]
VIEWS = TableSpec(
    name="table-2",
    title="View sizes",
    rows=("measure",),
    columns="nodes",
    measures=(Shown("first view_size_unique_mean", "Unique initial"), Shown("view_size_unique_mean", "Unique final")),
    digits=1,
    paper=PaperTable((1000, 3000), (("Unique final", 29, 31), ("Unique initial", "> 60", 1))),
)


def merged() -> list[Result]:
    """The runs with both snapshots in each."""
    keys = list(dict.fromkeys(run.key for run in RUNS))
    whole = []
    for key in keys:
        parts = [run for run in RUNS if run.key == key]
        whole.append(Result(key, parts[0].at, parts[0].seed, "code", 1.0, 1, tuple(part.rows[0] for part in parts)))
    return whole


def test_a_table_shows_ours_with_its_interval_and_the_papers_where_it_has_one():
    table = make_table(VIEWS, merged())
    half_width = t_quantile(0.95, 2) / sqrt(3)
    assert table.heads == (1000, 2000)
    assert [labels for labels, _ in table.rows] == [("Unique initial",), ("Unique final",)]
    final = table.rows[1][1]
    assert final[0].ours == pytest.approx((29.0, half_width, 3))
    assert [entry.paper for entry in final] == [29, None]
    text = write_markdown(table)
    assert "| measure | nodes = 1000 | nodes = 2000 |" in text
    assert "| Unique final | 29.0 ± 2.5 (paper: 29, +0.0 %) | 31.0 ± 2.5 |" in text
    assert "| Unique initial | 65.0 ± 2.5 (paper: > 60) | 71.0 ± 2.5 |" in text
    assert write_csv(table).splitlines()[3].startswith("Unique final,1000,29.0,2.48")


def test_a_table_follows_from_the_runs_whatever_their_order_within_a_point():
    runs = merged()
    assert write_markdown(make_table(VIEWS, runs)) == write_markdown(make_table(VIEWS, runs[2::-1] + runs[:2:-1]))


def test_an_axis_shows_the_range_that_is_asked_for_and_whatever_lies_outside():
    drawn = FigureSpec("f", "F", "nodes", ("view_size_unique_mean",), ymin=29.5, ymax=80)
    low, high = draw_figure(drawn, merged()).axes[0].get_ylim()
    assert (low < 29, high) == (True, 80), "an interval reaches below 29"
    wide = FigureSpec("f", "F", "nodes", ("view_size_unique_mean",), ymin=5)
    assert draw_figure(wide, merged()).axes[0].get_ylim()[0] == 5


def test_an_axis_of_epochs_is_labelled_with_whole_numbers():
    moments = [("delivery_ratio", float(epoch), None, 0.5) for epoch in range(21)]
    drawn = draw_figure(FigureSpec("f", "F", "epoch", ("delivery_ratio",)), [result(9, 1, *moments)])
    ticks = drawn.axes[0].get_xticks()
    assert list(ticks) == [round(tick) for tick in ticks]
    assert {0, 5, 20} <= set(ticks)


def test_an_axis_without_a_label_shows_the_measures_meaning_and_unit():
    def label(*shown: str | Shown) -> str:
        return draw_figure(FigureSpec("f", "F", "nodes", shown), merged()).axes[0].get_ylabel()

    meaning = "different nodes in a node's views, mean"
    assert label("view_size_unique_mean") == meaning
    assert label("first view_size_unique_mean") == f"first: {meaning}"
    assert label(Shown("view_size_unique_mean", label="view size")) == "view size"
    assert label("view_size_unique_mean", "first view_size_unique_mean") == "", "the legend tells them apart"


def test_the_legend_of_many_curves_stands_beside_the_axes():
    def drawn(papers: int):
        curves = tuple(PaperCurve(((1000, 1.0 + place),), f"paper {place}") for place in range(papers))
        return draw_figure(FigureSpec("f", "F", "nodes", ("view_size_unique_mean",), paper=curves), merged())

    few, many = drawn(3), drawn(4)
    assert few.axes[0].get_legend() is not None
    assert not few.legends
    assert many.axes[0].get_legend() is None
    many.draw_without_rendering()
    [legend] = many.legends
    assert len(legend.get_texts()) == 5
    assert legend.get_window_extent().x0 >= many.axes[0].get_window_extent().x1


def test_curves_along_an_axis_the_snapshots_and_a_count():
    runs = merged()
    along_axis = FigureSpec("f", "F", "nodes", ("view_size_unique_mean",))
    assert [(x, over.mean) for x, over in next(make_curves(along_axis, runs)).points] == [(1000, 29), (2000, 31)]
    over_time = FigureSpec("f", "F", "at_s", ("view_size_unique_mean",), series=("nodes",))
    curves = list(make_curves(over_time, runs))
    assert [curve.label for curve in curves] == ["nodes = 1000", "nodes = 2000"]
    assert [(x, over.mean) for x, over in curves[0].points] == [(1.0, 65), (90.0, 29)]
    [in_epochs, _] = make_curves(replace(over_time, begin_s=10, unit_s=20), runs)
    assert [x for x, _ in in_epochs.points] == [-0.45, 4.0]
    counted = [result(9, 1, ("degrees", 5.0, 3, 4.0), ("degrees", 9.0, 2, 1.0))]
    [first] = make_curves(FigureSpec("f", "F", "degree", ("first degrees",), kind="cdf"), counted)
    [last] = make_curves(FigureSpec("f", "F", "degree", ("degrees",), kind="cdf"), counted)
    assert ([x for x, _ in first.points], [x for x, _ in last.points]) == ([3], [2])


def test_deliveries_are_drawn_over_their_windows_and_counted_over_the_whole_run():
    windows = [("delivery_ratio", at_s, None, ratio) for at_s, ratio in ((70.0, 0.9), (10.0, 1.0), (None, 0.95))]
    counts = [("node_traffic_overheads", at_s, percent, 2.0) for at_s, percent in ((10.0, 5), (70.0, 9), (None, 7))]
    runs = [result(9, 1, *windows, *counts)]
    [over_time] = make_curves(FigureSpec("f", "F", "at_s", ("delivery_ratio",), begin_s=10, unit_s=60), runs)
    assert [(x, over.mean) for x, over in over_time.points] == [(0.0, 1.0), (1.0, 0.9)]
    found = {
        how: [x for curve in make_curves(FigureSpec("f", "F", "percent", (how,)), runs) for x, _ in curve.points]
        for how in ("node_traffic_overheads", "first node_traffic_overheads", "last node_traffic_overheads")
    }
    assert list(found.values()) == [[7], [5], [9]]


def test_a_measure_of_one_epoch_stands_in_tables_and_along_a_count():
    runs = [
        result(
            9, seed, *(("score_quantiles", epoch, share, epoch + share + seed) for epoch in (0, 3) for share in (0, 1))
        )
        for seed in (0, 2)
    ]
    early, late, none = (Shown("score_quantiles", label=str(at), at=at) for at in (0, 3, 7))
    curves = list(make_curves(FigureSpec("f", "F", "quantile", (early, late, none)), runs))
    assert [(curve.label, [(x, over.mean) for x, over in curve.points]) for curve in curves] == [
        ("0", [(0, 1), (1, 2)]),
        ("3", [(0, 4), (1, 5)]),
    ]
    best = Shown("score_quantiles", label="best", by=0, at=3)
    [(_, [entry])] = make_table(TableSpec("t", "T", ("measure",), "nodes", (best,)), runs).rows
    assert entry.ours is not None
    assert entry.ours.mean == 4
