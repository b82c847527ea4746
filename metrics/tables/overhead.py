"""Classify the bytes on the wire: every captured byte is in exactly one class, counted once, at its sender's tap."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.checks.evidence import Outcome
from metrics.executors import Executor
from metrics.pcap.flows import factorise
from metrics.pcap.schemas import SCHEMAS
from metrics.pcap.walk import Ints
from metrics.reported import Missing, hide_columns
from metrics.storage import Place
from metrics.tables.buckets import read_bucket
from metrics.tables.columns import codes, conform, group_rows, holds, numbers, says
from metrics.tables.schemas import arrow_schema, schema_of
from metrics.tables.shares import Rows, Share, all_shares
from metrics.tables.tallies import add_outcomes
from metrics.tables.timespans import common_keys
from peer.core.frames import Data

OVERHEAD: Final = arrow_schema("overhead")
CONTROL: Final = arrow_schema("control")
CLASSES: Final = schema_of("""
    node int, kind smallint, useful boolean, second_ns bigint, frames bigint, framing_bytes bigint, body_bytes bigint
""")
"""Stream bytes by sender, second, kind and use; there may be several rows for each combination."""

FRAME_CLASSES = ("first_payload_bytes", "duplicate_payload_bytes", "framing_bytes", "control_bytes")
OPAQUE = "opaque_bytes"
PACKET_CLASSES = ("retransmitted_bytes", "ack_bytes", "header_bytes", "other_bytes")
CLASS_COLUMNS = (*FRAME_CLASSES, OPAQUE, *PACKET_CLASSES)
"""The columns of ``overhead`` that add up to the bytes on the wire."""

_PACKETS: Final = {
    "wire_bytes": "wire_bytes",
    "stream_bytes": "payload_bytes",
    "datagram_bytes": "datagram_bytes",
    "retransmitted_bytes": "retx_bytes",
    "ack_bytes": "pure_ack_bytes",
    "header_bytes": "header_bytes",
    "other_bytes": "other_bytes",
}


def build_share(staging: Place, nodes_by_host: list[int], missing: Missing, share: Share) -> dict[str, Rows]:
    """Return a share of the seconds of the tables ``overhead`` and ``control``.

    Args:
        staging: with ``wire`` of the captures and ``classes`` (``CLASSES``), in buckets of seconds.
        nodes_by_host: the node of every host.
        missing: what the peers do not report.
        share: a share of the seconds.
    """
    wire = read_bucket(staging / "wire" / "wire", SCHEMAS["wire"], share)
    classes = read_bucket(staging / "classes", CLASSES, share)
    sums = build_overhead(classes, wire, nodes_by_host)
    return {"overhead": hide_columns(sums, missing), "control": build_control(classes)}


def weigh_identity(executor: Executor, overhead: Place, buckets: int) -> Outcome:
    """Compare bytes in classes with bytes on the wire, by node and second.

    Args:
        executor: runs one task per bucket.
        overhead: the table.
        buckets: how many shares of the seconds there are.
    """
    return add_outcomes(executor.map(partial(_compare, overhead), all_shares(buckets)))


def _compare(overhead: Place, share: Share) -> Outcome:
    rows = read_bucket(overhead, OVERHEAD, share)
    wire_bytes, opaque_bytes = numbers(rows["wire_bytes"]), numbers(rows[OPAQUE])
    total = np.sum([numbers(rows[name]) for name in CLASS_COLUMNS], axis=0)
    error = np.abs(total - wire_bytes) + np.maximum(-opaque_bytes, 0)
    return Outcome(len(error), int((error > 0).sum()), int(error.max(initial=0)), int(wire_bytes.sum()))


def frame_classes(sent: pa.Table, split: pa.Table, spans: pa.Table) -> pa.Table:
    """Sum stream bytes of located frames by sender, second, kind and use: ``CLASSES``.

    Args:
        sent: ``condense_bytes`` of the frames whose bytes were first sent in one second.
        split: ``describe_bytes`` of the other frames, which fill their seconds in order, framing first.
        spans: the seconds of the other frames, as staged.
    """
    pieces = spans.filter(pa.array(says(spans["tap"], "tx")))
    frame, _ = factorise(codes(pieces["uid"]), codes(pieces["direction"]), numbers(pieces["off"]))
    order = np.lexsort((numbers(pieces["at_ns"]), frame))
    size = numbers(pieces["span_bytes"])
    before = _sum_before(frame[order], size[order])
    pieces = pieces.take(pa.array(order))
    key = ("conn", "direction", "off")
    whole, part = common_keys([split[name] for name in key], [pieces[name] for name in key])
    row, piece = _pairs(whole, part)
    rows, size, before = split.take(pa.array(row)), size[order][piece], before[piece]
    head = numbers(rows["len_bytes"]) - numbers(rows["payload"])
    framing = np.maximum(np.minimum(head - before, size), 0)
    columns = {name: rows[name] for name in ("node", "kind", "useful")}
    columns["second_ns"] = pieces["at_ns"].take(pa.array(piece))
    columns["frames"] = pa.array((before == 0).astype(np.int64))
    columns |= {"framing_bytes": pa.array(framing), "body_bytes": pa.array(size - framing)}
    return pa.concat_tables([conform({name: sent[name] for name in CLASSES.names}, CLASSES), conform(columns, CLASSES)])


def _sum_before(key: Ints, values: Ints) -> Ints:
    """Return the sum of the values of the same key before each row; the keys are sorted."""
    before = np.cumsum(values) - values
    return before - before[np.searchsorted(key, key)]


def _pairs(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Return the rows of both sides that have a key in common."""
    order = np.argsort(right, kind="stable")
    first, last = (np.searchsorted(right[order], left, side) for side in ("left", "right"))
    counts = last - first
    place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - first, counts)
    return np.repeat(np.arange(len(left)), counts), order[place]


