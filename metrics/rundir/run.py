"""A run directory whose running stage has ended, as the analysis and the commands read it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import ValidationError
from msgspec.json import Decoder

from metrics.rundir import files
from metrics.rundir.documents import SCHEMA_VERSION, Attempt, ClockOffset, Header, Manifest, PlanOutline, Summary
from metrics.rundir.reading import DamagedError, RunDirError, read_document, read_lines
from metrics.rundir.timeline import SECOND_NS, Phase, Timeline

if TYPE_CHECKING:
    from metrics.stalls import Stalls
    from topologies.model import Underlay

Value = TypeVar("Value")

_CLOCKS = Decoder(dict[str, ClockOffset])
_LINES = Decoder(dict[str, Any])


def read_clocks(run_dir: Path) -> dict[str, ClockOffset]:
    """Read every machine's clocks; none if all processes of the run read those of this computer."""
    path = run_dir / files.CLOCKS_FILE
    return read_document(path, _CLOCKS.decode) if path.exists() else {}


class RunDir:
    """A run directory, its documents read when they are asked for.

    A run of an older schema version is read if its documents have what this version needs.

    Args:
        path: the run directory.
        tables: where its tables are, or are being made; None = in their place.

    Raises:
        RunDirError: (by its properties) a document is missing or damaged, or of a version that cannot be read.
    """

    def __init__(self, path: Path, tables: Path | None = None) -> None:
        self.path = path
        self.tables = tables or path / files.TABLES_FOLDER

    @cached_property
    def manifest(self) -> Manifest:
        return self._read(files.MANIFEST_FILE, Decoder(Manifest).decode)

    @cached_property
    def plan(self) -> PlanOutline:
        return self._read(files.PLAN_FILE, Decoder(PlanOutline).decode)

    @cached_property
    def underlay(self) -> Underlay:
        from topologies.model import Underlay

        return self._read(files.UNDERLAY_FILE, Underlay.from_json)

    @cached_property
    def summary(self) -> Summary:
        return self._read(files.SUMMARY_FILE, Decoder(Summary).decode)

    def _read(self, name: str, decode: Callable[[bytes], Value]) -> Value:
        version, maker = self._header.schema_version, self._header.maker
        known = f"has schema version {version}, and this Trellis reads versions up to {SCHEMA_VERSION}"
        if version > SCHEMA_VERSION:
            raise RunDirError(self.path, f"{known}; use {maker}")
        try:
            return read_document(self.path / name, decode)
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
        """How long no deliveries are expected of a node after it has joined during the run."""
        return round(float(self.experiment["workload"].get("settle_s", 0)) * SECOND_NS)

    @property
    def attempt(self) -> Attempt | None:
        """``attempt.json``, None if the run repeats no other."""
        path = self.path / files.ATTEMPT_FILE
        return read_document(path, Decoder(Attempt).decode) if path.exists() else None

    @cached_property
    def stalls(self) -> Stalls:
        from metrics.stalls import read_stalls

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
        """Every node's clocks, by the machine that it ran on; none if all processes read those of one computer."""
        machines = read_clocks(self.path)
        return {place.node: machines[place.machine] for place in self.plan.placement if place.machine in machines}

    @property
    def captures(self) -> list[Path]:
        """The capture files, none if nothing was captured."""
        return sorted(path for path in (self.path / files.CAPTURE_FOLDER).glob("*.pcap*") if path.is_file())

    @property
    def timeline(self) -> Timeline:
        return self.manifest.timeline

    @property
    def judged_ns(self) -> tuple[int, int]:
        return self.timeline.judged_ns

    def phase(self, name: str) -> Phase | None:
        return self.timeline.phase(name)

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Read a file of JSON objects, one per line (see ``read_lines``)."""
        return read_lines(self.path / name, _LINES.decode)
