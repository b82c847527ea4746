"""The counters of an underlay's links are the packets and bytes in the captures, exactly, as tshark reads them.

The recorded run of test_independent_numbers.py gets a graph: its peers and their packets are what they are, and the
links of the paths between their routers have to add up to them.
"""

import itertools
import json
from collections import Counter
from pathlib import Path

import igraph
import pyarrow.parquet as pq
import pytest

from metrics.analysis import analyse
from tests.independent_numbers import read_packets
from tests.recorded_run import extract_run

EDGES = [(0, 1), (1, 2), (1, 3), (3, 4), (3, 5)]
"""A tree, so that there is one path between two routers::

    0 - 1 - 3 - 4
        |   |
        2   5
"""

ROUTERS = (0, 2, 4, 5, 0, 1, 2, 4)
"""The router of each of the eight hosts."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recorded = extract_run(tmp_path_factory.mktemp("recorded"))
    underlay = recorded / "underlay.json"
    links = [
        {"source": source, "destination": destination, "delay_ms": 1.0}
        for one, other in EDGES
        for source, destination in ((one, other), (other, one))
    ]
    graph = {"routers": [{"name": f"r{number}"} for number in range(6)], "links": links}
    underlay.write_text(json.dumps({**json.loads(underlay.read_text()), "graph": graph, "routers": ROUTERS}))
    analyse(recorded, "here", page=False)
    return recorded


def test_links_count_the_packets_that_tshark_finds(run: Path) -> None:
    manifest, plan = (json.loads((run / f"{name}.json").read_bytes()) for name in ("manifest", "plan"))
    router = {place["wan_ip"]: ROUTERS[place["host"]] for place in plan["placement"]}
    packets = read_packets([run / name for name in manifest["capture_files"]], manifest["epoch_offset_ns"])
    sent = packets[packets["is_tx"]]
    tree = igraph.Graph(6, EDGES)
    expected: dict[tuple[int, int], Counter[str]] = {
        ends: Counter() for one, other in EDGES for ends in ((one, other), (other, one))
    }
    pairs: dict[tuple[int, int], set[tuple[str, str]]] = {ends: set() for ends in expected}
    for (source, destination), part in sent.groupby(["src", "dst"]):
        path = tree.get_shortest_paths(router[source], router[destination])[0]
        for ends in itertools.pairwise(path):
            expected[ends] += Counter(packets=len(part), wire_bytes=int(part["ip_bytes"].sum()))
            pairs[ends].add((source, destination))
    assert len(sent) > 1000
    rows = pq.read_table(run / "tables" / "underlay_links.parquet").to_pylist()
    found = {(row["src_router"], row["dst_router"]): row for row in rows}
    assert found.keys() == expected.keys()
    for ends, counted in expected.items():
        assert (found[ends]["packets"], found[ends]["wire_bytes"]) == (counted["packets"], counted["wire_bytes"])
        assert found[ends]["pairs"] == len(pairs[ends])
        assert counted["packets"] > 100
