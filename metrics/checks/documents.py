"""The evidence that lies in a run directory's documents; ``metrics.tables.evidence`` has that of the tables."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow.compute as pc

from metrics import first_packets
from metrics.checks.evidence import (
    CaptureState,
    FirstPackets,
    PlaneRecord,
    PressureLine,
    PressureRecord,
    Probes,
    ScheduleCounts,
    VerdictLimits,
)
from metrics.dataplane import spans
from metrics.probing import measure_sweep, read_achieved
from metrics.recount import count_changes
from metrics.rundata import RunDir


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
    """Whether a copy between two subscribers of its topic travels on a logical link alone.

    So it does where honest nodes flood along topics, to interested neighbours only, or tell all their neighbours their
    interests.
    """
    nodes = json.loads((run.path / "overlay.json").read_bytes())["nodes"]
    several = run.experiment["workload"]["topics_per_message"] > 1
    return all(_floods_along_links(node, several) and not node.get("behaviour") for node in nodes)


def _floods_along_links(node: dict[str, Any], several: bool) -> bool:
    """``several``: messages are on several topics, so that a whole copy bears more than its link carries."""
    if several and node["dissemination"].get("whole"):
        return False
    name, ttl = node["dissemination"]["name"], node["dissemination"].get("ttl")
    told: bool = node.get("interests", "announced") == "announced"
    return name == "topic-flood" or (name == "flood" and (told or ttl == 0))
