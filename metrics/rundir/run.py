"""A run directory whose running stage has ended, for the analysis and the commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import ValidationError
from msgspec.json import Decoder

from metrics.rundir import files
from metrics.rundir.documents import (
    SCHEMA_VERSION,
    Attempt,
    ClockOffset,
    Header,
    Manifest,
    NodeOutline,
    OverlayOutline,
    PlanOutline,
    Pointer,
    Summary,
)
from metrics.rundir.lines import line_decoder
from metrics.rundir.phases import SECOND_NS, Phase, Timeline
from metrics.rundir.reading import DamagedError, RunDirError, iterate_lines, read_document, read_lines, require_plain
from metrics.storage import Place, StorePath
from peer.files import OVERLAY_FILE, SCHEDULE_FILE, TRACE_FOLDER
from peer.wire import MSS_BYTES, MTU_BYTES

if TYPE_CHECKING:
    from metrics.recorded.stalls import Stalls
    from topologies.model import Underlay
    from topologies.network import Network
    from topologies.timeline import Change

Value = TypeVar("Value")

_CLOCKS = Decoder(dict[str, ClockOffset])


def read_clocks(run_dir: Place) -> dict[str, ClockOffset]:
    """Read every machine's clocks; none if all processes of the run read the clocks of this computer."""
    path = run_dir / files.CLOCKS_FILE
    return read_document(path, _CLOCKS.decode) if path.exists() else {}


def read_pointer(run_dir: StorePath) -> Pointer | None:
    """Read which analysis of a run in a store is the current one; None if there is no pointer."""
    path = run_dir / files.POINTER_FILE
    return read_document(path, Decoder(Pointer).decode) if path.exists() else None


def _find_results(run_dir: Place) -> Place:
    """Return the folder of a run's results."""
    pointer = read_pointer(run_dir) if isinstance(run_dir, StorePath) else None
    return run_dir if pointer is None else run_dir / files.ANALYSES_FOLDER / pointer.analysis


