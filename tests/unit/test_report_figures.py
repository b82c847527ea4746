"""The report's figures by what they draw: the data of their axes against numbers counted by hand."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.patches import StepPatch

from metrics.report.figures import network, overlay, results
from metrics.report.figures.chapter import Draw, Drawing
from metrics.report.figures.world import draw_world
from metrics.report.run import Run
from metrics.totals import Totals
from tests.fabricated_totals import make_totals
from tests.grouped_tables import grouped

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
    scrape_interval_s = 2.0
    dilation = 2.0
    is_asked_for = True
    grouped = grouped

    def hides(self, *_: str) -> bool:
        return False

    def table(self, name: str) -> pd.DataFrame | None:
        return self._tables.get(name)

    @property
    def totals(self) -> Totals:
        rows = {name: self._tables[name] for name in ("deliveries", "received", "hops") if name in self._tables}
        return make_totals(ZERO_NS, **rows, adversaries=self.adversaries)

    def achieved(self) -> pd.DataFrame | None:
        return self.table("achieved")

    def samples(self, metric: str) -> pd.DataFrame | None:
        return self.table(metric)


def panels(drawing: Drawing | None) -> list[Axes]:
    assert drawing is not None
    return drawing.canvas.axes


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

SHARING: Columns = {
    "source": ["trace"] * 4 + ["wire"] * 2 + ["trace"],
    "at_ns": [ZERO_NS, ZERO_NS, ZERO_NS + SECOND, ZERO_NS + SECOND, ZERO_NS, ZERO_NS, ZERO_NS],
    "node": [1, 2, 1, 2, 1, 2, ADVERSARY],
    "view_size_total": [4, 6, 8, 8, 3, 4, 90],
    "degree": [2, 3, 2, 2, 2, 1, 90],
}

DEGREES: Columns = {
    "at_ns": [ZERO_NS, ZERO_NS + 1, ZERO_NS + 1, ZERO_NS + 1],
    "degree": [7, 2, 2, 3],
    "view_size_unique": [7, 1, 1, 4],
    "in_degree": [7, 0, 2, 4],
    "opened": [7, 2, 1, 2],
}

RECEIVED: Columns = {
    "dst_node": [1, 1, 1, 1, 2, 3],
    "at_relay": [True, False, False, False, False, True],
    "publish_ns": [ZERO_NS + 2 * SECOND - 1, *[ZERO_NS + SECOND] * 3, ZERO_NS, ZERO_NS],
}

TOPICS: Columns = {
    "at_ns": [0, 5, 5, 5],
    "subscribers": [9, 3, 4, 4],
    "components": [9, 1, 2, 2],
    "diameter": [9, 2, 3, 4],
}

EPOCHS: Columns = {
    "epoch": [0, 1],
    "latency_ms_mean": [50.0, 40.0],
    "delivery_ratio": [0.9, 1.0],
    "score_mean": [3.0, 2.0],
}

HOPS: Columns = {
    "d_sndbuf_ns": [1_000_000, 3_000_000, None],
    "d_wire_ns": [50_000_000, 20_000_000, None],
    "d_rcv_ns": [100, 2_000_000, 4_000_000],
    "asked_delay_ms": [20.0, 50.0, 70.0],
}

ACHIEVED: Columns = {
    "phase": ["before", "before", "before", "after"],
    "asked_rtt_ms": [10.0, 20.0, 30.0, 10.0],
    "rtt_ms": [10.5, 19.0, None, 12.0],
    "error_ms": [0.5, 1.0, None, 2.0],
}

FIDELITY: Columns = {
    "at_ns": [ZERO_NS - SECOND, ZERO_NS, ZERO_NS + 2 * SECOND],
    "lateness_p50_ns": [20_000, 30_000, 40_000],
    "lateness_p99_ns": [90_000, 100_000, 110_000],
    "lateness_max_ns": [200_000, 300_000_000, 400_000],
    "busy_ratio": [0.1, 0.2, 0.3],
    "cpu_busy_ratio": [0.5, 0.6, 0.7],
    "cpu_some_ratio": [None, None, None],
}

STALLS: Columns = {
    "source": ["host", "plane", "host"],
    "start_ns": [ZERO_NS, ZERO_NS + 1, ZERO_NS + 2],
    "end_ns": [ZERO_NS + 2_500_000, ZERO_NS + 20_000_001, ZERO_NS + 19_000_002],
}

BYTES: Columns = {"second_ns": [ZERO_NS, ZERO_NS, ZERO_NS + SECOND]}
BYTES |= {name: [1000 * number, 2000, 500 * number] for number, (name, _, _) in enumerate(network.OVERHEAD, 1)}


def test_delays_step_up_by_every_expected_delivery_of_honest_nodes() -> None:
    (axes,) = panels(results.delay_cdf(Shown(deliveries=DELIVERIES)))
    assert curve(axes, "overlay") == [(10.0, 0.2), (20.0, 0.4), (30.0, 0.6)]
    assert curve(axes, "direct path") == [(2, 0.2), (4, 0.4), (6, 0.6), (8, 0.8), (9, 1)]


def test_delivery_ratios_are_by_second_and_by_topic() -> None:
    seconds, topics = panels(results.delivery_ratio(Shown(deliveries=DELIVERIES)))
    assert curve(seconds, "") == [(0, 1.0), (2, 0.333333333)]
    (stairs,) = topics.patches
    assert isinstance(stairs, StepPatch)
    assert stairs.get_data().values.tolist() == pytest.approx([1 / 3, 1]) and list(stairs.get_data().edges) == [0, 1, 2]


def test_duplicates_are_shares_of_the_deliveries_made() -> None:
    (axes,) = panels(results.duplicates(Shown(deliveries=DELIVERIES)))
    assert bars(axes) == [(0, pytest.approx(1 / 3)), (2, pytest.approx(2 / 3))]


def test_links_are_means_per_honest_node_by_instant_and_source() -> None:
    (axes,) = panels(overlay.link_sharing(Shown(sharing=SHARING)))
    assert curve(axes, "logical links, traces") == [(0, 5), (1, 8)]
    assert curve(axes, "physical links, traces") == [(0, 2.5), (1, 2)]
    assert curve(axes, "logical links, wire") == [(0, 3.5)]
    assert curve(axes, "physical links, wire") == [(0, 1.5)]


def test_links_after_the_workload_are_drawn_but_not_what_the_text_says() -> None:
    last = {"source": "trace", "at_ns": ZERO_NS + 9 * SECOND, "node": 1, "view_size_total": 0, "degree": 0}
    after = {name: [*values, last[name]] for name, values in SHARING.items()}
    drawing = overlay.link_sharing(Shown(sharing=after))
    assert curve(*panels(drawing), "physical links, traces")[-1] == (9, 0)
    assert drawing.seen.startswith("At the workload's end 8 logical links per node and 2 physical")


def test_a_run_without_captures_has_no_marks_of_the_wire() -> None:
    traced = {name: values[:4] for name, values in SHARING.items()}
    (axes,) = panels(overlay.link_sharing(Shown(sharing=traced)))
    assert [line.get_label() for line in axes.get_lines()] == ["logical links, traces", "physical links, traces"]


def test_degrees_are_those_of_the_last_instant() -> None:
    (axes,) = panels(overlay.degrees(Shown(overlay_degrees=DEGREES)))
    assert bars(axes) == [(2, 2), (3, 1)]
    assert curve(axes, "opened by it, mean 1.67") == [(-1, 0), (0, 0), (1, 1), (2, 2), (3, 0)]
    assert curve(axes, "in its views, mean 2.00") == [(-1, 0), (0, 0), (1, 2), (2, 0), (3, 0), (4, 1), (5, 0)]
    assert curve(axes, "have it in a view, mean 2.00") == [(-1, 0), (0, 1), (1, 0), (2, 1), (3, 0), (4, 1), (5, 0)]
    assert {line.get_drawstyle() for line in axes.get_lines()} == {"steps-mid"}, "no counts between whole numbers"


def test_traffic_overhead_is_by_second_of_publication_and_by_node() -> None:
    seconds, nodes = panels(results.traffic_overhead(Shown(received=RECEIVED)))
    assert curve(seconds, "") == [(0, 0.5), (1, 0.25)]
    assert curve(nodes, "") == [(0, 0.333333333), (0.25, 0.666666667), (1, 1)]
    assert results.traffic_overhead(Shown(received={name: [] for name in RECEIVED})) is None


def test_a_topic_is_a_point_of_its_subscribers_and_its_overlay() -> None:
    upper, lower = panels(overlay.topic_overlays(Shown(overlay_topics=TOPICS)))
    (one, two), (each,) = upper.collections, lower.collections
    assert [points.get_offsets().tolist() for points in (one, two)] == [[[3, 1]], [[4, 2]]]
    assert each.get_offsets().tolist() == [[3, 2], [4, 3], [4, 4]]
    assert two.get_sizes() == 2 * one.get_sizes() == 2 * each.get_sizes(), "two topics are in the same place"


def test_learning_shows_each_epochs_delay_ratio_and_score() -> None:
    drawn = [line.get_data() for axes in panels(results.learning(Shown(epochs=EPOCHS))) for line in axes.get_lines()]
    assert [list(zip(*data, strict=True)) for data in drawn] == [
        [(0, 50.0), (1, 40.0)],
        [(0, 0.9), (1, 1.0)],
        [(0, 3.0), (1, 2.0)],
    ]


def test_bytes_on_the_wire_are_stacked_by_class_and_second() -> None:
    (axes,) = panels(network.overhead(Shown(overhead=BYTES)))
    below = np.zeros(2)
    for number, (layer, (_, label, _)) in enumerate(zip(axes.collections, network.OVERHEAD, strict=True), 1):
        above = below + np.array([number + 2, number / 2])
        (path,) = layer.get_paths()
        drawn = {(float(x), round(float(y), 6)) for x, y in path.vertices}
        assert layer.get_label() == label
        assert {(float(x), round(float(y), 6)) for edge in (below, above) for x, y in enumerate(edge)} <= drawn
        below = above


def test_the_parts_of_a_hops_delay_are_distributions_in_milliseconds() -> None:
    (axes,) = panels(network.hop_delay(Shown(hops=HOPS)))
    assert curve(axes, "send buffer, median 2 ms") == [(1, 0.5), (3, 1)]
    assert curve(axes, "wire, median 35 ms") == [(20, 0.5), (50, 1)]
    assert curve(axes, "receive, median 2 ms") == [(0.001, round(1 / 3, 9)), (2, round(2 / 3, 9)), (4, 1)]
    assert [x for x, _ in curve(axes, "one-way delay asked for")] == [20, 50, 70]


def test_round_trips_are_asked_against_measured_with_the_error_by_phase() -> None:
    left, right = panels(network.rtt_error(Shown(achieved=ACHIEVED)))
    pairs, after, _ = (list(zip(*line.get_data(), strict=True)) for line in left.get_lines())
    assert pairs == [(10, 10.5), (20, 19)]
    assert after == [(10, 12)]
    assert curve(right, "before, n = 2") == [(0.5, 0.5), (1, 1)]
    assert curve(right, "after, n = 1") == [(2, 1)]


def test_fidelity_shows_every_second_in_milliseconds_and_shares() -> None:
    upper, lower = panels(network.fidelity(Shown(fidelity=FIDELITY)))
    assert curve(upper, "median") == [(-1, 0.02), (0, 0.03), (2, 0.04)]
    assert curve(upper, "99th percentile") == [(-1, 0.09), (0, 0.1), (2, 0.11)]
    assert curve(upper, "worst") == [(-1, 0.2), (0, 300), (2, 0.4)]
    assert curve(lower, "data plane's core") == [(-1, 0.1), (0, 0.2), (2, 0.3)]
    assert curve(lower, "machine") == [(-1, 0.5), (0, 0.6), (2, 0.7)]
    assert not [line for line in lower.get_lines() if str(line.get_label()).startswith("tasks")], "nothing is known"


def scraped(*rows: tuple[int, float, float]) -> Columns:
    """Samples of (node, second, value)."""
    return {
        "node": [node for node, _, _ in rows],
        "ts_ns": [ZERO_NS + round(second * SECOND) for _, second, _ in rows],
        "value": [value for _, _, value in rows],
    }


CPU = scraped((0, -1.5, 1.0), (0, 0.5, 1.4), (0, 2.5, 0.1), (0, 4.5, 0.9), (1, -1.0, 2.0), (1, 1.0, 3.6), (1, 3.0, 3.6))
MEMORY = scraped((0, -1.5, 4 << 20), (0, 0.5, 5 << 20), (1, 1.9, 15 << 20))


def test_peers_are_shown_by_scrape_interval_with_the_median_and_the_highest() -> None:
    """Two virtual seconds have four real ones. A counter that was set back, at 2.5 s, has no rate there."""
    run = Shown(process_cpu_seconds_total=CPU, process_resident_memory_bytes=MEMORY)
    processor, memory = panels(network.peer_resources(run))
    assert curve(processor, "highest") == [(0, 40), (2, 0), (4, 20)]
    assert curve(processor, "median") == [(0, 25), (2, 0), (4, 20)]
    assert curve(memory, "highest") == [(-2, 4), (0, 15)]
    assert curve(memory, "median") == [(-2, 4), (0, 10)]


@pytest.mark.parametrize(
    ("draw", "tables", "seen"),
    [
        (
            results.delay_cdf,
            {"deliveries": DELIVERIES},
            "3 of 5 expected deliveries made: half of them within 20 ms, 99 % within 29.8 ms, all within 30 ms. "
            "The direct paths take 6 ms (median).",
        ),
        (
            results.delivery_ratio,
            {"deliveries": DELIVERIES},
            "60 % of the expected deliveries were made. Below 100 %: 1 of 2 seconds (down to 33.3 % in second 2) "
            "and 1 of 2 topics (down to 33.3 % for topic 6).",
        ),
        (
            results.delivery_ratio,
            {"deliveries": {name: values[:2] for name, values in DELIVERIES.items()}},
            "100 % of the expected deliveries were made. No second and no topic is below 100 %.",
        ),
        (
            results.duplicates,
            {"deliveries": DELIVERIES},
            "A delivery comes with 1.33 duplicates on average and at most 2; most often with 2 (66.7 % of the "
            "deliveries).",
        ),
        (
            results.traffic_overhead,
            {"received": RECEIVED},
            "33.3 % of 6 received copies are at nodes that do not want them; this share is 25 % at the median "
            "node and at most 100 %.",
        ),
        (
            results.learning,
            {"epochs": EPOCHS},
            "From epoch 0 to 1 the mean delay goes from 50 to 40 ms, the delivery ratio from 90 % to 100 %.",
        ),
        (
            overlay.link_sharing,
            {"sharing": SHARING},
            "At the workload's end 8 logical links per node and 2 physical links per node by the traces, 3.5 and 1.5 "
            "on the wire.",
        ),
        (
            overlay.degrees,
            {"overlay_degrees": DEGREES},
            "3 nodes with 2 to 3 physical links, 2.33 on average, of which a node opened 1.67. Views contain 2 "
            "different nodes on average and at most 4.",
        ),
        (
            overlay.topic_overlays,
            {"overlay_topics": TOPICS},
            "3 topics with 3 to 4 subscribers: 1 with one component, 2 with more (at most 2 components). The "
            "largest diameter is 4 links.",
        ),
        (
            network.hop_delay,
            {"hops": HOPS},
            "Median parts of a hop's delay: send buffer 2 ms (99 % within 2.98 ms), wire 35 ms (99 % within 49.7 "
            "ms), receive 2 ms (99 % within 3.96 ms). One-way delay asked for: 50 ms.",
        ),
        (
            network.overhead,
            {"overhead": BYTES},
            "85.5 kB in all, at most 63 kB in one second (second 0): payload, first copy 4.1 %, payload, duplicate or"
            " relayed 5.8 %, framing 7.6 %, overlay control 9.4 %, payload in no known frame 11.1 %, retransmitted 12.9"
            " %, pure ACK 14.6 %, IP, TCP and UDP headers 16.4 %, other (probes) 18.1 %.",
        ),
        (
            network.rtt_error,
            {"achieved": ACHIEVED},
            "Before the workload 2 probes, half within 0.75 ms of what was asked for, 99 % within 0.995 ms; after"
            " the workload 1 probe, half within 2 ms of what was asked for, 99 % within 2 ms.",
        ),
        (
            network.fidelity,
            {"fidelity": FIDELITY, "stalls": STALLS},
            "In the median second, 99 % of the packets left within 0.1 ms of their due time; the worst packet was"
            " 300 ms late (second 0). The data plane used up to 30 % of its core. 2 stalls of the host, the "
            "longest 19 ms. 1 gap of the data plane, the longest 20 ms.",
        ),
        (
            network.peer_resources,
            {"process_cpu_seconds_total": CPU, "process_resident_memory_bytes": MEMORY},
            "Of one peer, processor at most 40 %; memory at most 15 MiB.",
        ),
    ],
)
def test_what_is_seen_is_said_with_numbers(draw: Draw, tables: dict[str, Columns], seen: str) -> None:
    drawing = draw(Shown(**tables))
    assert drawing is not None
    assert drawing.seen == seen


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("name", "shown"), [("a\rb\x00", "a\ufffdb\ufffd"), ("\u6771\u4eac", "\u6771\u4eac")])
def test_the_map_shows_any_name(name: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Shown()
    run.hosts = pd.DataFrame({"site": [name], "latitude": [0.0], "longitude": [10.0]}, index=[0])
    monkeypatch.setattr(run, "host_links", list)
    (axes,) = panels(draw_world(run))
    assert [text.get_text() for text in axes.texts] == [shown]


def test_the_map_has_the_hosts_and_a_great_circle_per_link(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = pd.DataFrame(
        {"site": ["A", "B", "C"], "latitude": [0.0, 0.0, 50.0], "longitude": [10.0, 40.0, -100.0]}, index=[0, 1, 2]
    )
    run = Shown()
    run.hosts = hosts
    monkeypatch.setattr(run, "host_links", lambda: [(0, 1)])
    (axes,) = panels(draw_world(run))
    (places,) = [each for each in axes.collections if isinstance(each, PathCollection)]
    assert [tuple(map(float, place)) for place in places.get_offsets()] == [(10, 0), (40, 0), (-100, 50)]
    (links,) = [each for each in axes.collections if isinstance(each, LineCollection)]
    (segment,) = links.get_segments()
    assert segment[0] == pytest.approx([10, 0]) and segment[-1] == pytest.approx([40, 0])
    assert np.abs(segment[:, 1]).max() < 1e-9, "the equator is a great circle"
    assert [text.get_text() for text in axes.texts] == ["A", "B", "C"]
    drawing = draw_world(run)
    assert drawing is not None
    assert drawing.seen == (
        "3 hosts at 3 sites, 1 link. The median link spans 3,336 km, the longest 3,336 km. A host in A has the most "
        "links: 1."
    )


FAULTS = {
    "fault": [0, 0, 0, 1, 1, 1],
    "phase": ["before", "during", "after"] * 2,
    "from_ns": [ZERO_NS, ZERO_NS + SECOND, ZERO_NS + 2 * SECOND, ZERO_NS, ZERO_NS + 3 * SECOND, ZERO_NS + 4 * SECOND],
    "to_ns": [ZERO_NS + SECOND, ZERO_NS + 2 * SECOND, ZERO_NS + 3 * SECOND, *[ZERO_NS + 4 * SECOND] * 3],
}


def test_each_fault_has_a_bar_per_phase_of_its_delivery_ratio_and_delay():
    ratios, delays = [1.0, 0.5, 0.75, 1.0, 0.25, None], [10.0, 30.0, 20.0, 10.0, 40.0, None]
    more = {"delivery_ratio": ratios, "latency_ms_p99": delays, "recovered_ms": [None, None, 1500.0, None, None, None]}
    drawing = results.faults(Shown(faults=FAULTS | more))
    assert drawing is not None
    shown = [[height for place, height in sorted(bars(axes)) if not np.isnan(height)] for axes in panels(drawing)]
    assert shown == [[each for each in values if each is not None] for values in (ratios, delays)]
    assert drawing.seen == (
        "Fault 0: 100 % before it, 50 % during it, 75 % after it delivered, recovered after 1.5 s. "
        "Fault 1: 100 % before it, 25 % during it delivered."
    )


def test_faults_are_bands_on_time_axes_whose_limits_stay():
    plain, marked = (results.delivery_ratio(Shown(deliveries=DELIVERIES, **more)) for more in ({}, {"faults": FAULTS}))
    before, after = panels(plain)[0], panels(marked)[0]
    assert marked is not None and plain is not None
    assert "Red bands mark 2 faults." in marked.seen
    assert "Red bands" not in plain.seen
    bands = [(float(band.get_x()), float(band.get_x() + band.get_width())) for band in after.patches]
    assert bands == [(1.0, 2.0), (3.0, 4.0)]
    assert after.get_xlim() == before.get_xlim()
