"""What is published when, on which topics and by whom."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from itertools import count
from random import Random

from harness.errors import ExperimentError
from harness.experiment import WorkloadSpec
from harness.workload.audience import Audience
from harness.workload.interests import Interests
from harness.workload.streams import NETWORK
from peer.core.contract import NodeId, TopicId, message_id
from peer.core.randomness import substream
from peer.runtime.lifecycle import PUBLISH
from peer.runtime.spec import Action


def draw_schedule(
    workload: WorkloadSpec,
    interests: Interests,
    changes: Sequence[Action],
    seed: int,
    silent: frozenset[NodeId] = frozenset(),
) -> tuple[Action, ...]:
    """The changes and the publications in the order of their instants; publications lie in [0, duration).

    Topics are drawn uniformly from those with a subscriber that is up at that instant; the publisher uniformly from the
    subscribers of the first topic drawn, so that it is up and subscribes to one of the message's topics at least. At an
    instant at which too few topics have a subscriber nothing is published. Of the same instant, changes come first.
    Subscribers are all but the ``silent`` ones here.

    Args:
        workload: what is published.
        interests: every node's topics at the start.
        changes: joins, leaves and the like in the order of their instants.
        seed: the run's.
        silent: nodes that never publish.

    Raises:
        ExperimentError: at no instant have enough topics a subscriber.
    """
    audience = Audience(tuple(() if node in silent else topics for node, topics in enumerate(interests)))
    random = substream(seed, NETWORK, "publications")
    counts: Counter[tuple[NodeId, TopicId]] = Counter()
    numbers = count()
    schedule: list[Action] = []
    instants = draw_instants(workload, substream(seed, NETWORK, "instants"))
    waiting = deque(changes)
    for at_ns in instants:
        while waiting and waiting[0].at_ns <= at_ns:
            if waiting[0].node not in silent:
                audience.apply(waiting[0])
            schedule.append(waiting.popleft())
        if len(audience.topics) >= workload.topics_per_message:
            schedule.append(_draw_publication(workload, audience, at_ns, next(numbers), counts, random))
    if instants and not counts:
        wanted, found = workload.topics_per_message, len(audience.topics)
        who = "a subscriber that publishes" if silent else "a subscriber"
        problem = f"{found} of {workload.topics} topics have {who}, a message needs {wanted}"
        raise ExperimentError("$.interests", problem)
    return (*schedule, *waiting)


def _draw_publication(
    workload: WorkloadSpec,
    audience: Audience,
    at_ns: int,
    number: int,
    counts: Counter[tuple[NodeId, TopicId]],
    random: Random,
) -> Action:
    """The run's publication of this number; ``counts`` has the earlier ones of every publisher on a first topic."""
    chosen = random.sample(audience.topics, workload.topics_per_message)
    publisher = random.choice(audience.subscribers(chosen[0]))
    topics = tuple(sorted(chosen))
    of_topic = (publisher, topics[0])
    identifier = message_id(publisher, number)
    action = Action(at_ns, publisher, PUBLISH, identifier, topics, workload.payload_bytes, counts[of_topic])
    counts[of_topic] += 1
    return action


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
