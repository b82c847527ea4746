"""The report's figures by what they draw: the data of their axes against numbers counted by hand."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure as Canvas

from metrics.report import figures
from metrics.report.run import Run

SECOND = 1_000_000_000
ZERO_NS = 100 * SECOND
ADVERSARY = 9

Columns = dict[str, list[Any]]


class Shown(Run):
    """A run that has the tables given, and no files."""

    def __init__(self, **tables: Columns) -> None:
        self._tables = {name: pd.DataFrame(columns) for name, columns in tables.items()}
        self.adversaries = frozenset({ADVERSARY})

    zero_ns = ZERO_NS
    duration_s = 4.0

    def table(self, name: str) -> pd.DataFrame | None:
        return self._tables.get(name)

    def values(self, table: str, column: str) -> npt.NDArray[Any]:
        return np.asarray(self._tables[table][column].dropna())

    def received(self) -> pd.DataFrame | None:
        return self.table("received")

    def achieved(self) -> pd.DataFrame | None:
        return self.table("achieved")


def panels(canvas: Canvas | None) -> list[Axes]:
    assert canvas is not None
    return canvas.axes


def curve(axes: Axes, label: str) -> list[tuple[float, float]]:
    """The points of the curve whose label begins so, without the breaks between them."""
    (line,) = [line for line in axes.get_lines() if str(line.get_label()).startswith(label)]
    points = [(round(float(x), 9), round(float(y), 9)) for x, y in zip(*line.get_data(), strict=True)]
    return [point for point in points if not np.isnan(point).any()]


def bars(axes: Axes) -> list[tuple[float, float]]:
    """The centre and the height of each bar."""
    return [(float(bar.get_x() + bar.get_width() / 2), float(bar.get_height())) for bar in axes.patches]


DELIVERIES = {
    "node": [1, 2, 1, 2, 3, ADVERSARY],
    "topic": [5, 5, 6, 6, 6, 6],
    "publish_ns": [ZERO_NS, ZERO_NS, *[ZERO_NS + 2 * SECOND + 7] * 4],
    "delivered_ns": [ZERO_NS + 30, ZERO_NS + 10, ZERO_NS + 3 * SECOND, None, None, ZERO_NS],
    "latency_ms": [30.0, 10.0, 20.0, None, None, 1.0],
    "direct_delay_ms": [8.0, 4.0, 6.0, 2.0, 9.0, 1.0],
    "copies": [1, 3, 3, 0, 0, 8],
}


def test_delays_step_up_by_every_expected_delivery_of_honest_nodes() -> None:
    (axes,) = panels(figures.delay_cdf(Shown(deliveries=DELIVERIES)))
    assert curve(axes, "overlay") == [(10.0, 0.2), (20.0, 0.4), (30.0, 0.6)]
    assert curve(axes, "direct path") == [(2, 0.2), (4, 0.4), (6, 0.6), (8, 0.8), (9, 1)]


def test_delivery_ratios_are_by_second_and_by_topic() -> None:
    seconds, topics = panels(figures.delivery_ratio(Shown(deliveries=DELIVERIES)))
    (line,) = seconds.get_lines()
    assert list(zip(*line.get_data(), strict=True)) == [(0, 1.0), (2, pytest.approx(1 / 3))]
    assert bars(topics) == [(0, pytest.approx(1 / 3)), (1, 1.0)]


def test_duplicates_are_shares_of_the_deliveries_made() -> None:
    (axes,) = panels(figures.duplicates(Shown(deliveries=DELIVERIES)))
    assert bars(axes) == [(0, pytest.approx(1 / 3)), (2, pytest.approx(2 / 3))]


def test_links_are_means_per_honest_node_by_instant_and_source() -> None:
    sharing = {
        "source": ["trace"] * 4 + ["wire"] * 2 + ["trace"],
        "at_ns": [ZERO_NS, ZERO_NS, ZERO_NS + SECOND, ZERO_NS + SECOND, ZERO_NS, ZERO_NS, ZERO_NS],
        "node": [1, 2, 1, 2, 1, 2, ADVERSARY],
        "view_size_total": [4, 6, 8, 8, 3, 4, 90],
        "degree": [2, 3, 2, 2, 2, 1, 90],
    }
    (axes,) = panels(figures.link_sharing(Shown(sharing=sharing)))
    assert curve(axes, "logical links, traces") == [(0, 5), (1, 8)]
    assert curve(axes, "physical links, traces") == [(0, 2.5), (1, 2)]
    assert curve(axes, "logical links, wire") == [(0, 3.5)]
    assert curve(axes, "physical links, wire") == [(0, 1.5)]


def test_degrees_are_those_of_the_last_instant() -> None:
    nodes = {
        "at_ns": [ZERO_NS, ZERO_NS + 1, ZERO_NS + 1, ZERO_NS + 1],
        "degree": [7, 2, 2, 3],
        "view_size_unique": [7, 1, 1, 4],
        "in_degree": [7, 0, 2, 4],
        "opened": [7, 2, 1, 2],
    }
    (axes,) = panels(figures.degrees(Shown(overlay_degrees=nodes)))
    assert bars(axes) == [(2, 2), (3, 1)]
    assert curve(axes, "physical links that it opened, mean 1.67") == [(1, 1), (2, 2)]
    assert curve(axes, "nodes in its views, mean 2.00") == [(1, 2), (4, 1)]
    assert curve(axes, "nodes in whose views it is, mean 2.00") == [(0, 1), (2, 1), (4, 1)]


def test_traffic_overhead_is_by_second_of_publication_and_by_node() -> None:
    received: Columns = {
        "dst_node": [1, 1, 1, 1, 2, 3],
        "at_relay": [True, False, False, False, False, True],
        "publish_ns": [ZERO_NS + 2 * SECOND - 1, *[ZERO_NS + SECOND] * 3, ZERO_NS, ZERO_NS],
    }
    seconds, nodes = panels(figures.traffic_overhead(Shown(received=received)))
    assert curve(seconds, "") == [(0, 0.5), (1, 0.25)]
    assert curve(nodes, "") == [(0, 0.333333333), (0.25, 0.666666667), (1, 1)]
    assert figures.traffic_overhead(Shown(received={name: [] for name in received})) is None


def test_a_topic_is_a_point_of_its_subscribers_and_its_overlay() -> None:
    topics = {"at_ns": [0, 5, 5], "subscribers": [9, 3, 4], "components": [9, 1, 2], "diameter": [9, 2, 3]}
    upper, lower = panels(figures.topic_overlays(Shown(overlay_topics=topics)))
    assert [list(zip(*line.get_data(), strict=True)) for line in upper.get_lines()] == [[(3, 1), (4, 2)]]
    assert [list(zip(*line.get_data(), strict=True)) for line in lower.get_lines()] == [[(3, 2), (4, 3)]]


def test_learning_shows_each_epochs_delay_ratio_and_score() -> None:
    epochs = {"epoch": [0, 1], "latency_ms_mean": [50.0, 40.0], "delivery_ratio": [0.9, 1.0], "score_mean": [3.0, 2.0]}
    drawn = [line.get_data() for axes in panels(figures.learning(Shown(epochs=epochs))) for line in axes.get_lines()]
    assert [list(zip(*data, strict=True)) for data in drawn] == [
        [(0, 50.0), (1, 40.0)],
        [(0, 0.9), (1, 1.0)],
        [(0, 3.0), (1, 2.0)],
    ]


def test_bytes_on_the_wire_are_stacked_by_class_and_second() -> None:
    names = [name for name, _, _ in figures.OVERHEAD]
    columns: Columns = {"second_ns": [ZERO_NS, ZERO_NS, ZERO_NS + SECOND]}
    columns |= {name: [1000 * number, 2000, 500 * number] for number, name in enumerate(names, 1)}
    (axes,) = panels(figures.overhead(Shown(overhead=columns)))
    below = np.zeros(2)
    for number, (layer, (_, label, _)) in enumerate(zip(axes.collections, figures.OVERHEAD, strict=True), 1):
        above = below + np.array([number + 2, number / 2])
        (path,) = layer.get_paths()
        drawn = {(float(x), round(float(y), 6)) for x, y in path.vertices}
        assert layer.get_label() == label
        assert {(float(x), round(float(y), 6)) for edge in (below, above) for x, y in enumerate(edge)} <= drawn
        below = above


def test_the_parts_of_a_hops_delay_are_distributions_in_milliseconds() -> None:
    hops = {
        "d_sndbuf_ns": [1_000_000, 3_000_000, None],
        "d_wire_ns": [50_000_000, 20_000_000, None],
        "d_rcv_ns": [100, 2_000_000, 4_000_000],
        "asked_delay_ms": [20.0, 50.0, 70.0],
    }
    (axes,) = panels(figures.hop_delay(Shown(hops=hops)))
    assert curve(axes, "send buffer, median 2 ms") == [(1, 0.5), (3, 1)]
    assert curve(axes, "wire, median 35 ms") == [(20, 0.5), (50, 1)]
    assert curve(axes, "receive, median 2 ms") == [(0.001, round(1 / 3, 9)), (2, round(2 / 3, 9)), (4, 1)]
    assert [x for x, _ in curve(axes, "one-way delay asked for")] == [20, 50, 70]


def test_round_trips_are_asked_against_measured_with_the_error_by_phase() -> None:
    achieved = {
        "phase": ["before", "before", "before", "after"],
        "asked_rtt_ms": [10.0, 20.0, 30.0, 10.0],
        "rtt_ms": [10.5, 19.0, None, 12.0],
        "error_ms": [0.5, 1.0, None, 2.0],
    }
    left, right = panels(figures.rtt_error(Shown(achieved=achieved)))
    pairs, after, _ = (list(zip(*line.get_data(), strict=True)) for line in left.get_lines())
    assert pairs == [(10, 10.5), (20, 19)]
    assert after == [(10, 12)]
    assert curve(right, "before, n = 2") == [(0.5, 0.5), (1, 1)]
    assert curve(right, "after, n = 1") == [(2, 1)]


def test_fidelity_shows_every_second_in_milliseconds_and_shares() -> None:
    table = {
        "at_ns": [ZERO_NS - SECOND, ZERO_NS, ZERO_NS + 2 * SECOND],
        "lateness_p50_ns": [20_000, 30_000, 40_000],
        "lateness_p99_ns": [90_000, 100_000, 110_000],
        "lateness_max_ns": [200_000, 300_000_000, 400_000],
        "busy_ratio": [0.1, 0.2, 0.3],
        "cpu_busy_ratio": [0.5, 0.6, 0.7],
        "cpu_some_ratio": [None, None, None],
    }
    upper, lower = panels(figures.fidelity(Shown(fidelity=table)))
    assert curve(upper, "median") == [(-1, 0.02), (0, 0.03), (2, 0.04)]
    assert curve(upper, "99th percentile") == [(-1, 0.09), (0, 0.1), (2, 0.11)]
    assert curve(upper, "worst") == [(-1, 0.2), (0, 300), (2, 0.4)]
    assert curve(lower, "data plane's core") == [(-1, 0.1), (0, 0.2), (2, 0.3)]
    assert curve(lower, "machine") == [(-1, 0.5), (0, 0.6), (2, 0.7)]
    assert not [line for line in lower.get_lines() if str(line.get_label()).startswith("tasks")], "nothing is known"


def test_the_map_has_the_hosts_and_a_great_circle_per_link(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = pd.DataFrame(
        {"site": ["A", "B", "C"], "latitude": [0.0, 0.0, 50.0], "longitude": [10.0, 40.0, -100.0]}, index=[0, 1, 2]
    )
    run = Shown()
    run.hosts = hosts
    monkeypatch.setattr(run, "host_links", lambda: [(0, 1)])
    (axes,) = panels(figures.world(run))
    (places,) = [each for each in axes.collections if isinstance(each, PathCollection)]
    assert [tuple(map(float, place)) for place in places.get_offsets()] == [(10, 0), (40, 0), (-100, 50)]
    (links,) = [each for each in axes.collections if isinstance(each, LineCollection)]
    (segment,) = links.get_segments()
    assert segment[0] == pytest.approx([10, 0]) and segment[-1] == pytest.approx([40, 0])
    assert np.abs(segment[:, 1]).max() < 1e-9, "the equator is a great circle"
    assert [text.get_text() for text in axes.texts] == ["A", "B", "C"]
