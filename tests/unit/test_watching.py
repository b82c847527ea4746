"""What the observer of a study's run keeps of messages, and for how long."""

from __future__ import annotations

from harness.studies.watching import LATEST_NS, Watch
from peer.core.contract import Message
from peer.trace import TraceEvent

NODES = 64


def publish(watch: Watch, number: int, at_ns: int) -> None:
    watch.trace(TraceEvent("publish", at_ns, 0, message_id=number, topics=(1,)))


def deliver(watch: Watch, number: int, at_ns: int, *nodes: int) -> None:
    for node in nodes:
        watch.deliver(at_ns, node, Message(number, (1,), b"", 1))


def test_a_delivery_counts_once_and_the_set_of_those_due_shrinks_to_nothing():
    watch = Watch(((1,),) * NODES, 0, None)
    publish(watch, 7, 0)
    [batch] = watch.batches
    assert batch.due == NODES - 1
    deliver(watch, 7, 5, *range(1, NODES))
    deliver(watch, 7, 9, 3)
    assert list(batch.delays_ns) == [5] * (NODES - 1)
    assert [flight.due for flight in watch._flights.values()] == [0]


def test_messages_are_forgotten_after_a_while_and_their_batches_kept():
    watch = Watch(((1,),) * NODES, 0, 1)
    for number in range(50):
        publish(watch, number, number * LATEST_NS // 5)
        assert len(watch._flights) <= 6
    deliver(watch, 44, 49 * LATEST_NS // 5, 1)
    deliver(watch, 43, 49 * LATEST_NS // 5, 1)
    assert [len(batch.delays_ns) for batch in watch.batches] == [0] * 44 + [1] + [0] * 5
