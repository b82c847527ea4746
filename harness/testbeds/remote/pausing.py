"""Pauses peers of the machines at the plan's instants, by a pauser on each machine."""

from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

import msgspec
from msgspec import Struct

from harness.deployment.fleet import Deployment
from harness.deployment.script import Script
from harness.deployment.session import MachineSession
from metrics.rundir import AppliedChange, ClockOffset, Placement
from topologies.network import uniform_network
from topologies.timeline import Change, Timeline, instants_of

ANSWER_BYTES = 1 << 20

_PAUSER = resources.files(__package__).joinpath("pauser.py").read_bytes()


class Step(Struct, frozen=True):
    """What happens at an instant: the hosts, or nodes, whose peers stop, and those whose peers go on."""

    at_ns: int
    stop: tuple[int, ...]
    resume: tuple[int, ...]

    def on(self, nodes: Mapping[int, int], ahead_ns: int) -> "Step":
        """Return the step of a machine.

        Args:
            nodes: host -> node, of the machine.
            ahead_ns: the machine's CLOCK_MONOTONIC minus ours.
        """
        stop, resume = (tuple(nodes[host] for host in hosts if host in nodes) for hosts in (self.stop, self.resume))
        return Step(self.at_ns + ahead_ns, stop, resume)


def steps_of(changes: Iterable[Change], hosts: int, zero_ns: int) -> list[Step]:
    """Return the steps of all pauses of a run, in order of time.

    Args:
        changes: of the plan; only those that pause peers count.
        hosts: how many there are.
        zero_ns: the workload's zero on our CLOCK_MONOTONIC.
    """
    timeline = Timeline(uniform_network(hosts, 0.0), (each for each in changes if each.paused), zero_ns=zero_ns)
    steps, before = [], frozenset[int]()
    for at_ns in timeline.instants:
        paused = timeline.paused(at_ns)
        steps.append(Step(at_ns, tuple(sorted(paused - before)), tuple(sorted(before - paused))))
        before = paused
    return steps


class Pauses:
    """The pausers of a run.

    Every machine passes all instants, so that an instant is applied when the last machine has passed it. Only machines
    that run peers have a pauser, and only if the plan pauses some.
    """

    def __init__(self, deployment: Deployment, placement: Sequence[Placement], changes: Sequence[Change]) -> None:
        self._deployment = deployment
        self._placement = placement
        self._changes = [change for change in changes if change.paused]
        self._scripts: dict[str, Script] = {}
        self._zero_ns = 0
        self._applied_ns: dict[str, list[int]] = {}

    def start(self) -> None:
        """Start the pausers.

        Raises:
            DeploymentError: one does not start.
        """

        def start_one(session: MachineSession) -> None:
            script = session.start_script(_PAUSER)
            self._scripts[session.machine.name] = script
            script.read_line()

        if self._changes:
            self._deployment.each("start the pauser", start_one)

    def schedule(self, zero_ns: int) -> None:
        """Tell the pausers their steps; ``zero_ns`` is the workload's zero on our clock.

        Raises:
            DeploymentError: one has ended.
        """
        self._zero_ns = zero_ns
        steps = steps_of(self._changes, len(self._placement), zero_ns)

        def tell_one(session: MachineSession) -> None:
            name = session.machine.name
            nodes = {place.host: place.node for place in self._placement if place.machine == name}
            ahead_ns = self._deployment.clocks[name].monotonic_ns
            self._scripts[name].tell(msgspec.json.encode([step.on(nodes, ahead_ns) for step in steps]))

        if self._changes:
            self._deployment.each("schedule the pauses", tell_one)

    def lost(self) -> dict[str, str]:
        """Return the pausers that have ended."""
        return {f"the pauser on {name}": "ended" for name, each in self._scripts.items() if each.has_ended}

    def end(self) -> None:
        """Let all peers go on, and hear when the instants were applied.

        Raises:
            DeploymentError: a pauser gave no answer.
        """
        decode = msgspec.json.Decoder(list[int]).decode

        def end_one(session: MachineSession) -> list[int]:
            script = self._scripts[session.machine.name]
            script.end_input()
            return decode(script.read_line(most_bytes=ANSWER_BYTES))

        if self._changes:
            self._applied_ns = self._deployment.each("end the pauses", end_one)

    def applied(self, clocks: Mapping[str, ClockOffset]) -> list[AppliedChange]:
        """Return the instants that all machines have passed, in order, on our clock.

        Args:
            clocks: of the machines that have clocks of their own.
        """
        passed = [
            [at_ns - (clocks[name].monotonic_ns if name in clocks else 0) for at_ns in own]
            for name, own in self._applied_ns.items()
        ]
        asked = [self._zero_ns + at_ns for at_ns in instants_of(self._changes)]
        return [AppliedChange(asked_ns, max(at_ns)) for asked_ns, *at_ns in zip(asked, *passed, strict=False) if at_ns]
