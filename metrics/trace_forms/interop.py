"""The folder that Shadow writes for gossipsub-interop: it is read, and runs are written so that its scripts read them.

``hosts/node<i>/peer.1000.stdout`` is what the node's program printed. If the run has other peers, it has the copies
that they traced, as the program in Go prints them. ``shadow.yaml`` and ``graph.gml`` say where each node is, and
``params.json`` is the script, if there was one.
"""

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from msgspec import json

from metrics.rundir import RunDir
from metrics.trace_forms.events import IDENTITY, Event, Reading, TraceError, opened, read_lines
from metrics.trace_forms.exporting import (
    describe_kind,
    describe_left_out,
    node_of,
    number_of,
    peer_id,
    read_run,
)
from peer.files import SCRIPT_FILE, output_file
from peer.interop.identity import encode_base58
from peer.interop.output import Identity, Receipt, read_line
from peer.lines import LineError

STDOUT: Final = "peer.1000.stdout"
"""The name of a node's file. Shadow puts the number of the process there."""

_SECOND_NS: Final = 1_000_000_000
_PHASES: Final = ("warmup", "workload", "cooldown")
_COPIES: Final = ("deliver", "duplicate", "relay")
_SPECIAL: Final = re.compile(r"[^A-Za-z0-9 .,_()/-]")


def open_form(_: Path | None) -> Reading:
    """Return how the lines of programs are read. They have no publications."""
    return Reading(_read_events, frozenset({"deliver", "duplicate"}), _find_files)


def _find_files(folder: Path) -> list[Path]:
    """Return the output of all nodes.

    Raises:
        TraceError: there is none.
    """
    files = sorted(folder.glob("hosts/*/*.stdout"))
    if not files:
        raise TraceError(str(folder), "expected the output of programs, hosts/<node>/*.stdout")
    return files


def _read_events(path: Path) -> Iterator[Event]:
    node, read = os.fsencode(path.parent.name), set[int]()
    with opened(path) as file:
        for place, line in read_lines(path, file):
            try:
                said = read_line(line)
            except LineError as error:
                raise TraceError(place, str(error)) from None
            match said:
                case Identity(peer_id=name):
                    yield Event(IDENTITY, 0, node, name.encode())
                case Receipt():
                    yield _make_event(said, node, again=said.message in read)
                    read.add(said.message)


def _make_event(receipt: Receipt, node: bytes, *, again: bool) -> Event:
    return Event(
        "duplicate" if again else "deliver",
        receipt.time.epoch_ns,
        node,
        None if receipt.sender is None else receipt.sender.encode(),
        str(receipt.message).encode(),
        topics=None if receipt.topic is None else (receipt.topic,),
    )


def write_files(run: RunDir, folder: Path) -> list[str]:
    """Write the folder, and return a sentence for everything that it does not hold."""
    left_out: Counter[str] = Counter()
    made = 0
    for node in run.nodes:
        target = folder / "hosts" / f"node{node}" / STDOUT
        target.parent.mkdir(parents=True)
        printed = run.path / output_file(node)
        with target.open("wb") as file:
            if printed.exists():
                with printed.open("rb") as source:
                    shutil.copyfileobj(source, file)
            else:
                made += 1
                file.writelines(_print(run, node, left_out))
    (folder / "shadow.yaml").write_text(_describe_hosts(run), encoding="utf-8")
    with (folder / "graph.gml").open("w", encoding="ascii") as file:
        file.writelines(_describe_network(run))
    if (script := run.path / SCRIPT_FILE).exists():
        (folder / SCRIPT_FILE).write_bytes(script.read_bytes())
    remarks = describe_left_out(left_out)
    if made:
        remarks.append(f"made of traces: what {made} nodes print, since their peers print no such lines")
    if not all(run.network.link(number).rate_mbit for number in _access_links(run)):
        remarks.append("left out: bandwidths of hosts without a limit, which Shadow itself would need")
    return remarks


def _print(run: RunDir, node: int, left_out: Counter[str]) -> Iterator[bytes]:
    """Yield what a node's program would have printed."""
    start_ns = run.manifest.zero_ns + run.manifest.epoch_offset_ns
    yield _line(start_ns, "PeerID", id=encode_base58(peer_id(node)), node_id=node)
    for event in read_run(run, node, left_out):
        if event.event not in _COPIES or event.message is None:
            left_out[describe_kind(event)] += 1
        elif not _is_own(event):
            sender = {} if event.peer is None else {"from": encode_base58(event.peer)}
            topic = (event.topics or ("",))[0]
            message = str(number_of(event.message))
            yield _line(event.ts_ns, "Received Message", service="gossipsub", **sender, topic=topic, id=message)


def _is_own(event: Event) -> bool:
    """Return whether a publisher hands on its own message, which no neighbour sent."""
    return event.message is not None and event.peer is None and number_of(event.message) >> 32 == node_of(event.node)


def _line(at_ns: int, message: str, **values: Any) -> bytes:  # noqa: ANN401 - JSON
    """Return a line as the package slog of Go writes it."""
    time = f"{datetime.fromtimestamp(at_ns // _SECOND_NS, UTC):%Y-%m-%dT%H:%M:%S}.{at_ns % _SECOND_NS:09d}Z"
    return json.encode({"time": time, "level": "INFO", "msg": message, **values}) + b"\n"


def _describe_hosts(run: RunDir) -> str:
    """Return ``shadow.yaml``. A text in double quotes is the same in YAML as in JSON."""
    programs = run.experiment.get("peer", {}).get("command") or ["trellis"]
    spans = (phase.end_ns - phase.start_ns for phase in run.manifest.phases if phase.name in _PHASES)
    stop_s = sum(spans) / _SECOND_NS
    lines = [
        "general:",
        f"  stop_time: {max(1, round(stop_s))} s",
        f"  seed: {run.plan.seed}",
        "network:",
        "  graph:",
        "    type: gml",
        "    file:",
        "      path: graph.gml",
        "hosts:",
    ]
    for place in run.plan.placement:
        path = json.encode(place.implementation or programs[0]).decode()
        lines += [
            f"  node{place.node}:",
            f"    network_node_id: {place.host}",
            "    processes:",
            f"    - path: {path}",
            f'      args: "--params {SCRIPT_FILE}"',
        ]
    return "\n".join(lines) + "\n"


def _describe_network(run: RunDir) -> Iterator[str]:
    """Yield the parts of ``graph.gml``: a node per host, and an edge per directed pair."""
    network, hosts = run.network, sorted({place.host for place in run.plan.placement})
    yield "graph [\n  directed 1\n"
    for host in hosts:
        label = _SPECIAL.sub(lambda found: f"&#{ord(found[0])};", run.underlay.hosts[host].name)
        yield f'  node [\n    id {host}\n    label "{label}"\n'
        access = zip(("up", "down"), map(network.link, network.access(host)), strict=True)
        for way, link in access:
            if link.rate_mbit:
                yield f'    host_bandwidth_{way} "{round(link.rate_mbit * 1e6)} bit"\n'
        yield "  ]\n"
    for one in hosts:
        for other in hosts:
            if one != other:
                asked = network.asked(one, other)
                yield f"  edge [\n    source {one}\n    target {other}\n"
                yield f'    latency "{round(asked.delay_ms * 1e6)} ns"\n    packet_loss {asked.loss_ratio}\n  ]\n'
    yield "]\n"


def _access_links(run: RunDir) -> Iterator[int]:
    for place in run.plan.placement:
        yield from run.network.access(place.host)
