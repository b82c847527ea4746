"""What a testbed is to the running stage: machines that carry peers, and what becomes of the network between them."""

from __future__ import annotations

from typing import Literal, Protocol

from msgspec import Struct

from harness.deployment.agents import Site
from harness.inventory import Machine
from metrics.rundir import FinalState

Moment = Literal["before", "after"]


class Findings(Struct, frozen=True):
    """What a testbed saw, for the manifest. ``problems`` are (severity, sentence)."""

    final_states: tuple[FinalState, ...] = ()
    counters: dict[str, int] = {}
    problems: tuple[tuple[str, str], ...] = ()
    capture_files: tuple[str, ...] = ()


class Testbed(Protocol):
    """The methods are called once each, in this order.

    ``probe`` is called before and after the workload, but not after one that was cut short; ``lost`` at any time.
    Everything they write goes to the run directory. Each raises TestbedError when it cannot do what is asked; what
    only spoils the result is a problem among the findings.
    """

    def boot(self) -> None:
        """Make the network and the machines."""

    def machines(self) -> tuple[Machine, ...]:
        """Where to deploy to."""

    def sites(self) -> tuple[Site, ...]:
        """Where each node runs."""

    def metrics(self) -> dict[str, tuple[str, int]]:
        """Where to serve, or find, the metrics of the testbed's own parts; each machine's agent under its name."""

    def probe(self, moment: Moment) -> None:
        """Certify the network while it is idle."""

    def start_recording(self, longest_s: float) -> None:
        """Begin to watch the network, before any peer speaks; for at most this long in virtual time."""

    def lost(self) -> dict[str, str]:
        """The testbed's own processes that have ended before they should -> what is known of their end.

        Called each second of the run, and at any time between ``boot`` and ``close``; it must cost next to nothing.
        """

    def resources(self) -> dict[str, float]:
        """What the peers use now. Called while they drain: no longer judged, and not yet ended."""

    def stop_recording(self) -> None:
        """End the watch, after the last peer's end."""

    def close(self) -> Findings:
        """Tear down and tell. What is left open dies with the sandbox."""
