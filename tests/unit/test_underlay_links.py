"""What the links of an underlay carry, computed by hand for two messages on six routers."""

from pathlib import Path

import pyarrow as pa
import pytest

from metrics.executors.in_process import InProcess
from metrics.facts.crossings import Through
from metrics.tables import underlay_links
from metrics.tables.buckets import divide, of_messages, of_nodes
from metrics.tables.condensed import TRANSMISSIONS
from metrics.tables.shares import Share, write_share
from metrics.tables.transits import TRANSITS
from metrics.tables.underlay_links import LinkSources, build_underlay_links
from topologies.generated import uniform_underlay
from topologies.link_graph import GraphLink, LinkGraph, Router

ENDS = [(0, 1), (1, 2), (2, 3), (2, 4), (4, 5)]
"""Links both ways: link 2 n leads from the first to the second of ENDS[n], and 2 n + 1 back.

::

    0 - 1 - 2 - 3
            |
            4 - 5
"""

GRAPH = LinkGraph(
    tuple(Router(f"r{number}") for number in range(6)),
    tuple(GraphLink(*ends, 1.0) for one, other in ENDS for ends in ((one, other), (other, one))),
)

ROUTERS = {0: 0, 1: 3, 2: 5, 3: 1, 4: 1}
"""The router of each node; nodes 3 and 4 share one."""

COPIES = [(1, 0, 1), (1, 0, 2), (1, 0, 3), (1, 3, 4), (1, 1, 2), (2, 3, 0), (2, 3, 0), (2, 4, 0)]
"""Message, sender, receiver."""

BEYOND = [(1, 0, 77), (1, -1, 0)]
"""Copies between nodes that the plan does not have, as a trace of a stranger may name them: they cross no link."""

PACKETS = [(0, 1, 100), (0, 1, 50), (1, 0, 7), (3, 4, 1000), (2, 3, 20)]
"""Sender, receiver, bytes."""


def table_of(rows: list[dict[str, int]], schema: pa.Schema) -> pa.Table:
    return pa.table({field.name: pa.array([row.get(field.name) for row in rows], field.type) for field in schema})


def build(
    folder: Path,
    buckets: int,
    *,
    captured: bool = True,
    reported: bool = False,
    further: tuple[dict[str, int], ...] = (),
) -> dict[int, dict[str, int | float | str | None]]:
    rows = [dict(zip(("message_id", "src_node", "dst_node"), row, strict=True)) for row in COPIES + BEYOND]
    copies = table_of([*rows, *further], TRANSMISSIONS)
    names = ("src_node", "dst_node", "wire_bytes")
    packets = [dict(zip(names, row, strict=True)) | {"sent_ns": 5} for row in PACKETS]
    packets.append({"src_node": 0, "dst_node": 1, "wire_bytes": 9, "came_ns": 7})  # arrived, and never left
    transits = table_of(packets, TRANSITS)
    parts = {
        "transmissions": divide(copies, of_messages(copies["message_id"], buckets), buckets),
        "transits": divide(transits, of_nodes(transits["dst_node"], buckets), buckets),
    }
    targets = {name: folder / name for name in parts}
    for target in targets.values():
        target.mkdir()
    write_share(parts, targets, Share())
    underlay = uniform_underlay(len(ROUTERS), 1.0)
    hosts = {node: len(ROUTERS) - 1 - node for node in ROUTERS}  # hosts have other numbers than nodes
    routers = tuple(ROUTERS[node] for node in sorted(ROUTERS, key=lambda node: hosts[node]))
    assert Through.of(underlay, hosts) is None
    placed = type(underlay)(
        **{name: getattr(underlay, name) for name in underlay.__struct_fields__[:-2]}, graph=GRAPH, routers=routers
    )
    through = Through.of(placed, hosts)
    assert through is not None
    transits = targets["transits"] if captured else None
    sources = LinkSources(transits, targets["transmissions"], buckets, reported=reported)
    with InProcess(2) as executor:
        found = build_underlay_links(executor, through, sources).to_pylist()
    return {row["link"]: row for row in found}


@pytest.mark.parametrize("buckets", [1, 3])
def test_each_link_has_what_paths_over_it_carry(tmp_path: Path, buckets: int) -> None:
    links = build(tmp_path, buckets)
    names = ("copies", "messages", "copies_max", "packets", "wire_bytes", "pairs")
    expected = {
        0: (3, 1, 3, 2, 150, 1),  # 0 -> 1: to three nodes; one pair sends packets
        1: (3, 1, 3, 1, 7, 1),  # 1 -> 0: the second message, twice from node 3 and once from node 4
        2: (2, 1, 2, 2, 150, 1),  # 1 -> 2
        3: (0, 0, 0, 2, 27, 2),  # 2 -> 1
        4: (1, 1, 1, 2, 150, 1),  # 2 -> 3
        5: (1, 1, 1, 1, 7, 1),  # 3 -> 2: from node 1 to node 2
        6: (2, 1, 2, 0, 0, 0),  # 2 -> 4
        7: (0, 0, 0, 1, 20, 1),  # 4 -> 2
        8: (2, 1, 2, 0, 0, 0),  # 4 -> 5
        9: (0, 0, 0, 1, 20, 1),  # 5 -> 4
    }
    assert {number: tuple(row[name] for name in names) for number, row in links.items()} == expected
    assert (links[7]["src_name"], links[7]["dst_name"], links[7]["delay_ms"]) == ("r4", "r2", 1.0)


def test_the_parts_in_which_copies_are_read_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole = build(tmp_path / "whole", 1)
    monkeypatch.setattr(underlay_links, "ROWS", 2)
    assert build(tmp_path / "parts", 1) == whole


def test_without_captures_there_are_no_packets(tmp_path: Path) -> None:
    links = build(tmp_path, 1, captured=False)
    assert links[0]["copies"] == 3
    assert links[0]["packets"] is links[0]["wire_bytes"] is links[0]["pairs"] is None


def test_reported_copies_count_only_if_each_names_its_sender(tmp_path: Path) -> None:
    names = ("copies", "messages", "copies_max")
    found = []
    for number, further in enumerate([(), ({"message_id": 7, "dst_node": 2},)]):
        (folder := tmp_path / str(number)).mkdir()
        found.append(build(folder, 3, reported=True, further=further)[0])
    assert [tuple(row[name] for name in names) for row in found] == [(3, 1, 3), (None, None, None)]
    assert found[1]["packets"] == 2
