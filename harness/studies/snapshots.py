"""Takes the overlay at an instant of a simulation, as the arrays that ``metrics.overlay`` measures."""

from collections.abc import Collection

from harness.simulator.simulation import Simulation
from metrics.overlay.snapshot import Snapshot
from peer.core.bitset import Bitset
from peer.core.contract import NodeId


def take_snapshot(
    simulation: Simulation, leave_out: Collection[NodeId] = (), adversaries: Collection[NodeId] = ()
) -> Snapshot:
    """Return the nodes that are up, except ``leave_out``, and the links between them.

    Links that both ends have only for a question and its answer (``Neighbour.brief``) are left out.
    """
    states = {
        number: host.node.state
        for number, host in simulation.hosts.items()
        if host.node is not None and number not in leave_out
    }
    interests = [(number, topic) for number, state in states.items() for topic in state.topics]
    links = [
        (number, peer)
        for number, state in states.items()
        for peer, neighbour in state.neighbours.items()
        if not neighbour.brief
    ]
    views = [
        (number, peer, topic)
        for number, state in states.items()
        for peer, neighbour in state.neighbours.items()
        for topic in neighbour.logical
    ]
    return Snapshot.of(list(states), interests, links, views, adversaries)


def count_slots(simulation: Simulation, adversaries: Bitset) -> tuple[int, int]:
    """Return how many of the links that honest nodes opened lead to adversaries, and how many there are.

    Links that are brief at the node that opened them are left out.
    """
    slots = [
        adversaries >> peer & 1
        for number, host in simulation.hosts.items()
        if host.node is not None and not adversaries >> number & 1
        for peer, neighbour in host.node.state.neighbours.items()
        if neighbour.outbound and not neighbour.brief
    ]
    return sum(slots), len(slots)
