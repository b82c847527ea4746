"""What is published when, on which topics and by whom."""

from __future__ import annotations

from random import Random

from harness.errors import ExperimentError
from harness.experiment import WorkloadSpec
from harness.workload.interests import Interests
from harness.workload.streams import NETWORK
from peer.core.contract import message_id
from peer.core.randomness import substream
from peer.runtime.spec import Action


def draw_schedule(workload: WorkloadSpec, interests: Interests, seed: int) -> tuple[Action, ...]:
    """The publications in the order of their instants, all inside the publishing window [0, duration).

    Topics are drawn uniformly from those with a subscriber; the publisher uniformly from the subscribers of the first
    topic drawn, so that it subscribes to one of the message's topics at least.

    Raises:
        ExperimentError: too few topics have a subscriber.
    """
    subscribers = _subscribers(interests)
    topics = sorted(subscribers)
    wanted = workload.topics_per_message
    if len(topics) < wanted:
        raise ExperimentError(
            "$.interests",
            f"{len(topics)} of {workload.topics} topics have a subscriber, a message needs {wanted}",
        )
    random = substream(seed, NETWORK, "publications")
    sequences = [0] * len(interests)
    actions = []
    for at_ns in draw_instants(workload, substream(seed, NETWORK, "instants")):
        chosen = random.sample(topics, wanted)
        publisher = random.choice(subscribers[chosen[0]])
        identifier = message_id(publisher, sequences[publisher])
        sequences[publisher] += 1
        actions.append(Action(at_ns, publisher, "publish", identifier, tuple(sorted(chosen)), workload.payload_bytes))
    return tuple(actions)


def draw_instants(workload: WorkloadSpec, random: Random) -> list[int]:
    """The instants (ns from the workload's zero) of the publications, rising strictly.

    ``fixed``: at every multiple of the mean interval, from 0. ``poisson``: independent exponential gaps.
    """
    end_ns = round(workload.duration_s * 1e9)
    interval_ns = 1e9 / workload.publish_rate_per_s
    instants: list[int] = []
    at_ns = random.expovariate(1.0) * interval_ns if workload.publish_interval == "poisson" else 0.0
    while round(at_ns) < end_ns:
        instants.append(round(at_ns))
        if workload.publish_interval == "poisson":
            at_ns = max(at_ns + random.expovariate(1.0) * interval_ns, instants[-1] + 1)
        else:
            at_ns = max(len(instants) * interval_ns, instants[-1] + 1)
    return instants


def _subscribers(interests: Interests) -> dict[int, list[int]]:
    subscribers: dict[int, list[int]] = {}
    for node, topics in enumerate(interests):
        for topic in topics:
            subscribers.setdefault(topic, []).append(node)
    return subscribers
