"""IDONTWANT, by the text of the libp2p specification (gossipsub-v1.2.md). Each test names its section."""

import pytest

from peer.core.contract import message_id
from peer.core.frames import Data
from peer.protocols.gossipsub.frames import Idontwant
from tests.lone_gossipsub import LoneNode

ON = {"idontwant": True}
LARGE = 1024


def with_mesh(**parameters) -> LoneNode:
    """A node with peers 0-4 in its mesh and peers 20-23 outside it."""
    node = LoneNode(**parameters)
    node.link(range(5), graft=True)
    node.link(range(20, 24))
    return node


def ids(sequences: range) -> list[int]:
    """The ids of the messages that ``withheld`` sends."""
    return [message_id(500, sequence) for sequence in sequences]


def withheld(node: LoneNode, sequences: range) -> int:
    """Let peer 0 send these messages, and return how many of them peer 2, in the mesh, is not sent."""
    node.forget()
    for sequence in sequences:
        node.message(0, sequence)
    return len(sequences) - node.receivers(Data).count(2)


# ------------------------------------------------------------------------------------------------------- sending


def test_a_large_message_is_announced_to_the_mesh_at_once():
    """v1.2 Basic scenario: on the first instance IDONTWANT goes to all mesh peers, not queued for piggybacking."""
    node = with_mesh(**ON)
    node.forget()
    identifier = node.message(0, 1, size=LARGE)
    assert node.receivers(Idontwant) == [1, 2, 3, 4], "all of the mesh but the sender"
    assert {frame.message_ids for _, frame in node.sent(Idontwant)} == {(identifier,)}


def test_it_is_sent_before_the_message_is_passed_on():
    """v1.2 Basic scenario: this could be performed prior to the message validation."""
    node = with_mesh(**ON)
    node.forget()
    node.message(0, 1, size=LARGE)
    kinds = [type(frame) for _, frame in node.frames]
    assert kinds == [Idontwant] * 4 + [Data] * 4


def test_only_the_first_instance_is_announced():
    """v1.2 Basic scenario: when the peer receives the first message instance."""
    node = with_mesh(**ON)
    node.message(0, 1, size=LARGE)
    node.forget()
    node.message(1, 1, size=LARGE)
    assert not node.frames


@pytest.mark.parametrize(
    ("parameters", "least"),
    [
        ({"profile": "spec"}, None),
        ({"profile": "spec", "idontwant": True}, 1024),
        ({"profile": "go"}, 1024),
        ({"profile": "js"}, 512),
        ({"profile": "go", "idontwant_min_bytes": 10}, 10),
        ({"profile": "js", "idontwant": False}, None),
    ],
)
def test_small_messages_are_not_announced(parameters: dict, least: int | None):
    """v1.2 Basic scenario: a policy by size; the profiles have those of go-libp2p-pubsub and js-libp2p-gossipsub."""
    found = []
    for size in (1, 9, 10, 511, 512, 1023, 1024, 2000):
        node = with_mesh(**parameters)
        node.message(0, 1, size=size)
        if node.sent(Idontwant):
            found.append(size)
    assert found == ([size for size in (1, 9, 10, 511, 512, 1023, 1024, 2000) if size >= least] if least else [])


def test_a_message_on_several_topics_is_announced_once_to_each_mesh_peer():
    """v1.2 Basic scenario, with the several topics that v1.0 allowed a message to have."""
    node = LoneNode(topics=(0, 1, 2), **ON)
    node.link((0, 1, 2), topics=(0, 1), graft=True)
    node.link((3,), topics=(1,), graft=True)
    node.link((4,), topics=(2,), graft=True)
    node.message(0, 1, topics=(0, 1), size=LARGE)
    assert node.receivers(Idontwant) == [1, 2, 3]


def test_a_message_that_is_not_taken_is_not_announced():
    """v1.2 Basic scenario: it says that the node already received a message; this one it neither has nor wants."""
    node = with_mesh(**ON)
    node.message(0, 1, topics=(7,), size=LARGE)
    assert not node.sent(Idontwant)


# ------------------------------------------------------------------------------------------------------- heeding


def test_mesh_peers_that_do_not_want_a_message_are_skipped():
    """v1.2 Basic scenario: when relaying to the mesh, the peers in dont_send_message_ids MUST be skipped."""
    node = with_mesh()
    node.refuse(2, message_id(500, 1))
    node.refuse(3, message_id(500, 2))
    node.forget()
    node.message(0, 1)
    assert node.receivers(Data) == [1, 3, 4]


