"""The test kit: drive one node alone (``Solo``) or several in memory (``Pump``), on virtual time and without sockets.

``Solo`` is for examples: the test is the node's driver and all its neighbours, and gives every event::

    solo = Solo(compose(0, seed, (1,), Composition({"name": "random", "degree": 2})))
    solo.start({1: None, 2: None})
    assert set(connects(solo.effects)) == {1, 2}
    solo.link_up(1)
    solo.receive(1, Data(message_id(7, 0), (1,), 1, 0, b"payload"))
    assert [message.payload for message in deliveries(solo.effects)] == [b"payload"]
    solo.advance(5 * SECOND_NS)  # the node's timers fire in between

``Pump`` is for properties: nodes of one network exchange frames over links that may lose, repeat and reorder them::

    pump = Pump({node: compose(node, seed, (1,), parts) for node in range(20)}, faults=Faults(drop_ratio=0.1))
    pump.start()
    pump.run(20 * SECOND_NS)
    pump.give(0, Publish((1,), message_id(0, 0), b"payload"))
    pump.run(SECOND_NS)
    assert {node for _, node, _ in pump.delivered} == set(range(20))

docs/testing-protocols.md explains which of the two a test needs, and what else is here.
"""

from peer.testing.hash_seeds import outputs_under_hash_seeds
from peer.testing.pump import Faults, Pump
from peer.testing.reading import connects, deliveries, disconnects, part_of, sends, timers, traces
from peer.testing.remembered import numbers_stored, stored
from peer.testing.solo import Solo

__all__ = [
    "Faults",
    "Pump",
    "Solo",
    "connects",
    "deliveries",
    "disconnects",
    "numbers_stored",
    "outputs_under_hash_seeds",
    "part_of",
    "sends",
    "stored",
    "timers",
    "traces",
]
