"""Measures of messages: what was delivered, when, and in how many copies."""

from collections.abc import Mapping

from msgspec import Struct

from metrics.measures.measure import Family, Values, ratio


class TopicDeliveries(Struct):
    """The deliveries of the messages with the same first topic; ``delay_ns``: of all of them, added up."""

    expected: int = 0
    delivered: int = 0
    delay_ns: int = 0


class Deliveries(Struct, frozen=True):
    """Messages, and their copies at some nodes."""

    messages: int  # published
    expected: int  # pairs of a message and a node other than its publisher that subscribed when it was published
    delivered: int  # how many of them were delivered
    delays_ms: Values  # from publication to delivery, where both are known
    hops: int = 0  # links that delivered copies crossed, added up
    counted: int = 0  # delivered copies of which that is known
    firsts: int = 0  # first copies at subscribers
    relays: int = 0  # first copies at nodes that subscribe to none of the topics
    duplicates: int = 0  # all other copies
    topics: Mapping[int, TopicDeliveries] = {}  # by the number of the messages' first topic


DELIVERIES = Family[Deliveries]("deliveries", "messages")
DELIVERIES.add("messages", "messages", "messages published", lambda it: it.messages)
DELIVERIES.add("deliveries_expected", "deliveries", "expected deliveries", lambda it: it.expected)
DELIVERIES.add(
    "delivery_ratio", "ratio", "delivery ratio: deliveries / expected", lambda it: ratio(it.delivered, it.expected)
)
DELIVERIES.add_statistics(
    "propagation_delay_ms", "ms", "propagation delay", lambda it: it.delays_ms, "mean", "p50", "p90", "p99", "max"
)
DELIVERIES.add("hops_mean", "links", "links that a delivered copy crossed, mean", lambda it: ratio(it.hops, it.counted))
DELIVERIES.add(
    "duplicates_per_delivery",
    "copies",
    "duplicate copies per delivery, including copies at relays",
    lambda it: ratio(it.duplicates, it.firsts),
)
DELIVERIES.add(
    "relay_ratio",
    "ratio",
    "share of all copies that are the first copy at a relay",
    lambda it: ratio(it.relays, it.firsts + it.relays + it.duplicates),
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
