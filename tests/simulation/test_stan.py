"""StAN over simulated links, whose rules are those of the real pool, with the paper's kind of interests."""

from functools import cache
from pathlib import Path

import msgspec
import pytest

from harness.experiment.form import Experiment
from harness.studies.form import RunSpec
from harness.studies.point_run import PointRun, Row, simulate_point
from peer.core.contract import Effect, Event, FrameReceived
from peer.core.frames import Data
from peer.core.node import ComposedNode
from peer.protocols.stan.aligned_views import AlignedViews
from peer.protocols.stan.frames import StanCollect, StanQuit, StanReply, StanRide
from peer.testing import part_of
from tests.examples import long_unless

SECOND_NS = 1_000_000_000
NODES, TOPICS = 100, 20
VIEWS = ("view_size_total_mean", "view_size_unique_mean", "topic_components", "topic_view_components")


def experiment(workload: dict | None = None, loss_ratio: float = 0.0, **stan: object) -> Experiment:
    """A hundred nodes with interests from the grid, 10 to 60 ms apart."""
    return msgspec.convert(
        {
            "name": "stan",
            "protocol": "stan",
            "underlay": {"kind": "unit-square", "hosts": NODES, "side_ms": 60, "loss_ratio": loss_ratio},
            "stan": {"period_s": 2, **stan},
            "workload": {"topics": TOPICS, **(workload or {})},
            "interests": {"kind": "grid"},
        },
        Experiment,
    )


@cache
def rows(**stan: object) -> list[Row]:
    run = RunSpec(length_s=30, snapshots_s=(0.25,), snapshot_every_s=2)
    return simulate_point(experiment(**stan), run, VIEWS, Path())


def series(measure: str, **stan: object) -> list[float]:
    return [row.value for row in rows(**stan) if row.measure == measure]


def test_logical_links_stay_as_many_and_come_to_share_physical_ones():
    total, unique = series("view_size_total_mean"), series("view_size_unique_mean")
    assert total[-1] == max(total)
    assert min(total) > 0.95 * total[-1], "but for links on their way up"
    assert unique[-1] < 0.75 * unique[0]
    assert unique[6] < unique[-1] + 0.1 * (unique[0] - unique[-1]), "nine tenths of it within six periods"


def test_literally_read_it_gets_there_more_slowly():
    fast, slow = series("view_size_unique_mean"), series("view_size_unique_mean", literal=True)
    assert slow[3] > 1.1 * fast[3]
    assert slow[-1] < 0.9 * slow[0]


def test_one_way_overlays_fall_apart_unless_nodes_learn_from_walks_and_stay_connected_both_ways():
    """Who is in nobody's view of a topic is on no walk but its own, which do not collect it."""
    assert set(series("topic_components")) == {TOPICS}
    literally, learning = (series("topic_view_components", learn_from_walks=learn)[-1] for learn in (False, True))
    assert literally > 3 * TOPICS
    assert learning < 0.6 * literally


def used(views: AlignedViews) -> dict[int, tuple[int, ...]]:
    members = {node for topic in views.topics for node in views.present(topic)}
    return {node: views.topics_of(node) for node in members}


@pytest.mark.parametrize("loss_ratio", long_unless({0.05}, [0.0, 0.05]))
def test_at_rest_every_link_is_some_views_and_no_link_of_an_answer_is_left(loss_ratio: float):
    simulation = PointRun(experiment(loss_ratio=loss_ratio), RunSpec(length_s=60), VIEWS, Path()).simulation
    simulation.run(21 * SECOND_NS)
    for host in simulation.hosts.values():
        host.timers.clear()
    simulation.run(50 * SECOND_NS)
    views = {number: used(part_of(host.node, "overlay").views) for number, host in simulation.hosts.items()}
    for number, host in simulation.hosts.items():
        neighbours = {number: neighbour.logical for number, neighbour in host.node.state.neighbours.items()}
        assert {peer: topics for peer, topics in neighbours.items() if topics} == views[number]
        assert set(host.links) == set(neighbours)
        assert set(neighbours) == set(views[number]) | {peer for peer, view in views.items() if number in view}


@pytest.mark.parametrize("topics_per_message", [1, 3])
def test_no_frame_on_any_link_tells_of_a_topic_that_its_receiver_does_not_share(
    topics_per_message: int, monkeypatch: pytest.MonkeyPatch
):
    workload = {"warmup_s": 3, "duration_s": 12, "topics_per_message": topics_per_message}
    run = PointRun(experiment(workload), RunSpec(), ["delivery_ratio"], Path())
    handle, told = ComposedNode.handle, 0

    def watch(node: ComposedNode, now_ns: int, event: Event) -> list[Effect]:
        nonlocal told
        if isinstance(event, FrameReceived):
            match event.frame:
                case StanCollect(_, topic) | StanReply(topic):
                    named = {topic}
                case StanRide(topics) | StanQuit(topics):
                    named = set(topics)
                case frame:
                    named = set(frame.topics) if isinstance(frame, Data) else set()
            assert named <= node.state.topics, (node.state.node, event.frame)
            told += len(named)
        return handle(node, now_ns, event)

    monkeypatch.setattr(ComposedNode, "handle", watch)
    [delivery] = [row.value for row in run.perform() if row.measure == "delivery_ratio"]
    assert told > 10_000
    # A publisher that does not subscribe to all topics of its message knows nobody on the others.
    assert delivery == 1 if topics_per_message == 1 else delivery > 0.6
