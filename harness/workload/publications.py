"""Draws the publications: instants, topics and publishers."""

from bisect import bisect_left, insort
from collections import Counter, deque
from itertools import count
from random import Random

from harness.errors import ExperimentError
from harness.experiment.form import WorkloadSpec
from harness.workload.membership import MembershipPlan, first_population
from peer.core.contract import NodeId, TopicId, message_id
from peer.core.randomness import NETWORK, substream
from peer.core.schedule import Action, Change, Publish


class Audience:
    """The nodes that may publish on each topic: its subscribers that are up and not silent, updated with each change.

    Args:
        membership: the population at the start.
        silent: nodes that never publish.

    Attributes:
        topics: the topics with such a subscriber, in ascending order.
    """

    def __init__(self, membership: MembershipPlan, silent: frozenset[NodeId]) -> None:
        self._population = first_population(membership.up, membership.interests)
        self._silent = silent
        self._subscribers: dict[TopicId, list[NodeId]] = {}
        for node, topics in enumerate(membership.interests):
            if node not in silent:
                for topic in topics:
                    self._subscribers.setdefault(topic, []).append(node)
        self.topics = sorted(self._subscribers)

    def subscribers(self, topic: TopicId) -> list[NodeId]:
        """Return the nodes of a topic of ``topics``, in ascending order."""
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
    workload: WorkloadSpec, membership: MembershipPlan, seed: int, silent: frozenset[NodeId] = frozenset()
) -> tuple[Action, ...]:
    """Draw the publications, and return them with the changes in order of time. Publications lie in [0, duration).

    Topics are drawn uniformly from those with a subscriber that is up at that instant, the publisher uniformly from the
    subscribers of the first topic, so that it is up and subscribes to at least one of the message's topics. If too few
    topics have a subscriber, nothing is published at that instant. Changes come before publications of the same
    instant. ``silent`` nodes do not count as subscribers here.

    Args:
        workload: the section ``[workload]``.
        membership: the population and its changes.
        seed: the seed of the run.
        silent: nodes that never publish.

    Raises:
        ExperimentError: at no instant do enough topics have a subscriber.
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
        problem = f"{found} of {workload.topics} topics have {who}, but a message needs {wanted}"
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
    """Draw one publication. ``counts``: earlier publications by (publisher, first topic)."""
    chosen = random.sample(audience.topics, workload.topics_per_message)
    publisher = random.choice(audience.subscribers(chosen[0]))
    topics = tuple(sorted(chosen))
    of_topic = (publisher, topics[0])
    identifier = message_id(publisher, number)
    publication = Publish(at_ns, publisher, identifier, topics, workload.payload_bytes, counts[of_topic])
    counts[of_topic] += 1
    return publication


def draw_instants(workload: WorkloadSpec, random: Random) -> list[int]:
    """Return the strictly ascending instants of the publications (ns from the workload's zero).

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
