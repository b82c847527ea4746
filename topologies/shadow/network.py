"""The network of an experiment of Shadow: the delay and loss of every pair of hosts, and the rates of hosts.

As in Shadow, packets take the shortest path by latency (or the only link between two nodes, if the file says so), and
two hosts of the same node are as far from each other as the node's link to itself says. Only hosts have rates.
"""

from __future__ import annotations

import lzma
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from topologies.graph_paths import ask_paths
from topologies.importers.gml import GmlGraph, parse_gml
from topologies.limits import LARGEST_DELAY_MS
from topologies.link_graph import GraphLink, LinkGraph, Router
from topologies.network import AskedOfPairs
from topologies.reading import InputError, read_text
from topologies.shadow.form import GraphSource, ShadowFile, ShadowHost

SWITCH: Final = """graph [
  node [ id 0 label "switch" host_bandwidth_up "1 Gbit" host_bandwidth_down "1 Gbit" ]
  edge [ source 0 target 0 latency "1 ms" packet_loss 0.0 ]
]"""
"""The graph of the type ``1_gbit_switch``."""

LARGEST_BYTES: Final = 1 << 30
"""Limit on the size of a graph, unpacked."""


class HostNetwork(NamedTuple):
    """What the file asks of the packets between hosts.

    Attributes:
        asked: of every directed pair of hosts, (n, n); the diagonal is 0.
        rates: of every host a place for errors, and its rates up and down (Mbit/s).
        nodes: the label of every host's node.
        notes: what a reader should know of the graph.
    """

    asked: AskedOfPairs
    rates: list[tuple[str, float, float]]
    nodes: list[str]
    notes: list[str]


def graph_file(shadow: ShadowFile, folder: Path) -> Path | None:
    """Return the file of the graph, relative to the folder of ``shadow.yaml``; None = it has none."""
    name = shadow.graph.file
    if name is None:
        return None
    return folder / (Path(name).expanduser() if name.startswith("~/") else name)


def make_network(path: Path, shadow: ShadowFile) -> HostNetwork:
    """Return the network of an experiment.

    Args:
        path: its file, for errors and for the path of the graph.
        shadow: what the file says.

    Raises:
        InputError: the graph is missing or malformed, lacks a node or a link, or a host has no rate.
    """
    place = graph_file(shadow, path.parent) or Path(f"{path}: network.graph.inline")
    graph = parse_gml(place, _read_text(place, shadow.graph))
    numbers = {number: index for index, number in enumerate(graph.numbers)}
    for host in shadow.hosts:
        if host.network_node_id not in numbers:
            problem = f"the graph has no node {host.network_node_id}"
            raise InputError(f"{path}: hosts.{host.name}.network_node_id", problem)
    nodes = [numbers[host.network_node_id] for host in shadow.hosts]
    used = sorted(set(nodes))
    notes: list[str] = []
    asked = _shortest(place, graph, used, notes) if shadow.shortest else _direct(place, graph, used)
    _fill_in_loops(place, graph, used, nodes, asked)
    index = np.searchsorted(used, nodes)
    of_hosts = AskedOfPairs(*(matrix[np.ix_(index, index)] for matrix in asked))
    for matrix in of_hosts:
        np.fill_diagonal(matrix, 0.0)
    if (longest_ms := float(of_hosts.delay_ms.max())) > LARGEST_DELAY_MS:
        raise InputError(str(place), f"expected paths of at most {LARGEST_DELAY_MS:,} ms, got {longest_ms:g}")
    if any(link.jitter_ms for link in graph.links):
        notes.append("jitter: has no effect, as in Shadow")
    notes.append(f"graph: {len(graph.labels)} nodes, {len(used)} of them with hosts")
    rates = [_rates(path, host, graph, node) for host, node in zip(shadow.hosts, nodes, strict=True)]
    return HostNetwork(of_hosts, rates, [graph.labels[node] for node in nodes], notes)


