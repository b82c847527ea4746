"""A node alone: what a driver may not do, and what a remote node cannot cause."""

import pytest

from peer.core import contract
from peer.core.contract import (
    ContractError,
    Directory,
    FrameReceived,
    LinkUp,
    Message,
    PeerList,
    Publish,
    Send,
    SetTimer,
    Started,
    TimerFired,
    message_id,
    publisher_of,
)
from peer.core.frames import UNLIMITED_TTL, Data, Frame, Hello, Subscriptions, frame_type, kind_names, register
from peer.core.randomness import substream
from peer.protocols.registry import PROTOCOLS, Composition, compose
from peer.testing import Solo, connects, deliveries, sends, traces

RANDOM = {"name": "random", "degree": 2}


def node(topics: tuple[int, ...] = (1,), overlay: dict = RANDOM, **flood: int) -> Solo:
    solo = Solo(compose(0, 1, topics, Composition(overlay, {"name": "flood", **flood})))
    assert solo.give(Started()) == []
    return solo


HEARD = message_id(1, 9)


def linked(*peers: int, **options) -> Solo:
    made = node(**options)
    for peer in peers:
        [hello] = made.at(1).link_up(peer)
        assert hello == Send(peer, Subscriptions((1,)))
    return made


def traced(effects: list) -> list[str]:
    return [event.event for event in traces(effects)]


def test_a_driver_that_breaks_the_contract_is_told():
    fresh = Solo(compose(0, 1, (), PROTOCOLS["random"].composition))
    with pytest.raises(ContractError, match="before Started"):
        fresh.link_up(1)
    made = linked(1)
    for event, words in (
        (Started(), "Started after"),
        (LinkUp(1, True), "second link"),
        (FrameReceived(7, Subscriptions(())), "without a link"),
        (TimerFired("nobody/x"), "nobody/x"),
        (contract.Event(), "not an event"),
    ):
        with pytest.raises(ContractError, match=words):
            made.at(5).give(event)
    made.at(9).give(PeerList(Directory()))
    with pytest.raises(ContractError, match="ran back"):
        made.at(8).give(PeerList(Directory()))


def test_a_frame_that_no_part_takes_is_rejected_and_the_link_stays():
    made = linked(1)
    effects = made.at(2).receive(1, Hello(1, 1))
    assert traced(effects) == ["reject"]
    assert sends(made.at(3).give(Publish((1,), 5, b""))) == [(1, Data(5, (1,), 1, 1, b""))]


def test_the_first_copy_is_delivered_and_sent_on_and_the_second_is_noted():
    made = linked(1, 2, 3)
    copy = Data(HEARD, (1, 8), 2, 1, b"x")
    effects = made.at(2).receive(1, copy)
    assert deliveries(effects) == [Message(HEARD, (1, 8), b"x", 2)]
    assert sends(effects) == [(2, Data(HEARD, (1, 8), 3, 1, b"x")), (3, Data(HEARD, (1, 8), 3, 1, b"x"))]
    [first] = traces(effects)
    assert (first.event, first.ts_ns, first.node, first.peer, first.hops) == ("deliver", 2, 0, 1, 2)
    assert traced(made.at(3).receive(2, copy)) == ["duplicate"]
    assert sends(made.at(3).receive(2, copy)) == []


@pytest.mark.parametrize(
    ("ttl", "topic", "receivers", "onward"),
    [
        (2, 1, [2, 3], 2),  # interested: the TTL stays
        (2, 8, [2, 3], 1),  # not interested: one less
        (1, 8, [3], 0),  # none left: only to the neighbour with an interest
        (0, 8, [3], 0),
        (0, 1, [2], 0),
        (UNLIMITED_TTL, 8, [2, 3], UNLIMITED_TTL),
    ],
)
def test_the_ttl_counts_uninterested_nodes_only(ttl: int, topic: int, receivers: list[int], onward: int):
    made = linked(1, 2, 3)
    made.at(2).receive(2, Subscriptions((1,)))
    made.at(2).receive(3, Subscriptions((8,)))
    out = sends(made.at(3).receive(1, Data(HEARD, (topic,), 1, ttl, b"")))
    assert out == [(peer, Data(HEARD, (topic,), 2, onward, b"")) for peer in receivers]


