"""Convert trace files to Parquet: a kernel for shares of the files, so that each file is parsed once.

Frames go to ``frames``, every other event to ``events``. Frames that were sent also go to ``traced``, the input of
header-only captures, and those that begin a stream to ``beginnings``. Events about messages go to ``told``, events
about later copies to ``further``, what became of the copies from each neighbour to ``handled``, and events about
links and subscriptions to ``changes``. All but ``events`` are in buckets (``metrics.tables.buckets``), and ``traced``
is divided as captures are. ``mentions`` says which buckets of ``frames`` have frames of a message.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import asdict

from metrics.pcap.schemas import TRACED
from metrics.pcap.walk import Ints
from metrics.storage import Place
from metrics.storage.copies import scratch_folder
from metrics.tables.buckets import BucketParts, of_connections, of_messages, of_neighbours, of_nodes, read_bucket
from metrics.tables.columns import conform, find, group_rows
from metrics.tables.object_lines import ObjectLines
from metrics.tables.schemas import schema_of
from metrics.tables.shares import all_shares
from metrics.tables.staged import ParquetPart
from peer.core.frames import Data
from peer.trace import CRASHED, REMARKS

EVENTS: Final = schema_of("""
    event string, node int, peer int, kind smallint, hops int, ts_ns bigint, message_id bigint, topics array<bigint>,
    conn string, direction string, off bigint, len_bytes bigint, reason string, records bigint, epoch bigint,
    score double
""")
"""What is staged of a trace line; ``event`` is null if it has none. Each type is the narrowest for all values."""

FRAMES: Final = pa.schema([field for field in EVENTS if field.name not in ("reason", "records", "epoch", "score")])

BEGINNINGS: Final = pa.schema([TRACED.field(name) for name in ("conn", "direction", "ts_ns")])
"""The frames at offset 0 that were sent: each begins one direction of a connection."""

TOLD: Final = schema_of("""
    event string, node int, peer int, hops int, ts_ns bigint, message_id bigint, topics array<bigint>, len_bytes bigint
""")
"""The ``publish``, ``deliver`` and ``relay`` events."""

FURTHER: Final = schema_of("event string, node int, peer int, ts_ns bigint, message_id bigint")
"""The ``duplicate`` events, and the ``reject`` events of copies that the node did not take."""

HANDLED: Final = schema_of("""
    node int, peer int, message_id bigint, first_event string, first_peer int, first_ns bigint, is_own boolean
""")
"""One row per event about a copy that names its sender (``describe_copies``)."""

CHANGES: Final = schema_of("""
    event string, node int, peer int, ts_ns bigint, topics array<bigint>, conn string, direction string, reason string
