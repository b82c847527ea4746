"""What faults change, against a slow loop: who reaches whom at every instant, by the words of the experiment file."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.experiment.form import Experiment
from harness.experiment.loader import check_rules, decode
from harness.planning.faults import compile_faults
from tests.examples import examples
from topologies.disorder import IN_ORDER
from topologies.generated import uniform_underlay
from topologies.network import Network
from topologies.timeline import Change, Timeline, decode_changes, encode_changes, find_disorder

HOSTS = 6
PAIRS = [pair for pair in product(range(HOSTS), range(HOSTS)) if pair[0] != pair[1]]
SECOND_NS = 1_000_000_000

groups = st.sets(st.integers(0, HOSTS - 1), min_size=1, max_size=HOSTS - 1)
directions = st.sampled_from(["both", "to", "from"])


def compiled(*faults: dict[str, Any], seed: int = 1, testbed: str = "simulated") -> tuple[Change, ...]:
    document = {
        "name": "x",
        "seed": seed,
        "testbed": testbed,
        "underlay": {"kind": "uniform", "hosts": HOSTS, "rate_mbit": 8.0},
        "faults": [{"at_s": 1, "for_s": 2, **fault} for fault in faults],
    }
    experiment = decode(document, Experiment)
    check_rules(experiment)
    return compile_faults(experiment, uniform_underlay(HOSTS, 50.0))


def cut_pairs(changes: tuple[Change, ...], at_s: float) -> set[tuple[int, int]]:
    timeline = Timeline(Network(HOSTS, lambda a, b: 50.0), changes)
    return {pair for pair in PAIRS if timeline.asked(*pair, round(at_s * SECOND_NS)).is_cut}


def between(one: set[int], other: set[int], direction: str) -> set[tuple[int, int]]:
    """The pairs that an entry is about: by its direction, as seen from the first group."""
    from_one = {(a, b) for a, b in PAIRS if a in one and b in other}
    to_one = {(a, b) for a, b in PAIRS if a in other and b in one}
    return {"from": from_one, "to": to_one, "both": from_one | to_one}[direction]


@given(groups, groups, directions, st.sampled_from(["arrive", "lost"]))
def test_a_cut_holds_between_two_groups_for_its_time(one: set[int], other: set[int], direction: str, in_flight: str):
    changes = compiled({"cut": [sorted(one), sorted(other)], "direction": direction, "in_flight": in_flight})
    assert cut_pairs(changes, 0.999) == cut_pairs(changes, 3) == set()
    assert cut_pairs(changes, 1) == cut_pairs(changes, 2.999) == between(one, other, direction)
    assert all(change.loses_in_flight == (in_flight == "lost") for change in changes)


@given(groups, directions)
def test_an_isolated_group_reaches_only_itself(group: set[int], direction: str):
    changes = compiled({"isolate": sorted(group), "direction": direction})
    assert cut_pairs(changes, 2) == between(group, set(range(HOSTS)) - group, direction)


@given(st.lists(st.integers(0, 2), min_size=HOSTS, max_size=HOSTS).filter(lambda labels: len(set(labels)) > 1))
def test_nodes_of_different_groups_of_a_partition_do_not_reach_each_other(labels: list[int]):
    parts = [[node for node in range(HOSTS) if labels[node] == label] for label in sorted(set(labels))]
    changes = compiled({"partition": [*parts[:-1], "rest"]})
    assert cut_pairs(changes, 2) == {(a, b) for a, b in PAIRS if labels[a] != labels[b]}


@given(st.floats(0.001, 1), st.integers(0, 9), st.integers(0, 9))
def test_a_share_of_the_pairs_is_severed_and_drawn_from_the_seed(share: float, seed: int, other: int):
    """Both directions of a pair together; entries draw on their own."""
    cut = cut_pairs(changes := compiled({"sever": share}, seed=seed), 2)
    assert cut == {(b, a) for a, b in cut}
    assert len(cut) == 2 * max(1, round(share * len(PAIRS) / 2))
    assert sum(change.pairs for change in changes) == len(cut)
    assert cut_pairs(compiled({"sever": share}, seed=seed), 2) == cut
    assert cut_pairs(changes, 0.999) == cut_pairs(changes, 3) == set()
    if seed != other and len(cut) == len(PAIRS) / 2:  # 6,435 ways to draw 7 or 8 of 15 pairs
        assert cut_pairs(compiled({"sever": share}, seed=other), 2) != cut


@given(groups, groups, directions)
def test_links_are_degraded_once_per_entry_and_entries_multiply(one: set[int], other: set[int], direction: str):
    entry = {"degrade": {"delay_factor": 3.0}, "between": [sorted(one), sorted(other)], "direction": direction}
    for entries in (1, 2):
        timeline = Timeline(Network(HOSTS, lambda a, b: 10.0), compiled(*[entry] * entries))
        found = {pair for pair in PAIRS if timeline.asked(*pair, 2 * SECOND_NS).delay_ms == 10.0 * 3.0**entries}
        others = {pair for pair in PAIRS if timeline.asked(*pair, 2 * SECOND_NS).delay_ms == 10.0}
        assert found == between(one, other, direction)
        assert others == set(PAIRS) - found


@given(groups, groups, directions)
def test_packets_of_the_links_between_two_groups_are_in_disorder(one: set[int], other: set[int], direction: str):
    asked = {"duplicate_ratio": 0.1, "reorder_ratio": 0.2, "reorder_ms": 30.0}
    entry = {"degrade": asked, "between": [sorted(one), sorted(other)], "direction": direction}
    timeline = Timeline(Network(HOSTS, lambda a, b: 10.0), compiled(entry, testbed="emulated"))
    changes = timeline.active(2 * SECOND_NS)
    assert (
        {pair for pair in PAIRS if find_disorder(changes, *pair) == tuple(asked.values())}
        == {pair for pair in PAIRS if find_disorder(changes, *pair) != IN_ORDER}
        == between(one, other, direction)
    )
    assert timeline.active(3 * SECOND_NS) == ()


@given(st.integers(0, HOSTS - 1), directions)
def test_a_rate_limits_the_access_links_of_the_first_group(host: int, direction: str):
    entry = {"degrade": {"rate_mbit": 2.0}, "between": [[host], "all"], "direction": direction}
    changes = compiled(entry)
    timeline = Timeline(Network(HOSTS, lambda a, b: 10.0, rate_mbit=[8.0] * 2 * HOSTS), changes)
    limited = [number for number in range(2 * HOSTS) if timeline.link(number, 2 * SECOND_NS).rate_mbit == 2.0]
    assert limited == [number for number, side in ((host, "from"), (HOSTS + host, "to")) if direction in (side, "both")]
    assert all(timeline.asked(*pair, 2 * SECOND_NS) == timeline.network.asked(*pair) for pair in PAIRS)


@settings(max_examples=examples(30))
@given(st.integers(2, 9), st.integers(1, 8), st.integers(1, 30))
def test_a_connection_flaps_from_its_first_instant_to_its_last(period: int, down: int, length: int):
    """Tenths of a second; each period begins without connection."""
    if down >= period:
        down = period - 1
    fault = {"at_s": 0, "for_s": length / 10, "flap": {"period_s": period / 10, "down_s": down / 10}, "nodes": [0]}
    changes = compiled(fault)
    for tenth in range(-1, length + 3):
        is_down = 0 <= tenth < length and tenth % period < down
        assert (cut_pairs(changes, (tenth + 0.5) / 10) != set()) == is_down, tenth


@given(groups)
def test_a_pause_names_hosts_and_changes_no_link(group: set[int]):
    changes = compiled({"pause": sorted(group)})
    timeline = Timeline(Network(HOSTS, lambda a, b: 10.0), changes)
    assert timeline.paused(2 * SECOND_NS) == group
    assert cut_pairs(changes, 2) == timeline.paused(3 * SECOND_NS) == set()


@pytest.mark.parametrize("for_s", [None, 1e6])
def test_every_fault_has_healed_by_the_end_of_the_cool_down(for_s: float | None):
    """The network is probed then, without faults."""
    changes = compiled({"isolate": [0], "for_s": for_s})
    assert {change.to_ns for change in changes} == {33 * 10**9}
    assert cut_pairs(changes, 32.9) == between({0}, set(range(1, HOSTS)), "both")
    assert cut_pairs(changes, 33.0) == set()


@given(groups, groups)
def test_changes_survive_their_document(one: set[int], other: set[int]):
    changes = compiled({"cut": [sorted(one), sorted(other)]}, {"degrade": {"loss_ratio": 0.5}}, {"pause": sorted(one)})
    assert tuple(decode_changes(encode_changes(changes))) == changes


@pytest.mark.parametrize("count", [2, 4])
def test_a_drawn_group_is_the_same_with_the_same_seed_and_has_its_size(count: int):
    [first], [second] = compiled({"pause": count}), compiled({"pause": count})
    assert first == second
    assert len(set(first.paused)) == count
