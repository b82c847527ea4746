"""Write the tables of captures as Parquet, and summarise them in a few lines."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metrics.executors import Executor
from metrics.flows.reading import FlowTask, plan_flow_tasks
from metrics.flows.tables import FLOWS, SIDES
from metrics.pcap.files import Capture
from metrics.pcap.schemas import CAPTURES
from metrics.pcap.tables import Reading, read_tables
from metrics.rundir.files import table_file
from metrics.rundir.parquet import labelled
from metrics.storage.attempts import whole
from metrics.storage.parquet import open_dataset

_SHOWN: Final = 5
_OF_SIDE: Final = (
    *("host", "tap", "packets", "payload_bytes", "retx_packets", "retx_bytes", "lost_packets", "rtt_p50_ns"),
)
_OF_ENDS: Final = ("id_orig_h", "id_orig_p", "id_resp_h", "id_resp_p")
_COLUMNS: Final = ["proto", "handshake_rtt_ns", *_OF_ENDS, *(f"{side}_{name}" for side in SIDES for name in _OF_SIDE)]


def write_tables(executor: Executor, captures: Sequence[Capture], hosts: Mapping[str, str], folder: Path) -> None:
    """Write the tables ``flows`` and ``captures`` into an empty folder.

    Args:
        executor: runs the tasks.
        captures: one or more.
        hosts: the host of each address.
        folder: the folder of the tables.
    """
    targets = {name: folder / table_file(name) for name in ("flows", "captures")}
    for target in targets.values():
        target.mkdir()

    def write_flows(task: FlowTask) -> None:
        _write(task.read(), targets["flows"], task.share)

    def write_capture(numbered: tuple[int, Capture]) -> None:
        number, capture = numbered
        pieces = [table for _, table in read_tables(capture, Reading(("captures",)))]
        _write(pa.concat_tables(pieces or [CAPTURES.empty_table()]), targets["captures"], number)

    executor.map(write_flows, plan_flow_tasks(captures, hosts, executor.workers))
    executor.map(write_capture, list(enumerate(captures)))


def _write(table: pa.Table, folder: Path, part: int) -> None:
    with whole(folder / f"part-{part}.parquet") as path:
        pq.write_table(labelled(table), path, compression="zstd")


def summarise(folder: Path) -> Iterator[str]:
    """Yield a few lines about what the tables have."""
    flows = open_dataset(folder / table_file("flows"), FLOWS).to_table(columns=_COLUMNS)
    captures = open_dataset(folder / table_file("captures"), CAPTURES).to_table()
    yield from _describe_captures(captures)
    protos = pc.value_counts(flows["proto"]).to_pylist()
    kinds = ", ".join(f"{each['counts']:,} of {each['values'].upper()}" for each in protos)
    named = sorted({host for side in SIDES for host in pc.unique(flows[f"{side}_host"]).to_pylist() if host})
    shown = ", ".join(named[:_SHOWN]) + (f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else "")
    yield f"  {len(flows):,} flows{f' ({kinds})' if kinds else ''}; hosts: {shown or 'none is known'}"
    if len(flows):
        yield from _describe_flows(flows)


def _describe_captures(captures: pa.Table) -> Iterator[str]:
    files = len(pc.unique(captures["pcap_file"]))
    yield f"  {files:,} captures, {_total(captures['packets']):,} recorded packets"
    for column, words in (
        ("dropped", "packets were dropped by the recorder"),
        ("n_not_understood", "packets are of other link layers or damaged, and in no flow"),
        ("n_fragments", "packets are fragments, and in no flow"),
    ):
        if count := _total(captures[column]):
            yield f"  {count:,} {words}"
    cut = pc.unique(captures.filter(captures["truncated"])["pcap_file"]).to_pylist()
    if cut:
        yield f"  {len(cut):,} captures end inside a record: {', '.join(sorted(cut)[:_SHOWN])}"


def _describe_flows(flows: pa.Table) -> Iterator[str]:
    packets, payload, resent, lost = (
        [flows[f"{side}_{name}"] for side in SIDES]
        for name in ("packets", "payload_bytes", "retx_packets", "lost_packets")
    )
    sent = sum(map(_total, packets))
    yield f"  {sent:,} packets, each once, with {sum(map(_total, payload)):,} bytes of payload"
    of_tcp = sum(_total(each.filter(pc.equal(flows["proto"], "tcp"))) for each in packets)
    if of_tcp:
        bytes_again = sum(_total(flows[f"{side}_retx_bytes"]) for side in SIDES)
        yield f"  sent again: {_share(sum(map(_total, resent)), of_tcp)} of TCP, {bytes_again:,} bytes"
    compared = sum(_total(each.filter(pc.is_valid(gone))) for each, gone in zip(packets, lost, strict=True))
    if compared:
        yield f"  lost where both ends recorded: {_share(sum(map(_total, lost)), compared)}"
    left = [flows.filter(pc.equal(flows[f"{side}_tap"], "tx")) for side in SIDES]
    rtts = {
        "handshakes": [flows["handshake_rtt_ns"]],
        "acknowledged data": [rows[f"{side}_rtt_p50_ns"] for side, rows in zip(SIDES, left, strict=True)],
    }
    for name, columns in rtts.items():
        values = np.concatenate([column.drop_null().to_numpy() for column in columns]) / 1e6
        if len(values):
            low, middle, high = np.quantile(values, (0, 0.5, 1))
            yield f"  round trips of {name}: median {middle:.3g} ms ({low:.3g} to {high:.3g} ms by flow)"
    yield from _describe_largest(flows)


def _describe_largest(flows: pa.Table) -> Iterator[str]:
    size = pc.add(*(pc.fill_null(flows[f"{side}_payload_bytes"], 0) for side in SIDES))
    order = np.argsort(-size.to_numpy(), kind="stable")[:_SHOWN]
    yield "  most payload:"
    for row in flows.take(pa.array(order)).to_pylist():
        ends = [f"{row[f'{side}_host'] or row[f'id_{side}_h']}:{row[f'id_{side}_p']}" for side in SIDES]
        there, back = (row[f"{side}_payload_bytes"] or 0 for side in SIDES)
        yield f"    {row['proto']} {ends[0]} to {ends[1]}: {there:,} bytes there, {back:,} back"


def _total(column: pa.ChunkedArray) -> int:
    return pc.sum(column).as_py() or 0


def _share(part: int, total: int) -> str:
    return f"{part:,} of {total:,} packets ({part / total:.2%})"