@pytest.mark.parametrize("profile", ["spec", "go", "js"])
def test_heeding_it_is_optional(profile: str):
    """v1.2 Basic scenario: the receiver MAY ignore IDONTWANT. js-libp2p-gossipsub 14.1.2 does."""
    node = with_mesh(profile=profile)
    node.refuse(2, message_id(500, 1))
    assert is_skipped(node, 2) == (profile != "js")


def test_a_message_after_an_idontwant_is_no_offence():
    """v1.2 Basic scenario: sending a message after the corresponding IDONTWANT should not be penalized."""
    node = with_mesh(scoring=True, **ON)
    node.message(0, 1, size=LARGE)
    node.message(1, 1, size=LARGE)
    node.beat(5)
    assert node.score(1) == 0
    assert 1 in node.mesh()
    assert not node.rejects()


def is_skipped(node: LoneNode, peer: int) -> bool:
    """Whether the first message of node 500 is not passed on to a mesh peer."""
    node.forget()
    node.message(0, 1)
    return peer not in node.receivers(Data)


@pytest.mark.parametrize(("parameters", "beats"), [({}, 3), ({"profile": "go"}, 3), ({"idontwant_heartbeats": 1}, 1)])
def test_entries_are_pruned_after_some_heartbeats(parameters: dict, beats: int):
    """v1.2 Basic scenario: old entries SHOULD be pruned during heartbeat processing. Go: after 3 heartbeats."""
    for waited in range(5):
        node = with_mesh(**parameters)
        node.refuse(2, message_id(500, 1))
        node.beat(waited)
        assert is_skipped(node, 2) == (waited < beats)


def test_saying_it_again_counts_from_then():
    """v1.2 Basic scenario: the prune strategy is the implementation's; as in go, the latest IDONTWANT counts."""
    node = with_mesh()
    for _ in range(2):
        node.refuse(2, message_id(500, 1))
        node.beat(2)
    assert is_skipped(node, 2)


def test_the_number_of_idontwants_is_limited_per_heartbeat_and_peer():
    """v1.2 Parameters: max_idontwant_messages, the maximum number of IDONTWANT messages per heartbeat per peer."""
    node = with_mesh(max_idontwant_messages=4)
    for sequence in range(6):
        node.refuse(2, message_id(500, sequence))
    node.refuse(3, message_id(500, 5))
    assert node.rejects() == ["too_many_idontwants"] * 2
    node.forget()
    for sequence in range(6):
        node.message(0, sequence)
    assert node.receivers(Data).count(2) == 2, "the last two were not taken"
    assert node.receivers(Data).count(3) == 5
    node.beat()
    node.refuse(2, message_id(500, 9))
    node.forget()
    node.message(0, 9)
    assert 2 not in node.receivers(Data)


def test_what_is_remembered_of_a_peer_is_bounded():
    """v1.2 Basic scenario: to prevent DoS the number is limited; go also limits the ids of each to 10."""
    node = with_mesh(max_idontwant_messages=5)
    refused = range(10 * 8 * 50)
    for first in range(0, len(refused), 50):
        node.refuse(2, *ids(refused[first : first + 50]))
        if first % 400 == 350:
            node.beat()
    assert 0 < withheld(node, refused) <= 5 * 10 * 3


def test_what_a_peer_did_not_want_is_forgotten_with_its_link():
    """v1.2 Basic scenario: what is remembered is of the peer, and ends with its connection."""
    node = with_mesh()
    node.refuse(2, *ids(range(5)))
    assert withheld(node, range(5)) == 5
    node.refuse(2, *ids(range(5, 10)))
    node.unlink(2)
    node.link(2, graft=True)
    assert withheld(node, range(5, 10)) == 0


def test_a_graylisted_peer_is_not_heeded():
    """v1.1 Score Thresholds, graylistThreshold: all frames of the peer are ignored, also those of v1.2."""
    node = with_mesh(scoring=True)
    node.overlay.scores.penalise(2, 3)
    node.refuse(2, message_id(500, 1))
    assert node.rejects() == ["graylisted"]


def test_an_iwant_is_cancelled():
    """v1.2 Cancelling IWANT: the request SHOULD be removed where it is not processed yet."""
    node = with_mesh()
    identifier = node.message(0, 1)
    node.refuse(20, identifier)
    node.forget()
    node.request(20, identifier)
    node.request(21, identifier)
    assert node.receivers(Data) == [21]
