"""Trace files to Parquet: a kernel that Spark runs on shares of the files, so that each is parsed once.

Frames go to ``frames``, every other event to ``events``; of the frames that were sent, all go to ``traced`` as well,
the input of header-only captures, and those that begin a stream to ``beginnings``. Arrow reads whole blocks of lines; a
block that it refuses is halved until the lines that are no events stand alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from msgspec import Struct
from msgspec.structs import asdict

from metrics.pcap.schemas import TRACED
from metrics.tables.schemas import schema_of
from metrics.tables.staged import ParquetPart
from peer.trace import CRASHED

EVENTS: Final = schema_of("""
    event string, node int, peer int, kind smallint, hops int, ts_ns bigint, message_id bigint, topics array<bigint>,
    conn string, direction string, off bigint, len_bytes bigint, reason string, records bigint, epoch bigint,
    score double
""")
"""What is staged of a trace line; ``event`` is null where it is none. Types are the narrowest that every value fits."""

FRAMES: Final = pa.schema([field for field in EVENTS if field.name not in ("reason", "records", "epoch", "score")])

BEGINNINGS: Final = pa.schema([TRACED.field(name) for name in ("conn", "direction", "ts_ns")])
"""The frames at offset 0 that were sent: each begins one direction of a connection."""

_SCHEMAS: Final = {"frames": FRAMES, "events": EVENTS, "beginnings": BEGINNINGS, "traced": TRACED}
_ORDERS: Final = {"traced": ("conn", "direction", "off")}
BLOCK_BYTES = 16 << 20


class TraceState(Struct, frozen=True):
    """What was counted in a trace, or in a block of one."""

    node: int | None  # None = of no known node: the line names none, nor does the file's name
    lines: int  # those that are not blank
    corrupt: int  # lines that are no event
    records: int | None  # lines before its end, as its ``stop`` says; None without a ``stop``
    drops: int  # frames that the peer dropped
    changes: int  # joins and leaves
    crashes: int  # the leaves that are crashes

    @property
    def is_complete(self) -> bool:
        """Whether the trace has only whole lines and ends with a ``stop`` that counts the lines before it."""
        return not self.corrupt and self.records == self.lines - 1


def stage_files(
    files: Iterable[Path], staging: Path, part: int, *, traced: bool, ahead_ns: Mapping[int, int]
) -> list[TraceState]:
    """Parse trace files into a part of each staged table.

    Args:
        files: traces, named ``<node>.jsonl``.
        staging: where the folders of the staged tables are.
        part: the number of this share; an earlier attempt's part is replaced.
        traced: whether to write ``traced``.
        ahead_ns: how far the clocks of nodes are ahead of ours, by which their instants are corrected; absent = not.

    Returns:
        The state of every file's blocks, by node.
    """
    parts = {
        name: ParquetPart(staging / name / f"part-{part}.parquet", schema, _ORDERS.get(name, ()))
        for name, schema in _SCHEMAS.items()
    }
    states = []
    for path in files:
        for block in _blocks(path):
            events = _settle(parse(block), path, ahead_ns)
            states += _states(events)
            is_frame = pc.fill_null(pc.is_in(events["event"], pa.array(["send", "receive"])), fill_value=False)
            frames = events.filter(is_frame).select(FRAMES.names)
            parts["frames"].add(frames)
            parts["events"].add(events.filter(pc.invert(is_frame)))
            sends = locate(frames).filter(pc.field("event") == "send")
            parts["beginnings"].add(sends.filter(pc.field("off") == 0).select(BEGINNINGS.names))
            if traced:
                parts["traced"].add(sends.select(TRACED.names))
    for each in parts.values():
        each.close()
    return states


def locate(frames: pa.Table) -> pa.Table:
    """Those frames that say where in a stream they lie."""
    said = [pc.field(name).is_valid() for name in ("conn", "direction", "off", "len_bytes")]
    return frames.filter(said[0] & said[1] & said[2] & said[3])


def parse(lines: bytes) -> pa.Table:
    """A row of ``EVENTS`` for every line that is not blank; a line that is no such object gives a row of nulls."""
    rows = [line for line in lines.split(b"\n") if line.strip()]
    if not rows:
        return EVENTS.empty_table()
    try:
        table = pj.read_json(
            pa.BufferReader(lines),
            pj.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            pj.ParseOptions(explicit_schema=EVENTS, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid:
        table = None
    if table is not None and len(table) == len(rows):  # otherwise an object spans lines, or shares one
        return table.select(EVENTS.names)
    if len(rows) == 1:
        return pa.table([pa.nulls(1, field.type) for field in EVENTS], schema=EVENTS)
    middle = len(rows) // 2
    return pa.concat_tables([parse(b"\n".join(some)) for some in (rows[:middle], rows[middle:])])


def _blocks(path: Path) -> Iterator[bytes]:
    """The file's bytes, some whole lines at a time."""
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield block + file.readline()


def _settle(events: pa.Table, path: Path, ahead_ns: Mapping[int, int]) -> pa.Table:
    """Rows that lack what every event has are none; they, and events that name no node, belong to their file's.

    Instants become those of our clock.
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
        "crashes": pc.and_(is_leave, pc.fill_null(pc.equal(reason, CRASHED), fill_value=False)),
    }
    columns = {name: pc.cast(pc.fill_null(where, fill_value=False), pa.int64()) for name, where in counted.items()}
    columns["records"] = pc.if_else(pc.equal(said, "stop"), events["records"], pa.scalar(None, pa.int64()))
    return _add_up(pa.table({"node": events["node"], "lines": pa.repeat(1, len(events)), **columns}))


def merge_states(states: Iterable[TraceState]) -> dict[int | None, TraceState]:
    """The states of whole traces by node, from those of their blocks."""
    schema = pa.schema([(name, pa.int64()) for name in TraceState.__struct_fields__])
    return {state.node: state for state in _add_up(pa.Table.from_pylist([asdict(each) for each in states], schema))}


def _add_up(states: pa.Table) -> list[TraceState]:
    """Count the rows of a node together."""
    wanted = [(name, "max" if name == "records" else "sum") for name in states.column_names if name != "node"]
    rows = states.group_by("node").aggregate(wanted)
    names = [name.rpartition("_")[0] or name for name in rows.column_names]
    return [TraceState(**row) for row in rows.rename_columns(names).to_pylist()]
