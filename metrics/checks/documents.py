"""The evidence that lies in a run directory's documents; ``metrics.tables.evidence`` has that of the tables.

Fields without a unit in their names are counts. Instants are ns of virtual time.
"""

from __future__ import annotations

import json

import msgspec
import pyarrow.compute as pc
from msgspec import Struct

from metrics import first_packets
from metrics.dataplane import Span, spans
from metrics.first_packets import Attempt
from metrics.probing import Sweep, measure_sweep, read_achieved
from metrics.recount import count_changes
from metrics.rundata import Phase, RunDir
from peer.protocols.registry import copies_follow_links


class VerdictLimits(Struct, frozen=True):
    """The limits of ``[verdict]`` in the experiment file that checks other than those of probes use.

    Attributes:
        lateness_p99_ms: of the data plane's lateness, and of frames' waits before they are read.
        wire_error_p99_ms: of |wire delay - delay asked for|.
    """

    lateness_p99_ms: float
    wire_error_p99_ms: float


class ScheduleCounts(Struct, frozen=True):
    """``schedule.jsonl``.

    Attributes:
        publications: messages to be published.
        changes: ``join`` and ``leave`` events that its changes leave in complete traces.
    """

    publications: int
    changes: int


class CaptureState(Struct, frozen=True):
    """Whether packets were captured.

    Attributes:
        wanted: the experiment asks for a capture, on a testbed that makes one.
        found: there are capture files.
    """

    wanted: bool
    found: bool


class Probes(Struct, frozen=True):
    """``achieved.parquet`` of an emulated run.

    Attributes:
        sweeps: by phase (before, during, after the workload), those with probes; None = the file is missing.
        asked_loss_ratio: the largest loss asked for of a round trip.
    """

    sweeps: dict[str, Sweep] | None
    asked_loss_ratio: float


class FirstPackets(Struct, frozen=True):
    """``first_packets.parquet`` of an emulated run.

    Attributes:
        attempts: in order; None = the file is missing.
    """

    attempts: tuple[Attempt, ...] | None


class PlaneRecord(Struct, frozen=True):
    """``dataplane.jsonl`` of an emulated run.

    Attributes:
        spans: of all lines.
        judged_ns: the span in which hosts are judged (``RunDir.judged_ns``).
        zero_ns: the workload's zero.
        workload: None where the run had none.
    """

    spans: tuple[Span, ...]
    judged_ns: tuple[int, int]
    zero_ns: int
    workload: Phase | None

    @property
    def judged(self) -> list[Span]:
        """The spans whose lines were written in the judged span."""
        return [span for span in self.spans if self.is_judged(span.at_ns)]

    def is_judged(self, at_ns: int) -> bool:
        """Whether a line of the data plane that was written at ``at_ns`` is about the judged span."""
        start_ns, end_ns = self.judged_ns
        return start_ns < at_ns <= end_ns


class PressureLine(Struct, frozen=True):
    """A line of ``pressure.jsonl``, about the virtual second that ends at it.

    Attributes:
        at_ns: when it was written.
        throttled_periods: periods in which a quota of the run's cgroups was used up.
        throttled_us: for how long, summed over processors.
    """

    at_ns: int
    throttled_periods: int = 0
    throttled_us: int = 0


class PressureRecord(Struct, frozen=True):
    """``pressure.jsonl`` of an emulated run.

    Attributes:
        lines: all of them, in order.
        judged_ns: the span in which hosts are judged (``RunDir.judged_ns``).
    """

    lines: tuple[PressureLine, ...]
    judged_ns: tuple[int, int]


def is_emulated(run: RunDir) -> bool:
    """Whether there is a network whose emulation is to be judged."""
    return run.manifest.testbed == "emulated"


def read_limits(run: RunDir) -> VerdictLimits:
    """``[verdict]`` of the experiment."""
    return msgspec.convert(run.experiment["verdict"], VerdictLimits)


def read_schedule(run: RunDir) -> ScheduleCounts:
    """``schedule.jsonl``."""
    publications = sum(1 for action in run.lines("schedule.jsonl") if action["action"] == "publish")
    return ScheduleCounts(publications, count_changes(run))


def read_capture_state(run: RunDir) -> CaptureState:
    """Whether packets were to be captured, and were."""
    asked = bool(run.experiment.get("capture", {}).get("enabled", False))
    return CaptureState(wanted=asked and is_emulated(run), found=bool(run.captures))


def read_probes(run: RunDir) -> Probes:
    """``achieved.parquet``."""
    achieved, loss_ratio = read_achieved(run.path), run.underlay.loss_ratio
    asked_loss_ratio = float((1 - (1 - loss_ratio) * (1 - loss_ratio.T)).max())
    if achieved is None:
        return Probes(None, asked_loss_ratio)
    phases = {phase: achieved.filter(pc.equal(achieved["phase"], phase)) for phase in ("before", "during", "after")}
    limits = run.experiment["verdict"]
    sweeps = {phase: measure_sweep(rows, limits, run.stalls) for phase, rows in phases.items() if rows.num_rows}
    return Probes(sweeps, asked_loss_ratio)


def read_first_packets(run: RunDir) -> FirstPackets:
    """``first_packets.parquet``."""
    slots = first_packets.read(run.path)
    return FirstPackets(None if slots is None else tuple(first_packets.judge(slots, run.stalls)))


def read_plane(run: RunDir) -> PlaneRecord:
    """``dataplane.jsonl``."""
    found = tuple(spans(run.lines("dataplane.jsonl")))
    return PlaneRecord(found, run.judged_ns, run.manifest.zero_ns, run.phase("workload"))


def read_pressure(run: RunDir) -> PressureRecord:
    """``pressure.jsonl``."""
    lines = msgspec.convert(run.lines("pressure.jsonl"), tuple[PressureLine, ...])
    return PressureRecord(lines, run.judged_ns)


def copies_show_links(run: RunDir) -> bool:
    """Whether a copy between two subscribers of its topic travels on a logical link alone, as the disseminations say.

    Adversaries may do otherwise.
    """
    nodes = json.loads((run.path / "overlay.json").read_bytes())["nodes"]
    several = run.experiment["workload"]["topics_per_message"] > 1
    return all(
        copies_follow_links(node["dissemination"], node.get("interests", "announced"), several=several)
        and not node.get("behaviour")
        for node in nodes
    )
