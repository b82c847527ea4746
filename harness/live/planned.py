"""The part of ``plan.json`` that is shown, or that decides what is read.

The whole plan has the parameters of the protocol, which may be a plugin's, and no reader of a run imports plugins.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from harness.experiment.sections.faults import FaultSpec
from harness.live.snapshot import FaultSpan
from harness.planes.registry import DEFAULT, PLANES
from harness.testbeds.registry import TESTBEDS
from metrics.rundir import Placement


class Workload(Struct, frozen=True):
    """The lengths of the phases, and the topics."""

    topics: int
    warmup_s: float
    duration_s: float
    cooldown_s: float
    settle_s: float = 0.0


class PlannedExperiment(Struct, frozen=True):
    """The keys of the experiment; ``verdict`` has plain values."""

    protocol: str
    testbed: str
    workload: Workload
    verdict: dict[str, Any]
    plane: str = DEFAULT
    time_dilation: float = 1.0
    faults: tuple[FaultSpec, ...] = ()

    def __post_init__(self) -> None:
        if self.testbed not in TESTBEDS or self.plane not in PLANES:
            raise ValueError(f"testbed {self.testbed} with the plane {self.plane}, of which this version knows nothing")


class LivePlan(Struct, frozen=True):
    """The part of the plan."""

    name: str
    seed: int
    experiment: PlannedExperiment
    placement: tuple[Placement, ...]

    def list_faults(self) -> Iterator[FaultSpan]:
        """Yield the faults in the order of their beginnings. They end with the cool-down at the latest."""
        workload = self.experiment.workload
        end_s = workload.duration_s + workload.cooldown_s
        for fault in sorted(self.experiment.faults, key=lambda each: each.at_s):
            from harness.experiment.faults import verb_of  # takes long to import

            until_s = end_s if fault.for_s is None else min(end_s, fault.at_s + fault.for_s)
            yield FaultSpan(verb_of(fault), fault.at_s, until_s)
