"""Networks of hosts and switches whose links have the options of Mininet's ``TCLink``, as graphs.

An option is about both directions of a link; ``params1`` and ``params2`` are about the direction that leaves the first
or the second node. As in Mininet, an option for both directions wins over one for a single direction.

Source: mininet/link.py of Mininet 2.3, classes Link and TCIntf; tc(8), tc-netem(8).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from topologies.importers import Options
from topologies.importers.graph_files import drop_loops, imported_graph, in_units, shown
from topologies.importers.imported import Imported
from topologies.limits import FASTEST_MBIT, LARGEST_DELAY_MS, SLOWEST_MBIT
from topologies.link_graph import MOST_ROUTERS, GraphLink, LinkGraph, Router
from topologies.provenance import Provenance
from topologies.reading import InputError

PACKET_BYTES = 1500
"""The size of a packet, by which a queue's length in packets becomes one in ms."""

QUEUE_PACKETS = 1000
"""The length of the queue of a link with a rate and no ``max_queue_size``: the default of netem and of interfaces."""

_TIMES_MS = {
    **dict.fromkeys(("s", "sec", "secs"), 1e3),
    **dict.fromkeys(("ms", "msec", "msecs"), 1.0),
    **dict.fromkeys(("us", "usec", "usecs"), 1e-3),
    **dict.fromkeys(("ns", "nsec", "nsecs"), 1e-6),
}

_USED = frozenset({"bw", "delay", "jitter", "loss", "max_queue_size"})

_IGNORED = frozenset(
    {
        "use_htb",
        "use_hfsc",
        "use_tbf",
        "latency_ms",
        "enable_ecn",
        "enable_red",
        "speedup",
        "gro",
        "disable_gro",
        "txo",
        "rxo",
        "mac",
        "ip",
        "ifconfig",
        "up",
    }
)
"""Options that have no effect here; a note names those that a file uses."""

_PLACES = frozenset(
    {
        "node1",
        "node2",
        "port",
        "port1",
        "port2",
        "addr1",
        "addr2",
        "intfName1",
        "intfName2",
        "cls",
        "cls1",
        "cls2",
        "intf",
        "fast",
        "key",
        "isSwitch",
    }
)
"""Options that say what a link is made of and where it is attached. Here all links are of one kind."""


class TcLink(NamedTuple):
    """A link: its two nodes by their names, and its options."""

    one: str
    other: str
    options: Mapping[str, Any]


class TcNetwork(NamedTuple):
    """A network: the names of its hosts, those of its switches and routers, and its links."""

    hosts: Sequence[str]
    switches: Sequence[str]
    links: Sequence[TcLink]


def import_network(kind: str, path: Path, network: TcNetwork, options: Options, provenance: Provenance) -> Imported:
    """Return the latencies between the hosts of a network. A sample of hosts is spread over the switches.

    Args:
        kind: the underlay's kind.
        path: the file, for errors.
        network: its nodes, all with different names, and links.
        options: ``missing`` is used.
        provenance: its notes get what is assumed here.

    Raises:
        InputError: an option of a link is not known or malformed, or no path leads from a host to another.
    """
    names = [*network.hosts, *network.switches]
    if len(names) > MOST_ROUTERS:
        raise InputError(str(path), f"expected at most {MOST_ROUTERS:,} nodes, got more")
    numbers = {name: number for number, name in enumerate(names)}
    routers = tuple(Router(name[:200], forwards=number >= len(network.hosts)) for number, name in enumerate(names))
    seen: Counter[str] = Counter()
    links: list[GraphLink] = []
    for link in network.links:
        place = f"{path}: link {link.one} - {link.other}"
        ends = numbers[link.one], numbers[link.other]
        ways = _ways(place, link.options)
        for (source, destination), given in zip((ends, ends[::-1]), ways, strict=True):
            links.append(_read_way(place, source, destination, given, seen))
    notes = [f"{text}: {count} directions of links" for text, count in sorted(seen.items())]
    graph = LinkGraph(routers, tuple(drop_loops(links, notes)))
    provenance = Provenance(sha256=provenance.sha256, notes=(*provenance.notes, *notes))
    regions = [_switch_of(host, network) for host in network.hosts]
    sites = range(len(network.hosts))
    return imported_graph(kind, path, graph, options, provenance, regions=regions, sites=sites)


def _switch_of(host: str, network: TcNetwork) -> str:
    """Return the node at the other end of a host's first link; an empty text if it has none."""
    ends = ((link.one, link.other) for link in network.links)
    return next((other if one == host else one for one, other in ends if host in (one, other)), "")


def _ways(place: str, options: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the options of the direction from the first node, then those of the other one."""
    both = {name: value for name, value in options.items() if name not in ("params1", "params2")}
    for name in ("params1", "params2"):
        own = options.get(name) or {}
        if not isinstance(own, Mapping):
            raise InputError(place, f"expected options in {name}, got {shown(own)}")
        yield {**own, **both}


def _read_way(place: str, source: int, destination: int, options: Mapping[str, Any], seen: Counter[str]) -> GraphLink:
    """Return a link in one direction. ``seen`` counts what a note has to say."""
    given = {name: value for name, value in options.items() if value is not None}
    if unknown := sorted(given.keys() - _USED - _IGNORED - _PLACES):
        raise InputError(place, f"unknown option {unknown[0]}; known are {', '.join(sorted(_USED | _IGNORED))}")
    seen.update(f"not used: {name}" for name in given.keys() & _IGNORED)
    rate_mbit = _number(place, given, "bw", SLOWEST_MBIT, FASTEST_MBIT) if "bw" in given else 0.0
    packets = _number(place, given, "max_queue_size", 1, 1e9) if "max_queue_size" in given else QUEUE_PACKETS
    if "max_queue_size" in given and not rate_mbit:
        seen["not used: max_queue_size without bw"] += 1
    loss_ratio = _number(place, given, "loss", 0, 99.9999) / 100 if given.get("loss") else 0.0
    delay_ms, jitter_ms = (_time_ms(place, given, name, seen) for name in ("delay", "jitter"))
    if jitter_ms and "delay" not in given:
        raise InputError(place, "expected a delay, since there is a jitter")
    queue_ms = min(packets * PACKET_BYTES * 8 / (rate_mbit * 1000), LARGEST_DELAY_MS) if rate_mbit else 0.0
    return GraphLink(
        source,
        destination,
        delay_ms,
        jitter_ms / math.sqrt(3),  # netem draws uniformly from delay - jitter to delay + jitter
        loss_ratio,
        rate_mbit=rate_mbit,
        queue_ms=queue_ms,
    )


def _number(place: str, given: Mapping[str, Any], name: str, least: float, most: float) -> float:
    value = given[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InputError(place, f"expected a {name} from {least:g} to {most:g}, got {shown(value)}")
    return float(value)


def _time_ms(place: str, given: Mapping[str, Any], name: str, seen: Counter[str]) -> float:
    """Return a time such as ``5ms`` in ms. Without a unit it is in microseconds, as for tc; a note says so."""
    value = given.get(name)
    if not value:
        return 0.0
    text = str(value).strip().lower()
    if not isinstance(value, bool) and text.replace(".", "", 1).isdigit():
        seen[f"{name} without a unit, in microseconds"] += 1
        text += "us"
    time_ms = in_units(text, _TIMES_MS)
    if time_ms is None or time_ms > LARGEST_DELAY_MS:
        raise InputError(place, f'expected a {name} such as "5ms", got {shown(value)}')
    return time_ms
