"""The protocol alone, and in a network without processes."""

from peer.core.contract import Publish, message_id
from peer.core.frames import Data
from peer.protocols.description import Composition
from peer.protocols.registry import PROTOCOLS, compose
from peer.testing import Pump, Solo, deliveries, sends, traces

TOPIC = 7
SECOND_NS = 1_000_000_000


def parts(fanout: int) -> Composition:
    """Return the parts of a node with this fanout."""
    given = PROTOCOLS["template-protocol"].composition
    return Composition(given.overlay, {"name": "template-protocol", "fanout": fanout})


def test_a_node_delivers_a_message_once_and_forwards_it_to_fanout_neighbours() -> None:
    """The sender gets no copy; the second copy is a duplicate."""
    solo = Solo(compose(0, 1, (TOPIC,), parts(fanout=2)))
    solo.start(dict.fromkeys(range(1, 6)))
    for peer in range(1, 6):
        solo.link_up(peer)
    copy = Data(message_id(9, 0), (TOPIC,), 1, 255, b"payload")
    effects = solo.receive(1, copy)
    assert [message.payload for message in deliveries(effects)] == [b"payload"]
    receivers = {peer for peer, _ in sends(effects)}
    assert len(receivers) == 2
    assert 1 not in receivers
    again = solo.receive(2, copy)
    assert deliveries(again) == []
    assert sends(again) == []
    assert [event.event for event in traces(again)] == ["duplicate"]


def test_every_node_of_a_network_gets_a_message() -> None:
    """With as many copies as neighbours, nothing is lost."""
    nodes = {node: compose(node, 1, (TOPIC,), parts(fanout=20)) for node in range(20)}
    pump = Pump(nodes, lambda source, destination: 10_000_000, seed=1)
    pump.start(dict.fromkeys(nodes, (TOPIC,)))
    pump.run(5 * SECOND_NS)
    pump.give(0, Publish((TOPIC,), message_id(0, 0), b"payload"))
    pump.run(5 * SECOND_NS)
    assert sorted(node for _, node, _ in pump.delivered) == sorted(nodes)
