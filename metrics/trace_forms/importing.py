"""Converts traces of other programs to our tables, with a summary that says what they do not show.

Every file is read twice: first for the names, then to write our traces.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct, json

from metrics.measures.deliveries import DELIVERIES, Deliveries
from metrics.rundir import write_document
from metrics.rundir.files import SUMMARY_FILE
from metrics.storage.attempts import whole_folder
from metrics.trace_forms.events import IDENTITY, CutOffError, Event, Reading, TraceError, require_new
from metrics.trace_forms.numbering import Names
from metrics.trace_forms.tables import Told, read_table, write_tables
from peer.files import TRACE_FOLDER, trace_file

MOST_FILES: Final = 100_000
MOST_BYTES: Final = 64 << 30
"""The most bytes of all events together in our traces: small compressed files can hold any number."""

NAMES_FOLDER: Final = "names"
MEASURES: Final = (
    "messages",
    "deliveries_expected",
    "delivery_ratio",
    "deliveries_unknown",
    "propagation_delay_ms_mean",
    "propagation_delay_ms_p50",
    "propagation_delay_ms_p90",
    "propagation_delay_ms_p99",
    "propagation_delay_ms_max",
    "repeated_deliveries",
    "duplicates_per_delivery",
)
"""The measures of messages in the summary."""

WAITING_BYTES: Final = 32 << 20

_NEVER_TOLD: Final = {
    "verdict": "nothing of the network and the machines was observed, so the numbers are the programs' own reports",
    "clocks": "the traces do not say how far the clocks of their machines are apart; delays between machines are off "
    "by as much",
    "payload bytes": "the traces do not say how long messages are",
    "bytes": "the traces do not say how long frames are, and there is no capture",
    "hops": "the traces do not say how many links a copy crossed",
    "stretch": "the traces do not say how long the network should take",
    "up-times": "a trace does not say when its node was up, or whether all of it is there",
}
"""Facts that are in no form. ``payload bytes`` are in mappings that have ``len_bytes``."""

_TOLD_BY: Final = {
    "transmissions, redundancy and control frames": ("send", "the traces have no RPCs"),
    "copies and duplicates": ("duplicate", "the traces have no events of copies after the first"),
    "logical links": ("graft", "the traces have no grafts"),
    "physical links": ("add_peer", "the traces do not say which peers are connected"),
}
"""Facts that need an event that traces may not have, and the reason for traces without it."""


class ImportSummary(Struct, frozen=True):
    """``summary.json`` of an import.

    Attributes:
        form: the form of the traces.
        files: how many files there were.
        cut_off: the files that end inside an event.
        nodes: how many nodes wrote a trace.
        untraced: how many nodes only other nodes name.
        events: how many events there were, by our names.
        span_s: from the first event to the last one.
        numbers: the measures ``MEASURES``; None = there is nothing to compute it from.
        unknown: what the traces do not show, and why.
        remarks: what readers should know about the numbers, one sentence each.
    """

    form: str
    files: int
    cut_off: tuple[str, ...]
    nodes: int
    untraced: int
    events: dict[str, int]
    span_s: float
    numbers: dict[str, float | None]
    unknown: dict[str, str]
    remarks: tuple[str, ...]


def import_traces(source: Path, target: Path, form: str, reading: Reading) -> ImportSummary:
    """Read traces and write ours, the names of our numbers, the tables and a summary into a new folder.

    Args:
        source: a file, or a folder of files as the form has them; names that begin with a point are left out.
        target: the folder, which must not exist.
        form: the name of the form.
        reading: how its files are read.

    Raises:
        TraceError: the traces cannot be read, have no events, or ``target`` exists.
        OSError: the folder cannot be written.
    """
    files = _find_files(source, reading)
    require_new(target)
    names, cut_off = Names(), []
    for path in files:
        if not _for_each(path, reading, names.learn):
            cut_off.append(path.name)
    if not names.spans:
        raise TraceError(str(source), "the traces have no events")
    names.settle()
    with whole_folder(target) as folder:
        _write_traces(files, reading, names, folder)
        _write_names(names, folder / NAMES_FOLDER)
        seen = _told(names, reading.told)
        counts = write_tables(folder, seen)
        summary = _summarise(folder, names, seen, counts, form, len(files), tuple(cut_off))
        write_document(folder / SUMMARY_FILE, summary)
    return summary


def _find_files(source: Path, reading: Reading) -> list[Path]:
    try:
        found = list_files(source) if reading.find is None else reading.find(source)
    except OSError as error:
        raise TraceError(str(source), error.strerror or "cannot be read") from None
    files = [path for path in found if path.is_file() and not path.name.startswith(".")]
    if not files or len(files) > MOST_FILES:
        raise TraceError(str(source), f"expected 1 to {MOST_FILES:,} files, got {len(files):,}")
    return files


def list_files(source: Path) -> list[Path]:
    """Return the files of a source that is a file, or a folder of files."""
    return [source] if source.is_file() else sorted(source.iterdir())


def _for_each(path: Path, reading: Reading, use: Callable[[Event], None]) -> bool:
    """Call a function for every event of a file, and return whether the file is whole.

    Raises:
        TraceError: the file is malformed, or the function refuses an event.
    """
    try:
        for event in reading.read(path):
            use(event)
    except CutOffError:
        return False
    except ValueError as error:
        raise TraceError(str(path), str(error)) from None
    except KeyError:
        raise TraceError(str(path), "it changed while it was read; import it again") from None
    return True


def _write_traces(files: list[Path], reading: Reading, names: Names, folder: Path) -> None:
    (folder / TRACE_FOLDER).mkdir()
    writer = _Writer(names, folder)
    for path in files:
        _for_each(path, reading, writer.add)
    writer.flush()


class _Writer:
    """Writes our traces, whose lines come in any order of the nodes; it opens one file at a time."""

    def __init__(self, names: Names, folder: Path) -> None:
        self._names = names
        self._folder = folder
        self._waiting: defaultdict[int, bytearray] = defaultdict(bytearray)
        self._waiting_bytes = self._written_bytes = 0
        self._encode = json.Encoder().encode

    def add(self, event: Event) -> None:
        """Write an event.

        Raises:
            ValueError: the traces have too many events.
        """
        if event.event == IDENTITY:
            return
        line = self._names.number(event)
        written = self._encode(line) + b"\n"
        self._waiting[line.node] += written
        self._waiting_bytes += len(written)
        if self._waiting_bytes > WAITING_BYTES:
            self._written_bytes += self._waiting_bytes
            self.flush()
        if self._written_bytes > MOST_BYTES:
            raise ValueError(f"the traces have more than {MOST_BYTES >> 30} GiB of events")

    def flush(self) -> None:
        for node, lines in self._waiting.items():
            with (self._folder / trace_file(node)).open("ab") as file:
                file.write(lines)
        self._waiting.clear()
        self._waiting_bytes = 0


def _write_names(names: Names, folder: Path) -> None:
    """Write the names of our numbers of nodes, topics and messages."""
    folder.mkdir()
    traced = [name in names.spans for name in names.nodes]
    tables = {
        "nodes": pa.table({"node": [*names.nodes.values()], "name": _shown(names.nodes), "traced": traced}),
        "topics": pa.table({"topic": [*names.topics.values()], "name": [*names.topics]}),
        "messages": pa.table({"message_id": [*names.messages.values()], "name": _shown(names.messages)}),
    }
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")


def _shown(names: dict[bytes, int]) -> list[str]:
    """Return names as text: names that are not printable ASCII as hexadecimal digits."""
    return [name.decode() if name.isascii() and name.decode().isprintable() else name.hex() for name in names]


def _told(names: Names, could: frozenset[str]) -> Told:
    """Return what the traces can show. RPCs are often left out of traces, since they are most of the bytes."""
    rpcs = {"send", "receive", "drop"}
    events = could if names.events.keys() & rpcs else could - rpcs
    unplanned = tuple(
        {
            "action": "publish",
            "at_ns": seen.first_ns,
            "message_id": names.messages[message],
            "topics": [names.topics[topic] for topic in seen.topics or ()],
        }
        for message, seen in names.seen.items()
        if seen.publisher is None
    )
    spans = {names.nodes[name]: span for name, span in names.spans.items()}
    return Told(spans, unplanned, names.nobody, events)


def _summarise(
    folder: Path, names: Names, told: Told, counts: dict[str, int], form: str, files: int, cut_off: tuple[str, ...]
) -> ImportSummary:
    first_ns, end_ns = told.span_ns
    deliveries, messages = (read_table(folder, name) for name in ("deliveries", "messages"))
    return ImportSummary(
        form=form,
        files=files,
        cut_off=cut_off,
        nodes=len(names.spans),
        untraced=len(names.nodes) - len(names.spans),
        events=dict(sorted(names.events.items())),
        span_s=(end_ns - 1 - first_ns) / 1e9,
        numbers=_measure(deliveries, messages, told, counts),
        unknown=_unknown(told, messages),
        remarks=tuple(_remark(names, messages, deliveries, counts, cut_off)),
    )


def _measure(deliveries: pa.Table, messages: pa.Table, told: Told, counts: dict[str, int]) -> dict[str, float | None]:
    latency_ms = deliveries["latency_ms"].drop_null().to_numpy()
    facts = Deliveries(
        len(messages),
        len(deliveries),
        len(deliveries) - deliveries["delivered_ns"].null_count,
        delays_ms=latency_ms,
        repeated=pc.sum(deliveries["repeats"]).as_py() or 0,
        duplicates=counts["duplicates"],
        copies=np.array([counts["firsts"] + counts["duplicates"]]),
        unknown=len(deliveries) - (pc.sum(deliveries["known"]).as_py() or 0),
    )
    found: dict[str, float | None] = dict.fromkeys(MEASURES)
    found |= {name: value for name, _, value in DELIVERIES.values(facts, MEASURES)}
    return found if "duplicate" in told.events else found | {"duplicates_per_delivery": None}


def _unknown(told: Told, messages: pa.Table) -> dict[str, str]:
    unknown = dict(_NEVER_TOLD)
    if messages["payload_bytes"].null_count < len(messages):
        del unknown["payload bytes"]
    return unknown | {what: why for what, (event, why) in _TOLD_BY.items() if event not in told.events}


def _remark(
    names: Names, messages: pa.Table, deliveries: pa.Table, counts: dict[str, int], cut_off: tuple[str, ...]
) -> Iterator[str]:
    """Yield what readers should know about the numbers."""
    untraced = len(names.nodes) - len(names.spans)
    unpublished, nameless = messages["publish_ns"].null_count, messages["publisher"].null_count
    early = int((deliveries["latency_ms"].drop_null().to_numpy() < 0).sum())
    inferred, unknown = counts["inferred_subscriptions"], int(pc.sum(pc.invert(deliveries["known"])).as_py() or 0)
    remarks: dict[str, Any] = {
        f"{untraced} nodes are named but wrote no trace: what they received is not known": untraced,
        f"no trace says when {unpublished} messages were published: their delays are not known": unpublished,
        f"nothing says who published {nameless} messages": nameless,
        f"{inferred} subscriptions began before their trace: deliveries show them": inferred,
        f"{unknown} deliveries are expected of nodes that traced nothing at the time: they count as not known": unknown,
        f"{early} deliveries are earlier than their publication: clocks differ by more than these delays": early,
        f"{len(cut_off)} files end inside an event": cut_off,
    }
    yield from (text for text, applies in remarks.items() if applies)


def describe(summary: ImportSummary) -> Iterator[str]:
    """Yield the summary in lines for people."""
    yield f"{summary.form}: {summary.files} files of {summary.nodes} nodes, {summary.span_s:.1f} s"
    yield from (
        f"{name}: {'not known' if value is None else f'{value:.6g}'}" for name, value in summary.numbers.items()
    )
    yield from (f"remark: {text}" for text in summary.remarks)
    yield from (f"not known: {what}: {why}" for what, why in summary.unknown.items())
