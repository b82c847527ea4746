"""Gives numbers to the names in other programs' traces: our tables identify nodes, topics and messages by number.

Shorter names come first, and of equally long names the lesser bytes: so ``n2`` comes before ``n10``, and a trace that
Trellis exported gets its numbers back. Nodes that wrote a trace come before nodes that only others name.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from metrics.trace_forms.events import IDENTITY, LATEST_NS, MOST_NAME_BYTES, Event
from peer.trace import TraceEvent

MOST_NODES: Final = 100_000
MOST_TOPICS: Final = 1_000_000
MOST_MESSAGES: Final = 5_000_000

SEQUENCE_BYTES: Final = 8
"""The length of the sequence number that, with the publisher, is the default name of a message of libp2p's pubsub."""


class Seen(Struct):
    """What is known about a message.

    Attributes:
        first_ns: the first instant at which an event names it.
        publisher: the node that traced its ``publish``.
        topics: names, from the first event that has them.
    """

    first_ns: int
    publisher: bytes | None = None
    topics: tuple[str, ...] | None = None


class Names:
    """The names in some traces.

    Call ``learn`` with every event. ``settle`` then chooses the numbers, after which ``number`` translates events.

    Attributes:
        events: how many events of each kind there are.
        spans: the first and the last instant of every node that wrote a trace.
        nodes, topics, messages: the numbers of names, in their order.
        published: the messages whose ``publish`` is traced.
    """

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.spans: dict[bytes, tuple[int, int]] = {}
        self.nodes: dict[bytes, int] = {}
        self.topics: dict[str, int] = {}
        self.messages: dict[bytes, int] = {}
        self.seen: dict[bytes, Seen] = {}
        self._aliases: dict[bytes, bytes] = {}
        self._named: set[bytes] = set()

    def learn(self, event: Event) -> None:
        """Record the names of an event.

        Raises:
            ValueError: a name, the time or the number of names is out of bounds.
        """
        if not 0 <= event.ts_ns <= LATEST_NS:
            raise ValueError(f"expected a time from 0 to {LATEST_NS} ns since the epoch, got {event.ts_ns}")
        if any(len(name) > MOST_NAME_BYTES for name in event.names):
            raise ValueError(f"expected names of at most {MOST_NAME_BYTES:,} bytes")
        if event.event == IDENTITY and event.peer is not None:
            self._aliases[event.peer] = event.node
            return
        self.events[event.event] += 1
        first, last = self.spans.get(event.node, (event.ts_ns, event.ts_ns))
        self.spans[event.node] = min(first, event.ts_ns), max(last, event.ts_ns)
        if event.peer is not None:
            self._named.add(event.peer)
        self.topics.update(dict.fromkeys(event.topics or (), 0))
        if event.message is not None:
            self._note_message(event, event.message)
        self._require_bounds()

    def _note_message(self, event: Event, message: bytes) -> None:
        seen = self.seen.setdefault(message, Seen(event.ts_ns))
        seen.first_ns = min(seen.first_ns, event.ts_ns)
        seen.topics = seen.topics or event.topics
        if event.event == "publish":
            seen.publisher = event.node

    def _require_bounds(self) -> None:
        counts = {
            "nodes": (len(self.spans) + len(self._named), MOST_NODES),
            "topics": (len(self.topics), MOST_TOPICS),
            "messages": (len(self.seen), MOST_MESSAGES),
        }
        for what, (count, most) in counts.items():
            if count > most:
                raise ValueError(f"the traces name more than {most:,} {what}")

    def settle(self) -> None:
        """Give every name its number."""
        others = {self._aliases.get(name, name) for name in self._named} - self.spans.keys()
        self.nodes = {name: number for number, name in enumerate((*_ordered(self.spans), *_ordered(others)))}
        if all(name.isdecimal() and str(int(name)) == name and int(name) < 2**32 for name in self.topics):
            self.topics = {name: int(name) for name in self.topics}
        else:
            names = sorted(self.topics, key=lambda name: (len(name), name))
            self.topics = {name: number for number, name in enumerate(names)}
        self.messages = self._number_messages()

    def _number_messages(self) -> dict[bytes, int]:
        """Number messages with the publisher's number in the upper bits, as ``peer.core.identifiers`` does.

        The lower bits are the sequence numbers in the names if all of a publisher's are below 2^32, otherwise the
        messages' places in the order of time.
        """
        by_publisher: dict[int, list[bytes]] = {}
        for message in self.seen:
            by_publisher.setdefault(self.publisher_of(message), []).append(message)
        numbers: dict[bytes, int] = {}
        for publisher, messages in by_publisher.items():
            sequence = [self._sequence_number(message) for message in messages]
            if any(number is None or number >= 2**32 for number in sequence) or len({*sequence}) < len(sequence):
                messages.sort(key=lambda message: (self.seen[message].first_ns, message))
                sequence = [*range(len(messages))]
            numbers |= {
                message: publisher << 32 | (number or 0) for message, number in zip(messages, sequence, strict=True)
            }
        return numbers

    def publisher_of(self, message: bytes) -> int:
        """Return the node that published a message, by its trace or by the message's name; ``nobody`` if unknown."""
        publisher = self.seen[message].publisher or message[:-SEQUENCE_BYTES]
        return self.nodes.get(self._aliases.get(publisher, publisher), self.nobody)

    def _sequence_number(self, message: bytes) -> int | None:
        """Return the sequence number in a message's name, if its publisher's name is in it, too."""
        publisher = message[:-SEQUENCE_BYTES]
        return (
            int.from_bytes(message[-SEQUENCE_BYTES:]) if self._aliases.get(publisher, publisher) in self.nodes else None
        )

    @property
    def nobody(self) -> int:
        """The number in place of a publisher that is not known."""
        return len(self.nodes)

    def number(self, event: Event) -> TraceEvent:
        """Return the event as a line of our traces. The topics of a message are from any event that has them."""
        peer = None if event.peer is None else self._aliases.get(event.peer, event.peer)
        topics = event.topics
        if topics is None and event.message is not None:
            topics = self.seen[event.message].topics
        return TraceEvent(
            event.event,
            event.ts_ns,
            self.nodes[event.node],
            None if peer is None else self.nodes[peer],
            message_id=None if event.message is None else self.messages[event.message],
            topics=None if topics is None else tuple(self.topics[topic] for topic in topics),
            kind=event.kind,
            reason=event.reason,
            len_bytes=event.len_bytes,
        )


def _ordered(names: Iterable[bytes]) -> list[bytes]:
    return sorted(names, key=lambda name: (len(name), name))
