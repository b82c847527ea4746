"""The interfaces between testbeds with machines and the running stage."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from harness.deployment.agents import Site
from harness.deployment.fleet import Deployment
from harness.experiment.inventory import Machine
from harness.planning.plan import PlannedRun
from metrics.rundir import FinalState
from peer.runtime.clock import Clock

Moment = Literal["before", "after"]


class Findings(Struct, frozen=True):
    """What a testbed recorded for the manifest.

    Attributes:
        final_states: of the testbed's own processes.
        counters: what it counted.
        problems: (severity, sentence).
        capture_files: relative to the run directory.
        uncaptured: why it captured nothing although that was asked for; empty = it did, or the problems say why not.
    """

    final_states: tuple[FinalState, ...] = ()
    counters: dict[str, int] = {}
    problems: tuple[tuple[str, str], ...] = ()
    capture_files: tuple[str, ...] = ()
    uncaptured: str = ""


class Setting(NamedTuple):
    """What a testbed is made for.

    Attributes:
        planned: the plan and its documents.
        run_dir: the run directory.
        epoch_offset_ns: what to add to an instant of the monotonic clock to get one since 1970 (ns).
        clock: the run's clock.
    """

    planned: PlannedRun
    run_dir: Path
    epoch_offset_ns: int
    clock: Clock


MakeTestbed = Callable[[Setting], "Testbed"]


class Testbed(Protocol):
    """A testbed that has machines. Each method is called once, in this order.

    All files are written into the run directory. A method raises TestbedError if it fails; a failure that only spoils
    the result is a problem in the findings. A testbed that does more has the methods of ``Connected``, ``Probing``,
    ``Recording``, ``Faulting`` or ``Accounting``, too.
    """

    def boot(self) -> None:
        """Make the network and the machines."""

    def machines(self) -> tuple[Machine, ...]:
        """Return the machines to deploy to."""

    def sites(self) -> tuple[Site, ...]:
        """Return where each node runs."""

    def metrics(self) -> dict[str, tuple[str, int]]:
        """Return the endpoints of the metrics of the testbed's own parts; that of an agent by its machine's name."""

    def close(self) -> Findings:
        """Stop everything and return the findings. Processes that remain end with the sandbox."""


@runtime_checkable
class Connected(Protocol):
    """A testbed that works on its machines itself."""

    def connect(self, deployment: Deployment) -> None:
        """Take the connections to the machines. Called when every peer is ready, before anything is measured."""


@runtime_checkable
class Probing(Protocol):
    """A testbed with the ability ``probe``: it measures the round trips of its network."""

    def probe(self, moment: Moment) -> None:
        """Probe the idle network. Called before the workload, and after it unless it was cut short."""


@runtime_checkable
class Recording(Protocol):
    """A testbed with the ability ``certify`` or ``capture``: it observes its network while peers run."""

    def start_recording(self, longest_s: float) -> None:
        """Start to record the network, before any peer sends; for at most ``longest_s`` virtual seconds."""

    def lost(self) -> dict[str, str]:
        """Return the testbed's own processes that ended early -> how they ended.

        Called every second of the run, at any time between ``boot`` and ``close``, so it must be cheap.
        """

    def stop_recording(self) -> None:
        """Stop the recording, after the end of the last peer."""


@runtime_checkable
class Faulting(Protocol):
    """A testbed with the ability ``faults`` or ``pause``: its network or its peers change at planned instants."""

    def schedule(self, zero_ns: int) -> None:
        """Schedule the plan's changes, before the run begins.

        Args:
            zero_ns: the workload's zero on the run's clock.
        """


@runtime_checkable
class Accounting(Protocol):
    """A testbed that knows what its peers use."""

    def cpu_s(self) -> float:
        """Return the processor time (real s) of all peers until now. Called at both ends of the workload."""

    def resources(self) -> dict[str, float]:
        """Return what the peers use now. Called after the measured time, before they end."""
