"""The overlay at an instant of a simulation, as the arrays that ``metrics.overlay`` measures."""

from __future__ import annotations

from collections.abc import Collection

from harness.testbeds.simulated.simulation import Simulation
from metrics.overlay import Snapshot
from peer.core.contract import NodeId


def take_snapshot(simulation: Simulation, leave_out: Collection[NodeId] = ()) -> Snapshot:
    """Look at the nodes that are up without some of them; links that lead to others are left out, too."""
    states = {
        number: host.node.state
        for number, host in simulation.hosts.items()
        if host.node is not None and number not in leave_out
    }
    interests = [(number, topic) for number, state in states.items() for topic in state.topics]
    links = [(number, peer) for number, state in states.items() for peer in state.neighbours]
    views = [
        (number, peer, topic)
        for number, state in states.items()
        for peer, neighbour in state.neighbours.items()
        for topic in neighbour.logical
    ]
    return Snapshot.of(list(states), interests, links, views)
