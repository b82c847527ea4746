"""What the observer of a study's run keeps of messages, and for how long."""

from harness.studies.observer import LATEST_NS, Watch, sum_up
from metrics.measures.deliveries import DELIVERIES
from peer.core.contract import Message
from peer.core.schedule import Population
from peer.trace import TraceEvent

NODES = 64
SECOND = 1_000_000_000


def everybody() -> Population:
    return Population(dict.fromkeys(range(NODES), (1,)))


def publish(watch: Watch, number: int, at_ns: int) -> None:
    watch.trace(TraceEvent("publish", at_ns, 0, message_id=number, topics=(1,)))


def deliver(watch: Watch, number: int, at_ns: int, *nodes: int) -> None:
    for node in nodes:
        watch.deliver(at_ns, node, Message(number, (1,), b"", 1))


def test_a_delivery_counts_once_and_the_set_of_those_due_shrinks_to_nothing():
    watch = Watch(everybody(), 0, None)
    publish(watch, 7, 0)
    [batch] = watch.batches
    assert batch.due == NODES - 1
    deliver(watch, 7, 5, *range(1, NODES))
    deliver(watch, 7, 9, 3)
    assert list(batch.delays_ns) == [5] * (NODES - 1)
    assert [flight.due for flight in watch.flights.values()] == [0]


