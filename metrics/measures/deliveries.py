"""Measures of messages: which were delivered, when, and in how many copies.

A copy is a frame with the body of a message (``Data``) that a node received, the first one or not. Frames that only
announce a message or ask for one are control traffic (``metrics.measures.traffic``).
"""

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from metrics.measures.measure import Family, Sample, Values, count_values, ratio

NOTHING: Values = np.empty(0, np.int64)


class TopicDeliveries(Struct):
    """The deliveries of the messages with the same first topic; ``delay_ns`` is the sum over all of them."""

    expected: int = 0
    delivered: int = 0
    delay_ns: int = 0


class Deliveries(Struct, frozen=True):
    """Messages, and their copies at some nodes."""

    messages: int  # published messages
    expected: int  # pairs of a message and a node other than its publisher that subscribed when it was published
    delivered: int  # pairs among them that were delivered
    delays_ms: Sample  # from publication to delivery, if both are known
    hops: Sample = NOTHING  # links that each delivered copy crossed, if that is known
    repeated: int = 0  # deliveries after the first one of a message to a node
    relays: int = 0  # first copies at nodes that subscribe to none of the topics
    duplicates: int = 0  # copies after the first
    copies: Values = NOTHING  # copies that each node received, for nodes that received any
    at_relay: Values = NOTHING  # copies among them that are of messages to whose topics the node did not subscribe
    topics: Mapping[int, TopicDeliveries] = {}  # by the number of the messages' first topic
    settled_expected: int = 0  # pairs of messages whose publisher had joined workload.settle_s before, or earlier
    settled_delivered: int = 0
    unknown: int = 0  # expected deliveries of which it is not known whether they were made
    reached: int = 0  # messages that were delivered to any node; 0 = the next number is not known
    last_hops: int = 0  # the most links that a delivered copy of a message crossed, added up over these messages

    @property
    def known(self) -> int:
        """The expected deliveries of which it is known whether they were made."""
        return self.expected - self.unknown

    @property
    def received(self) -> int:
        """All copies."""
        return int(self.copies.sum())

    @property
    def overheads(self) -> Values:
        """The traffic overhead of each node that received a copy: the share of its copies that are at a relay."""
        return self.at_relay / self.copies

    @property
    def overhead_percents(self) -> Values:
        """The same in percent, rounded up, so that 20 stands for at most 20 %."""
        return -(-100 * self.at_relay // self.copies)


DELIVERIES = Family[Deliveries]("deliveries", "messages")
DELIVERIES.add("messages", "messages", "messages published", lambda it: it.messages)
DELIVERIES.add("deliveries_expected", "deliveries", "expected deliveries", lambda it: it.expected)
DELIVERIES.add(
    "delivery_ratio",
    "ratio",
    "delivery ratio: deliveries / expected ones of which it is known whether they were made",
    lambda it: ratio(it.delivered, it.known),
)
DELIVERIES.add(
    "deliveries_unknown",
    "deliveries",
    "expected deliveries that may have been made: a copy reached the node's host, but the node's trace is missing or "
    "cut off",
    lambda it: it.unknown,
)
DELIVERIES.add(
    "settled_delivery_ratio",
    "ratio",
    "delivery ratio of the messages whose publisher had joined workload.settle_s before, or earlier",
    lambda it: ratio(it.settled_delivered, it.settled_expected),
)
DELIVERIES.add_statistics(
    "propagation_delay_ms", "ms", "propagation delay", lambda it: it.delays_ms, "mean", "p50", "p90", "p99", "max"
)
DELIVERIES.add(
    "repeated_deliveries",
    "deliveries",
    "deliveries of a message to a node after the first one: the application got it again",
    lambda it: it.repeated,
)
DELIVERIES.add_statistics(
    "hops", "links", "links that a delivered copy crossed", lambda it: it.hops, "mean", "p50", "p90", "p99", "max"
)
DELIVERIES.add(
    "last_hop_mean",
    "links",
    "last delivery hop: most links that a delivered copy of a message crossed, mean over messages (only in studies)",
    lambda it: ratio(it.last_hops, it.reached),
)
DELIVERIES.add(
    "delivery_hops",
    "deliveries",
    "deliveries by the links that the copy crossed",
    lambda it: count_values(it.hops),
    "length",
)
DELIVERIES.add(
    "duplicates_per_delivery",
    "copies",
    "duplicate copies per delivery, including copies at relays",
    lambda it: ratio(it.duplicates, it.received - it.relays - it.duplicates),
)
DELIVERIES.add(
    "relay_ratio",
    "ratio",
    "share of all copies that are the first copy at a relay",
    lambda it: ratio(it.relays, it.received),
)
DELIVERIES.add(
    "traffic_overhead_ratio",
    "ratio",
    "traffic overhead: share of all copies that are at a relay, first copies or not",
    lambda it: ratio(int(it.at_relay.sum()), it.received),
)
DELIVERIES.add_statistics(
    "node_traffic_overhead_ratio",
    "ratio",
    "traffic overhead per node that received a copy",
    lambda it: it.overheads,
    *("mean", "p50", "p90", "p99", "max"),
)
DELIVERIES.add(
    "traffic_overhead_above_10_ratio",
    "ratio",
    "share of the nodes that received a copy whose traffic overhead is above 10 %",
    lambda it: ratio(int((it.overhead_percents > 10).sum()), len(it.copies)),
)
DELIVERIES.add(
    "traffic_overhead_above_20_ratio",
    "ratio",
    "share of the nodes that received a copy whose traffic overhead is above 20 %",
    lambda it: ratio(int((it.overhead_percents > 20).sum()), len(it.copies)),
)
DELIVERIES.add(
    "node_traffic_overheads",
    "nodes",
    "nodes by traffic overhead, rounded up to whole percents",
    lambda it: count_values(it.overhead_percents),
    "percent",
)
DELIVERIES.add(
    "topic_delivery_ratio",
    "ratio",
    "delivery ratio of the messages of each (first) topic",
    lambda it: ((topic, each.delivered / each.expected) for topic, each in it.topics.items() if each.expected),
    "topic",
)
DELIVERIES.add(
    "topic_delay_ms_mean",
    "ms",
    "propagation delay of the messages of each (first) topic, mean",
    lambda it: ((topic, each.delay_ns / each.delivered / 1e6) for topic, each in it.topics.items() if each.delivered),
    "topic",
)
