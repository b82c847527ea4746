"""Explicit peering agreements, by the text of the libp2p specification, v1.1, section of that name."""

from peer.core.frames import Data
from peer.protocols.gossipsub.frames import Graft, Ihave, Prune
from peer.protocols.gossipsub.mesh import EXPLICIT
from tests.lone_gossipsub import ME, LoneNode


def agreed(**parameters) -> LoneNode:
    """A node with agreements with 50 and 51, which are up, and five peers in its mesh."""
    node = LoneNode(explicit_peers=(50, ME, 51), known=dict.fromkeys(range(60), (1,)), **parameters)
    node.link(range(5), graft=True)
    node.link((50, 51))
    return node


def test_the_connections_are_made_at_the_start_and_looked_after():
    """Connections are initially established when the router boots, and are periodically checked."""
    node = LoneNode(explicit_peers=(50, ME, 51), known=dict.fromkeys(range(60), (1,)))
    assert node.connects() == [50, 51]
    node.link((50, 51))
    node.unlink(51)
    node.forget()
    node.fire(EXPLICIT)
    assert node.connects() == [51]


def test_agreements_of_others_are_none_of_ours():
    """Peering agreements are reciprocal: between those that made them."""
    node = LoneNode(explicit_peers=(50, 51), known=dict.fromkeys(range(60), (1,)))
    assert node.connects() == []
    node.link(50)
    node.graft(50)
    assert node.mesh() == [50]


def test_explicit_peers_are_never_in_the_mesh():
    """Explicit peers exist outside the mesh."""
    node = LoneNode(explicit_peers=(50, ME), known={50: (0,)})
    node.link(50)
    node.beat(3)
    assert node.mesh() == []
    assert not node.sent(Graft)


def test_an_explicit_peers_graft_is_rejected_with_a_prune():
    """It is an error to GRAFT on an explicit peer; the attempt should be logged and rejected with a PRUNE."""
    node = agreed()
    node.graft(50)
    assert node.receivers(Prune) == [50]
    assert node.rejects() == ["explicit_peer"]
    assert 50 not in node.mesh()


def test_explicit_peers_get_every_message_whatever_their_scores():
    """Every new valid incoming message is forwarded to the direct peers; outside the peer scoring system."""
    for flood in (True, False):
        node = agreed(scoring=True, flood_publish=flood)
        node.overlay.scores.penalise(50, 9)
        node.message(0, 1)
        assert node.receivers(Data) == [1, 2, 3, 4, 50, 51]
        node.forget()
        node.publish(0)
        assert node.receivers(Data) == [0, 1, 2, 3, 4, 50, 51]


def test_frames_of_explicit_peers_are_always_accepted():
    """Incoming RPCs are always accepted from them."""
    node = agreed(scoring=True)
    node.overlay.scores.penalise(50, 9)
    node.message(50, 1)
    assert len(node.delivered()) == 1


def test_explicit_peers_get_no_gossip():
    """They get the messages themselves (as go-libp2p-pubsub does it)."""
    node = agreed()
    node.message(0, 1)
    node.beat()
    assert not node.sent(Ihave)


def test_explicit_peers_get_messages_on_their_topics_only():
    """Outside the mesh, not outside the topic: an explicit peer is sent what it subscribes to."""
    node = LoneNode(explicit_peers=(50, ME, 51))
    node.link(50, topics=(0,))
    node.link(51, topics=(7,))
    node.publish(0)
    assert node.receivers(Data) == [50]
