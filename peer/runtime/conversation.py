"""The exchange of lines between a node's program and the process that drives it, for one instance, without I/O.

The lines themselves are ``peer.lines``. Orders become lines to the program, and its reports become trace events.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from peer.core import contract
from peer.core.identifiers import MessageId, NodeId, TopicId
from peer.instances.lifecycle import trace_end, trace_join
from peer.lines import LineError, Report, Splitter, encode_order, parse_report
from peer.trace import TraceEvent

_LINKS: Final = {"link": "add_peer", "unlink": "remove_peer"}
"""The trace events of physical links, by the verbs of their reports."""

_OPTIONAL: Final = {"duplicate": "duplicate", "link": "link", "unlink": "link", "graft": "graft", "prune": "graft"}
"""The names in the experiment's ``peer.says`` of the reports that not every program makes, by their verbs."""


class Conversation:
    """One instance of a node in its program.

    It keeps orders until the program is ready. It refuses a report that no correct program writes: about a message that
    the schedule lacks, a publication without an order, a link that exists already, or an instant in the future. Checks
    that need the reports of other nodes are made in the analysis.

    Args:
        node: the node.
        topics: its subscriptions at the start.
        says: the reports of its program besides publications and deliveries.
        messages: the topics of each message of the schedule.
        nodes: the number of nodes in the run.
        began_ns: the virtual instant at which the program was started (ns).
        to_virtual: converts an instant on CLOCK_MONOTONIC to virtual time (ns).

    Attributes:
        ready: whether the program has reported that it listens.
        topics: the node's subscriptions.
    """

    def __init__(
        self,
        node: NodeId,
        topics: Sequence[TopicId],
        says: Collection[str],
        messages: Mapping[MessageId, tuple[TopicId, ...]],
        nodes: int,
        began_ns: int,
        to_virtual: Callable[[int], int],
    ) -> None:
        self.ready = False
        self.topics = set(topics)
        self._node = node
        self._says = says
        self._messages = messages
        self._nodes = nodes
        self._began_ns = began_ns
        self._to_virtual = to_virtual
        self._splitter = Splitter()
        self._kept = b"".join(encode_order("subscribe", topic) for topic in topics)
        self._unpublished: dict[MessageId, int] = {}
        self._links: set[NodeId] = set()
        self._logical: dict[NodeId, set[TopicId]] = {}

    # -------------------------------------------------------------------------------------------------- orders

    def connect(self, peer: NodeId, host: str, port: int) -> bytes:
        """Order a connection to a node, and return the bytes to write to the program now.

        Args:
            peer: the node.
            host: the address at which it listens.
            port: the port at which it listens.
        """
        return self._order("connect", peer, host, port)

    def order(self, event: contract.Event, now_ns: int) -> tuple[bytes, list[TraceEvent]]:
        """Order an action of the schedule.

        Returns:
            The bytes to write to the program now, and the trace events.
        """
        match event:
            case contract.Publish(topics=(topic,), message_id=message_id, payload=payload):
                self._unpublished[message_id] = len(payload)
                return self._order("publish", message_id, topic, len(payload)), []
            case contract.Subscribe(topic):
                self.topics.add(topic)
                return self._order("subscribe", topic), [TraceEvent("join", now_ns, self._node, topics=(topic,))]
            case contract.Unsubscribe(topic):
                self.topics.discard(topic)
                return self._order("unsubscribe", topic), [TraceEvent("leave", now_ns, self._node, topics=(topic,))]
        raise ValueError(f"no line has the order {event}")

    def _order(self, verb: str, *words: int | str) -> bytes:
        line = encode_order(verb, *words)
        if self.ready:
            return line
        self._kept += line
        return b""

    # ------------------------------------------------------------------------------------------------- reports

    def hear(self, data: bytes, now_ns: int) -> tuple[bytes, list[TraceEvent]]:
        """Take output of the program.

        Args:
            data: bytes from its standard output, which need not be whole lines.
            now_ns: the virtual instant at which they were read, which is used for reports without an instant (ns).

        Returns:
            The bytes to write to the program now, and the trace events.

        Raises:
            LineError: the program broke the rules, for the reason in the message.
        """
        kept, events = b"", []
        for line in self._splitter.feed(data):
            report = parse_report(line)
            if not self.ready:
                self._begin(report)
                kept, self._kept = self._kept, b""
            else:
                events.append(self._explain(report, now_ns))
        return kept, events

    def join(self, now_ns: int) -> TraceEvent:
        """Return the trace event of the instance's beginning during the run: its subscriptions begin."""
        return trace_join(self._node, self.topics, now_ns)

    def end(self, now_ns: int, reason: str) -> list[TraceEvent]:
        """Return the trace events of a leave or crash: the links and subscriptions of the instance end."""
        closed = [TraceEvent("remove_peer", now_ns, self._node, peer, reason=reason) for peer in sorted(self._links)]
        logical = {peer: sorted(topics) for peer, topics in sorted(self._logical.items())}
        return [*trace_end(self._node, self.topics, logical, now_ns, reason), *closed]

    def _begin(self, report: Report) -> None:
        if report.verb != "ready":
            raise LineError(f"reported {report.verb!r} before 'ready'")
        self.ready = True

    def _explain(self, report: Report, now_ns: int) -> TraceEvent:
        """Return the trace event of a report."""
        what = _OPTIONAL.get(report.verb)
        if what is not None and what not in self._says:
            raise LineError(f"reported {report.verb!r}, but peer.says lacks {what!r}")
        at_ns = now_ns if report.ts_ns is None else self._instant(report.ts_ns, now_ns)
        peer = None if report.peer is None else self._other(report.peer)
        match report:
            case Report("publish", message_id=int(number)):
                return self._published(number, at_ns)
            case Report("deliver" | "duplicate", message_id=int(number)):
                topics = self._topics_of(number)
                return TraceEvent(
                    report.verb, at_ns, self._node, peer, message_id=number, topics=topics, hops=report.hops
                )
            case Report("link" | "unlink") if peer is not None:
                self._change(self._links, peer, report.verb == "link", f"a link to node {peer}")
                return TraceEvent(_LINKS[report.verb], at_ns, self._node, peer)
            case Report("graft" | "prune", topic=int(topic)) if peer is not None:
                own = self._logical.setdefault(peer, set())
                self._change(own, topic, report.verb == "graft", f"a link to node {peer} on topic {topic}")
                return TraceEvent(report.verb, at_ns, self._node, peer, topics=(topic,))
        raise LineError(f"reported {report.verb!r} twice")

    def _published(self, message_id: MessageId, at_ns: int) -> TraceEvent:
        len_bytes = self._unpublished.pop(message_id, None)
        if len_bytes is None:
            raise LineError(f"reported that it published message {message_id}, without an order or for the second time")
        topics = self._topics_of(message_id)
        return TraceEvent("publish", at_ns, self._node, message_id=message_id, topics=topics, len_bytes=len_bytes)

    def _topics_of(self, message_id: MessageId) -> tuple[TopicId, ...]:
        topics = self._messages.get(message_id)
        if topics is None:
            raise LineError(f"reported message {message_id}, which the schedule does not have")
        return topics

    def _instant(self, ts_ns: int, now_ns: int) -> int:
        at_ns = self._to_virtual(ts_ns)
        if not self._began_ns <= at_ns <= now_ns:
            raise LineError(f"reported ts_ns={ts_ns}, which is not between its start and now on CLOCK_MONOTONIC")
        return at_ns

    def _other(self, peer: NodeId) -> NodeId:
        if peer >= self._nodes or peer == self._node:
            raise LineError(f"reported node {peer} as its neighbour; nodes are 0 to {self._nodes - 1}")
        return peer

    @staticmethod
    def _change(present: set[int], number: int, begins: bool, what: str) -> None:
        """Add a number to a set, or remove it.

        Raises:
            LineError: the number is there already, or is not there.
        """
        if begins and number in present:
            raise LineError(f"reported the beginning of {what}, which exists already")
        if not begins and number not in present:
            raise LineError(f"reported the end of {what}, which does not exist")
        (present.add if begins else present.remove)(number)
