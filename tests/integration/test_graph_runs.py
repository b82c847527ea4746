"""A run on a graph of routers and links: what its links carried is what the traces and igraph's paths say."""

from collections import Counter
from pathlib import Path

import igraph
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from harness.errors import ExperimentError
from harness.experiment.loader import load_experiment
from harness.planning import make_plan, remarks_on, write_plan
from harness.stages.simulation import simulate_planned
from metrics.analysis import analyse
from metrics.rundir import RunDir
from peer.core.frames import Data
from topologies.link_graph import limit_links

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
"""A tree, so that there is one path between two routers."""

EXPERIMENT = """
name = "on-a-graph"
protocol = "random"
testbed = "simulated"

[underlay]
kind = "gml"
path = "tree.gml"
hosts = 8

[workload]
duration_s = 5
publish_rate_per_s = 4
"""


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    (folder / "tree.gml").write_text(GML)
    file = folder / "x.toml"
    file.write_text(EXPERIMENT)
    write_plan(make_plan(load_experiment(file), file), folder / "run")
    simulate_planned(folder / "run")
    analyse(folder / "run", "here")
    return folder / "run"


def test_the_run_is_valid_and_its_delays_are_those_of_the_paths(run_dir: Path) -> None:
    run = RunDir(run_dir)
    assert run.summary.verdict == "valid"
    sites = [host.site for host in run.underlay.hosts]
    assert sites == ["West", "Middle", "East", "South"] * 2
    assert run.underlay.delay_ms[0].tolist() == [0, 10, 25, 17, 2, 10, 25, 17]


def test_links_carry_the_copies_that_cross_them(run_dir: Path) -> None:
    hops = pq.read_table(run_dir / "tables" / "hops.parquet").to_pylist()
    links = pq.read_table(run_dir / "tables" / "underlay_links.parquet").to_pylist()
    ends = [(row["src_router"], row["dst_router"]) for row in links]
    graph = igraph.Graph(4, ends, directed=True)
    crossed: Counter[tuple[int, int]] = Counter()
    for hop in hops:
        if hop["kind"] == Data.kind:
            path = graph.get_shortest_paths(hop["src_node"] % 4, hop["dst_node"] % 4, output="epath")[0]
            crossed.update((link, hop["message_id"]) for link in path)
    assert crossed
    for link, row in enumerate(links):
        copies = [count for (other, _), count in crossed.items() if other == link]
        assert (row["copies"], row["messages"], row["copies_max"]) == (sum(copies), len(copies), max(copies, default=0))
        assert row["packets"] is None


def test_the_simulator_refuses_rates_of_links_and_remarks_on_those_of_data(run_dir: Path) -> None:
    file = run_dir.parent / "x.toml"
    with pytest.raises(ExperimentError, match="link_rate_mbit.*its queues drop nothing"):
        load_experiment(file, ["underlay.link_rate_mbit=2"])
    planned = make_plan(load_experiment(file), file)
    assert not [text for text in remarks_on(planned) if "links of the graph" in text]
    assert planned.underlay.graph is not None
    limited = replace(planned.underlay, graph=limit_links(planned.underlay.graph, 2.0, 20.0))
    [remark] = [text for text in remarks_on(replace(planned, underlay=limited)) if "links of the graph" in text]
    assert remark.startswith('the rates of 6 links of the graph have no effect with testbed = "simulated"')


def test_the_report_shows_the_links(run_dir: Path) -> None:
    page = (run_dir / "report" / "index.html").read_text()
    assert 'id="underlay-links"' in page
    assert "Middle to East" in page
