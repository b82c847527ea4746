"""Runs on graphs of routers and links: what links carried is what the traces and igraph's paths say."""

from collections import Counter
from pathlib import Path

import igraph
import pyarrow.parquet as pq
import pytest

from harness.experiment.loader import load_experiment
from harness.planning import make_plan, remarks_on, write_plan
from harness.planning.plan import PlannedRun
from harness.stages.simulation import simulate_planned
from metrics.analysis import analyse
from metrics.rundir import RunDir
from peer.core.frames import Data
from tests.examples import long_unless
from topologies.link_graph import LinkGraph

GML = """graph [
  directed 0
  node [ id 0 label "West" ]
  node [ id 1 label "Middle" ]
  node [ id 2 label "East" ]
  node [ id 3 label "South" ]
  edge [ source 0 target 1 latency "10 ms" ]
  edge [ source 1 target 2 latency "15 ms" ]
  edge [ source 1 target 3 latency "7 ms" ]
]
"""

EXPERIMENT = """
name = "on-a-graph"
protocol = "random"
testbed = "simulated"

[underlay]
{underlay}
hosts = 8

[workload]
duration_s = 5
publish_rate_per_s = 4
"""

TOPOS = Path(__file__).parents[2] / "playbooks" / "experiments" / "topos.py"

TREES = {
    "gml": 'kind = "gml"\npath = "tree.gml"',
    "mininet": f'kind = "mininet"\ntopo = "{TOPOS}:Tree,2,3"',
    "dumbbell": 'kind = "dumbbell"',
}
"""Trees, so that there is one path between two routers."""

ZOO = (
    "Abilene",
    "Aarnet",
    "Geant2012",
    "Cesnet200706",
    "Nsfnet",
    "Janetbackbone",
    "Sprint",
    "Chinanet",
    "Garr201201",
    "Belnet2010",
)
PROVIDERS = ("1221", "1755", "3967")


def planned(folder: Path, underlay: str) -> PlannedRun:
    (folder / "tree.gml").write_text(GML)
    file = folder / "x.toml"
    file.write_text(EXPERIMENT.format(underlay=underlay))
    return make_plan(load_experiment(file), file)


def simulated(folder: Path, underlay: str, *, page: bool = True) -> Path:
    write_plan(planned(folder, underlay), folder / "run")
    simulate_planned(folder / "run")
    analyse(folder / "run", "here", page=page)
    return folder / "run"


@pytest.fixture(scope="module", params=long_unless({"gml"}, TREES))
def run_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("graph"), TREES[request.param])


def graph_of(run: RunDir) -> LinkGraph:
    assert run.underlay.graph is not None
    return run.underlay.graph


def check_delays(run: RunDir) -> None:
    """The delays between hosts are those of igraph's shortest paths; paths by weight are at least as long."""
    graph, routers = graph_of(run), run.underlay.routers
    reference = igraph.Graph(len(graph.routers), [(link.source, link.destination) for link in graph.links], True)
    by_delay = all(link.cost is None for link in graph.links)
    for one, source in enumerate(routers):
        least = reference.distances(source, weights=[link.delay_ms for link in graph.links])[0]
        for other, destination in enumerate(routers):
            if source != destination:
                delay_ms = run.underlay.delay_ms[one, other]
                assert delay_ms > least[destination] - 1e-5
                assert delay_ms == pytest.approx(least[destination], abs=1e-5) or not by_delay


def test_the_run_is_valid_and_its_delays_are_those_of_the_paths(run_dir: Path) -> None:
    run = RunDir(run_dir)
    assert run.summary.verdict == "valid"
    assert run.underlay.size == 8
    check_delays(run)


def test_links_carry_the_copies_that_cross_them(run_dir: Path) -> None:
    graph, routers = graph_of(RunDir(run_dir)), RunDir(run_dir).underlay.routers
    hops = pq.read_table(run_dir / "tables" / "hops.parquet").to_pylist()
    links = pq.read_table(run_dir / "tables" / "underlay_links.parquet").to_pylist()
    ends = [(row["src_router"], row["dst_router"]) for row in links]
    assert ends == [(link.source, link.destination) for link in graph.links]
    reference = igraph.Graph(len(graph.routers), ends, directed=True)
    crossed: Counter[tuple[int, int]] = Counter()
    for hop in hops:
        if hop["kind"] == Data.kind:
            source, destination = routers[hop["src_node"]], routers[hop["dst_node"]]
            path = reference.get_shortest_paths(source, destination, output="epath")[0]
            crossed.update((link, hop["message_id"]) for link in path)
    assert crossed
    for link, row in enumerate(links):
        copies = [count for (other, _), count in crossed.items() if other == link]
        assert (row["copies"], row["messages"], row["copies_max"]) == (sum(copies), len(copies), max(copies, default=0))
        assert row["packets"] is None


def test_the_simulator_has_the_rates_of_links_and_remarks_on_their_queues(tmp_path: Path) -> None:
    limited = planned(tmp_path, f"{TREES['gml']}\nlink_rate_mbit = 2\nlink_queue_ms = 20")
    assert limited.underlay.graph is not None
    assert {link.rate_mbit for link in limited.underlay.graph.links} == {2.0}
    texts = list(remarks_on(limited))
    assert not [text for text in texts if "links of the graph" in text]
    [remark] = [text for text in texts if "link_queue_ms" in text]
    assert "its queues drop nothing" in remark


def test_the_report_shows_the_links(run_dir: Path) -> None:
    page = (run_dir / "report" / "index.html").read_text()
    assert 'id="underlay-links"' in page
    links = pq.read_table(run_dir / "tables" / "underlay_links.parquet").to_pylist()
    busiest = max(links, key=lambda row: row["copies"])
    assert f"{busiest['src_name']} to {busiest['dst_name']}" in page


@pytest.mark.data
@pytest.mark.parametrize("name", ZOO)
def test_graphs_of_the_topology_zoo_are_planned(data_folder: Path, tmp_path: Path, name: str) -> None:
    path = data_folder / "topology-zoo" / "graphml" / f"{name}.graphml"
    found = planned(tmp_path, f'kind = "graphml"\npath = "{path}"\nmissing = "drop"')
    assert found.plan.provenance is not None and f"{name}.graphml" in found.plan.provenance.sha256
    assert 0 < found.underlay.delay_ms.max() < 150


@pytest.mark.data
@pytest.mark.parametrize("name", PROVIDERS)
def test_networks_of_providers_are_planned(data_folder: Path, tmp_path: Path, name: str) -> None:
    found = planned(tmp_path, f'kind = "rocketfuel"\npath = "{data_folder / "rocketfuel" / name}"\nmissing = "drop"')
    assert found.plan.provenance is not None and "weights.intra" in found.plan.provenance.sha256
    assert 0 < found.underlay.delay_ms.max() < 500


@pytest.mark.data
@pytest.mark.parametrize(
    "underlay",
    [
        'kind = "graphml"\npath = "{data}/topology-zoo/graphml/Abilene.graphml"',
        'kind = "rocketfuel"\npath = "{data}/rocketfuel/1221"\nmissing = "drop"',
    ],
)
def test_real_networks_are_simulated(data_folder: Path, tmp_path: Path, underlay: str) -> None:
    run = RunDir(simulated(tmp_path, underlay.format(data=data_folder), page=False))
    assert run.summary.verdict == "valid"
    check_delays(run)
    links = pq.read_table(run.tables / "underlay_links.parquet").to_pylist()
    assert sum(row["copies"] for row in links) > 0
