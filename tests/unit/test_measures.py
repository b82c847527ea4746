"""The registry of measures: names, units and texts, the documents made from it, and what is computed of which facts."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.studies.measures import MEASURES as OF_STUDIES
from harness.studies.measures import PUBLISHED, SEEN, WINDOWED
from metrics.measures import snapshots
from metrics.measures.attacks import SLOTS, Slots
from metrics.measures.deliveries import DELIVERIES, Deliveries, TopicDeliveries
from metrics.measures.emulation import EMULATION, EmulationFacts
from metrics.measures.groups import GROUPS, NEWCOMERS
from metrics.measures.interests import INTERESTS, LEVELS, Interests
from metrics.measures.learning import LEARNING, SCORES
from metrics.measures.measure import Family, Measure
from metrics.measures.registry import HEADLINE, MEASURES, OVERLAY, STUDIED, find_measure
from metrics.measures.resources import RESOURCES, Resources
from metrics.measures.traffic import TRAFFIC, Traffic
from metrics.measures.underlay import UNDERLAY
from metrics.overlay.interests import correlate, correlate_topics, intersect_top
from metrics.overlay.snapshot import Snapshot
from metrics.report.page import label_of
from metrics.report.values import format_value
from metrics.tables.schemas import TABLES
from peer.core.frames import Bye, Data, Hello, Subscriptions
from peer.protocols.registry import background_kinds

GOLDEN = Path(__file__).parents[1] / "golden" / "fabricated-summary.json"


def test_every_measure_has_a_name_and_a_text_of_its_own() -> None:
    measures = [measure for family in STUDIED for measure in family.measures]
    assert len({measure.name for measure in measures}) == len(measures)
    assert OF_STUDIES.keys() <= MEASURES.keys()
    assert len({measure.text for measure in MEASURES.values()}) == len(MEASURES)


@pytest.mark.parametrize("measure", MEASURES.values(), ids=list(MEASURES))
def test_a_name_agrees_with_its_unit(measure: Measure[Any]) -> None:
    assert ("_ms" in measure.name) == (measure.unit == "ms")
    assert measure.name.endswith("_per_s") == measure.unit.endswith("/s")
    if measure.name.endswith("_ratio"):
        assert (measure.unit == "ratio") == (measure.name != "link_sharing_ratio"), "of link sharing it is above 1"


def test_the_headline_has_these_numbers_in_this_order() -> None:
    recorded = list(json.loads(GOLDEN.read_text(encoding="utf-8"))["headline"])
    assert [name for name in HEADLINE if name in recorded] == recorded
    assert all(find_measure(name) for name in HEADLINE)
    assert find_measure("messages_published") is MEASURES["messages"]
    assert find_measure("of_another_version") is None


NOT_IN_TABLES = {"subscriber_distance_mean": 1.0, "view_diameter": 1, "view_path_length_mean": 1.0}
"""Measures of a snapshot that only studies compute, with their values of ``SQUARE``."""


def test_the_overlays_columns_are_the_single_numbers_of_a_snapshot() -> None:
    plain = [measure.name for family in OVERLAY for measure in family.measures if not measure.by]
    for name in NOT_IN_TABLES:
        plain.remove(name)
    assert list(TABLES["overlay"]) == ["at_ns", *plain]
    assert list(snapshots.measure_overlay(SQUARE)) == plain


def test_studies_know_what_is_seen_at_snapshots_and_what_needs_messages() -> None:
    assert {"nodes", "degrees", "diameter", "subscriber_distances", "topics", "adversary_slots_ratio"} <= SEEN
    assert {*DELIVERIES.names, *GROUPS.names, *NEWCOMERS.names, *UNDERLAY.names, *SCORES.names} == PUBLISHED
    assert {*DELIVERIES.names, *GROUPS.names, *NEWCOMERS.names, *UNDERLAY.names} == WINDOWED, (
        "scores belong to a node's epochs, not to a time of publication"
    )
    assert not {"subscriptions_mean", "frames", "disclosure_ratio"} & (SEEN | PUBLISHED)
    assert not {*EMULATION.names, *LEARNING.names} & OF_STUDIES.keys()


# ------------------------------------------------------------------------------------------------- families

DOUBLED = Family[int]("doubles")
DOUBLED.add("double", "", "twice the number", lambda it: 2 * it)
DOUBLED.add("inverse", "", "one over the number", lambda it: 1 / it if it else None)
DOUBLED.add("below", "numbers", "the numbers below, squared", lambda it: ((n, n * n) for n in range(it)), "number")


def test_values_are_those_asked_for_in_order_and_nothing_where_there_is_none() -> None:
    everything = ("below", "inverse", "double", "unknown")
    assert DOUBLED.values(2, everything) == [
        ("double", None, 4),
        ("inverse", None, 0.5),
        ("below", 0, 0),
        ("below", 1, 1),
    ]
    assert DOUBLED.values(0, everything) == [("double", None, 0)]
    assert DOUBLED.values(3, {"inverse"}) == [("inverse", None, 1 / 3)]


def test_numbers_are_all_but_counts_and_none_where_there_is_none() -> None:
    assert DOUBLED.numbers(4) == {"double": 8, "inverse": 0.25}
    assert list(DOUBLED.numbers(0).items()) == [("double", 0), ("inverse", None)]


def test_statistics_of_an_array_are_measures_named_after_them() -> None:
    family = Family[list[int]]("arrays")
    family.add_statistics("size_ms", "ms", "size of a thing", np.array, "mean", "p50", "p99", "max")
    found = family.numbers([5, 1, 2, 4])
    assert found == {"size_ms_mean": 3, "size_ms_p50": 3, "size_ms_p99": pytest.approx(4.97), "size_ms_max": 5}
    assert type(found["size_ms_max"]) is int
    assert [each.text for each in family.measures] == [
        f"size of a thing, {words}" for words in ("mean", "median", "99th percentile", "largest")
    ]
    assert set(family.numbers([]).values()) == {None}


def test_missing_counts_are_zero_but_missing_topics_and_quantiles_are_not() -> None:
    counted = {measure.by: measure.counts for measure in MEASURES.values()}
    zero = dict.fromkeys(("degree", "rank", "kind", "length", "percent"), True)
    assert counted == zero | {"": False, "topic": False, "quantile": False}


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("delivery_ratio", 0.9876, "98.76%"),
        ("propagation_delay_ms_p50", 79.5612, "79.56 ms"),
        ("degree_mean", 7.4667, "7.467"),
        ("topics_partitioned", 0, "0"),
        ("topic_diameter_max", 3, "3 links"),
        ("link_sharing_ratio", 1.25, "1.25"),
        ("control_bytes_per_peer_per_s", 193.4, "193.4 bytes/s"),
    ],
)
def test_values_are_shown_with_their_unit_unless_the_text_names_it(name: str, value: float, shown: str) -> None:
    assert format_value(MEASURES[name], value) == shown


def test_labels_have_the_meaning_and_the_unit() -> None:
    assert label_of("propagation_delay_ms_mean") == "propagation delay, mean (ms)"
    assert label_of("messages_published") == "messages published"
    assert label_of("of_another_version") == ""


# ------------------------------------------------------------------------------------------------- formulas

SQUARE = Snapshot.of(range(4), [(0, 7), (1, 7)], [(0, 1), (1, 2), (2, 3), (0, 3)], [(0, 1, 7), (1, 0, 7)])


def test_a_snapshots_values_are_those_of_the_table() -> None:
    numbers = {name: value for name, value in snapshots.measure_overlay(SQUARE).items() if value is not None}
    values = snapshots.measure_snapshot(SQUARE, {measure.name for family in OVERLAY for measure in family.measures})
    found = {name: value for name, by, value in values if by is None}
    assert found == numbers | NOT_IN_TABLES
    counts = [(name, by, value) for name, by, value in values if by is not None]
    assert ("degrees", 2, 4) in counts
    assert ("out_degrees", 1, 2) in counts and ("out_degrees", 0, 2) in counts
    assert ("in_degrees", 1, 2) in counts and ("in_degrees", 0, 2) in counts
    assert ("subscriber_distances", 1, 1) in counts
    assert all(value for _, _, value in counts)


def test_of_a_snapshot_nothing_is_computed_that_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def measure_topics(snapshot: Snapshot, *, diameters: bool) -> list[Any]:
        asked.append(diameters)
        return []

    for name in ("count_links", "measure_graph", "count_distances", "directed_paths"):
        monkeypatch.setattr(snapshots, name, lambda snapshot: pytest.fail("not wanted"))
    monkeypatch.setattr(snapshots, "measure_topics", measure_topics)
    assert snapshots.measure_snapshot(SQUARE, {"nodes", "messages"}) == [("nodes", None, 4)]
    assert asked == []
    assert snapshots.measure_snapshot(SQUARE, ["topics"]) == [("topics", None, 0)]
    snapshots.measure_snapshot(SQUARE, ["topics", "topic_diameter_max"])
    assert asked == [False, True]


def test_paths_over_views_follow_their_direction() -> None:
    ring = [(0, 1, 7), (1, 2, 7), (2, 3, 7), (2, 3, 8), (3, 0, 8)]
    names = {"diameter", "view_diameter", "view_path_length_mean"}
    pairs = [(node, peer) for node, peer, _ in ring]
    found = snapshots.measure_snapshot(Snapshot.of(range(5), [], pairs, ring), names)
    assert found == [("diameter", None, 2), ("view_diameter", None, 3), ("view_path_length_mean", None, 2.0)]
    # without the last arc, no node reaches those before it
    chain = snapshots.measure_snapshot(Snapshot.of(range(5), [], pairs, ring[:-1]), names)
    assert chain == [("diameter", None, 2), ("view_diameter", None, 3), ("view_path_length_mean", None, 10 / 6)]
    nothing = snapshots.measure_snapshot(Snapshot.of(range(5), [], pairs, []), names)
    assert nothing == [("diameter", None, 2), ("view_diameter", None, 0)]


def test_nobody_is_measured_where_no_node_is_up() -> None:
    empty = Snapshot.of([], [(1, 2)], [(1, 2)], [(1, 2, 3)])
    assert snapshots.measure_snapshot(empty, MEASURES) == []


counts = st.integers(0, 20)


@given(counts, counts, counts, st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 255)), max_size=30))
def test_deliveries_are_counted_as_their_names_say(
    missed: int, relays: int, duplicates: int, arrived: list[tuple[int, int]]
) -> None:
    delivered = len(arrived)
    delays_ns, hops = [delay_ns for delay_ns, _ in arrived], [hops for _, hops in arrived]
    copies = delivered + relays + duplicates
    facts = Deliveries(
        messages=3,
        expected=delivered + missed,
        delivered=delivered,
        delays_ms=np.array(delays_ns, np.int64) / 1e6,
        hops=np.array(hops, np.uint8),
        relays=relays,
        duplicates=duplicates,
        copies=np.array([copies] if copies else [], np.int64),
        at_relay=np.array([relays] if copies else [], np.int64),
        reached=min(delivered, 2),
        last_hops=12,
    )
    found = DELIVERIES.numbers(facts)
    assert found["last_hop_mean"] == (12 / min(delivered, 2) if delivered else None)
    assert (found["messages"], found["deliveries_expected"]) == (3, delivered + missed)
    assert found["delivery_ratio"] == (delivered / (delivered + missed) if delivered + missed else None)
    assert found["relay_ratio"] == (relays / copies if copies else None)
    ordered = sorted(delay / 1e6 for delay in delays_ns)
    if not ordered:
        of_delivered = {name for name in found if name.startswith(("propagation", "hops", "duplicates"))}
        assert {found[name] for name in of_delivered} == {None}
        return
    assert found["duplicates_per_delivery"] == duplicates / delivered
    assert (found["hops_mean"], found["hops_max"]) == (pytest.approx(sum(hops) / delivered), max(hops))
    by_hops = [("delivery_hops", count, hops.count(count)) for count in sorted({*hops})]
    assert DELIVERIES.values(facts, ["delivery_hops"]) == by_hops
    assert found["propagation_delay_ms_mean"] == pytest.approx(sum(ordered) / delivered)
    assert found["propagation_delay_ms_max"] == ordered[-1]
    for percent in (50, 90, 99):
        place = (delivered - 1) * percent / 100
        low, high = ordered[int(place)], ordered[min(int(place) + 1, delivered - 1)]
        expected = low + (place - int(place)) * (high - low)
        assert found[f"propagation_delay_ms_p{percent}"] == pytest.approx(expected, abs=1e-9)


received = st.lists(st.integers(1, 400).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), max_size=40)


@given(received)
@example([(400, 80), (400, 81), (400, 40), (400, 41), (5, 1), (3, 0), (100, 29)])
def test_traffic_overhead_is_over_all_copies_and_over_those_of_each_node(nodes: list[tuple[int, int]]) -> None:
    copies, at_relay = [copies for copies, _ in nodes], [relayed for _, relayed in nodes]
    facts = Deliveries(0, 0, 0, np.empty(0), copies=np.array(copies, np.int64), at_relay=np.array(at_relay, np.int64))
    found = DELIVERIES.numbers(facts)
    shares = [Fraction(relayed, copies) for copies, relayed in nodes]
    if not nodes:
        assert {value for name, value in found.items() if "overhead" in name} == {None}
        return
    assert found["traffic_overhead_ratio"] == sum(at_relay) / sum(copies)
    assert found["node_traffic_overhead_ratio_mean"] == pytest.approx(float(sum(shares) / len(shares)))
    assert found["node_traffic_overhead_ratio_max"] == float(max(shares))
    for percent in (10, 20):
        above = sum(share > Fraction(percent, 100) for share in shares)
        assert found[f"traffic_overhead_above_{percent}_ratio"] == above / len(shares)
    by_percent = {percent: count for _, percent, count in DELIVERIES.values(facts, ["node_traffic_overheads"])}
    for percent in range(101):
        up_to = sum(count for each, count in by_percent.items() if each <= percent)
        assert up_to == sum(share <= Fraction(percent, 100) for share in shares)


def test_topics_have_a_ratio_where_any_is_expected_and_a_delay_where_any_is_delivered() -> None:
    topics = {1: TopicDeliveries(4, 2, 6_000_000), 5: TopicDeliveries(3, 0, 0), 9: TopicDeliveries()}
    facts = Deliveries(0, 0, 0, np.empty(0), topics=topics)
    assert DELIVERIES.values(facts, ["topic_delivery_ratio", "topic_delay_ms_mean"]) == [
        ("topic_delivery_ratio", 1, 0.5),
        ("topic_delivery_ratio", 5, 0.0),
        ("topic_delay_ms_mean", 1, 3.0),
    ]


def test_control_is_all_but_data_and_background_is_caused_by_no_change() -> None:
    background = [Hello.kind, Bye.kind, *background_kinds()]
    other = Subscriptions.kind
    assert other not in background
    frames = dict.fromkeys(background, 1000) | {Data.kind: 7, other: 12}
    facts = Traffic(frames, {Data.kind: 900, other: 60}, peer_seconds=6, changes=4)
    found = TRAFFIC.numbers(facts)
    assert found["control_frames_per_peer_per_s"] == (12 + 1000 * len(set(background))) / 6
    assert found["control_bytes_per_peer_per_s"] == 10
    assert found["control_frames_per_change"] == 3
    assert found["control_frames_per_cycle"] == 6
    by_kind = {by: value for name, by, value in TRAFFIC.values(facts, ["frames_per_change"])}
    assert by_kind == {kind: count / 4 for kind, count in frames.items()}
    assert list(by_kind) == sorted(frames)
    still = Traffic({other: 2}, {}, peer_seconds=0)
    assert TRAFFIC.values(still, TRAFFIC.names) == [("frames", other, 2)]


def test_interests_are_measured_at_each_depth_and_level() -> None:
    topics = [(0, 1, 2), (1, 2), (), (2, 3, 4), (0, 1, 2), *[(place % 7, 8) for place in range(45)]]
    pairs = np.array([(node, topic) for node, own in enumerate(topics) for topic in own])
    facts = Interests(topics, 9)
    found = INTERESTS.numbers(facts)
    assert found["subscriptions_mean"] == len(pairs) / 50
    for name, depth in (("tdi_20", 20), ("tdi_40", 40), ("tdi_2d", 6)):
        assert found[name] == intersect_top(50, pairs, depth)
    for level in LEVELS:
        percent = round(100 * level)
        assert found[f"correlated_{percent}_ratio"] == correlate(50, pairs, 9, [level])[0]
        assert found[f"topics_correlated_{percent}_ratio"] == correlate_topics(50, pairs, 9, [level])[0]
        assert f"at the {percent} % level" in MEASURES[f"correlated_{percent}_ratio"].text
    ranked = INTERESTS.values(facts, ["node_subscriptions"])
    assert [value for _, _, value in ranked] == sorted(map(len, topics), reverse=True)
    assert [by for _, by, _ in ranked] == list(range(1, 51))
    subscribers = INTERESTS.values(facts, ["topic_subscribers"])
    assert subscribers[0] == ("topic_subscribers", 1, 45)
    assert sum(value for _, _, value in subscribers) == len(pairs)


def test_slots_and_scores() -> None:
    numbers = {"adversary_slots_ratio": 0.25, "own_links_mean": 2.0, "own_links_max": 4, "own_links_p99": 3.97}
    slots = Slots(2, np.array([0, 1, 4, 3]))
    assert SLOTS.numbers(slots) == pytest.approx(numbers)
    assert SLOTS.values(slots, ["own_degrees"]) == [("own_degrees", degree, 1) for degree in (0, 1, 3, 4)]
    assert SLOTS.values(Slots(0, np.empty(0, np.int64)), SLOTS.names) == []
    scores = SCORES.values(np.array([3.0, 1.0, 2.0]), SCORES.names)
    assert scores[0] == ("score_mean", None, 2.0)
    assert [by for _, by, _ in scores[1:]] == [place / 50 for place in range(51)]
    assert (scores[1][2], scores[26][2], scores[-1][2]) == (1.0, 2.0, 3.0)


def test_learning_compares_the_first_and_the_last_epoch() -> None:
    rows = [
        {"latency_ms_mean": mean, "delivery_ratio": share} for mean, share in ((80.0, 0.5), (90.0, 0.6), (60.0, 0.75))
    ]
    assert LEARNING.numbers(rows) == {
        "epochs": 3,
        "epoch_first_delay_ms_mean": 80.0,
        "epoch_last_delay_ms_mean": 60.0,
        "epoch_last_delivery_ratio": 0.75,
        "learning_delay_reduction_ratio": 0.25,
    }


def test_the_networks_measures_are_none_without_samples() -> None:
    none, some = np.empty(0), np.arange(101.0)
    unknown = EmulationFacts(none, none, none, None, none, none, None, none, None, 0)
    assert set(EMULATION.numbers(unknown).values()) == {None}
    known = EmulationFacts(some, some + 1, some + 2, 3.0, some + 4, some + 5, 6.0, some + 7, 400.0, 8)
    found = EMULATION.numbers(known)
    assert found == {
        "least_delay_ms_p50": 50,
        "least_delay_ms_p99": 99,
        "stretch_p50": 51,
        "wire_bytes_per_delivery": 50,
        "rtt_error_ms_p50": 52,
        "rtt_error_ms_p99": 101,
        "wire_error_ms_p99": 3,
        "send_delay_ms_p50": 54,
        "receive_delay_ms_p99": 104,
        "lateness_ms_p99": 6,
        "lateness_ms_p99_worst": 107,
    }


def test_what_peers_used_is_per_peer_and_second_of_the_workload() -> None:
    assert RESOURCES.numbers(Resources(20, 30.0, memory_mib=500.0, cpu_s=3.0)) == {
        "peer_memory_mib": 25.0,
        "peer_cpu_ratio": 0.005,
    }
    for unknown in (Resources(20, 30.0, None, None), Resources(0, 0.0, 1.0, 1.0)):
        assert set(RESOURCES.numbers(unknown).values()) == {None}