def _read_text(place: Path, source: GraphSource) -> str:
    if source.file is None:
        return SWITCH if source.inline is None else source.inline
    if not source.packed:
        return read_text(place, LARGEST_BYTES)
    try:
        with place.open("rb") as file, lzma.open(file) as content:
            data = content.read(LARGEST_BYTES + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise InputError(str(place), error.strerror or "cannot be read") from None
    except (lzma.LZMAError, EOFError) as error:
        raise InputError(str(place), f"cannot be unpacked: {' '.join(str(error).split())}") from None
    except UnicodeDecodeError:
        raise InputError(str(place), "not UTF-8 text") from None
    if len(data) > LARGEST_BYTES:
        raise InputError(str(place), f"expected at most {LARGEST_BYTES:,} bytes, unpacked")
    return text


def _links_between(graph: GmlGraph) -> dict[tuple[int, int], list[GraphLink]]:
    found: dict[tuple[int, int], list[GraphLink]] = defaultdict(list)
    for link in graph.links:
        found[link.source, link.destination].append(link)
    return found


def _shortest(place: Path, graph: GmlGraph, used: Sequence[int], notes: list[str]) -> AskedOfPairs:
    """Return what the shortest paths between the used nodes ask, without jitter."""
    plain = (GraphLink(each.source, each.destination, each.delay_ms, 0.0, each.loss_ratio) for each in graph.links)
    links = tuple(link for link in plain if link.source != link.destination)
    asked = ask_paths(LinkGraph(tuple(Router(name) for name in graph.labels), links), used)
    if not np.isfinite(asked.delay_ms).all():
        row, column = np.argwhere(~np.isfinite(asked.delay_ms))[0]
        source, destination = graph.labels[used[row]], graph.labels[used[column]]
        raise InputError(str(place), f"no path leads from {source} to {destination}, which both have hosts")
    columns = {node: column for column, node in enumerate(used)}
    direct: dict[tuple[int, int], float] = {}
    for link in links:
        if link.source in columns and link.destination in columns:
            pair = columns[link.source], columns[link.destination]
            direct[pair] = min(link.delay_ms, direct.get(pair, np.inf))
    shorter = sum(asked.delay_ms[pair] < delay_ms - 1e-9 for pair, delay_ms in direct.items())
    if shorter:
        notes.append(
            f"paths: {shorter:,} of {len(direct):,} links between nodes with hosts are longer than the shortest path, "
            "which packets take as in Shadow (network.use_shortest_path)"
        )
    return asked


def _direct(place: Path, graph: GmlGraph, used: Sequence[int]) -> AskedOfPairs:
    """Return what the only link between any two used nodes asks, without jitter."""
    between, size = _links_between(graph), len(used)
    delay_ms, loss_ratio = np.zeros((size, size)), np.zeros((size, size))
    for row, source in enumerate(used):
        for column, destination in enumerate(used):
            if source != destination:
                link = _only(place, graph, between.get((source, destination), []), source, destination)
                delay_ms[row, column], loss_ratio[row, column] = link.delay_ms, link.loss_ratio
    return AskedOfPairs(delay_ms, np.zeros((size, size)), loss_ratio)


def _fill_in_loops(
    place: Path, graph: GmlGraph, used: Sequence[int], nodes: Sequence[int], asked: AskedOfPairs
) -> None:
    """Set what is asked of two hosts of the same node: what the node's link to itself says."""
    between, hosts = _links_between(graph), Counter(nodes)
    for row, node in enumerate(used):
        if hosts[node] > 1:
            link = _only(place, graph, between.get((node, node), []), node, node)
            asked.delay_ms[row, row], asked.loss_ratio[row, row] = link.delay_ms, link.loss_ratio


def _only(place: Path, graph: GmlGraph, links: Sequence[GraphLink], source: int, destination: int) -> GraphLink:
    if len(links) != 1:
        what = "no edge leads" if not links else f"{len(links)} edges lead"
        problem = f"{what} from {graph.labels[source]} to {graph.labels[destination]}, expected one"
        raise InputError(str(place), problem)
    return links[0]


def _rates(path: Path, host: ShadowHost, graph: GmlGraph, node: int) -> tuple[str, float, float]:
    place, up_mbit, down_mbit = graph.rates[node]
    up_mbit, down_mbit = host.up_mbit or up_mbit, host.down_mbit or down_mbit
    for key, rate in (("bandwidth_up", up_mbit), ("bandwidth_down", down_mbit)):
        if not rate:
            raise InputError(f"{path}: hosts.{host.name}.{key}", "missing, and its node in the graph has none either")
    return place, up_mbit, down_mbit