def test_a_publisher_sends_by_the_same_rule():
    made = linked(1, 2, ttl=0)
    made.at(2).receive(2, Subscriptions((8,)))
    effects = made.at(3).give(Publish((8, 9), 5, b"abc"))
    assert sends(effects) == [(2, Data(5, (8, 9), 1, 0, b"abc"))]
    assert traced(effects) == ["publish"]
    assert traced(made.at(4).give(Publish((1,), 6, b""))) == ["publish", "deliver"]


def test_hops_stay_at_what_the_header_can_hold():
    made = linked(1, 2)
    [(_, onward)] = sends(made.at(2).receive(1, Data(HEARD, (1,), 255, 255, b"")))
    assert onward.hops == 255


def test_only_the_latest_messages_are_remembered():
    made = linked(1, seen_messages=3)
    for number in range(4):
        made.at(2).receive(1, Data(message_id(1, number), (1,), 1, 1, b""))
    assert traced(made.at(3).receive(1, Data(message_id(1, 3), (1,), 1, 1, b""))) == ["duplicate"]
    assert traced(made.at(3).receive(1, Data(message_id(1, 0), (1,), 1, 1, b""))) == ["deliver"]


def everybody(nodes: int) -> dict[int, None]:
    return dict.fromkeys(range(nodes))


def test_the_random_overlay_replaces_whom_the_driver_gave_up_and_then_waits():
    made = node()
    chosen = connects(made.at(1).meet(everybody(4)))
    assert len(set(chosen)) == 2
    assert 0 not in chosen
    assert made.at(2).link_down(chosen[0], "reset", retrying=True) == []
    [third] = connects(made.at(3).link_down(chosen[0], "unreachable"))
    assert {third, *chosen} == {1, 2, 3}
    [timer] = made.at(4).link_down(third, "unreachable")
    assert isinstance(timer, SetTimer)
    [again] = connects(made.advance(timer.at_ns - 4))
    assert again in (chosen[0], third)


def test_the_random_overlay_draws_uniformly():
    counts = dict.fromkeys(range(1, 10), 0)
    for seed in range(3000):
        solo = Solo(compose(0, seed, (), Composition({"name": "random", "degree": 3})))
        for peer in connects(solo.start(everybody(10))):
            counts[peer] += 1
    assert sum(counts.values()) == 9000
    # Chi-squared with 8 degrees of freedom; sampling without replacement only narrows it.
    assert sum((count - 1000) ** 2 / 1000 for count in counts.values()) < 26.1


def test_in_the_complete_overlay_the_lower_node_opens_and_tries_again():
    solo = Solo(compose(2, 1, (), PROTOCOLS["complete"].composition))
    assert connects(solo.start(everybody(5))) == [3, 4]
    assert solo.at(2).link_down(1, "stop") == []
    [timer] = solo.at(3).link_down(4, "unreachable")
    assert connects(solo.advance(timer.at_ns - 3)) == [4]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (Composition({"name": "ring"}), "no overlay is called 'ring'; there are: complete, .*random"),
        (Composition({}), "no overlay is called None"),
        (Composition(RANDOM, {"name": "flood", "speed": 3}), "dissemination 'flood'.*speed"),
        (Composition(RANDOM, {"name": "gossipsub"}), "'gossipsub' needs the overlay 'gossipsub'"),
        (Composition(RANDOM, membership={"name": "none"}), "no membership is called 'none'"),
    ],
)
def test_a_composition_that_cannot_be_made_says_why(parts: Composition, words: str):
    with pytest.raises(ValueError, match=words):
        compose(0, 1, (), parts)


def test_streams_of_other_nodes_seeds_and_purposes_differ_and_never_change():
    draws = {substream(*key).random() for key in ((1, 1, "a"), (1, 1, "b"), (1, 11, "a"), (11, 1, "a"), (2, 1, "a"))}
    assert len(draws) == 5
    assert substream(1, 2, "overlay").getrandbits(64) == substream(1, 2, "overlay").getrandbits(64)


def test_identifiers_name_their_publisher():
    assert publisher_of(message_id(7, 2**32 - 1)) == 7
    assert message_id(2**31 - 1, 2**32 - 1) < 2**63


def test_a_kind_is_registered_once_and_in_range():
    class Late(Frame, frozen=True):
        kind = 1

    with pytest.raises(ValueError, match="kind 1 belongs to Hello"):
        register(Late)
    Late.kind = 256
    with pytest.raises(ValueError, match="not in 1-255"):
        register(Late)
    assert frame_type(255) is None
    assert kind_names()[16] == "data"
