"""Reads a run's traces with names in place of numbers, for the modules of forms that Trellis writes.

Nodes have made-up peer IDs: they have the form of IDs of ed25519 keys, but no key belongs to them. Their order is the
order of the nodes. A message has the name that go-libp2p-pubsub gives it by default, its publisher and a sequence
number.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from metrics.rundir import RunDir
from metrics.storage import Place
from metrics.storage.attempts import whole_folder
from metrics.tables.traces import parse, read_blocks
from metrics.trace_forms import Form
from metrics.trace_forms.events import Event, require_new
from metrics.trace_forms.numbering import SEQUENCE_BYTES
from peer.core.frames import kind_names
from peer.files import trace_file

_PEER_ID: Final = bytes.fromhex("002408011220")
"""The beginning of an identity multihash of 36 bytes, which are a protobuf of an ed25519 key."""

_KEY_BYTES: Final = 32


def export_run(run: RunDir, target: Path, form: Form) -> list[str]:
    """Write a run's traces into a new folder.

    Args:
        run: the run, which has ended.
        target: the folder, which must not exist.
        form: a form that Trellis writes.

    Returns:
        A sentence for everything that the form cannot hold.

    Raises:
        TraceError: ``target`` exists, or the run has no events, or too many for the form.
        RunDirError: a document of the run is missing or damaged.
        OSError: the folder cannot be written.
    """
    _ = run.manifest, run.plan, run.underlay, run.clocks
    require_new(target)
    with whole_folder(target) as folder:
        left_out: list[str] = form.load().write_files(run, folder)
    return left_out


def peer_id(node: int) -> bytes:
    """Return the peer ID of a node."""
    return _PEER_ID + node.to_bytes(_KEY_BYTES)


def message_name(message_id: int) -> bytes:
    """Return the name of a message."""
    return peer_id(message_id >> 32) + (message_id & 0xFFFFFFFF).to_bytes(SEQUENCE_BYTES)


def node_of(name: bytes) -> int:
    """Return the node of a peer ID of ``peer_id``."""
    return int.from_bytes(name[-_KEY_BYTES:])


def number_of(name: bytes) -> int:
    """Return the message's identifier, from a name of ``message_name``."""
    return node_of(name[:-SEQUENCE_BYTES]) << 32 | int.from_bytes(name[-SEQUENCE_BYTES:])


def read_run(run: RunDir, node: int, left_out: Counter[str]) -> Iterator[Event]:
    """Yield the events of a node, in the order of its trace; none without a trace.

    Instants are ns of virtual time after the epoch, as in captures (``Manifest.epoch_offset_ns``).

    Args:
        run: the run.
        node: the node.
        left_out: counts the lines that are not events.
    """
    clock = run.clocks.get(node)
    offset_ns = run.manifest.epoch_offset_ns - (0 if clock is None else clock.monotonic_ns)
    path = run.path / trace_file(node)
    for row in _read_rows(path) if path.exists() else ():
        if row["event"] is None or row["ts_ns"] is None:
            left_out["corrupt lines"] += 1
        else:
            yield _name(row, node, offset_ns)


def _read_rows(path: Place) -> Iterator[dict[str, Any]]:
    for block in read_blocks(path):
        yield from parse(block).to_pylist()


def _name(row: dict[str, Any], node: int, offset_ns: int) -> Event:
    """Return a row of ``traces.EVENTS`` as an event. A trace that starts joins its topics."""
    peer, message_id, topics = row["peer"], row["message_id"], row["topics"]
    return Event(
        "join" if row["event"] == "start" else row["event"],
        row["ts_ns"] + offset_ns,
        peer_id(node),
        None if peer is None else peer_id(peer),
        None if message_id is None else message_name(message_id),
        None if topics is None else tuple(map(str, topics)),
        kind=row["kind"],
        reason=row["reason"],
        len_bytes=row["len_bytes"],
    )


def split_topics(event: Event) -> Iterator[Event]:
    """Yield an event per topic of a link or subscription, for forms whose events have one topic."""
    for topic in event.topics or ():
        yield Event(event.event, event.ts_ns, event.node, event.peer, topics=(topic,))


def describe_kind(event: Event) -> str:
    """Return what an event is about, for the sentences about what a form leaves out."""
    kind = "" if event.kind is None else f" of {kind_names().get(event.kind, f'kind {event.kind}')} frames"
    return f"{event.event} events{kind}"


def describe_left_out(left_out: Counter[str]) -> list[str]:
    """Return a sentence for each kind of event for which a form has no place."""
    return [f"left out: {count:,} {what}" for what, count in sorted(left_out.items())]
