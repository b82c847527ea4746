"""Finds how single messages spread: their copies and deliveries, for the replay and for what stands out in a run.

The tables of copies and deliveries may be larger than memory. Only the files of the chosen messages' buckets are
opened. Their rows are in the order of messages, so only the row groups that may have the messages are read. The tables
of earlier versions have another order and are read piece by piece.
"""

import operator
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from metrics.report.run import Run
from metrics.rundir.files import table_file
from metrics.storage import Place
from metrics.storage.parquet import parts_of, scan_parquet
from metrics.tables.buckets import of_messages
from metrics.tables.columns import holds, numbers, valid
from metrics.tables.schemas import arrow_schema
from peer.core.frames import Data

MOST_COPIES: Final = 10_000
"""The most copies of a message in a replay. First copies are always there; the latest others are left out."""

FIRST, RELAYED, DUPLICATE, UNREAD = range(4)
"""What a copy was to its receiver: the first copy at a subscriber or at a relay, a later copy, or one never read."""

_INSTANTS: Final = ("log_send_ns", "tap_tx_ns", "tap_rx_ns", "log_recv_ns")
_NEVER: Final = int(np.iinfo(np.int64).max)

Ints = npt.NDArray[np.int64]


class Expected(NamedTuple):
    """A delivery that was expected. ``delivered_us``: after the message's origin; None = not made, or not known."""

    node: int
    delivered_us: int | None
    direct_us: int | None
    known: bool


class Copy(NamedTuple):
    """A copy of a message on its way between two nodes. Instants are in us after the message's origin; None = unknown.

    Attributes:
        src: the sender.
        dst: the receiver.
        sent_us: when the sender wrote it, by its trace.
        left_us: when it left the sender's host, by the capture.
        came_us: when it came to the receiver's host, by the capture.
        read_us: when the receiver read it, by its trace.
        role: ``FIRST``, ``RELAYED``, ``DUPLICATE`` or ``UNREAD``.
    """

    src: int
    dst: int
    sent_us: int | None
    left_us: int | None
    came_us: int | None
    read_us: int | None
    role: int


class Spread(Struct, frozen=True, dict=True):
    """How one message spread.

    Attributes:
        message_id: the message.
        publisher: the node that published it; None = unknown.
        topics: its topics.
        payload_bytes: the length of its payload; None = unknown.
        origin: what happened at instant 0: ``published``, ``first sent`` or ``scheduled``.
        origin_ns: the instant 0 after the workload's zero.
        expected: the expected deliveries, by node.
        copies: the copies, in the order in which they were sent.
        left_out: how many copies are not among ``copies``; none of them is a first copy.
        nameless: how many copies are not among ``copies`` because their sender or receiver is not known.
    """

    message_id: int
    publisher: int | None
    topics: tuple[int, ...]
    payload_bytes: int | None
    origin: str
    origin_ns: int
    expected: tuple[Expected, ...]
    copies: tuple[Copy, ...]
    left_out: int = 0
    nameless: int = 0

    @cached_property
    def _came_from(self) -> Mapping[int, int]:
        """The sender of the first copy at each node: of the one that was read first, as in the script of the replay."""
        found: dict[int, int] = {}
        firsts = (copy for copy in self.copies if copy.role in (FIRST, RELAYED) and copy.read_us is not None)
        for copy in sorted(firsts, key=lambda copy: copy.read_us or 0):
            found.setdefault(copy.dst, copy.src)
        return found

    def path_to(self, node: int) -> tuple[int, ...] | None:
        """Return the nodes by which the first copy came, from the publisher to the node; None if that is not known."""
        path = [node]
        while path[-1] != self.publisher:
            before = self._came_from.get(path[-1])
            if before is None or before in path:
                return None
            path.append(before)
        return tuple(reversed(path))


def read_spreads(run: Run, message_ids: Sequence[int]) -> list[Spread]:
    """Return how some messages spread, in the order given. A message that the run does not have is left out."""
    wanted = [each for each in dict.fromkeys(message_ids) if 0 <= each < _NEVER]
    messages, deliveries = (_read_rows(run, table, wanted) for table in ("messages", "deliveries"))
    copies = _read_rows(run, "hops" if run.totals.buckets is None else "copies", wanted)
    rows = {row["message_id"]: row for row in messages.to_pylist()}
    return [
        _make_spread(run, rows[each], *(_of(table, each) for table in (deliveries, copies)))
        for each in wanted
        if each in rows
    ]


_COPIES: Final = ("message_id", "src_node", "dst_node", *_INSTANTS, "is_dup", "is_relay")

_READ: Final = {
    "messages": ("message_id", "topics", "publisher", "scheduled_ns", "publish_ns", "payload_bytes"),
    "deliveries": ("message_id", "node", "delivered_ns", "direct_delay_ms", "known"),
    "copies": _COPIES,
    "hops": _COPIES,
}
"""The columns of the tables that a spread needs. ``hops``: only tables of earlier versions."""


