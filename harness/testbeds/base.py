"""The interface between testbeds and the running stage."""

from typing import Literal, Protocol

from msgspec import Struct

from harness.deployment.agents import Site
from harness.experiment.inventory import Machine
from metrics.rundir import FinalState

Moment = Literal["before", "after"]


class Findings(Struct, frozen=True):
    """What a testbed recorded for the manifest. ``problems`` are (severity, sentence)."""

    final_states: tuple[FinalState, ...] = ()
    counters: dict[str, int] = {}
    problems: tuple[tuple[str, str], ...] = ()
    capture_files: tuple[str, ...] = ()


class Testbed(Protocol):
    """A testbed. Each method is called once, in this order, except ``probe`` and ``lost``.

    ``probe`` is called before the workload, and after it unless it was cut short; ``lost`` is called at any time.
    All files are written into the run directory. A method raises TestbedError if it fails; a failure that only spoils
    the result is a problem in the findings.
    """

    def boot(self) -> None:
        """Make the network and the machines."""

    def machines(self) -> tuple[Machine, ...]:
        """Return the machines to deploy to."""

    def sites(self) -> tuple[Site, ...]:
        """Return where each node runs."""

    def metrics(self) -> dict[str, tuple[str, int]]:
        """Return the endpoints of the metrics of the testbed's own parts; that of an agent by its machine's name."""

    def probe(self, moment: Moment) -> None:
        """Certify the idle network."""

    def start_recording(self, longest_s: float) -> None:
        """Start to record the network, before any peer sends; for at most ``longest_s`` virtual seconds."""

    def lost(self) -> dict[str, str]:
        """Return the testbed's own processes that ended early -> how they ended.

        Called every second of the run, at any time between ``boot`` and ``close``, so it must be cheap.
        """

    def resources(self) -> dict[str, float]:
        """Return what the peers use now. Called after the measured time, before they end."""

    def stop_recording(self) -> None:
        """Stop the recording, after the end of the last peer."""

    def close(self) -> Findings:
        """Stop everything and return the findings. Processes that remain end with the sandbox."""