class RunDir:
    """A run directory. Its documents are read when they are asked for.

    A run of an older schema version is read if its documents have what this version needs.

    Args:
        path: the run directory.
        results: the folder in which its tables and summary are, or are being made; None = the run directory, or in a
            store the folder of the analysis to which its pointer points.

    Raises:
        RunDirError: it has links or other foreign files (``metrics.rundir.plain``); its properties raise it if a
            document is missing or damaged, or of a version that cannot be read.
    """

    def __init__(self, path: Place, results: Place | None = None) -> None:
        require_plain(path)
        self.path = path
        self.results = results or _find_results(path)
        self.tables = self.results / files.TABLES_FOLDER

    @cached_property
    def manifest(self) -> Manifest:
        return self._read(files.MANIFEST_FILE, Decoder(Manifest).decode)

    @cached_property
    def plan(self) -> PlanOutline:
        return self._read(files.PLAN_FILE, Decoder(PlanOutline).decode)

    @cached_property
    def underlay(self) -> Underlay:
        """The document: the network asked for, or the network measured if the testbed shapes no network."""
        from topologies.model import Underlay

        found = self._read(files.UNDERLAY_FILE, Underlay.from_json)
        if (most := max(place.host for place in self.plan.placement)) >= found.size:
            raise DamagedError(self.path / files.PLAN_FILE, ValueError(f"host {most} of {found.size} in the underlay"))
        if self.manifest.has_ability("shape"):
            return found
        return self._measured(found)

    def _measured(self, asked: Underlay) -> Underlay:
        """Return the underlay with the delays that were measured, if the testbed did not shape the network."""
        from metrics.recorded.round_trips import SCHEMA, measured_underlay, read_round_trips

        rows = read_round_trips(self.path)
        return measured_underlay(asked, SCHEMA.empty_table() if rows is None else rows, self.plan.placement)

    @cached_property
    def network(self) -> Network:
        """The links of ``underlay``: what was asked for packets."""
        from topologies.network import Network

        return Network.of(self.underlay)

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """The changes of the network, by hosts and from the workload's zero; none without faults."""
        from topologies.timeline import decode_changes

        if not (self.path / files.CHANGES_FILE).exists():
            return ()
        return tuple(self._read(files.CHANGES_FILE, decode_changes))

    @cached_property
    def overlay(self) -> tuple[NodeOutline, ...]:
        """The part of every node in ``overlay.json`` that the analysis reads."""
        found = self._read(OVERLAY_FILE, Decoder(OverlayOutline).decode).nodes
        if sorted(spec.node for spec in found) != sorted(self.nodes):
            raise DamagedError(self.path / OVERLAY_FILE, ValueError("expected the nodes of the plan"))
        return found

    def require_documents(self) -> None:
        """Read every document that the analysis needs.

        Raises:
            RunDirError: a document is missing or damaged.
        """
        _ = self.manifest, self.plan, self.underlay, self.overlay, self.changes, self.attempt, self.clocks, self.stalls

    @cached_property
    def summary(self) -> Summary:
        return self._read(files.SUMMARY_FILE, Decoder(Summary).decode)

    def _read(self, name: str, decode: Callable[[bytes], Value]) -> Value:
        version, maker = self._header.schema_version, self._header.maker
        known = f"has schema version {version}, and this Trellis reads versions up to {SCHEMA_VERSION}"
        if version > SCHEMA_VERSION:
            raise RunDirError(self.path, f"{known}; use {maker}")
        try:
            return read_document((self.results if name == files.SUMMARY_FILE else self.path) / name, decode)
        except DamagedError as error:
            if version == SCHEMA_VERSION or not isinstance(error.cause, ValidationError):
                raise
            remedy = f"use {maker}, or run the experiment again"
            if name == files.SUMMARY_FILE:
                remedy = f"compute it again: trellis report {self.path}"
            problem = f"{known}, but {name} lacks what it needs ({error.cause}); {remedy}"
            raise RunDirError(self.path, problem) from None

    @cached_property
    def _header(self) -> Header:
        return read_document(self.path / files.MANIFEST_FILE, Decoder(Header).decode)

    @property
    def experiment(self) -> dict[str, Any]:
        return self.plan.experiment

    @property
    def settle_ns(self) -> int:
        """The time after a join during the run in which no deliveries to the node are expected."""
        return round(float(self.experiment["workload"].get("settle_s", 0)) * SECOND_NS)

    @property
    def segment_bytes(self) -> int:
        """The payload of a full TCP packet with timestamps, at the MTU that was asked for."""
        mtu_bytes: int = self.experiment["underlay"].get("mtu_bytes", MTU_BYTES)
        return MSS_BYTES + mtu_bytes - MTU_BYTES

    @property
    def has_expressions(self) -> bool:
        """Whether messages are for the nodes that satisfy an expression."""
        return bool(self.experiment.get("expressions", {}).get("kind", "none") != "none")

    @property
    def attempt(self) -> Attempt | None:
        """``attempt.json``, None if the run repeats no other."""
        path = self.path / files.ATTEMPT_FILE
        return read_document(path, Decoder(Attempt).decode) if path.exists() else None

    @cached_property
    def stalls(self) -> Stalls:
        from metrics.recorded.stalls import read_stalls

        return read_stalls(self.path)

    @property
    def nodes(self) -> list[int]:
        return [place.node for place in self.plan.placement]

    @property
    def nodes_by_host(self) -> list[int]:
        """The node on each host; -1 = none."""
        nodes = [-1] * (1 + max(place.host for place in self.plan.placement))
        for place in self.plan.placement:
            nodes[place.host] = place.node
        return nodes

    @cached_property
    def clocks(self) -> dict[int, ClockOffset]:
        """Every node's clocks, by the machine that it ran on; none if all processes read the clocks of one computer."""
        machines = read_clocks(self.path)
        return {place.node: machines[place.machine] for place in self.plan.placement if place.machine in machines}

    @property
    def captures(self) -> list[Place]:
        """The capture files, none if nothing was captured."""
        found = (path for path in (self.path / files.CAPTURE_FOLDER).glob("*.pcap*") if path.is_file())
        return sorted(found, key=lambda path: path.name)

    def list_tables(self) -> list[Place]:
        """Return the folders of the tables that exist, by name."""
        return sorted(self.tables.glob(files.table_file("*")), key=lambda folder: folder.name)

    @property
    def recorded_bytes(self) -> int:
        """The size of the traces and captures, of which the tables are made."""
        traces = (self.path / TRACE_FOLDER).glob("*.jsonl")
        return self.captured_bytes + sum(path.stat().st_size for path in traces)

    @property
    def captured_bytes(self) -> int:
        """The size of the captures."""
        return sum(path.stat().st_size for path in self.captures)

    @property
    def timeline(self) -> Timeline:
        return self.manifest.timeline

    @property
    def judged_ns(self) -> tuple[int, int]:
        return self.timeline.judged_ns

    def phase(self, name: str) -> Phase | None:
        return self.timeline.phase(name)

    def iterate(self, name: str) -> Iterator[dict[str, Any]]:
        """Read a file of JSON objects, one per line, that may be too large for memory (see ``iterate_lines``).

        The objects have the keys that ``lines.line_decoder`` knows.
        """
        return iterate_lines(self.path / name, line_decoder(name))

    def schedule(self) -> Iterator[dict[str, Any]]:
        """Read ``schedule.jsonl`` likewise, up to the first action of a node that the plan does not have."""
        nodes = len(self.nodes)
        return takewhile(lambda action: action["node"] < nodes, self.iterate(SCHEDULE_FILE))

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Read a file of JSON objects, one per line (see ``read_lines``)."""
        return read_lines(self.path / name, line_decoder(name))