def _read_rows(run: Run, table: str, message_ids: Sequence[int]) -> pa.Table:
    """Return the rows of some messages; of hops only the copies."""
    schema, path = arrow_schema(table), run.tables / table_file(table)
    columns = _READ[table]
    found = [pa.schema([schema.field(name) for name in columns]).empty_table()]
    for parts, own in _divide(path, message_ids, run.totals.buckets):
        where = reduce(operator.or_, (pc.field("message_id") == each for each in own))
        if table == "hops":
            where &= pc.field("kind") == Data.kind
        found += scan_parquet(path, schema, columns, where, parts)
    return pa.concat_tables(found).combine_chunks()


def _divide(
    path: Place, message_ids: Sequence[int], buckets: int | None
) -> Iterator[tuple[list[Place] | None, list[int]]]:
    """Yield parts of a table, and the messages whose rows are there. Without buckets it is one part.

    Statistics of row groups rule out values that a column is compared with, but not all versions of Arrow do so for a
    set of values (``isin``).
    """
    if buckets is None:
        if message_ids:
            yield None, list(message_ids)
        return
    bucket = of_messages(pa.array(message_ids, pa.int64()), buckets)
    for each in np.unique(bucket).tolist():
        yield parts_of(path, each), [message for message, at in zip(message_ids, bucket, strict=True) if at == each]


def _of(table: pa.Table, message_id: int) -> pa.Table:
    return table.filter(pc.equal(table["message_id"], message_id))


def _make_spread(run: Run, message: Mapping[str, Any], deliveries: pa.Table, copies: pa.Table) -> Spread:
    nodes = len(run.nodes)
    inside = [
        pc.and_(pc.greater_equal(copies[name], 0), pc.less(copies[name], nodes)) for name in ("src_node", "dst_node")
    ]
    known = copies.filter(pc.and_(*inside))
    nameless = len(copies) - len(known)
    copies = known.sort_by([(name, "ascending") for name in _COPIES])
    instants = {name: numbers(copies[name], _NEVER) for name in _INSTANTS}
    begins = np.minimum.reduce([*instants.values()])
    origin, origin_ns = _find_origin(message, begins)
    role = _roles(copies)
    kept = _choose_copies(role, begins)
    kept = kept[np.argsort(begins[kept], kind="stable")]
    columns = [copies[name].take(pa.array(kept)).to_pylist() for name in ("src_node", "dst_node")]
    columns += [_since(instants[name][kept], origin_ns) for name in _INSTANTS]
    publisher = message["publisher"]
    return Spread(
        message["message_id"],
        publisher if publisher is not None and 0 <= publisher < nodes else None,
        tuple(message["topics"] or ()),
        message["payload_bytes"],
        origin,
        origin_ns - run.zero_ns,
        tuple(_expect(row, origin_ns) for row in deliveries.sort_by("node").to_pylist() if 0 <= row["node"] < nodes),
        tuple(Copy(*row) for row in zip(*columns, role[kept].tolist(), strict=True)),
        len(copies) - len(kept),
        nameless,
    )


def _find_origin(message: Mapping[str, Any], begins: Ints) -> tuple[str, int]:
    """Return what happened first that is known, and when: the publication, otherwise the first copy's start."""
    if message["publish_ns"] is not None:
        return "published", message["publish_ns"]
    first = int(begins.min()) if len(begins) else _NEVER
    return ("first sent", first) if first != _NEVER else ("scheduled", message["scheduled_ns"] or 0)


def _roles(copies: pa.Table) -> Ints:
    read = valid(copies["log_recv_ns"])
    later, relayed = holds(copies["is_dup"]), holds(copies["is_relay"])
    return np.select([~read, later, relayed], [UNREAD, DUPLICATE, RELAYED], FIRST).astype(np.int64)


def _choose_copies(role: Ints, begins_ns: Ints) -> Ints:
    """Return the rows of the copies that are kept: all first copies, and the earliest others up to ``MOST_COPIES``."""
    is_first = (role == FIRST) | (role == RELAYED)
    firsts, others = np.flatnonzero(is_first), np.flatnonzero(~is_first)
    others = others[np.argsort(begins_ns[others], kind="stable")]
    return np.concatenate((firsts, others[: max(0, MOST_COPIES - len(firsts))]))


def _since(instants_ns: Ints, origin_ns: int) -> list[int | None]:
    return [None if each == _NEVER else (each - origin_ns) // 1000 for each in instants_ns.tolist()]


def _expect(row: Mapping[str, Any], origin_ns: int) -> Expected:
    delivered, direct = row["delivered_ns"], row["direct_delay_ms"]
    return Expected(
        row["node"],
        None if delivered is None else (delivered - origin_ns) // 1000,
        None if direct is None else round(direct * 1000),
        bool(row["known"]),
    )
