"""Takes the overlay at an instant of a simulation, as the arrays that ``metrics.overlay`` measures."""

from collections.abc import Collection

import numpy as np

from harness.simulator.simulation import Simulation
from metrics.measures.attacks import Slots
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
    hosts = simulation.hosts
    openings = [(a, b) if hosts[a].links[b].opener else (b, a) for a, b in links if b in hosts[a].links]
    views = [
        (number, peer, topic)
        for number, state in states.items()
        for peer, neighbour in state.neighbours.items()
        for topic in neighbour.logical
    ]
    return Snapshot.of(list(states), interests, links, views, adversaries, openings)


def count_slots(simulation: Simulation, leave_out: Collection[NodeId], adversaries: Bitset) -> Slots:
    """Return the links of honest nodes' own choice, without those that are brief at the node that chose them.

    Args:
        simulation: its present instant counts.
        leave_out: nodes whose links do not count.
        adversaries: the nodes that misbehave.
    """
    own = [
        [peer for peer, neighbour in host.node.state.neighbours.items() if neighbour.outbound and not neighbour.brief]
        for number, host in simulation.hosts.items()
        if host.node is not None and number not in leave_out and not adversaries >> number & 1
    ]
    return Slots(sum(adversaries >> peer & 1 for peers in own for peer in peers), np.array([*map(len, own)], np.int64))
