"""Later receivers of recent messages, by notification and pull or by push."""

import pytest

from peer.core.contract import NodeId, Publish, message_id
from peer.core.dissemination.notify_pull import CATCH_UP, CATCH_UP_NS, Notify, NotifyPull, NotifyPullParameters, Pull
from peer.core.frames import UNLIMITED_TTL, Data
from peer.core.parts import Part, State, Turn
from peer.testing import sends, timers

TOPIC, OWN, OTHER = 4, message_id(0, 0), message_id(9, 0)


class Chooser(Part):
    """Stands for an overlay."""

    writes = frozenset({"directs"})


class Node:
    """A dissemination whose receivers a test sets."""

    def __init__(self, spreading: str = "pull", catch_up_s: float = 3.0, stored_messages: int = 1024) -> None:
        self.receivers: list[NodeId] = []
        self.state = State(0, 1, (TOPIC,), 20)
        Chooser(self.state).write(directs=lambda topic: tuple(self.receivers))
        self.part = NotifyPull(self.state, NotifyPullParameters(spreading, 1 << 16, stored_messages, catch_up_s))
        self.now_ns = 0

    def receive(self, peer: NodeId, frame: object) -> list:
        turn = Turn(self.state, self.now_ns)
        self.part.receive(turn, peer, frame)
        return turn.effects

    def publish(self, identifier: int = OWN) -> list:
        turn = Turn(self.state, self.now_ns)
        self.part.publish(turn, Publish((TOPIC,), identifier, b"x"))
        return turn.effects

    def wait(self) -> tuple[list[tuple[NodeId, object]], bool]:
        """What is sent at the next look for new receivers, and whether there is another one."""
        self.now_ns += CATCH_UP_NS
        turn = Turn(self.state, self.now_ns)
        self.part.fire(turn, CATCH_UP)
        return sends(turn.effects), CATCH_UP in timers(turn.effects)


@pytest.mark.parametrize("spreading", ["pull", "push"])
def test_a_message_is_passed_on_once_to_a_receiver_that_comes_later(spreading):
    node = Node(spreading)
    assert CATCH_UP in timers(node.publish())
    assert node.wait() == ([], True)
    node.receivers = [3]
    data = Data(OWN, (TOPIC,), 1, UNLIMITED_TTL, b"x")
    assert node.wait() == ([(3, Notify(OWN, (TOPIC,), 1) if spreading == "pull" else data)], True)
    node.receivers = [3, 5]
    assert node.wait() == ([], False)  # three seconds after it was published
    if spreading == "pull":
        assert sends(node.receive(3, Pull(OWN))) == [(3, data)]


def test_a_message_is_passed_on_until_it_is_too_old():
    node = Node(catch_up_s=2.5)
    node.publish()
    for second, receiver in ((1, 1), (2, 2)):
        node.receivers.append(receiver)
        assert node.wait() == ([(receiver, Notify(OWN, (TOPIC,), 1))], True), second
    node.receivers.append(3)
    assert node.wait() == ([], False)


def test_who_has_a_message_or_told_of_it_is_not_told():
    node = Node()
    node.receive(1, Data(OTHER, (TOPIC,), 1, UNLIMITED_TTL, b"x"))
    node.receive(2, Data(OTHER, (TOPIC,), 1, UNLIMITED_TTL, b"x"))
    node.receive(3, Notify(OTHER, (TOPIC,), 1))
    node.receivers = [1, 2, 3, 4]
    assert node.wait() == ([(4, Notify(OTHER, (TOPIC,), 2))], True)


def test_a_neighbour_that_comes_back_is_told_again():
    node = Node()
    node.receivers = [3]
    node.publish()
    assert node.wait() == ([], True)
    node.part.link_down(Turn(node.state, node.now_ns), 3, "reset", True)
    assert node.wait() == ([(3, Notify(OWN, (TOPIC,), 1))], True)


def test_nothing_is_passed_on_later_by_default():
    assert NotifyPullParameters().catch_up_s == 0
    node = Node(catch_up_s=0)
    assert CATCH_UP not in timers(node.publish())


def test_no_more_messages_are_recent_than_are_stored():
    node = Node(stored_messages=2)
    for number in range(3):
        node.publish(message_id(0, number))
    node.receivers = [3]
    assert [frame.message_id for _, frame in node.wait()[0]] == [message_id(0, 1), message_id(0, 2)]