def test_messages_are_forgotten_after_a_while_and_their_batches_kept():
    watch = Watch(everybody(), 0, 1)
    for number in range(50):
        publish(watch, number, number * LATEST_NS // 5)
        assert len(watch.flights) <= 6
    deliver(watch, 44, 49 * LATEST_NS // 5, 1)
    deliver(watch, 43, 49 * LATEST_NS // 5, 1)
    assert [len(batch.delays_ns) for batch in watch.batches] == [0] * 44 + [1] + [0] * 5


def due(watch: Watch, number: int, at_ns: int) -> set[int]:
    """The nodes whose delivery counts of a message on topic 1 that node 0 publishes now."""
    publish(watch, number, at_ns)
    counted = watch.batches[-1].delays_ns
    found = set()
    for node in range(NODES):
        before = len(counted)
        deliver(watch, number, at_ns, node)
        if len(counted) > before:
            found.add(node)
    return found


def test_the_subscribers_are_those_that_the_traced_changes_leave():
    watch = Watch(Population({0: (1,), 1: (1, 2), 2: (), 3: (1,), 4: (1,)}), 1 << 4, None)
    assert due(watch, 0, 0) == {1, 3}, "neither the publisher nor the adversary"
    watch.trace(TraceEvent("leave", SECOND, 1, topics=(1,)))
    watch.trace(TraceEvent("join", SECOND, 2, topics=(1,)))
    assert due(watch, 1, SECOND) == {2, 3}
    assert (watch.changes, watch.population.joined_ns) == (0, {})
    watch.trace(TraceEvent("leave", 2 * SECOND, 3, topics=(1,), reason="crashed"))
    watch.trace(TraceEvent("leave", 2 * SECOND, 2, topics=(1,), reason="left"))
    watch.trace(TraceEvent("leave", 2 * SECOND, 4, topics=(1,), reason="left"))
    assert due(watch, 2, 2 * SECOND) == set()
    watch.trace(TraceEvent("join", 3 * SECOND, 2, topics=(), reason="joined"))
    watch.trace(TraceEvent("join", 3 * SECOND, 3, topics=(1, 2), reason="joined"))
    assert due(watch, 3, 3 * SECOND) == {3}
    assert watch.population.joined_ns == {2: 3 * SECOND, 3: 3 * SECOND}
    assert watch.changes == 4, "the adversary's leave does not count"
    assert watch.population.ever == {1: 0b11111, 2: 0b1010}


def test_batches_are_summed_up_with_their_topics_in_order():
    watch = Watch(Population(dict.fromkeys(range(NODES), (1, 2))), 0, 1)
    for number, topic in ((0, 2), (1, 1), (2, 2)):
        watch.trace(TraceEvent("publish", 0, 0, message_id=number, topics=(topic,)))
    deliver(watch, 0, 3_000_000, 5, 6)
    deliver(watch, 2, 5_000_000, 6)
    for event in ("duplicate", "duplicate", "relay"):
        watch.trace(TraceEvent(event, 6_000_000, 7, message_id=1, topics=(1,)))
    found = sum_up(watch.batches)
    assert (found.messages, found.expected, found.delivered) == (3, 3 * (NODES - 1), 3)
    assert (found.duplicates, found.relays, found.received, found.hops.tolist()) == (2, 1, 6, [1, 1, 1])
    assert found.delays_ms.tolist() == [3.0, 3.0, 5.0]
    assert list(found.topics) == [1, 2]
    two = found.topics[2]
    assert (two.expected, two.delivered, two.delay_ns) == (2 * (NODES - 1), 3, 11_000_000)
    assert watch.batches[0].topics[2].delivered == 2, "the batches are as they were"


def copy(watch: Watch, event: str, node: int, number: int = 0) -> None:
    watch.trace(TraceEvent(event, SECOND, node, message_id=number, topics=(1,)))


def test_every_copy_counts_at_the_node_that_received_it_and_as_overhead_if_the_node_only_relays():
    watch = Watch(Population({0: (), 1: (1,), 2: (), 3: (1,), 4: ()}), 1 << 4, None)
    publish(watch, 0, 0)
    deliver(watch, 0, SECOND, 1)
    for event, node in (("duplicate", 1), ("relay", 2), ("duplicate", 2), ("duplicate", 0), ("relay", 4)):
        copy(watch, event, node)
    watch.trace(TraceEvent("join", SECOND, 2, topics=(1,)))
    copy(watch, "duplicate", 2)
    watch.deliver(SECOND, 4, Message(0, (1,), b"", 1))
    found = sum_up(watch.batches)
    assert found.copies.tolist() == [1, 2, 3], "of node 0, the publisher, and nodes 1 and 2; node 4 is an adversary"
    assert found.at_relay.tolist() == [1, 0, 3], "what counts is what node 2 subscribed to at its first copy"
    assert (found.relays, found.duplicates, found.delivered) == (1, 4, 1)


def test_the_own_message_of_a_publisher_is_no_copy_and_a_delivery_that_is_not_due_is_one():
    watch = Watch(Population({0: (1,), 1: (), 2: (1,)}), 0, None)
    publish(watch, 0, 0)
    watch.deliver(0, 0, Message(0, (1,), b"", 0))
    watch.trace(TraceEvent("join", 1, 1, topics=(1,)))
    deliver(watch, 0, SECOND, 1, 2)
    copy(watch, "duplicate", 0)
    found = sum_up(watch.batches)
    assert (found.copies.tolist(), found.at_relay.tolist()) == ([1, 1, 1], [0, 0, 0])
    assert (found.expected, found.delivered, found.hops.tolist()) == (1, 1, [1])


def test_messages_may_be_grouped_by_the_window_of_their_publication():
    watch = Watch(everybody(), 0, None, window_ns=10 * SECOND, zero_ns=SECOND)
    for number, at_s in enumerate((1, 10, 11, 31, 40)):
        publish(watch, number, at_s * SECOND)
        deliver(watch, number, 50 * SECOND, 3)
    assert [(batch.number, batch.messages, len(batch.delays_ns)) for batch in watch.batches] == [
        (0, 2, 2),
        (1, 1, 1),
        (3, 2, 2),
    ]
    assert sum_up(watch.batches).copies.tolist() == [5]


def test_an_event_that_the_schedule_could_not_have_made_does_not_end_the_run():
    watch = Watch(Population({0: (1,), 1: (1,)}), 0, None)
    watch.trace(TraceEvent("leave", 0, 7, topics=(3,)))
    watch.trace(TraceEvent("join", 0, 1, topics=(1,)))
    assert due(watch, 0, SECOND) == {1}


def test_a_node_that_has_just_joined_is_not_due_until_it_has_settled():
    watch = Watch(Population({0: (1,), 1: (1,)}), 0, None, settle_ns=10 * SECOND)

    def change(event: str, at_s: int, node: int) -> None:
        reason = "joined" if event == "join" else "crashed"
        watch.trace(TraceEvent(event, at_s * SECOND, node, topics=(1,), reason=reason))

    assert due(watch, 0, 0) == {1}, "nodes that are up from the start have settled"
    change("join", 5, 2)
    change("join", 8, 3)
    assert due(watch, 1, 14 * SECOND) == {1}
    assert due(watch, 2, 15 * SECOND) == {1, 2}
    change("leave", 16, 3)
    change("join", 17, 3)
    assert due(watch, 3, 20 * SECOND) == {1, 2}, "its earlier instance joined ten seconds ago, this one did not"
    watch.trace(TraceEvent("join", 21 * SECOND, 4, topics=(1,)))
    assert due(watch, 4, 27 * SECOND) == {1, 2, 3, 4}, "a subscription of a node that has settled counts at once"


def test_messages_of_publishers_that_have_just_joined_do_not_count_as_those_of_settled_ones():
    watch = Watch(Population({0: (1,), 1: (1,)}), 0, None, settle_ns=10 * SECOND)
    watch.trace(TraceEvent("join", SECOND, 2, topics=(1,), reason="joined"))
    for number, (publisher, at_s) in enumerate(((0, 2), (2, 3), (2, 12))):
        watch.trace(TraceEvent("publish", at_s * SECOND, publisher, message_id=number, topics=(1,)))
    deliver(watch, 0, 13 * SECOND, 1)
    deliver(watch, 1, 13 * SECOND, 0)
    deliver(watch, 2, 13 * SECOND, 0)
    found = sum_up(watch.batches)
    assert (found.expected, found.delivered) == (1 + 2 + 2, 3), "the publisher's age does not matter here"
    assert (found.settled_expected, found.settled_delivered) == (1 + 2, 2), "message 1's publisher joined 2 s ago"
    assert DELIVERIES.values(found, ["settled_delivery_ratio"]) == [("settled_delivery_ratio", None, 2 / 3)]


def test_a_message_with_an_expression_is_for_the_nodes_that_satisfy_it_when_it_is_published():
    watch = Watch(Population({0: (1,), 1: (0, 1), 2: (1,), 3: (0,)}), 0, None, expressions={7: "a&b", 8: "a&b", 9: "b"})

    def counted(number: int, at_ns: int) -> set[int]:
        publish(watch, number, at_ns)
        before, found = len(watch.batches[-1].delays_ns), set()
        for node in range(4):
            deliver(watch, number, at_ns, node)
            if len(watch.batches[-1].delays_ns) > before:
                before, found = before + 1, found | {node}
        return found

    assert counted(7, 0) == {1}
    watch.trace(TraceEvent("join", 5, 2, topics=(0,)))
    watch.trace(TraceEvent("leave", 5, 1, topics=(1,)))
    assert counted(8, 6) == {2}
    assert counted(9, 7) == {2}, "the publisher is not counted"
    assert watch.batches[0].due == 3


def test_copies_that_return_are_at_a_relay_unless_the_publisher_delivered_its_message_to_itself():
    watch = Watch(Population({0: (1,), 1: (1,)}), 0, None, expressions={7: "b", 8: "b"})
    for number in (7, 8):
        publish(watch, number, number)
    watch.deliver(7, 0, Message(7, (1,), b"", 0))
    for number in (7, 8):
        copy(watch, "duplicate", 0, number)
    assert list(watch.batches[0].at_relay) == [1]
    assert list(watch.batches[0].copies) == [2]
