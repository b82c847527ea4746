"""Scribe over simulated links: whom its trees reach with and without a degree that binds, and under churn."""

from functools import cache
from pathlib import Path

import msgspec
import pytest

from harness.experiment.form import Experiment
from harness.studies.form import RunSpec
from harness.studies.point_run import PointRun, simulate_point
from peer.protocols.scribe.forest import Forest
from peer.testing import part_of
from tests.examples import long_unless

NODES, TOPICS = 100, 20
SECOND_NS = 1_000_000_000
MEASURES = ("delivery_ratio", "relay_ratio", "degree_mean")
AMPLE = {"degree": NODES, "children": NODES}


def experiment(churn: dict | None = None, loss_ratio: float = 0.0, **scribe: object) -> Experiment:
    """A hundred nodes, 60 ms a side, each with a fifth of the topics."""
    return msgspec.convert(
        {
            "name": "scribe",
            "protocol": "scribe",
            "underlay": {"kind": "unit-square", "hosts": NODES, "side_ms": 60, "loss_ratio": loss_ratio},
            "scribe": scribe,
            "workload": {"topics": TOPICS, "warmup_s": 10, "duration_s": 30, "publish_rate_per_s": 20},
            "interests": {"ratio": 0.2},
            "churn": churn or {},
        },
        Experiment,
    )


@cache
def measured(**scribe: object) -> dict[str, float]:
    return {row.measure: row.value for row in simulate_point(experiment(**scribe), RunSpec(), MEASURES, Path())}


@pytest.mark.parametrize("digit_bits", [1, 4])
@pytest.mark.parametrize("loss_ratio", long_unless({0.05}, [0.0, 0.05]))
def test_where_no_degree_binds_everybody_is_reached(digit_bits: int, loss_ratio: float):
    assert measured(digit_bits=digit_bits, loss_ratio=loss_ratio, **AMPLE)["delivery_ratio"] == 1


def test_short_digits_need_fewer_links_and_more_relays():
    short, long = measured(digit_bits=1, **AMPLE), measured(digit_bits=4, **AMPLE)
    assert short["degree_mean"] < long["degree_mean"]
    assert short["relay_ratio"] > 1.3 * long["relay_ratio"]


def test_a_degree_that_binds_costs_coverage():
    small, medium = (measured(degree=degree)["delivery_ratio"] for degree in (2, 3))
    assert 0.2 < small < 0.9 * medium < medium < 0.95
    assert measured(degree=3)["degree_mean"] <= 6


def test_random_groups_reach_their_own_share_only():
    """A message reaches the subscribers in its publisher's group, and those who forward for it."""
    alone, shares = measured(grouping="random", groups=1), measured(grouping="random", groups=10)
    assert alone["delivery_ratio"] == 1
    assert 0.1 < shares["delivery_ratio"] < 0.35


def test_trees_hold_under_churn():
    churn = {"kind": "exponential", "on_s": 60, "off_s": 20}
    [delivery] = simulate_point(experiment(churn, **AMPLE), RunSpec(), ("delivery_ratio",), Path())
    assert delivery.value > 0.95


def test_at_rest_the_links_are_those_of_the_trees_and_no_degree_is_exceeded():
    bounds = {"degree": 3, "children": 4}
    simulation = PointRun(experiment(**bounds), RunSpec(length_s=60), MEASURES, Path()).simulation
    simulation.run(31 * SECOND_NS)
    for host in simulation.hosts.values():
        host.timers.clear()
    simulation.run(45 * SECOND_NS)
    forests: dict[int, Forest] = {
        number: part_of(host.node, "overlay").forest for number, host in simulation.hosts.items()
    }
    for number, forest in forests.items():
        assert set(simulation.hosts[number].links) == forest.parents.keys() | forest.children.keys()
        assert len(forest.parents) <= bounds["degree"]
        assert len(forest.children) <= bounds["children"]
        for peer, groups in forest.parents.items():
            assert groups.keys() <= forests[peer].children[number].keys()
    full = sum(len(forest.parents) == bounds["degree"] for forest in forests.values())
    assert full > NODES / 2