""")
"""The events of which links, subscriptions and uptimes are made."""

MENTIONS: Final = schema_of("message_id bigint, bucket bigint")
"""A bucket of connections that has frames of a message; a pair may have several rows."""

_BUCKETED: Final = {
    "frames": FRAMES,
    "beginnings": BEGINNINGS,
    "told": TOLD,
    "further": FURTHER,
    "handled": HANDLED,
    "changes": CHANGES,
    "mentions": MENTIONS,
}

STAGED_TABLES: Final = ("events", *_BUCKETED, "traced")

_LINES: Final = ObjectLines(EVENTS)

BLOCK_BYTES = 16 << 20

LINE_BYTES = 16 << 20
"""A line that is longer by more than ``BLOCK_BYTES`` is not read. No peer writes lines of nearly this length."""

_CUT: Final = b"!\n"

COPIES_BYTES = 128 << 20
"""The size of a trace whose events about copies are in memory together."""

_ABOUT_COPIES: Final = ("deliver", "relay", "duplicate")
_REFUSES_COPY: Final = (
    (pc.field("event") == "reject")
    & pc.field("message_id").is_valid()
    & pc.field("peer").is_valid()
    & (pc.field("kind").is_null() | (pc.field("kind") == Data.kind))
    & (pc.field("reason").is_null() | ~pc.field("reason").isin(REMARKS))
)
_IS_FURTHER: Final = (pc.field("event") == "duplicate") | _REFUSES_COPY
_ABOUT_LINKS: Final = ("join", "leave", "add_peer", "remove_peer", "graft", "prune")
_COPY_EVENTS: Final = pa.schema([EVENTS.field(name) for name in ("event", "node", "peer", "ts_ns", "message_id")])


class TraceState(Struct, frozen=True):
    """What was counted in a trace, or in a block of a trace."""

    node: int | None  # None = no known node: neither the line nor the file's name gives one
    lines: int  # lines that are not blank
    corrupt: int  # lines that are not an event
    records: int | None  # lines before its end, as its ``stop`` says; None without a ``stop``
    drops: int  # frames that the peer dropped
    changes: int  # joins and leaves
    crashes: int  # the leaves that are crashes
    reads: int  # frames that the peer read

    @property
    def is_complete(self) -> bool:
        """Whether the trace has only whole lines and ends with a ``stop`` that counts the lines before it."""
        return not self.corrupt and self.records == self.lines - 1


class Staging(Struct, frozen=True):
    """How traces are staged."""

    folder: Place  # where the folders of the staged tables are
    traced: bool  # whether to write ``traced``
    ahead_ns: Mapping[int, int]  # how far the clocks of nodes are ahead of ours; absent = they are not
    addresses: Mapping[int, str]  # the address of every node, for the buckets
    buckets: int = 1
    parts: int = 1  # into which captures are divided, and ``traced`` with them


def stage_files(files: Iterable[Place], staging: Staging, part: int) -> list[TraceState]:
    """Parse trace files into a part of each staged table, or one per bucket.

    Args:
        files: traces, with the names ``<node>.jsonl``.
        staging: how traces are staged.
        part: the number of this share; it replaces the part of an earlier attempt.

    Returns:
        The state of every file's blocks, by node.
    """
    count = staging.buckets
    every_event = ParquetPart(staging.folder / "events" / f"part-{part}.parquet", EVENTS)
    traced = TracedParts(staging, str(part))
    divided = {name: BucketParts(staging.folder / name, part, schema, count) for name, schema in _BUCKETED.items()}
    states = []
    for path in files:
        about_copies = _CopyEvents(path.stat().st_size)
        for events in read_events(path, staging.ahead_ns):
            states += _states(events)
            is_frame = pc.fill_null(pc.is_in(events["event"], pa.array(["send", "receive"])), fill_value=False)
            frames = events.filter(is_frame).select(FRAMES.names)
            bucket = of_connections(frames["conn"], count)
            divided["frames"].add(frames, bucket)
            add_mentions(divided["mentions"], frames, bucket, count)
            others = events.filter(pc.invert(is_frame))
            every_event.add(others)
            about_copies.add(others.filter(pc.field("event").isin(_ABOUT_COPIES)).select(_COPY_EVENTS.names))
            told = others.filter(pc.field("event").isin(["publish", "deliver", "relay"])).select(TOLD.names)
            divided["told"].add(told, of_messages(told["message_id"], count))
            further = others.filter(_IS_FURTHER).select(FURTHER.names)
            divided["further"].add(further, of_messages(further["message_id"], count))
            changes = others.filter(pc.field("event").isin(_ABOUT_LINKS)).select(CHANGES.names)
            divided["changes"].add(changes, of_nodes(changes["node"], count))
            sends = locate(frames).filter(pc.field("event") == "send")
            begun = sends.filter(pc.field("off") == 0).select(BEGINNINGS.names)
            divided["beginnings"].add(begun, of_connections(begun["conn"], count))
            if staging.traced:
                traced.add(sends)
        for events in about_copies.by_message():
            handled = describe_copies(events)
            divided["handled"].add(handled, of_neighbours(handled, staging.addresses, count))
    every_event.close()
    traced.close()
    for parts in divided.values():
        parts.close()
    return states


class _CopyEvents:
    """The events of a trace about copies of messages: in memory if it is small, otherwise in files by message.

    Args:
        trace_bytes: the size of the trace.
    """

    def __init__(self, trace_bytes: int) -> None:
        self._count = max(1, -(-trace_bytes // COPIES_BYTES))
        self._rows = [_COPY_EVENTS.empty_table()]
        if self._count > 1:
            self._folder = TemporaryDirectory(prefix="trellis-", dir=scratch_folder())
            self._parts = BucketParts(Path(self._folder.name), 0, _COPY_EVENTS, self._count)

    def add(self, events: pa.Table) -> None:
        if self._count == 1:
            self._rows.append(events)
        else:
            self._parts.add(events, of_messages(events["message_id"], self._count))

    def by_message(self) -> Iterator[pa.Table]:
        """Yield all events of some messages at a time."""
        if self._count == 1:
            yield pa.concat_tables(self._rows)
            return
        self._parts.close()
        with self._folder as folder:
            for share in all_shares(self._count):
                yield read_bucket(Path(folder), _COPY_EVENTS, share)


def add_mentions(parts: BucketParts, frames: pa.Table, bucket: Ints, count: int) -> None:
    """Record which buckets of connections have frames of a message; with only one bucket, record nothing.

    Args:
        parts: the parts of ``MENTIONS``, in buckets of messages.
        frames: conn and message_id of frames.
        bucket: the bucket of each frame's connection.
        count: how many buckets there are.
    """
    if count == 1:
        return
    rows = pa.table([frames["message_id"], pa.array(bucket)], MENTIONS)
    rows = rows.filter(pc.and_(pc.is_valid(frames["conn"]), pc.is_valid(frames["message_id"])))
    _, named = group_rows(rows, *MENTIONS.names)
    parts.add(named, of_messages(named["message_id"], count))


class TracedParts:
    """A task's part of ``traced``: each frame is in the part of the captures that has its connection's packets.

    Args:
        staging: how traces are staged.
        part: the name of the task's part.
    """

    def __init__(self, staging: Staging, part: str) -> None:
        self._staging = staging
        self._parts = BucketParts(staging.folder / "traced", part, TRACED, staging.parts, ("conn", "direction", "off"))

    def add(self, frames: pa.Table) -> None:
        """Add rows of ``FRAMES``."""
        self._parts.add(frames.select(TRACED.names), of_connections(frames["conn"], self._staging.parts))

    def close(self) -> None:
        self._parts.close()


def describe_copies(events: pa.Table) -> pa.Table:
    """Return what became of the copies that nodes handled (``HANDLED``).

    ``first_*`` describe the node's first ``deliver`` or ``relay`` of the message that names a sender; null if there is
    none. ``is_own``: the node handed on a message of its own, which no neighbour sent it.

    Args:
        events: all ``deliver``, ``relay`` and ``duplicate`` of whole nodes: event, node, peer, ts_ns, message_id.
    """
    events = events.combine_chunks()
    has_peer = pc.is_valid(events["peer"])
    taken = pc.and_(has_peer, pc.is_in(events["event"], pa.array(["deliver", "relay"])))
    firsts = events.filter(taken).sort_by([("ts_ns", "ascending")])
    own = events.filter(pc.and_(pc.invert(has_peer), pc.equal(events["event"], "deliver")))
    rows = events.filter(has_peer)
    asked = [rows["node"], rows["message_id"]]
    first = firsts.take(find([firsts["node"], firsts["message_id"]], asked))
    columns = {name: rows[name] for name in ("node", "peer", "message_id")}
    columns |= {"first_event": first["event"], "first_peer": first["peer"], "first_ns": first["ts_ns"]}
    columns["is_own"] = pc.is_valid(find([own["node"], own["message_id"]], asked))
    return conform(columns, HANDLED)


def read_events(path: Place, ahead_ns: Mapping[int, int]) -> Iterator[pa.Table]:
    """Yield a trace a block of lines at a time, as rows of ``EVENTS``; ``event`` is null if a line is not an event.

    Args:
        path: the trace, with the name ``<node>.jsonl``.
        ahead_ns: how far the clocks of nodes are ahead of ours; absent = they are not.
    """
    for block in read_blocks(path):
        yield _settle(parse(block), path, ahead_ns)


def locate(frames: pa.Table) -> pa.Table:
    """Return the frames that say where in a stream they lie."""
    said = [pc.field(name).is_valid() for name in ("conn", "direction", "off", "len_bytes")]
    return frames.filter(said[0] & said[1] & said[2] & said[3])


def parse(lines: bytes) -> pa.Table:
    """Return a row of ``EVENTS`` for every line that is not blank, with nulls if the line is not such an object."""
    return _LINES.parse(lines)


def read_blocks(path: Place) -> Iterator[bytes]:
    """Yield the file's bytes, some whole lines at a time.

    A line that does not end within ``LINE_BYTES`` after the block in which it begins is cut there, and marked so that
    it is not JSON.
    """
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            rest = b"" if block.endswith(b"\n") else file.readline(LINE_BYTES)
            yield block + (rest + _CUT if _skip_line(file, rest) else rest)


def _skip_line(file: IO[bytes], rest: bytes) -> bool:
    """Read up to the end of a line that begins with ``rest``; return whether there was more of it."""
    skipped = False
    while len(rest) == LINE_BYTES and not rest.endswith(b"\n"):
        rest = file.readline(LINE_BYTES)
        skipped = skipped or bool(rest.strip())
    return skipped


def _settle(events: pa.Table, path: Place, ahead_ns: Mapping[int, int]) -> pa.Table:
    """Turn rows into nulls that lack what every event has; give them, and events without a node, their file's node.

    Instants are converted to our clock.
    """
    good = pc.and_(pc.is_valid(events["event"]), pc.is_valid(events["ts_ns"]))
    number = int(path.stem) if path.stem.isdecimal() else None
    own = pa.scalar(number, pa.int32())
    nothing = pa.scalar(None, pa.string())
    columns = {
        "ts_ns": pc.subtract(events["ts_ns"], 0 if number is None else ahead_ns.get(number, 0)),
        "event": pc.if_else(good, events["event"], nothing),
        "node": pc.coalesce(pc.if_else(good, events["node"], own), own),
    }
    for name, column in columns.items():
        events = events.set_column(EVENTS.get_field_index(name), name, column)
    return events


def _states(events: pa.Table) -> list[TraceState]:
    said, reason = events["event"], events["reason"]
    is_leave = pc.equal(said, "leave")
    counted = {
        "corrupt": pc.is_null(said),
        "drops": pc.equal(said, "drop"),
        "changes": pc.or_(pc.equal(said, "join"), is_leave),
        "reads": pc.equal(said, "receive"),
        "crashes": pc.and_(is_leave, pc.fill_null(pc.equal(reason, CRASHED), fill_value=False)),
    }
    columns = {name: pc.cast(pc.fill_null(where, fill_value=False), pa.int64()) for name, where in counted.items()}
    columns["records"] = pc.if_else(pc.equal(said, "stop"), events["records"], pa.scalar(None, pa.int64()))
    return _add_up(pa.table({"node": events["node"], "lines": pa.repeat(1, len(events)), **columns}))


def merge_states(states: Iterable[TraceState]) -> dict[int | None, TraceState]:
    """Return the states of whole traces by node, from the states of their blocks."""
    schema = pa.schema([(name, pa.int64()) for name in TraceState.__struct_fields__])
    return {state.node: state for state in _add_up(pa.Table.from_pylist([asdict(each) for each in states], schema))}


def _add_up(states: pa.Table) -> list[TraceState]:
    """Add up the rows of each node."""
    wanted = [(name, "max" if name == "records" else "sum") for name in states.column_names if name != "node"]
    rows = states.group_by("node").aggregate(wanted)
    names = [name.rpartition("_")[0] or name for name in rows.column_names]
    return [TraceState(**row) for row in rows.rename_columns(names).to_pylist()]
