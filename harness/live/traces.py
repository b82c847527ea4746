"""What the peers' traces say of a run so far: messages, deliveries with their delays, and the links that carry frames.

Peers write their traces every second, each at another instant. So a delivery may be read before its publication, and
then waits for it.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct

from harness.live.snapshot import LATEST_S, MOST_LINKS, DelayNow, LinkUse
from metrics.measures.measure import quantile
from peer.core.bitset import Bitset, bitset

SECOND_NS: Final = 1_000_000_000

LINK_S: Final = 3
"""For how many whole seconds the bytes of links are added up."""

SETTLED_S: Final = 15
"""After so many seconds a second's delays do not change any longer, but for messages that were on their way so long."""


class TraceLine(Struct, frozen=True, gc=False):
    """The part of ``peer.trace.TraceEvent`` that is read."""

    event: str
    ts_ns: int = 0
    node: int = -1
    peer: int | None = None
    message_id: int | None = None
    len_bytes: int | None = None


class Due(NamedTuple):
    """A scheduled publication, and the nodes at which its delivery is expected."""

    message_id: int
    nodes: Bitset


class Flow(NamedTuple):
    """The messages of a second, and the delays of its deliveries in ns; None = they are not kept any longer."""

    published: int
    delivered: int
    delay_p50_ns: float | None
    delay_p99_ns: float | None


class _Message:
    """A message: when it was published, the nodes that are to have it, and those that have it.

    ``waiting`` are deliveries from before the publication was read.
    """

    __slots__ = ("due", "got", "published_ns", "waiting")

    def __init__(self, due: Bitset) -> None:
        self.due = due
        self.got: Bitset = 0
        self.published_ns: int | None = None
        self.waiting: list[tuple[int, int]] = []


class Messages:
    """Messages and deliveries so far.

    Args:
        schedule: all scheduled publications, in the order of their instants.
        zero_ns: the workload's zero.
    """

    def __init__(self, schedule: Iterator[Due], zero_ns: int) -> None:
        self._schedule = schedule
        self._zero_ns = zero_ns
        self._messages: dict[int, _Message] = {}
        self._recent: deque[tuple[int, int]] = deque()
        self._delays_ns: dict[int, list[int]] = defaultdict(list)
        self._quantiles_ns: dict[int, tuple[float, float]] = {}
        self._published: Counter[int] = Counter()
        self._delivered: Counter[int] = Counter()
        self.expected = 0
        self.unscheduled = 0

    @property
    def published(self) -> int:
        """Messages that were published."""
        return self._published.total()

    @property
    def delivered(self) -> int:
        """Expected deliveries that were made."""
        return self._delivered.total()

    def take(self, line: TraceLine) -> None:
        """Count a line of a trace."""
        if line.message_id is None:
            return
        if line.event == "publish":
            self._publish(line)
        elif line.event == "deliver":
            self._deliver(line)

    def _publish(self, line: TraceLine) -> None:
        assert line.message_id is not None
        message = self._find(line.message_id)
        if message.published_ns is not None:
            return
        message.published_ns = line.ts_ns
        self._published[self._second(line.ts_ns)] += 1
        self.expected += message.due.bit_count()
        for at_ns, node in message.waiting:
            self._note(message, at_ns, node)
        message.waiting.clear()

    def _deliver(self, line: TraceLine) -> None:
        assert line.message_id is not None
        message = self._find(line.message_id)
        if message.published_ns is None:
            message.waiting.append((line.ts_ns, line.node))
        else:
            self._note(message, line.ts_ns, line.node)

    def _find(self, message_id: int) -> _Message:
        """Return a message; one that the schedule does not have is due nowhere."""
        while message_id not in self._messages and (due := next(self._schedule, None)) is not None:
            self._messages.setdefault(due.message_id, _Message(due.nodes))
        if message_id not in self._messages:
            self.unscheduled += 1
            self._messages[message_id] = _Message(0)
        return self._messages[message_id]

    def _note(self, message: _Message, at_ns: int, node: int) -> None:
        """Count a delivery, if it is expected and the first one at its node."""
        bit = 1 << node
        if not message.due & bit or message.got & bit:
            return
        assert message.published_ns is not None
        message.got |= bit
        second, delay_ns = self._second(at_ns), at_ns - message.published_ns
        self._delivered[second] += 1
        self._delays_ns[second].append(delay_ns)
        self._recent.append((at_ns, delay_ns))

    def _second(self, at_ns: int) -> int:
        return (at_ns - self._zero_ns) // SECOND_NS

    def recent(self, now_ns: int) -> DelayNow | None:
        """Return the delays of the last ``LATEST_S`` seconds before an instant; None if there was no delivery."""
        first_ns = now_ns - round(LATEST_S * SECOND_NS)
        self._recent = deque(each for each in self._recent if each[0] > first_ns)
        found = [(at_ns, delay_ns) for at_ns, delay_ns in self._recent if at_ns <= now_ns]
        if not found:
            return None
        p50_ns, p99_ns = _quantiles([delay_ns for _, delay_ns in found])
        until_s = (max(at_ns for at_ns, _ in found) - self._zero_ns) / SECOND_NS
        return DelayNow(p50_ns / 1e6, p99_ns / 1e6, len(found), until_s)

    def seconds(self, now_ns: int) -> dict[int, Flow]:
        """Return what happened in each second until an instant that has a publication or a delivery."""
        for second in [each for each in self._delays_ns if each <= self._second(now_ns) - SETTLED_S]:
            self._quantiles_ns.setdefault(second, _quantiles(self._delays_ns.pop(second)))
        found = {}
        for second in sorted(self._published.keys() | self._delivered.keys()):
            delays_ns = self._delays_ns.get(second)
            known = self._quantiles_ns.get(second) or (_quantiles(delays_ns) if delays_ns else (None, None))
            found[second] = Flow(self._published[second], self._delivered[second], *known)
        return found


