"""A plan: an experiment with every default, seed, placement and prediction resolved."""

from pathlib import Path

from msgspec import Struct

from harness.experiment.form import Experiment
from metrics.rundir import Placement
from peer.core.schedule import Action
from peer.instances.spec import OverlayDocument
from topologies.model import Underlay
from topologies.network import Network
from topologies.provenance import Provenance
from topologies.timeline import Change


class Prediction(Struct, frozen=True):
    """What the run needs. ``plan`` refuses a run that needs more than this machine has.

    ``links_per_node``: mean number of physical links; None if the programs say nothing of what they do.
    ``frames_per_s``: data frames; None if the dissemination has no prediction model. ``wall_s``: None for a simulated
    run, which takes as long as its events take.

    Seconds are real: with time dilation k, ``wall_s`` has the workload k times and ``frames_per_s`` a k-th of the rate.
    """

    processes: int
    memory_mib: float
    open_files: int
    wall_s: float | None
    links_per_node: float | None
    frames_per_s: float | None


class Plan(Struct, frozen=True):
    """``plan.json``.

    ``provenance`` says where measured latencies come from; None = the underlay is generated.

    ``hashes`` has the SHA-256 of plan (without hashes), underlay, placement, overlay, schedule and, if there are any,
    of the network's changes and of the script. Equal file, overrides and seed give equal hashes, on any machine and
    with any PYTHONHASHSEED.
    """

    name: str
    seed: int
    experiment: Experiment
    placement: tuple[Placement, ...]
    prediction: Prediction
    hashes: dict[str, str]
    provenance: Provenance | None = None


class PlannedRun(Struct, frozen=True):
    """A plan and its documents.

    ``source`` is the experiment file; ``changes`` are those of the network; ``script`` is the content of
    ``params.json``, empty without programs that follow one; ``chosen`` says what was chosen for this machine, a
    sentence for each key that leaves the choice to the plan.
    """

    plan: Plan
    underlay: Underlay
    overlay: OverlayDocument
    schedule: tuple[Action, ...]
    source: Path
    changes: tuple[Change, ...] = ()
    script: bytes = b""
    chosen: tuple[str, ...] = ()

    @property
    def network(self) -> Network:
        """What carries, probes or judges packets reads this."""
        return Network.of(self.underlay)
