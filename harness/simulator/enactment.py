"""Enacts a plan in a simulation: starts the nodes that are up at the start, then follows the schedule."""

from collections.abc import Iterable, Iterator, Sequence

from harness.simulator.simulation import Simulation
from peer.core.contract import Directory, Event, TopicId
from peer.core.schedule import Action
from peer.instances.bootstrap import Step, first_directory, tell, timeline
from peer.instances.lifecycle import enact, make_node
from peer.instances.spec import NodeSpec, OverlayDocument

START_NS = 1_000_000_000
"""The virtual instant at which nodes start, in runs and studies: 0 would look like a missing instant."""


class SimulatedSlot:
    """A node's slot (``peer.instances.lifecycle.Slot``) on a simulated host, which it adds."""

    __slots__ = ("_instances", "_simulation", "spec")

    def __init__(self, simulation: Simulation, spec: NodeSpec) -> None:
        self._simulation = simulation
        self._instances = 0
        self.spec = spec
        simulation.add_host(spec.node)

    def begin(self, directory: Directory) -> None:
        self._start(self.spec.topics, tell(self.spec, directory), joins=False)

    def join(self, topics: Sequence[TopicId], directory: Directory) -> None:
        self._start(topics, directory, joins=True)

    def leave(self) -> None:
        self._simulation.leave(self.spec.node)

    def crash(self) -> None:
        self._simulation.crash(self.spec.node)

    def vanish(self) -> None:
        self._simulation.vanish(self.spec.node)

    def feed(self, event: Event) -> None:
        """Give the instance an event; nothing happens while the node is down."""
        self._simulation.give(self.spec.node, event)

    def _start(self, topics: Sequence[TopicId], directory: Directory, *, joins: bool) -> None:
        node = make_node(self.spec, self._instances, topics)
        self._instances += 1
        self._simulation.start(self.spec.node, node, directory, joins=joins)


class Enactment:
    """Runs the instances of all nodes of a plan in a simulation.

    It takes steps from the timeline one by one as virtual time reaches them, so that only directories that a node still
    uses are in memory.

    Args:
        simulation: the simulation of the nodes.
        overlay: the nodes.
        schedule: the actions in order of time.
        start_ns: the virtual instant at which the nodes start.
        zero_ns: the virtual instant of the workload's zero.
        stop_ns: the virtual instant from which the schedule is ignored.
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
        self._slots = {spec.node: SimulatedSlot(simulation, spec) for spec in overlay.nodes}
        self._zero_ns = zero_ns
        self._stop_ns = stop_ns
        directory = first_directory(overlay)
        for slot in self._slots.values():
            if slot.spec.up:
                simulation.at(start_ns, slot.begin, directory)
        self._await(timeline(overlay, schedule, start_ns - zero_ns))

    def _await(self, steps: Iterator[Step]) -> None:
        """Wait for the next step."""
        step = next(steps, None)
        if step is not None and (at_ns := self._zero_ns + step.at_ns) < self._stop_ns:
            self._simulation.at(at_ns, self._take, step, steps)

    def _take(self, step: Step, steps: Iterator[Step]) -> None:
        self._await(steps)
        told: Iterable[SimulatedSlot] = self._slots.values()
        if step.action is not None:
            told = (self._slots[step.action.node],)
        for slot in told:
            enact(step, slot.spec, slot)