def build_overhead(classes: pa.Table, wire: pa.Table, nodes_by_host: Sequence[int]) -> pa.Table:
    """Return the ``overhead`` table. Payload of TCP or UDP in no known frame is in ``opaque_bytes``.

    Args:
        classes: ``frame_classes``.
        wire: ``metrics.pcap.schemas.WIRE``.
        nodes_by_host: the node on each host.
    """
    wire = wire.filter(pa.array(says(wire["tap"], "tx")))
    host = numbers(wire["vantage_host"], -1)
    known = (host >= 0) & (host < len(nodes_by_host))
    sender = pa.array(np.array([*nodes_by_host, -1], np.int64)[np.where(known, host, -1)], pa.int32(), mask=~known)
    keys = pa.table(
        {
            "node": pa.chunked_array([*classes["node"].cast(pa.int32()).chunks, sender], pa.int32()),
            "second_ns": pa.chunked_array([*classes["second_ns"].chunks, *wire["at_ns"].chunks], pa.int64()),
        }
    )
    group, found = group_rows(keys, "node", "second_ns")
    of_frames, of_packets = np.split(group, [len(classes)])
    kind, useful = numbers(classes["kind"], -1), holds(classes["useful"])
    is_data, is_control = kind == Data.kind, (kind >= 0) & (kind != Data.kind)
    framing, body = numbers(classes["framing_bytes"]), numbers(classes["body_bytes"])
    values = (body * (is_data & useful), body * (is_data & ~useful), framing * is_data, (framing + body) * is_control)
    sums = {name: _sums(of_frames, each, len(found)) for name, each in zip(FRAME_CLASSES, values, strict=True)}
    located = np.sum(list(sums.values()), axis=0)
    sums |= {name: _sums(of_packets, numbers(wire[column]), len(found)) for name, column in _PACKETS.items()}
    sums[OPAQUE] = sums["stream_bytes"] + sums["datagram_bytes"] - located
    columns = {name: found[name] for name in found.column_names}
    return conform(columns | {name: pa.array(each) for name, each in sums.items()}, OVERHEAD)


def build_control(classes: pa.Table) -> pa.Table:
    """Return the ``control`` table: frames other than data by sender, second and kind.

    Args:
        classes: ``frame_classes``.
    """
    control = classes.filter(pc.not_equal(classes["kind"], Data.kind))
    group, found = group_rows(control, "node", "second_ns", "kind")
    frame_bytes = numbers(control["framing_bytes"]) + numbers(control["body_bytes"])
    sums = {"frames": numbers(control["frames"]), "frame_bytes": frame_bytes}
    columns = {name: found[name] for name in found.column_names}
    return conform(columns | {name: pa.array(_sums(group, each, len(found))) for name, each in sums.items()}, CONTROL)


def _sums(group: Ints, values: Ints, count: int) -> Ints:
    """Return the sum of each group's integers, exact below 2^53."""
    return np.bincount(group, values, count).astype(np.int64)
