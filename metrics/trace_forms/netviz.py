"""Writes a run as an animation for ethp2p's netviz (https://github.com/ethp2p/netviz): one file of lines of JSON.

The first line describes the nodes and the connections between them, then each line is an event ``[us, node, code,
...]``, and the last one is an index. Nodes are ``n0``, ``n1``, ... in the events, too. ``pa`` has the version of a
protocol in netviz; ours is empty.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from msgspec import json

from metrics.rundir import RunDir
from metrics.trace_forms.events import Event, TraceError
from metrics.trace_forms.exporting import (
    describe_kind,
    describe_left_out,
    node_of,
    number_of,
    read_run,
    split_topics,
)
from peer.core.frames import Data

FILE: Final = "run.bctrace"
MOST_EVENTS: Final = 5_000_000
"""The most events, which are sorted in memory. A browser shows far fewer."""

_INDEX_US: Final = 100_000

_Line = tuple[int, int, str, tuple[Any, ...]]
"""us since the first event, node, code, the values that the code needs."""


def write_files(run: RunDir, folder: Path) -> list[str]:
    """Write ``run.bctrace``, and return a sentence for everything that the form cannot hold.

    Raises:
        TraceError: the run has more than ``MOST_EVENTS``, or none.
    """
    left_out: Counter[str] = Counter()
    events, edges = _collect(run, left_out)
    events.sort(key=lambda event: event[:2])
    first_ns = events[0][0]
    with (folder / FILE).open("wb") as file:
        file.write(json.encode(_header(run, first_ns, edges)) + b"\n")
        index: list[tuple[int, int]] = []
        for at_ns, node, code, args in events:
            at_us = (at_ns - first_ns) // 1000
            if not index or at_us >= index[-1][0] + _INDEX_US:
                index.append((at_us, file.tell()))
            file.write(json.encode((at_us, node, code, *args)) + b"\n")
        duration_us = (events[-1][0] - first_ns) // 1000
        file.write(json.encode({"end": True, "duration": duration_us, "index": index}) + b"\n")
    return describe_left_out(left_out)


def _collect(run: RunDir, left_out: Counter[str]) -> tuple[list[_Line], set[tuple[int, int]]]:
    """Return all events, and the pairs of nodes that were connected."""
    lines: list[_Line] = []
    edges = set()
    for node in run.nodes:
        for event in read_run(run, node, left_out):
            if event.event == "add_peer" and event.peer is not None:
                other = node_of(event.peer)
                edges.add((min(node, other), max(node, other)))
            found = [*_say(event)]
            if not found and not _is_own_delivery(event):
                left_out[describe_kind(event)] += 1
            lines += ((event.ts_ns, node, code, args) for code, args in found)
            if len(lines) > MOST_EVENTS:
                raise TraceError(str(run.path), f"has more than {MOST_EVENTS:,} events; export pubsub-protobuf instead")
    if not lines:
        raise TraceError(str(run.path), "the traces have no events")
    return lines, edges


def _is_own_delivery(event: Event) -> bool:
    """Return whether a publisher hands on its own message, which netviz shows by the publication alone."""
    return event.event == "deliver" and event.peer is None


def _say(event: Event) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the codes of an event with the values that they need; none if netviz has no such event."""
    peer = "" if event.peer is None else f"n{node_of(event.peer)}"
    message = "" if event.message is None else str(number_of(event.message))
    topic = (event.topics or ("",))[0]
    match event.event:
        case "publish":
            yield "pb", (topic, message, event.len_bytes)
        case "send" if event.kind == Data.kind:
            yield "ms", (peer, topic, message, event.len_bytes)
        case "deliver" if event.peer is not None:
            yield "dl", (peer, topic, message)
        case "duplicate":
            yield "du", (peer, topic, message)
        case "reject" if event.message is not None:
            yield "rj", (peer, topic, message, event.reason)
        case "graft" | "prune":
            code = "mg" if event.event == "graft" else "mp"
            yield from ((code, (peer, *(each.topics or ()))) for each in split_topics(event))
        case "join" | "leave":
            code = "tj" if event.event == "join" else "tl"
            yield from ((code, each.topics or ()) for each in split_topics(event))
        case "add_peer" if event.peer is not None:
            yield "pa", (peer, "")
        case "remove_peer" if event.peer is not None:
            yield "pg", (peer,)


def _header(run: RunDir, first_ns: int, edges: set[tuple[int, int]]) -> dict[str, Any]:
    """Return the first line. Rates that are not limited are left out."""
    network = run.network
    hosts = {place.node: place.host for place in run.plan.placement}
    nodes = []
    for node, host in hosts.items():
        access = zip(("upload_bw_mbps", "download_bw_mbps"), map(network.link, network.access(host)), strict=True)
        limits = {name: link.rate_mbit for name, link in access if link.rate_mbit}
        country = run.underlay.hosts[host].country
        nodes.append({"num": node} | limits | ({"country": country} if country else {}))
    links = [
        {"source": one, "target": other, "latency_ms": network.asked(hosts[one], hosts[other]).delay_ms}
        for one, other in sorted(edges)
        if one in hosts and other in hosts
    ]
    return {
        "v": 1,
        "t0": f"{datetime.fromtimestamp(first_ns // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.{first_ns % 10**9:09d}Z",
        "nodes": [f"n{node}" for node in run.nodes],
        "topology": {"nodes": nodes, "edges": links},
        "config": {"name": run.plan.name, "protocol": run.experiment["protocol"], "seed": run.plan.seed},
        "decoderName": "gossipsub",
    }