def _quantiles(values: Sequence[int]) -> tuple[float, float]:
    """Return the median and the 99th percentile of at least one value."""
    p50, p99 = (quantile(np.asarray(values), share) for share in (0.5, 0.99))
    assert p50 is not None and p99 is not None
    return p50, p99


class Links:
    """The bytes of frames that pairs of nodes sent each other, second by second.

    Attributes:
        known: whether any trace tells of frames; programs may report none.
    """

    def __init__(self) -> None:
        self.known = False
        self._seconds: dict[int, Counter[tuple[int, int]]] = defaultdict(Counter)

    def take(self, line: TraceLine) -> None:
        """Count a line of a trace."""
        if line.event == "send" and line.peer is not None:
            self.known = True
            ends = min(line.node, line.peer), max(line.node, line.peer)
            self._seconds[line.ts_ns // SECOND_NS][ends] += line.len_bytes or 0

    def latest(self, now_ns: int) -> tuple[LinkUse, ...] | None:
        """Return the links of the last ``LINK_S`` whole seconds that all traces have; None if no trace tells of frames.

        Traces are up to a second old, so the second before the present one is left out, too.
        """
        if not self.known:
            return None
        last = now_ns // SECOND_NS - 2
        for second in [each for each in self._seconds if each <= last - LINK_S]:
            del self._seconds[second]
        total: Counter[tuple[int, int]] = Counter()
        for second in range(last - LINK_S + 1, last + 1):
            total.update(self._seconds.get(second, {}))
        most = total.most_common(MOST_LINKS)
        return tuple(LinkUse(a, b, used) for (a, b), used in takewhile(lambda each: each[1] > 0, most))


def find_due(publications: Iterable[tuple[dict[str, object], set[int]]], left_out: frozenset[int]) -> Iterator[Due]:
    """Yield the publications of ``metrics.recount.list_due``, without deliveries to some nodes."""
    for action, nodes in publications:
        message_id = action["message_id"]
        assert isinstance(message_id, int)
        yield Due(message_id, bitset(nodes - left_out))
