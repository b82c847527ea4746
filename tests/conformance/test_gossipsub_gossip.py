"""The message cache and gossip, by the text of the libp2p specification. Each test names its section."""

import pytest

from peer.core.contract import Publish, message_id
from peer.core.frames import Data
from peer.protocols.gossipsub.frames import Ihave, Iwant
from peer.protocols.registry import Composition, compose
from peer.testing import Faults, Pump
from tests.lone_gossipsub import SECOND_NS, LoneNode

SCORED = {"scoring": True}


def advertised(node: LoneNode) -> dict[int, set[int]]:
    """Receiver -> message ids, of all IHAVEs since the last ``forget``."""
    found: dict[int, set[int]] = {}
    for peer, frame in node.sent(Ihave):
        for advert in frame.adverts:
            found.setdefault(peer, set()).update(advert.message_ids)
    return found


def with_mesh_and_others(others: int = 10, **parameters) -> LoneNode:
    """A node with peers 0-4 in its mesh and peers 20, 21, ... outside it."""
    node = LoneNode(**parameters)
    node.link(range(5), graft=True)
    node.link(range(20, 20 + others))
    return node


def test_gossip_goes_to_peers_outside_the_mesh_only():
    """v1.0 Gossip Emission: for each peer not in mesh[topic], emit IHAVE(mids)."""
    node = with_mesh_and_others()
    identifier = node.message(0, 1)
    node.forget()
    node.beat()
    assert len(advertised(node)) == 6
    assert set(advertised(node)) <= set(range(20, 30))
    assert all(ids == {identifier} for ids in advertised(node).values())


def test_gossip_goes_to_peers_of_the_topic_only():
    """v1.0 Gossip Emission: the peers are selected from peers.gossipsub[topic]."""
    node = with_mesh_and_others(others=2)
    node.link(range(40, 50), topics=(7,))
    node.message(0, 1)
    node.forget()
    node.beat()
    assert sorted(advertised(node)) == [20, 21]


def test_nothing_is_gossiped_without_messages():
    """v1.0 Gossip Emission: if mids is not empty."""
    node = with_mesh_and_others()
    node.beat(3)
    assert not node.sent(Ihave)


@pytest.mark.parametrize(("others", "receivers"), [(3, 3), (6, 6), (20, 6), (28, 7), (60, 15)])
def test_gossip_adapts_to_the_number_of_peers(others: int, receivers: int):
    """v1.1 Adaptive Gossip Dissemination: gossip factor (0.25) of the peers, with a minimum of D_lazy (6)."""
    node = with_mesh_and_others(others)
    node.message(0, 1)
    node.forget()
    node.beat()
    assert len(advertised(node)) == receivers


def test_a_message_is_advertised_for_three_heartbeats():
    """v1.0 Message Cache: mcache_gossip = 3 history windows are examined when sending gossip."""
    node = with_mesh_and_others()
    node.message(0, 1)
    rounds = []
    for _ in range(6):
        node.forget()
        node.beat()
        rounds.append(bool(node.sent(Ihave)))
    assert rounds == [True, True, True, False, False, False]


def test_a_message_can_be_asked_for_during_five_heartbeats():
    """v1.0 Message Cache: mcache_len = 5 history windows are kept; shift discards older messages."""
    for beats in range(8):
        node = with_mesh_and_others()
        identifier = node.message(0, 1)
        node.beat(beats)
        node.forget()
        node.request(20, identifier)
        assert bool(node.sent(Data)) == (beats < 5)


@pytest.mark.parametrize(("windows", "gossip"), [(2, 1), (7, 7)])
def test_the_cache_has_as_many_windows_as_it_is_told(windows: int, gossip: int):
    """v1.0 Parameters: mcache_len and mcache_gossip."""
    node = with_mesh_and_others(mcache_len=windows, mcache_gossip=gossip)
    identifier = node.message(0, 1)
    rounds = kept = 0
    for _ in range(10):
        node.forget()
        node.request(20 + kept, identifier)
        kept += bool(node.sent(Data))
        node.forget()
        node.beat()
        rounds += bool(node.sent(Ihave))
    assert (kept, rounds) == (windows, gossip)


