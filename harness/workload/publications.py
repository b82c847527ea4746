"""Draws the publications: instants, topics and publishers."""

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import NamedTuple, Protocol

import numpy as np

from harness.errors import ExperimentError
from harness.experiment.sections.workload import InterestsSpec, WorkloadSpec
from harness.workload.interests import generator
from harness.workload.membership import MembershipPlan, first_population
from peer.core.contract import NodeId, TopicId, message_id
from peer.core.randomness import NETWORK, substream
from peer.core.rates import RateLaw, topic_rates
from peer.core.schedule import Action, Change, Publish

MayPublish = Callable[[NodeId, TopicId], bool]
"""Whether a node publishes on a topic while it subscribes to it."""


def publish_rule(interests: InterestsSpec, silent: frozenset[NodeId] = frozenset()) -> MayPublish:
    """Return who publishes: subscribers, or the user whose topic it is; never ``silent`` nodes."""
    if interests.kind == "follower-graph":
        return lambda node, topic: node == topic and node not in silent
    return lambda node, topic: node not in silent


class Audience:
    """The nodes that may publish on each topic: those of its subscribers that are up, updated with each change.

    Args:
        membership: the population at the start.
        may_publish: which subscribers count.

    Attributes:
        topics: the topics with such a subscriber, in ascending order.
    """

    def __init__(self, membership: MembershipPlan, may_publish: MayPublish) -> None:
        self._population = first_population(membership.up, membership.interests)
        self._may_publish = may_publish
        self._subscribers: dict[TopicId, list[NodeId]] = {}
        for node, topics in enumerate(membership.interests):
            for topic in topics:
                if may_publish(node, topic):
                    self._subscribers.setdefault(topic, []).append(node)
        self.topics = sorted(self._subscribers)

    def subscribers(self, topic: TopicId) -> list[NodeId]:
        """Return the nodes of a topic of ``topics``, in ascending order."""
        return self._subscribers[topic]

    def apply(self, change: Change) -> None:
        begun, ended = self._population.apply(change)
        for topic in begun:
            if self._may_publish(change.node, topic):
                self._add(change.node, topic)
        for topic in ended:
            if self._may_publish(change.node, topic):
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


class Draft(NamedTuple):
    """Who publishes, on which topics, and the message's expression; empty if it has none."""

    publisher: NodeId
    topics: tuple[TopicId, ...]
    expression: str = ""


class Source(Protocol):
    """Draws one publication after the other, from the population of its instant."""

    def apply(self, change: Change) -> None:
        """Change the population."""
        ...

    def draw(self) -> Draft | None:
        """Draw the next publication; None if nothing can be published now."""
        ...

    def refusal(self) -> ExperimentError:
        """Say why nothing was ever published."""
        ...


def draw_schedule(
    workload: WorkloadSpec, membership: MembershipPlan, seed: int, may_publish: MayPublish
) -> tuple[Action, ...]:
    """Draw publications for subscribers of topics, and return them with the changes in order of time.

    Topics are drawn by their rates from those on which a node that is up may publish, the publisher uniformly from the
    nodes that may publish on the first topic, so that it is up and subscribes to at least one of the message's topics.
    If there are too few such topics, nothing is published at that instant.

    Args:
        workload: the section ``[workload]``.
        membership: the population and its changes.
        seed: the seed of the run.
        may_publish: which subscribers of a topic publish on it.

    Raises:
        ExperimentError: at no instant do enough topics have such a subscriber.
    """
    return fill_schedule(workload, membership, seed, TopicSource(workload, membership, seed, may_publish))


def fill_schedule(workload: WorkloadSpec, membership: MembershipPlan, seed: int, source: Source) -> tuple[Action, ...]:
    """Return the publications of a source with the changes in order of time. Publications lie in [0, duration).

    Changes come before publications of the same instant.

    Args:
        workload: the section ``[workload]``.
        membership: the population and its changes.
        seed: the seed of the run.
        source: draws the publications; it has the population at the start.

    Raises:
        ExperimentError: nothing is published at any instant.
    """
    counts: Counter[tuple[NodeId, TopicId]] = Counter()
    numbers = count()
    schedule: list[Action] = []
    instants = draw_instants(workload, substream(seed, NETWORK, "instants"))
    waiting = deque(membership.changes)
    for at_ns in instants:
        while waiting and waiting[0].at_ns <= at_ns:
            change = waiting.popleft()
            source.apply(change)
            schedule.append(change)
        if (draft := source.draw()) is not None:
            publisher, topics, expression = draft
            of_topic = (publisher, topics[0])
            identifier = message_id(publisher, next(numbers))
            size_bytes = workload.payload_bytes
            schedule.append(Publish(at_ns, publisher, identifier, topics, size_bytes, counts[of_topic], expression))
            counts[of_topic] += 1
    if instants and not counts:
        raise source.refusal()
    return (*schedule, *waiting)


class TopicSource:
    """Draws messages for the subscribers of their topics; the arguments are those of ``draw_schedule``."""

    def __init__(self, workload: WorkloadSpec, membership: MembershipPlan, seed: int, may_publish: MayPublish) -> None:
        law = rate_law(workload, seed)
        self._workload = workload
        self._audience = Audience(membership, may_publish)
        self._chooser = TopicChooser(law) if law is not None else None
        self._random = substream(seed, NETWORK, "publications")

    def apply(self, change: Change) -> None:
        self._audience.apply(change)

    def draw(self) -> Draft | None:
        wanted, topics = self._workload.topics_per_message, self._audience.topics
        if len(topics) < wanted:
            return None
        chosen = self._random.sample(topics, wanted) if self._chooser is None else self._chooser.draw(topics, wanted)
        return Draft(self._random.choice(self._audience.subscribers(chosen[0])), tuple(sorted(chosen)))

    def refusal(self) -> ExperimentError:
        wanted, found = self._workload.topics_per_message, len(self._audience.topics)
        topics = self._workload.topics
        problem = f"{found} of {topics} topics have a subscriber that publishes, but a message needs {wanted}"
        return ExperimentError("$.interests", problem)


def rate_law(workload: WorkloadSpec, seed: int) -> RateLaw | None:
    """Return the law of the topics' rates, None if all are equal."""
    return RateLaw(workload.topics, workload.rate_exponent, seed) if workload.rate_exponent else None


class TopicChooser:
    """Draws different topics, each from those not yet drawn, with probabilities proportional to their rates.

    The first k arrivals of independent exponential clocks are such a sample (see ``PopularityInterests``).
    """

    def __init__(self, law: RateLaw) -> None:
        self._rates = np.array(topic_rates(law))
        self._draws = generator(law.seed, NETWORK, "publication topics")

    def draw(self, topics: Sequence[TopicId], wanted: int) -> list[TopicId]:
        """Return ``wanted`` of these topics, in the order in which they are drawn."""
        candidates = np.array(topics)
        arrivals = self._draws.standard_exponential(len(candidates)) / self._rates[candidates]
        first = np.argpartition(arrivals, wanted - 1)[:wanted]
        ordered: list[TopicId] = candidates[first[np.argsort(arrivals[first])]].tolist()
        return ordered


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
