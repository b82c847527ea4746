"""Totals for summary and report of the tables with one row per frame, message or delivery.

The summary never reads these tables. The report reads only the rows of the messages that it shows, from the parts and
row groups that have them (``metrics.report.spread``).

The tasks that make these tables count the rows (``metrics.tables.message_evidence``, ``metrics.tables.hop_evidence``).
"""

from typing import NamedTuple

from msgspec import Struct, json

from metrics.measures.distribution import Distribution
from metrics.rundir import RunDir, write_document
from metrics.rundir.files import TOTALS_FILE


class DeliveryCounts(NamedTuple):
    """Expected deliveries, deliveries made, and deliveries of which this is not known (``deliveries.known``)."""

    expected: int
    delivered: int
    unknown: int = 0

    @property
    def known(self) -> int:
        """Expected deliveries of which it is known whether they were made."""
        return self.expected - self.unknown


class CopyCounts(NamedTuple):
    """Copies that some node received, and counts of copies by the columns of ``hops``."""

    copies: int
    is_dup: int
    is_relay: int
    at_relay: int


class RowCount(NamedTuple):
    """A number of rows."""

    rows: int


class FrameCounts(NamedTuple):
    """Frames, and their bytes."""

    frames: int
    len_bytes: int


class SlowDelivery(NamedTuple):
    """A delivery that was made."""

    message_id: int
    publisher: int | None
    node: int
    latency_ms: float
    direct_delay_ms: float | None


class NodeDelays(NamedTuple):
    """Deliveries whose delay is known, and the sum of their delays."""

    deliveries: int
    total_ns: int

    @property
    def mean_ms(self) -> float:
        """The mean delay; there must be a delivery."""
        return self.total_ns / self.deliveries / 1e6


class Standouts(Struct, frozen=True):
    """The messages, deliveries and nodes that a report names. Only deliveries to honest nodes count.

    Attributes:
        slowest: the slowest deliveries (``metrics.tables.standouts.MOST_SLOWEST``), slowest first; equal ones by
            message and node.
        undelivered: the message of the least number with a delivery that is known not to be made; None = there is
            none.
        typical: the message of the least number whose ``t50_ms`` is the lower median of all ``t50_ms``; None = no
            message has one.
        by_node: by subscriber.
    """

    slowest: tuple[SlowDelivery, ...]
    undelivered: int | None
    typical: int | None
    by_node: dict[int, NodeDelays]


class MessageTotals(Struct, frozen=True):
    """The tables ``messages`` and ``deliveries``, and the copies that nodes received and handled (see ``at_relay``).

    Everything except the messages and ``attacked`` is of honest nodes. Seconds are of the publication, from zero.
    """

    messages: int
    attacked: DeliveryCounts  # at adversaries
    repeated: int  # deliveries of a message to a node after the first one
    latency_ms: Distribution
    least_latency_ms: Distribution
    direct_delay_ms: Distribution
    stretch: Distribution
    hops: Distribution
    by_second: dict[int, DeliveryCounts]
    by_topic: dict[int, DeliveryCounts]
    by_copies: dict[int, RowCount]  # deliveries made, by the copies that the subscriber read
    copies_by_second: dict[int, CopyCounts]
    copies_by_node: dict[int, CopyCounts]  # by receiver
    copies_by_sender: dict[int, RowCount]
    lag_ms_max: dict[int, float]  # lag of publications, by the second for which they were scheduled
    standouts: Standouts | None = None  # None: computed by an earlier version (``metrics.tables.standouts``)

    @property
    def deliveries(self) -> DeliveryCounts:
        """All expected deliveries to honest nodes."""
        return DeliveryCounts(*map(sum, zip((0, 0, 0), *self.by_topic.values(), strict=True)))


class HopTotals(Struct, frozen=True):
    """The table ``hops``; ``judged_*`` are of frames sent in the span in which checks judge hosts."""

    send_ms: Distribution  # d_sndbuf_ns
    wire_ms: Distribution  # d_wire_ns
    receive_ms: Distribution  # d_rcv_ns
    asked_ms: Distribution  # asked_delay_ms
    judged_send_ms: Distribution
    judged_receive_ms: Distribution
    sent: dict[int, FrameCounts]  # frames that honest nodes sent in the workload, by kind; -1 = not known


class Totals(Struct, frozen=True):
    """``totals.json`` in the folder of tables.

    Attributes:
        messages: the totals of messages, deliveries and copies.
        hops: the totals of hops.
        settling: deliveries that ``workload.settle_s`` excludes, by the schedule.
        buckets: in how many buckets the tables ``messages``, ``deliveries`` and ``copies`` are
            (``metrics.tables.buckets.of_messages``). Rows of a file are in the order of messages. None: an earlier
            version computed the tables; it had another order, and no table ``copies``.
    """

    messages: MessageTotals
    hops: HopTotals
    settling: int = 0
    buckets: int | None = None


def write_totals(run: RunDir, totals: Totals) -> None:
    """Write the totals beside the tables of a run."""
    write_document(run.tables / TOTALS_FILE, totals)


def read_totals(run: RunDir) -> Totals:
    """Read the totals of an analysed run."""
    return json.decode((run.tables / TOTALS_FILE).read_bytes(), type=Totals)
