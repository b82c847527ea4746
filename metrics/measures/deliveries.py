"""Measures of messages: what was delivered, when, and in how many copies."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from metrics.measures.measure import Family, Measure, Values, mean, quantile, ratio


class TopicDeliveries(Struct):
    """The deliveries of the messages whose first topic is the same one; ``delay_ns``: of all of them, added up."""

    expected: int = 0
    delivered: int = 0
    delay_ns: int = 0


class Deliveries(Struct, frozen=True):
    """Messages, and their copies at some nodes.

    Attributes:
        messages: published.
        expected: pairs of a message and a node other than its publisher that subscribed when it was published.
        delivered: how many of them were delivered.
        delays_ms: from publication to delivery, where both are known.
        hops: links that delivered copies crossed, added up.
        counted: delivered copies of which that is known.
        firsts: first copies at subscribers.
        relays: first copies at nodes that subscribe to none of the topics.
        duplicates: all other copies.
        topics: by the number of the messages' first topic.
    """

    messages: int
    expected: int
    delivered: int
    delays_ms: Values
    hops: int = 0
    counted: int = 0
    firsts: int = 0
    relays: int = 0
    duplicates: int = 0
    topics: Mapping[int, TopicDeliveries] = {}


DELIVERIES: Family[Deliveries] = Family(
    "deliveries",
    (
        Measure("messages", "messages", "messages published", lambda it: it.messages),
        Measure("deliveries_expected", "deliveries", "expected deliveries", lambda it: it.expected),
        Measure(
            "delivery_ratio",
            "ratio",
            "delivery ratio: deliveries / expected deliveries",
            lambda it: ratio(it.delivered, it.expected),
        ),
        Measure("propagation_delay_ms_mean", "ms", "propagation delay, mean", lambda it: mean(it.delays_ms)),
        Measure("propagation_delay_ms_p50", "ms", "propagation delay, median", lambda it: quantile(it.delays_ms, 0.5)),
        Measure(
            "propagation_delay_ms_p90",
            "ms",
            "propagation delay, 90th percentile",
            lambda it: quantile(it.delays_ms, 0.9),
        ),
        Measure(
            "propagation_delay_ms_p99",
            "ms",
            "propagation delay, 99th percentile",
            lambda it: quantile(it.delays_ms, 0.99),
        ),
        Measure("propagation_delay_ms_max", "ms", "propagation delay, largest", lambda it: quantile(it.delays_ms, 1.0)),
        Measure(
            "hops_mean", "links", "links that a delivered copy crossed, mean", lambda it: ratio(it.hops, it.counted)
        ),
        Measure(
            "duplicates_per_delivery",
            "copies",
            "duplicate copies per delivery, including copies at relays",
            lambda it: ratio(it.duplicates, it.firsts),
        ),
        Measure(
            "relay_ratio",
            "ratio",
            "share of all copies that are the first copy at a relay",
            lambda it: ratio(it.relays, it.firsts + it.relays + it.duplicates),
        ),
        Measure(
            "topic_delivery_ratio",
            "ratio",
            "delivery ratio of the messages of each (first) topic",
            lambda it: ((topic, each.delivered / each.expected) for topic, each in it.topics.items() if each.expected),
            "topic",
        ),
        Measure(
            "topic_delay_ms_mean",
            "ms",
            "propagation delay of the messages of each (first) topic, mean",
            lambda it: (
                (topic, each.delay_ns / each.delivered / 1e6) for topic, each in it.topics.items() if each.delivered
            ),
            "topic",
        ),
    ),
    "messages",
)
