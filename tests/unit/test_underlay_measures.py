"""What an overlay does to the links of an underlay: two messages on six routers by hand, and bounds by plain search."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ExperimentError
from harness.experiment.data import data_path, require_data
from harness.experiment.form import Experiment
from harness.experiment.sections.underlay import UnderlaySpec
from harness.experiment.sections.workload import WorkloadSpec
from harness.studies.carried import sum_up_carried
from harness.studies.form import RunSpec
from harness.studies.observer import Watch
from harness.studies.point_run import simulate_point
from metrics.facts.crossings import Through, bound_crossings, count_links_between
from metrics.measures.underlay import UNDERLAY, UnderlayLoad
from peer.core.schedule import Population
from peer.trace import TraceEvent
from tests.unit.test_underlay_links import GRAPH, ROUTERS
from topologies.link_graph import GraphLink, LinkGraph, Paths, Router

THROUGH = Through(GRAPH, np.array([ROUTERS[node] for node in sorted(ROUTERS)]))

COPIES = [
    (1, "deliver", 0, 1),  # three links: 0 -> 1 -> 2 -> 3
    (1, "deliver", 1, 2),  # 3 -> 2 -> 4 -> 5
    (1, "duplicate", 0, 2),  # 0 -> 1 -> 2 -> 4 -> 5
    (1, "deliver", 0, 3),  # 0 -> 1
    (1, "deliver", 3, 4),  # the same router
    (2, "deliver", 3, 0),  # 1 -> 0
    (2, "duplicate", 3, 0),
    (2, "duplicate", 4, 0),
]
"""Message, event, sender, receiver."""


def delay_ns(source: int, destination: int) -> int:
    return 1_000_000 * len(Paths(GRAPH).path(ROUTERS[source], ROUTERS[destination]))


def load(*, bounded: bool = True) -> UnderlayLoad:
    population = Population({0: (1, 2), 1: (1,), 2: (1,), 3: (1,), 4: (1,)})
    watch = Watch(population, 0, None, delay_ns=delay_ns, carries=True)
    watch.trace(TraceEvent("publish", 0, 0, message_id=1, topics=(1,)))
    watch.trace(TraceEvent("publish", 0, 3, message_id=2, topics=(2,)))
    for message, event, sender, receiver in COPIES:
        watch.trace(TraceEvent(event, 5, receiver, message_id=message, topics=(message,), peer=sender))
    between = count_links_between(GRAPH) if bounded else None
    return sum_up_carried(watch.batches[0].carried, THROUGH, delay_ns, between)


def test_two_messages_on_six_routers() -> None:
    found = load()
    assert found.copies.tolist() == [3, 3, 2, 0, 1, 1, 2, 0, 2, 0]
    assert found.most.tolist() == [3, 3, 2, 0, 1, 1, 2, 0, 2, 0]
    assert found.crossings.tolist() == [11, 3]
    # Routers 0, 1, 3 and 5: the spanning tree has 1 + 2 + 3 links, and 6 / (2 (1 - 1/4)) is 4. The best tree has 5.
    assert found.bound.tolist() == [4, 1]
    assert sorted(found.stretches.tolist()) == [1, 1, 1, 1, 1.5], "node 2 got its first copy over 6 links instead of 4"
    assert sorted(found.busiest.tolist()) == [0, 0, 0, 1, 1, 6], "without the pair at the same router"
    assert UNDERLAY.numbers(found) == {
        "link_stress_mean": 2,
        "link_stress_max": 3,
        "used_link_ratio": 7 / 10,
        "link_copies_max_over_mean": 3 / 2,
        "crossings_per_message": 7,
        "crossings_over_bound": 14 / 5,
        "path_stretch_mean": pytest.approx(1.1),
        "path_stretch_p50": 1,
        "path_stretch_p90": pytest.approx(1.3),
        "busiest_link_shared_ratio": 5 / 6,
    }


def test_stress_is_copies_per_message_and_not_copies() -> None:
    nothing = np.empty(0)
    found = UNDERLAY.numbers(
        UnderlayLoad(np.array([6, 0, 2]), np.array([3, 0, 2]), np.array([4, 0, 1]), nothing, nothing, nothing, nothing)
    )
    assert (found["link_stress_mean"], found["link_stress_max"]) == (1.5, 4)
    assert found["link_copies_max_over_mean"] == 6 / 4, "a link without copies is not used"
    assert found["used_link_ratio"] == 2 / 3


def test_without_a_bound_or_messages_there_is_no_such_number() -> None:
    assert UNDERLAY.numbers(load(bounded=False))["crossings_over_bound"] is None
    assert set(UNDERLAY.numbers(sum_up_carried([], THROUGH, delay_ns, None)).values()) == {None}


@st.composite
def connected_graphs(draw: st.DrawFn) -> LinkGraph:
    size = draw(st.integers(2, 6))
    tree = [(draw(st.integers(0, router - 1)), router) for router in range(1, size)]
    more = draw(st.lists(st.sampled_from([*combinations(range(size), 2)]), max_size=5))
    ends = [both for one, other in {*tree, *more} for both in ((one, other), (other, one))]
    return LinkGraph(tuple(Router(f"r{n}") for n in range(size)), tuple(GraphLink(*each, 1.0) for each in ends))


def smallest_tree(graph: LinkGraph, terminals: set[int]) -> int:
    """The fewest links that connect some routers: one less than the fewest routers that are connected with them."""
    for size in range(len(terminals), len(graph.routers) + 1):
        for chosen in combinations(range(len(graph.routers)), size):
            reached, before = {min(terminals)}, 0
            while len(reached) > before:
                before = len(reached)
                reached |= {each.destination for each in graph.links if each.source in reached} & set(chosen)
            if terminals <= set(chosen) and len(reached & set(chosen)) == size:
                return size - 1
    raise AssertionError("the graph is connected")


@given(st.data())
def test_no_tree_has_fewer_links_than_the_bound(data: st.DataObject) -> None:
    graph = data.draw(connected_graphs())
    ends = data.draw(st.lists(st.integers(0, len(graph.routers) - 1), min_size=1, max_size=8))
    between = count_links_between(graph)
    assert between is not None
    best = smallest_tree(graph, set(ends))
    assert len(set(ends)) - 1 <= bound_crossings(between, ends) <= best
    assert bound_crossings(between, ends) * 2 >= best


@pytest.mark.parametrize(("kind", "known"), [("fat-tree", True), ("uniform", False)])
def test_only_a_study_on_a_graph_has_these_measures(kind: str, known: bool, tmp_path: Path) -> None:
    experiment = Experiment(
        name="small",
        protocol="random",
        underlay=UnderlaySpec(kind=kind, hosts=10),
        workload=WorkloadSpec(topics=2, warmup_s=3, duration_s=2, cooldown_s=2),
    )
    rows = simulate_point(experiment, RunSpec(), {*UNDERLAY.names, "delivery_ratio"}, tmp_path)
    found = {row.measure for row in rows}
    assert found == {"delivery_ratio", *(UNDERLAY.names if known else ())}


def test_a_path_may_be_below_the_folder_of_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = UnderlaySpec(kind="graphml", path="$TRELLIS_DATA/zoo/a.graphml")
    monkeypatch.setenv("TRELLIS_DATA", str(tmp_path / "data"))
    assert data_path(spec, tmp_path) == tmp_path / "data" / "zoo" / "a.graphml"
    monkeypatch.delenv("TRELLIS_DATA")
    assert data_path(spec, tmp_path) is None
    with pytest.raises(ExperimentError, match="TRELLIS_DATA is not set"):
        require_data(spec, "underlay", tmp_path)
