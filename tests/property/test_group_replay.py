"""Replay in implicit groups: what newcomers get of what was published before, and what requests can do."""

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from peer.core import copies
from peer.core.addressing.keywords import keyword
from peer.core.contract import NodeId, Send, message_id
from peer.core.frames import UNLIMITED_TTL, Data
from peer.protocols.implicit_groups.addressing.bloom import BloomScheme
from peer.protocols.implicit_groups.addressing.extent import AddressSpace
from peer.protocols.implicit_groups.encoding import Way, decode_way, encode_way, target_of, unpack_all
from peer.protocols.implicit_groups.frames import GroupAsk
from peer.protocols.implicit_groups.replay import ANSWER_INTERVAL_NS, MOST_ANSWERED, MOST_KEPT, MOST_SERVED
from peer.trace import TraceEvent
from tests.examples import examples
from tests.group_network import SECOND_NS, TOPICS, Network

REPLAY = {"replay_s": 60.0}


@settings(deadline=None, max_examples=examples(8))
@given(st.integers(0, 2**32), st.integers(4, 24), st.integers(1, 3))
@example(7798699, 14, 1)  # the newcomer is a cohabitant
def test_a_newcomer_gets_each_kept_message_for_it_once_and_no_other(seed: int, size: int, messages: int):
    network = Network(size, seed, late=1, **REPLAY)
    newcomer = size - 1
    texts = {}
    for number in range(messages):
        text = network.draw_expression()
        texts[network.publish(network.draws.choice(network.up), number, text)] = text
        network.run(1)
    alike = [node for node in network.up if not set(network.interests[node]).isdisjoint(network.interests[newcomer])]
    kept = {
        identifier
        for identifier, text in texts.items()
        if network.members(text, [node for node in alike if node != identifier >> 32])
    }
    network.join(newcomer)
    for identifier, text in texts.items():
        got = network.receivers(identifier)[newcomer]
        assert got <= 1
        assert got == 1 or not network.members(text, [newcomer]) or identifier not in kept
    near = network.overlay(newcomer)
    needed = {near.host, *near.surface.neighbours, *near.cohabitants}
    assert network.pump.linked(newcomer) <= needed, "a link that was opened for copies is still up"


def replayed(**parameters: object) -> int:
    """How many messages a newcomer gets that were published before it joined."""
    network = Network(12, 5, late=1, **parameters)
    text = "|".join(map(keyword, network.interests[11]))
    for number in range(3):
        network.publish(0, number, text)
        network.run(1)
    network.run(5)
    network.join(11)
    return sum(node == 11 for _, node, _ in network.pump.delivered)


def test_messages_are_kept_for_the_time_that_is_set():
    assert replayed() == 0
    assert replayed(replay_s=6.5) == 1, "the first two are older"
    assert replayed(replay_s=60.0) == 3


def test_a_newcomer_that_asks_is_no_repeater():
    """Copies of what was kept do not spread: all that was published before reaches nobody a second time."""
    network = Network(12, 5, late=1, **REPLAY)
    text = "|".join(map(keyword, range(TOPICS)))
    identifier = network.publish(0, 0, text)
    network.run(2)
    seen = sum(it.event == "duplicate" for it in network.pump.traced)
    network.join(11)
    assert network.receivers(identifier) == Counter(range(12))
    late = [it for it in network.pump.traced if it.event in ("duplicate", "deliver") and it.ts_ns > 5 * SECOND_NS]
    assert {it.node for it in late} == {11}
    assert sum(it.event == "duplicate" for it in network.pump.traced) - seen <= 4


def test_the_latest_messages_are_kept_up_to_a_bound():
    network = Network(2, 1, **REPLAY)
    overlay = network.overlay(1)
    way = encode_way(Way((b"\xff" * 8,), (), 1.0, 1))
    for number in range(MOST_KEPT + 10):
        network.pump.perform(0, Send(1, Data(message_id(0, number), (0,), 1, UNLIMITED_TTL, b"", way)))
    network.run(1)
    assert list(overlay.kept) == [message_id(0, number) for number in range(10, MOST_KEPT + 10)]


def test_the_latest_messages_are_kept_up_to_a_bound_in_bytes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(copies, "MOST_KEPT_BYTES", 950)
    network = Network(2, 1, **REPLAY)
    way = encode_way(Way((b"\xff" * 8,), (), 1.0, 1))
    for number in range(20):
        network.pump.perform(0, Send(1, Data(message_id(0, number), (0,), 1, UNLIMITED_TTL, b"x" * 100, way)))
    network.run(1)
    assert list(network.overlay(1).kept) == [message_id(0, number) for number in range(11, 20)]


ways = st.one_of(
    st.binary(max_size=20),
    st.builds(
        lambda elements, unexplored, hops: encode_way(Way(tuple(elements), tuple(unexplored), 1.0, hops)),
        st.lists(st.one_of(st.just(bytes(8)), st.binary(max_size=10)), min_size=1, max_size=3),
        st.lists(st.one_of(st.just(b"\x01"), st.binary(max_size=10)), max_size=3),
        st.sampled_from([0, 1, 1023, 1024, 2**40]),
    ),
)
requests = st.builds(
    GroupAsk,
    node=st.integers(0, 12),
    number=st.integers(0, 3),
    address=st.one_of(st.just(b"\xff" * 8), st.binary(max_size=10)),
    answered=st.lists(st.integers(0, 2**63 - 1), max_size=MOST_ANSWERED + 1).map(tuple),
    routing=ways,
)


