"""Rates and queues of access links, and values of classes of pairs: what ``[underlay]`` and its entries ask for."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import ExperimentError
from harness.experiment.abilities import ignored_keys
from harness.experiment.form import Experiment, resolve
from harness.experiment.loader import check_rules, decode, decode_experiment
from harness.planning.links import describe_links
from harness.planning.underlays import make_network, make_underlay
from tests.examples import examples
from topologies.model import DOWN, UP, Underlay
from topologies.network import Network

HOSTS = 5


def experiment_with(underlay: dict[str, Any], **sections: Any) -> Experiment:
    section = {"kind": "uniform", "hosts": HOSTS, **underlay}
    return decode_experiment({"name": "x", "seed": 3, "random": {"degree": 2}, "underlay": section, **sections})


def made(underlay: dict[str, Any], **sections: Any) -> Underlay:
    return make_underlay(experiment_with(underlay, **sections), Path()).underlay


def test_entries_set_the_access_links_of_their_nodes_and_later_ones_win() -> None:
    links = [
        {"nodes": [0, 1], "rate_mbit": 2, "queue_ms": 7},
        {"nodes": "slow", "up_mbit": 1},
        {"nodes": [4], "up_mbit": 0},
    ]
    found = made({"rate_mbit": 8, "down_mbit": 9, "links": links}, groups={"slow": {"nodes": [1, 2]}})
    assert found.rate_mbit.tolist() == [[2, 1, 1, 8, 0], [2, 2, 9, 9, 9]]
    assert found.queue_ms.tolist() == [[7, 7, 100, 100, 100]] * 2


def test_a_queue_in_bytes_lasts_as_long_as_its_link_needs_to_send_them() -> None:
    """10,000 bytes take 80 ms at 1 Mbit/s. A link without a rate keeps ``queue_ms``."""
    links = [{"nodes": [1], "rate_mbit": 4}, {"nodes": [2], "queue_ms": 3}, {"nodes": [3], "queue_bytes": 500}]
    found = made({"up_mbit": 1, "queue_bytes": 10_000, "links": links})
    assert found.queue_ms[UP].tolist() == [80, 20, 3, 4, 80]
    assert found.queue_ms[DOWN].tolist() == [100, 20, 3, 100, 100]


def test_nodes_are_the_pairs_between_them_and_all_hosts() -> None:
    loss = made({"links": [{"nodes": [0], "loss_ratio": 0.25}]}).loss_ratio
    assert {tuple(pair) for pair in np.argwhere(loss == 0.25).tolist()} == {
        (a, b) for a in range(HOSTS) for b in range(HOSTS) if a != b and 0 in (a, b)
    }
    assert np.count_nonzero(loss) == 2 * (HOSTS - 1)


@pytest.mark.parametrize(
    ("direction", "pairs"),
    [("from", {(0, 1), (0, 2)}), ("to", {(1, 0), (2, 0)}), ("both", {(0, 1), (0, 2), (1, 0), (2, 0)})],
)
def test_between_two_groups_each_direction_can_be_meant(direction: str, pairs: set[tuple[int, int]]) -> None:
    entry = {"between": [[0], [1, 2]], "direction": direction, "jitter_ms": 4}
    jitter_ms = made({"jitter": 1, "links": [entry]}).jitter_ms
    assert {tuple(pair) for pair in np.argwhere(jitter_ms == 4).tolist()} == pairs
    assert np.count_nonzero(jitter_ms == 1) == HOSTS * (HOSTS - 1) - len(pairs)


def test_the_rest_and_a_drawn_group_are_those_of_faults() -> None:
    sections = {"groups": {"slow": {"share": 0.4}}, "faults": [{"at_s": 1, "partition": ["slow", "rest"]}]}
    loss = made(
        {"links": [{"between": ["slow", "rest"], "direction": "from", "loss_ratio": 0.5}]}, **sections
    ).loss_ratio
    slow, rest = np.flatnonzero(loss.any(axis=1)), np.flatnonzero(loss.any(axis=0))
    assert len(slow) == 2 and sorted([*slow, *rest]) == list(range(HOSTS))


groups = st.just("all") | st.lists(st.integers(0, HOSTS - 1), min_size=1, unique=True)
values = {"jitter_ms": st.sampled_from([0.0, 2.0, 3.0]), "loss_ratio": st.sampled_from([0.0, 0.5])}
access = {"rate_mbit": st.sampled_from([0.0, 3.0]), "up_mbit": st.just(4.0), "queue_ms": st.just(9.0)}


@st.composite
def entry(draw: st.DrawFn) -> dict[str, Any]:
    own = draw(st.fixed_dictionaries({}, optional=values).filter(len))
    own["direction"] = draw(st.sampled_from(["both", "to", "from"]))
    if draw(st.booleans()):
        return {"between": [draw(groups), draw(groups)], **own}
    return {"nodes": draw(groups), **own, **draw(st.fixed_dictionaries({}, optional=access))}


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(entry(), max_size=4), st.sampled_from(["uniform", "unit-square"]), st.sampled_from(["none", 1.0]))
def test_links_are_those_of_a_slow_loop(links: list[dict[str, Any]], kind: str, jitter: Any) -> None:
    """The network without a matrix, that of the matrix, and a loop over entries agree."""
    experiment = experiment_with({"kind": kind, "jitter": jitter, "links": links})
    without, planned = make_network(experiment, Path()), Network.of(make_underlay(experiment, Path()).underlay)

    def nodes(group: Any) -> list[int]:
        return list(range(HOSTS)) if group == "all" else group

    for source, destination in [(a, b) for a in range(HOSTS) for b in range(HOSTS) if a != b]:
        pair = {"jitter_ms": 0.0 if jitter == "none" else jitter, "loss_ratio": 0.0}
        up, down = ({"rate_mbit": 0.0, "queue_ms": 100.0} for _ in range(2))
        for each in links:
            one, other = (nodes(group) for group in each.get("between", (each.get("nodes"), "all")))
            there, back = source in one and destination in other, source in other and destination in one
            if {"both": there or back, "from": there, "to": back}[each["direction"]]:
                pair |= {key: each[key] for key in values if key in each}
            for link, host, key in ((up, source, "up_mbit"), (down, destination, "down_mbit")):
                if host in nodes(each.get("nodes", [])):
                    link["rate_mbit"] = each.get(key, each.get("rate_mbit", link["rate_mbit"]))
                    link["queue_ms"] = each.get("queue_ms", link["queue_ms"])
        for network in (without, planned):
            first, middle, last = (network.link(number) for number in network.path(source, destination))
            assert {key: getattr(middle, key) for key in pair} == pair
            for link, expected in ((first, up), (last, down)):
                assert {key: getattr(link, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("underlay", "problem"),
    [
        ({"links": [{"loss_ratio": 0.1}]}, r"links\[0\]: expected one of nodes and between, got none"),
        ({"links": [{"nodes": 1, "between": ["all", "all"], "loss_ratio": 0}]}, "got nodes and between"),
        ({"links": [{"nodes": 1}]}, r"links\[0\]: expected at least one of rate_mbit, .*loss_ratio, got none"),
        ({"links": [{"between": ["all", "all"], "up_mbit": 1}]}, r"links\[0\].up_mbit: an access link is shared"),
        ({"links": [{"nodes": 1, "up_mbit": 1, "direction": "to"}]}, "only jitter_ms and loss_ratio have a direction"),
        ({"links": [{"nodes": 1, "down_mbit": 1e-6}]}, "expected 0 or at least 0.001, got 1e-06"),
        ({"rate_mbit": 1, "queue_bytes": 9, "queue_ms": 5}, "queue_bytes: queue_ms is set, too"),
        ({"mtu_bytes": 575}, "mtu_bytes: expected an integer >= 576 and <= 9000, got 575"),
        ({"link_rate_mbit": 2}, 'link_rate_mbit: kind = "uniform" has no graph of links'),
        ({"link_queue_ms": 2}, 'link_queue_ms: kind = "uniform" has no graph of links'),
        ({"link_rate_mbit": 1e-6}, "link_rate_mbit: expected 0 or at least 0.001, got 1e-06"),
        ({"queue_bytes": 9}, "queue_bytes: expected an access link with a rate"),
        ({"rate_mbit": 0.001, "queue_bytes": 10_000}, "at most 60000 ms at the rate of the link, got 80000 ms"),
        ({"links": [{"nodes": "fast", "up_mbit": 1}]}, r"links\[0\].nodes: no group.*'fast'"),
        ({"links": [{"nodes": [5], "up_mbit": 1}]}, "expected nodes from 0 to 4"),
    ],
)  # fmt: skip
def test_entries_that_do_not_fit_are_refused(underlay: dict[str, Any], problem: str) -> None:
    with pytest.raises(ExperimentError, match=problem):
        made(underlay)


def test_the_remote_testbed_refuses_classes_and_the_simulator_says_that_queues_have_no_effect() -> None:
    links = [{"nodes": [1], "rate_mbit": 1, "queue_bytes": 5}]
    experiment = experiment_with({"links": links}, testbed="simulated")
    assert [line.split()[0] for line in ignored_keys(experiment)] == ["underlay.links[0].queue_bytes"]
    remote = decode({"name": "x", "testbed": "remote", "inventory": "i.toml", "underlay": {"links": links}}, Experiment)
    with pytest.raises(ExperimentError, match=r"underlay.links"):
        check_rules(remote)


@pytest.mark.parametrize(
    ("testbed", "reason"),
    [("simulated", "packets of at most 1,500 bytes"), ("remote", "changes nothing in a real network")],
)
def test_a_testbed_without_devices_of_its_own_refuses_an_mtu(testbed: str, reason: str) -> None:
    document = {"name": "x", "testbed": testbed, "inventory": "i.toml" if testbed == "remote" else None}
    with pytest.raises(ExperimentError, match=reason) as refused:
        check_rules(decode(document | {"underlay": {"mtu_bytes": 1280}}, Experiment))
    assert refused.value.path == "$.underlay.mtu_bytes"
    check_rules(decode(document | {"underlay": {"mtu_bytes": 1500}}, Experiment))


def test_a_plan_says_how_many_hosts_and_pairs_each_entry_concerns() -> None:
    links = [
        {"nodes": [0, 1], "up_mbit": 2, "queue_bytes": 9000, "loss_ratio": 0.03},
        {"between": [[0, 1, 2], [2, 3]], "direction": "from", "jitter_ms": 0},
        {"between": [[0, 1, 2], [2, 3, 1]], "jitter_ms": 1.5},
    ]
    experiment = experiment_with({"links": links})
    assert list(describe_links(experiment, make_underlay(experiment, Path()).underlay.hosts)) == [
        "2 of 5 hosts: up_mbit = 2, queue_bytes = 9000",
        "14 of 20 directed pairs: loss_ratio = 0.03",
        "5 of 20 directed pairs: jitter_ms = 0",
        "12 of 20 directed pairs: jitter_ms = 1.5",
    ]


def test_a_plan_has_the_keys_of_links_only_if_they_are_set() -> None:
    assert (
        not {"links", "link_rate_mbit", "link_queue_ms", "mtu_bytes"} & resolve(experiment_with({}))["underlay"].keys()
    )
    asked = {"down_mbit": 0.0, "rate_mbit": 2.0, "mtu_bytes": 1280, "links": [{"nodes": "slow", "up_mbit": 1.0}]}
    experiment = experiment_with(asked, groups={"slow": {"number": 2}})
    resolved = resolve(experiment)
    assert resolved["underlay"]["down_mbit"] == 0.0 and "up_mbit" not in resolved["underlay"]
    assert decode_experiment(resolved) == experiment