# ------------------------------------------------------------------------------------------------ IHAVE and IWANT


def test_unseen_messages_are_asked_for():
    """v1.0 Message Processing: on IHAVE(ids) the router requests those not in its seen cache by IWANT."""
    node = with_mesh_and_others()
    seen = node.message(0, 1)
    node.forget()
    node.advertise(20, seen, 777, 778)
    assert [(peer, sorted(frame.message_ids)) for peer, frame in node.sent(Iwant)] == [(20, [777, 778])]


def test_gossip_about_other_topics_is_ignored():
    """v1.0 Message Processing: gossip is about topics with a mesh here."""
    node = with_mesh_and_others()
    node.advertise(20, 777, topic=5)
    assert not node.sent(Iwant)


def test_gossip_repairs_a_loss_end_to_end():
    """v1.0 Message Processing: IHAVE -> IWANT -> message, which is then delivered and forwarded to the mesh."""
    has, lacks = with_mesh_and_others(), with_mesh_and_others()
    identifier = has.message(0, 1)
    has.forget()
    has.beat()
    receiver, ihave = has.sent(Ihave)[0]
    lacks.receive(receiver, ihave)
    [(_, iwant)] = lacks.sent(Iwant)
    has.forget()
    has.receive(receiver, iwant)
    [(_, copy)] = has.sent(Data)
    lacks.forget()
    lacks.receive(receiver, copy)
    assert [message.message_id for message in lacks.delivered()] == [identifier]
    assert lacks.receivers(Data) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("gossip", [True, False])
def test_a_network_that_loses_frames_is_repaired_by_gossip_alone(gossip: bool):
    """v1.0, gossipsub: the gossiping mesh router: gossip reaches beyond the mesh and rectifies downstream loss."""
    lazy = {} if gossip else {"d_lazy": 0, "gossip_factor": 0.0}
    part = {"name": "gossipsub", "connections": 6, "d": 3, "d_lo": 2, "d_out": 1, "flood_publish": False} | lazy
    nodes = {node: compose(node, 1, (0,), Composition(part, part, interests="announced-only")) for node in range(30)}
    pump = Pump(nodes, lambda a, b: 10**7, seed=4)
    pump.start()
    pump.run(5 * SECOND_NS)
    pump.faults = Faults(drop_ratio=0.3)
    for sequence in range(10):
        pump.give(sequence, Publish((0,), message_id(sequence, 0), b"x"))
        pump.run(10 * SECOND_NS)
    assert (len(pump.delivered) == 300) == gossip
    assert len(pump.delivered) > 150


def test_a_message_gone_from_the_cache_is_not_sent():
    """v1.0 Message Processing: on IWANT(ids) the router forwards those that are present in the mcache."""
    node = with_mesh_and_others()
    node.request(20, 12345)
    assert not node.frames


def test_seen_messages_expire():
    """v1.0 Message Cache: seen_ttl (two minutes) is how long a message id is known."""
    node = with_mesh_and_others()
    identifier = node.message(0, 1)
    node.beat(120)
    node.message(1, 1)
    assert len(node.delivered()) == 1
    node.beat()
    node.forget()
    node.advertise(20, identifier)
    assert node.sent(Iwant)


# -------------------------------------------------------------------------------------- spam protection measures


def test_the_same_message_is_sent_three_times_to_a_peer():
    """v1.1 Spam Protection Measures: IWANT responses are limited in the number of retransmissions to a peer."""
    node = with_mesh_and_others()
    identifier = node.message(0, 1)
    node.forget()
    for _ in range(6):
        node.request(20, identifier)
    node.request(21, identifier)
    assert node.receivers(Data) == [20, 20, 20, 21]


