"""Generated graphs as underlays of experiments: keys, hosts, and what ``plan`` prints."""

from pathlib import Path
from typing import Any

import pytest

from harness import cli
from harness.errors import ExperimentError
from harness.experiment.loader import decode_experiment
from harness.planning.underlays import make_network, make_underlay
from topologies.graph_kinds import GRAPHS
from topologies.model import Underlay


def made(seed: int = 1, **underlay: Any) -> Underlay:
    document = {"name": "x", "protocol": "complete", "seed": seed, "underlay": underlay}
    return make_underlay(decode_experiment(document), Path()).underlay


@pytest.mark.parametrize(
    ("keys", "hosts", "routers"),
    [
        ({"kind": "dumbbell"}, 20, 2),
        ({"kind": "dumbbell", "hosts": 3}, 3, 2),
        ({"kind": "fat-tree"}, 16, 20),
        ({"kind": "fat-tree", "pods": 6}, 54, 45),
        ({"kind": "fat-tree", "hosts": 5}, 5, 20),
        ({"kind": "waxman"}, 20, 20),
        ({"kind": "waxman", "routers": 9}, 9, 9),
        ({"kind": "waxman", "routers": 9, "hosts": 12}, 12, 9),
        ({"kind": "barabasi-albert", "hosts": 12}, 12, 12),
    ],
)
def test_hosts_are_at_the_routers_of_the_graph(keys: dict[str, Any], hosts: int, routers: int) -> None:
    underlay = made(**keys)
    assert underlay.graph is not None
    assert (underlay.kind, underlay.size, len(underlay.graph.routers)) == (keys["kind"], hosts, routers)
    assert [underlay.graph.routers[router].name for router in underlay.routers] == [h.site for h in underlay.hosts]
    found = Underlay.from_json(b"".join(underlay.to_json()))
    assert (found.graph, found.routers, found.hosts) == (underlay.graph, underlay.routers, underlay.hosts)


def test_the_hosts_of_a_dumbbell_are_half_on_each_side() -> None:
    underlay = made(kind="dumbbell", hosts=4, delay_ms=30, access_delay_ms=2)
    assert [host.site for host in underlay.hosts] == ["left", "right"] * 2
    assert underlay.delay_ms[0].tolist() == [0, 30, 4, 30]


def test_a_sample_of_a_fat_tree_is_spread_over_the_pods() -> None:
    assert {host.site.split(".")[0] for host in made(kind="fat-tree", hosts=4).hosts} == {
        f"edge {pod}" for pod in range(4)
    }


@pytest.mark.parametrize("kind", ["waxman", "barabasi-albert"])
def test_random_graphs_are_those_of_the_seed_and_the_keys(kind: str) -> None:
    first = made(kind=kind)
    assert b"".join(first.to_json()) == b"".join(made(kind=kind).to_json())
    assert made(seed=2, kind=kind).graph != first.graph
    changed = {"waxman": {"waxman_alpha": 1.0}, "barabasi-albert": {"links_per_router": 1}}[kind]
    others = [made(kind=kind, **changed), made(kind=kind, side_ms=10)]
    assert all(other.graph != first.graph for other in others)


@pytest.mark.parametrize("kind", GRAPHS)
def test_the_network_of_a_simulation_has_the_same_delays(kind: str) -> None:
    experiment = decode_experiment({"name": "x", "protocol": "complete", "underlay": {"kind": kind, "hosts": 6}})
    asked = make_network(experiment, Path()).asked_of_pairs()
    assert asked.delay_ms.tolist() == make_underlay(experiment, Path()).underlay.delay_ms.tolist()


@pytest.mark.parametrize(
    ("keys", "place", "problem"),
    [
        ({"kind": "waxman", "pods": 6}, "$.underlay.pods", 'kind = "waxman" does not use it'),
        ({"kind": "uniform", "routers": 6}, "$.underlay.routers", 'kind = "uniform" does not use it'),
        ({"kind": "fat-tree", "pods": 5}, "$.underlay.pods", "and a multiple of 2, got 5"),
        ({"kind": "dumbbell", "path": "x"}, "$.underlay.path", 'kind = "dumbbell" reads no file'),
        ({"kind": "dumbbell", "missing": "drop"}, "$.underlay.missing", 'kind = "dumbbell" does not use it'),
    ],
)
def test_keys_that_a_kind_does_not_use_are_refused(keys: dict[str, Any], place: str, problem: str) -> None:
    with pytest.raises(ExperimentError) as raised:
        decode_experiment({"name": "x", "protocol": "complete", "underlay": keys})
    assert raised.value.path == place
    assert problem in str(raised.value)


def test_plan_prints_what_the_graph_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.toml"
    file.write_text('name = "x"\nprotocol = "complete"\nunderlay = { kind = "fat-tree" }\n')
    assert cli.main(["plan", str(file)]) == 0
    assert "graph        20 routers, 64 links (each direction counts), paths by cost\n" in capsys.readouterr().out


@pytest.mark.parametrize("kind", GRAPHS)
def test_the_links_of_a_generated_graph_may_have_a_rate(kind: str) -> None:
    underlay = made(kind=kind, hosts=6, link_rate_mbit=5, link_queue_ms=20)
    assert underlay.graph is not None
    assert {(link.rate_mbit, link.queue_ms) for link in underlay.graph.links} == {(5.0, 20.0)}
