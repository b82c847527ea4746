"""What is published when, on which topics and by whom."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from itertools import count
from random import Random

from harness.errors import ExperimentError
from harness.experiment import WorkloadSpec
from harness.workload.membership import Membership, first_population
from peer.core.contract import NodeId, TopicId, message_id
from peer.core.randomness import NETWORK, substream
from peer.core.schedule import Action, Change, Publish


class Audience:
    """Who may publish on each topic: its subscribers that are up and not silent, kept while changes are applied.

    Args:
        membership: who is up at the start, with which topics.
        silent: nodes that never publish.

    Attributes:
        topics: those with such a subscriber, in rising order.
    """

    def __init__(self, membership: Membership, silent: frozenset[NodeId]) -> None:
        self._population = first_population(membership.up, membership.interests)
        self._silent = silent
        self._subscribers: dict[TopicId, list[NodeId]] = {}
        for node, topics in enumerate(membership.interests):
            if node not in silent:
                for topic in topics:
                    self._subscribers.setdefault(topic, []).append(node)
        self.topics = sorted(self._subscribers)

    def subscribers(self, topic: TopicId) -> list[NodeId]:
        """The nodes of a topic of ``topics``, in rising order."""
        return self._subscribers[topic]

    def apply(self, change: Change) -> None:
        begun, ended = self._population.apply(change)
        if change.node in self._silent:
            return
        for topic in begun:
            self._add(change.node, topic)
        for topic in ended:
            self._remove(change.node, topic)

    def _add(self, node: NodeId, topic: TopicId) -> None:
        if topic not in self._subscribers:
            self._subscribers[topic] = []
            insort(self.topics, topic)
        insort(self._subscribers[topic], node)

    def _remove(self, node: NodeId, topic: TopicId) -> None:
        nodes = self._subscribers[topic]
        del nodes[bisect_left(nodes, node)]
        if not nodes:
            del self._subscribers[topic]
            del self.topics[bisect_left(self.topics, topic)]


def draw_schedule(
    workload: WorkloadSpec, membership: Membership, seed: int, silent: frozenset[NodeId] = frozenset()
) -> tuple[Action, ...]:
    """The changes and the publications in the order of their instants; publications lie in [0, duration).

    Topics are drawn uniformly from those with a subscriber that is up at that instant; the publisher uniformly from the
    subscribers of the first topic drawn, so that it is up and subscribes to one of the message's topics at least. At an
    instant at which too few topics have a subscriber nothing is published. Of the same instant, changes come first.
    Subscribers are all but the ``silent`` ones here.

    Args:
        workload: what is published.
        membership: who is up with which topics, and how that changes.
        seed: the run's.
        silent: nodes that never publish.

    Raises:
        ExperimentError: at no instant have enough topics a subscriber.
    """
    audience = Audience(membership, silent)
    random = substream(seed, NETWORK, "publications")
    counts: Counter[tuple[NodeId, TopicId]] = Counter()
    numbers = count()
    schedule: list[Action] = []
    instants = draw_instants(workload, substream(seed, NETWORK, "instants"))
    waiting = deque(membership.changes)
    for at_ns in instants:
        while waiting and waiting[0].at_ns <= at_ns:
            change = waiting.popleft()
            audience.apply(change)
            schedule.append(change)
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
) -> Publish:
    """The run's publication of this number; ``counts`` has the earlier ones of every publisher on a first topic."""
    chosen = random.sample(audience.topics, workload.topics_per_message)
    publisher = random.choice(audience.subscribers(chosen[0]))
    topics = tuple(sorted(chosen))
    of_topic = (publisher, topics[0])
    identifier = message_id(publisher, number)
    publication = Publish(at_ns, publisher, identifier, topics, workload.payload_bytes, counts[of_topic])
    counts[of_topic] += 1
    return publication


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