def test_a_message_named_several_times_in_an_iwant_is_sent_once():
    """v1.1 Spam Protection Measures: an IWANT names messages, so naming one again asks for nothing more."""
    node = with_mesh_and_others()
    first, second = node.message(0, 1), node.message(0, 2)
    node.forget()
    node.request(20, first, second, *[first] * 100)
    assert [frame.message_id for _, frame in node.sent(Data)] == [first, second]
    node.request(20, first)
    node.request(20, first)
    assert len(node.sent(Data)) == 4, "and counts as one retransmission of three"


def test_ihaves_are_capped_by_heartbeat():
    """v1.1 Spam Protection Measures: IHAVE messages are capped to a certain number per heartbeat (10)."""
    node = with_mesh_and_others()
    for number in range(15):
        node.advertise(20, 9000 + number)
    assert len(node.sent(Iwant)) == 10
    assert node.rejects() == ["too_many_ihaves"] * 5
    node.beat()
    node.forget()
    node.advertise(20, 9999)
    assert len(node.sent(Iwant)) == 1


def test_asked_message_ids_are_capped_by_heartbeat_and_peer():
    """v1.1 Spam Protection Measures: ... and aggregate number of message IDs advertised per heartbeat."""
    node = with_mesh_and_others(max_ihave_length=10)
    node.advertise(20, *range(1000, 1007))
    node.advertise(20, *range(2000, 2007))
    node.advertise(20, *range(3000, 3007))
    assert [len(frame.message_ids) for _, frame in node.sent(Iwant)] == [7, 3]
    node.forget()
    node.advertise(21, *range(4000, 4030))
    assert [len(frame.message_ids) for _, frame in node.sent(Iwant)] == [10]
    node.beat()
    node.forget()
    node.advertise(20, *range(5000, 5030))
    assert [len(frame.message_ids) for _, frame in node.sent(Iwant)] == [10]


def test_an_ihave_is_no_longer_than_its_limit():
    """v1.1 Spam Protection Measures, the sender's side: longer advertisements would be ignored."""
    node = with_mesh_and_others(max_ihave_length=5)
    for sequence in range(9):
        node.message(0, sequence)
    node.forget()
    node.beat()
    assert {len(ids) for ids in advertised(node).values()} == {5}


def test_a_broken_promise_is_penalised():
    """v1.1 Spam Protection Measures: if the message is not received within a period of time, P7 applies."""
    node = with_mesh_and_others(**SCORED)
    node.advertise(20, 777, 778, 779)
    node.beat(3)
    assert node.score(20) == 0
    node.beat()
    assert node.score(20) == -10
    assert "broken_promise" in node.rejects()


def test_a_message_from_any_peer_keeps_the_promise():
    """v1.1 Spam Protection Measures: ... if the message is not received (from any peer)."""
    node = with_mesh_and_others(**SCORED)
    identifier = 500 << 32 | 9
    node.advertise(20, identifier)
    node.message(1, 9)
    node.beat(5)
    assert node.score(20) == 0


def test_every_request_is_followed_up_by_one_message():
    """v1.1 Spam Protection Measures: the router tracks a random message ID within the advertised set."""
    node = with_mesh_and_others(**SCORED)
    for start in (1000, 2000, 3000):
        node.advertise(20, *range(start, start + 50))
    node.beat(4)
    assert node.score(20) == -10 * 3**2


def test_gossip_from_below_the_threshold_is_ignored_and_none_is_sent_there():
    """v1.1 Score Thresholds, gossipThreshold: no gossip is emitted towards that peer and its gossip is ignored."""
    node = with_mesh_and_others(others=4, **SCORED)
    identifier = node.message(0, 1)
    node.overlay.scores.penalise(20, 2)
    node.overlay.scores.penalise(21, 1)
    assert (node.score(20), node.score(21)) == (-40, -10)
    node.forget()
    node.advertise(20, 777)
    node.request(20, identifier)
    assert not node.frames
    node.advertise(21, 777)
    node.request(21, identifier)
    assert [type(frame) for _, frame in node.frames] == [Iwant, Data]
    node.forget()
    node.beat()
    assert sorted(advertised(node)) == [21, 22, 23]