def is_way(routing: bytes) -> bool:
    try:
        way, space = decode_way(routing), AddressSpace(64, 2)
        target_of(way.elements, space)
        unpack_all(way.unexplored, space)
    except ValueError:
        return False
    return True


@settings(deadline=None, max_examples=examples(8))
@given(st.lists(requests, max_size=12), st.integers(0, 2**32))
def test_hostile_requests_raise_nothing_and_bring_bounded_copies(forged: list[GroupAsk], seed: int):
    network = Network(10, seed, **REPLAY)
    for number in range(3):
        network.publish(1, number, "|".join(map(keyword, range(TOPICS))))
    network.run(1)
    before = len(network.pump.delivered)
    for request in forged:
        network.say(0, 1 + request.number, request)
    network.run(5)
    assert len(network.pump.delivered) == before
    rejects = [event.reason for event in network.traced("reject")]
    assert rejects.count("bad_extents") >= sum(not is_way(request.routing) for request in forged)
    numbers = {(request.node, request.number) for request in forged}
    copies = [it for it in network.pump.traced if it.event == "duplicate" and it.ts_ns > 4 * SECOND_NS]
    assert len(copies) <= 3 * 10 * len(numbers)
    assert all(not network.overlay(node).lent for node in network.up)


def address_of(network: Network, node: NodeId) -> bytes:
    """The address of a node, as an element that only nodes with all its bits match."""
    overlay = network.overlay(node)
    return overlay.address.to_bytes(8, "big")


def late_copies(network: Network, node: NodeId) -> list[TraceEvent]:
    """Copies of messages that a node has delivered before."""
    return [it for it in network.traced("duplicate") if it.node == node and it.ts_ns > 4 * SECOND_NS]


def test_a_node_answers_one_request_per_node_and_interval():
    network = Network(8, 3, **REPLAY)
    network.publish(1, 0, "|".join(map(keyword, range(TOPICS))))
    network.run(1)
    way = encode_way(Way((address_of(network, 2),), (), 1.0, 1))
    for number in (7, 7, 8, 9):
        network.say(0, 2, GroupAsk(3, number, b"\xff" * 8, (), way))
    network.run(1)
    assert len(late_copies(network, 3)) == 1
    assert [it.reason for it in network.traced("reject")] == ["too_many_requests"] * 2
    network.run(ANSWER_INTERVAL_NS / SECOND_NS)
    network.say(0, 2, GroupAsk(3, 10, b"\xff" * 8, (), way))
    network.run(1)
    assert len(late_copies(network, 3)) == 2


def test_forged_requests_bring_a_node_a_bounded_number_of_copies():
    """Each of the others answers once, however many requests name the node and on however many ways they come."""
    network = Network(12, 3, **REPLAY)
    for _ in range(4):
        network.cast(1, "|".join(map(keyword, range(TOPICS))), 0.5)
    elements = tuple(BloomScheme(64, 2).address((keyword(topic),)).to_bytes(8, "big") for topic in range(TOPICS))
    way = encode_way(Way(elements, (b"\x01",), 0.0, 0))
    before, all_before = len(late_copies(network, 3)), len(network.traced("duplicate"))
    for node in range(1, 12):
        network.say(0, node, *(GroupAsk(3, 3 * node + number, b"\xff" * 8, (), way) for number in range(3)))
    network.run(3)
    assert 1 <= len(late_copies(network, 3)) - before <= 4 * 11
    assert len(network.traced("duplicate")) - all_before == len(late_copies(network, 3)) - before, (
        "nobody else gets any"
    )


def test_a_node_serves_a_bounded_number_of_others_per_interval():
    others = MOST_SERVED + 10
    network = Network([(0,), (0, 1), *[(2,)] * others], 3, start="placed", **REPLAY)
    network.cast(0, "b")
    for node in range(2, 2 + others):
        way = encode_way(Way((address_of(network, 1),), (), 1.0, 1))
        network.pump.perform(0, Send(1, GroupAsk(node, 1, b"\xff" * 8, (), way)))
        network.run(0.1)
    network.run(2)
    assert len({it.node for it in network.traced("relay", "deliver", "duplicate")} - {0, 1}) == MOST_SERVED


@pytest.mark.parametrize("answered", [(), (message_id(1, 0),)])
def test_a_node_sends_no_copy_that_another_one_has_sent(answered: tuple[int, ...]):
    network = Network(8, 3, **REPLAY)
    network.publish(1, 0, "|".join(map(keyword, range(TOPICS))))
    network.run(1)
    network.say(0, 2, GroupAsk(3, 7, b"\xff" * 8, answered, encode_way(Way((address_of(network, 2),), (), 1.0, 1))))
    network.run(1)
    assert len(late_copies(network, 3)) == (0 if answered else 1)
