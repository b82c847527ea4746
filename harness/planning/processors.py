"""How many processors an emulated run needs: a model of its parts, and of the machine by its calibration.

The model is a sum: what a run needs whatever it does, what each host and its peer need without messages, and what each
data frame needs of the data plane and of the two peers. All constants are of a machine whose calibration
(``harness.machine.calibration``) takes ``REFERENCE_WORK_US``. On another machine, or on another day, everything takes
as much longer as that work does. A dilated run has fewer frames per second. What it needs without messages is counted
as without dilation: Prometheus scrapes as often, and only the peers' timers are slower.

docs/experiment-spec.md lists the constants, docs/benchmarks.md has the runs that they are from.
"""

import math
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from harness.experiment.form import Experiment
from harness.experiment.implementations import assign_programs
from harness.machine.calibration import Calibration, calibrate
from harness.planes.registry import DEFAULT
from harness.planning.needs import count_peer_processes
from harness.planning.plan import Prediction
from harness.testbeds.registry import find_testbed

REFERENCE_WORK_US = 200.0
"""The calibration's piece of work on the machine that the following constants are of (us)."""

RUN_CPU_MS = 140.0
"""Processor time per second of what a run has once: data plane, watchdogs, Prometheus, prober, agent (ms)."""

HOST_CPU_MS = 1.4
"""Processor time per second for each host besides its peer: scrapes, agent, control network (ms)."""

PEER_CPU_MS = 1.6
"""Processor time per second of a Python peer without messages: its timers, and answers to scrapes (ms)."""

PLANE_COPY_US = 75.0
"""Processor time of the data plane for a data frame, with its capture and its acknowledgements (us)."""

PEER_COPY_US = 120.0
"""Processor time of the peers for a data frame, sender and receiver together (us)."""

SHARING = 25
"""So many peers in a process were measured for ``SHARED_RATIO``, and are what a plan that does not fit recommends."""

SHARED_RATIO = 0.31
"""What remains of the peers' processor time where they share processes: a process of 25 peers takes a third of 25
processes (docs/benchmarks.md)."""

SHARE_LIMIT = 0.3
"""The largest share of the processors at which a run is likely to be valid: below it 59 of 67 runs were, above it 2 of
38 (docs/benchmarks.md)."""


class Load(NamedTuple):
    """Processor time that a run needs on the reference machine, in seconds per second.

    ``fixed`` is needed at any dilation, ``frames`` for the data frames of a virtual second.
    """

    fixed: float
    frames: float

    def processors(self, calibration: Calibration, dilation: float) -> float:
        """Return how many processors are busy on a machine."""
        return (self.fixed + self.frames / dilation) * calibration.work_us / REFERENCE_WORK_US


class Outlook(Struct, frozen=True):
    """What is predicted for a run on a machine.

    Attributes:
        load: of the run.
        calibration: of the machine.
        dilation: of the run.
        late_limit_ms: how late the data plane may be at its 99th percentile, in ms of virtual time.
    """

    load: Load
    calibration: Calibration
    dilation: float
    late_limit_ms: float

    @property
    def processors(self) -> float:
        """How many processors are busy during the workload."""
        return self.load.processors(self.calibration, self.dilation)

    @property
    def is_carried(self) -> bool:
        """Whether so few processors are busy that the run is likely to be valid."""
        return self.processors <= SHARE_LIMIT * self.calibration.processors

    @property
    def is_on_time(self) -> bool:
        """Whether processes wake up within the limit of the data plane."""
        return self.calibration.late_ms <= self.late_limit_ms * self.dilation

    @property
    def fits(self) -> bool:
        """Whether the run is likely to be valid."""
        return self.is_carried and self.is_on_time

    @property
    def largest_rate(self) -> float:
        """The largest rate of messages that is carried, relative to the experiment's; 0 = none is."""
        if not self.load.frames:
            return math.inf if self.is_carried else 0.0
        speed = self.calibration.work_us / REFERENCE_WORK_US
        left = SHARE_LIMIT * self.calibration.processors / speed - self.load.fixed
        return max(0.0, left) * self.dilation / self.load.frames

    def dilated(self, dilation: float) -> "Outlook":
        """Return what is predicted with another dilation."""
        return replace(self, dilation=dilation)


def foresee(experiment: Experiment, prediction: Prediction, hosts: int, calibration: Calibration) -> Outlook:
    """Return what is predicted for a run of which ``find_unknown`` finds nothing, on a machine."""
    load = estimate_load(experiment, prediction, hosts)
    return Outlook(load, calibration, experiment.dilation, experiment.verdict.lateness_p99_ms)


def foresee_here(experiment: Experiment, prediction: Prediction, hosts: int) -> Outlook | str:
    """Calibrate this machine, unless it was a short time ago, and return what is predicted for a run on it.

    Returns:
        What is predicted, or why nothing is, as a phrase.
    """
    if unknown := find_unknown(experiment, prediction):
        return unknown
    if (calibration := calibrate()) is None:
        return "this machine was not calibrated"
    return foresee(experiment, prediction, hosts, calibration)


def find_unknown(experiment: Experiment, prediction: Prediction) -> str:
    """Return why the processors of a run are not predicted, as a phrase; empty if they are."""
    peer = experiment.peer
    if find_testbed(experiment.testbed, experiment.plane).plane != DEFAULT:
        return f'there is a model of plane = "{DEFAULT}" only'
    if silent := {each.implementation for each in peer.programs if None in (each.idle_cpu_ms_per_s, each.copy_cpu_us)}:
        return f"the file of {', '.join(sorted(silent))} does not say what a peer needs"
    if peer.command and not peer.programs:
        return "it is not known what the programs need"
    return "" if prediction.frames_per_s is not None else "the number of frames is not known"


def estimate_load(experiment: Experiment, prediction: Prediction, hosts: int) -> Load:
    """Return what a run of which ``find_unknown`` finds nothing needs on the reference machine."""
    assert prediction.frames_per_s is not None, "find_unknown says so"
    programs = [experiment.peer.programs[each] for each in assign_programs(experiment.peer, hosts, experiment.seed)]
    if programs:
        idle_ms = sum(program.idle_cpu_ms_per_s or 0.0 for program in programs)
        copy_us = sum(program.copy_cpu_us or 0.0 for program in programs) / hosts
    else:
        shared = SHARED_RATIO + (1 - SHARED_RATIO) * count_peer_processes(experiment, hosts) / hosts
        idle_ms, copy_us = hosts * PEER_CPU_MS * shared, PEER_COPY_US * shared
    fixed_ms = RUN_CPU_MS + hosts * HOST_CPU_MS + idle_ms
    frames_per_s = prediction.frames_per_s * experiment.dilation
    return Load(fixed_ms / 1e3, frames_per_s * (PLANE_COPY_US + copy_us) / 1e6)
