"""A plan: an experiment with every default, seed, placement and prediction resolved."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from harness.experiment import Experiment
from metrics.rundir import Placement
from peer.core.schedule import Action
from peer.runtime.spec import OverlayDocument
from topologies.model import Underlay

MOST_EMULATED_HOSTS = 1000
"""The control network is a Linux bridge, which has 1024 ports."""


class Prediction(Struct, frozen=True):
    """What the run will need; ``plan`` refuses what cannot fit.

    ``links_per_node``: physical ones, mean. ``frames_per_s``: of data; None where nobody has said how to count a
    dissemination's copies. ``wall_s``: None of a simulated run, which takes as long as its events take.

    Seconds are real: with time dilation k, ``wall_s`` has the workload k times and ``frames_per_s`` a k-th of the rate.
    """

    processes: int
    memory_mib: float
    open_files: int
    wall_s: float | None
    links_per_node: float
    frames_per_s: float | None


class Plan(Struct, frozen=True):
    """``plan.json``.

    ``hashes`` has the SHA-256 of plan (without itself), underlay, placement, overlay and schedule: equal for equal
    file, overrides and seed, on any machine and under any PYTHONHASHSEED.
    """

    name: str
    seed: int
    experiment: Experiment
    placement: tuple[Placement, ...]
    prediction: Prediction
    hashes: dict[str, str]


class PlannedRun(Struct, frozen=True):
    """A plan with the documents that it sums up. ``source`` is the experiment file."""

    plan: Plan
    underlay: Underlay
    overlay: OverlayDocument
    schedule: tuple[Action, ...]
    source: Path
