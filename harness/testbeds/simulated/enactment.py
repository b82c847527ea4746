"""Enacts a plan in a simulation: who is up at the start, and everything that the schedule says after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from harness.testbeds.simulated.simulation import Simulation
from peer.core.contract import Directory, NodeId, PeerList
from peer.runtime.bootstrap import Step, first_directory, tell, timeline
from peer.runtime.lifecycle import CRASH, JOIN, LEAVE, make_events, make_node
from peer.runtime.spec import Action, OverlayDocument


class Enactment:
    """The lives of all nodes of a plan on a simulation's hosts, which it adds.

    Steps are taken from the timeline one by one as virtual time comes to them, so that only the directories that some
    node still holds are in memory.

    Args:
        simulation: where the nodes live.
        overlay: the nodes.
        schedule: the actions in the order of their instants.
        start_ns: the virtual instant at which the nodes start.
        zero_ns: the virtual instant of the workload's zero.
        stop_ns: the virtual instant from which nothing of the schedule is enacted any more.
    """

    def __init__(
        self,
        simulation: Simulation,
        overlay: OverlayDocument,
        schedule: Iterable[Action],
        *,
        start_ns: int,
        zero_ns: int,
        stop_ns: int,
    ) -> None:
        self._simulation = simulation
        self._specs = {spec.node: spec for spec in overlay.nodes}
        self._lives: dict[NodeId, int] = {}
        self._zero_ns = zero_ns
        self._stop_ns = stop_ns
        directory = first_directory(overlay)
        for spec in overlay.nodes:
            simulation.add_host(spec.node)
            if spec.up:
                simulation.at(start_ns, self._begin, spec.node, spec.topics, directory)
        self._await(timeline(overlay, schedule, start_ns - zero_ns))

    def _await(self, steps: Iterator[Step]) -> None:
        """Wait for the next step."""
        step = next(steps, None)
        if step is not None and (at_ns := self._zero_ns + step.at_ns) < self._stop_ns:
            self._simulation.at(at_ns, self._take, step, steps)

    def _take(self, step: Step, steps: Iterator[Step]) -> None:
        self._await(steps)
        if step.action is not None:
            self._enact(step.action, step.directory)
            return
        assert step.directory is not None, "a refresh has a directory"
        for number, spec in self._specs.items():
            self._simulation.give(number, PeerList(tell(spec, step.directory)))

    def _enact(self, action: Action, directory: Directory | None) -> None:
        if action.action == JOIN:
            assert directory is not None, "a join has a directory"
            self._begin(action.node, action.topics, directory, joins=True)
        elif action.action == LEAVE:
            self._simulation.leave(action.node)
        elif action.action == CRASH:
            self._simulation.crash(action.node)
        else:
            for event in make_events(action):
                self._simulation.give(action.node, event)

    def _begin(self, number: NodeId, topics: tuple[int, ...], directory: Directory, joins: bool = False) -> None:
        spec = self._specs[number]
        life = self._lives.get(number, 0)
        self._lives[number] = life + 1
        self._simulation.start(number, make_node(spec, life, topics), tell(spec, directory), joins=joins)
