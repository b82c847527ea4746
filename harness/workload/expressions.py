"""Draws publications for groups: the nodes that satisfy an expression over the keywords of topics.

Source: Cutting, Landfeldt and Quigley, Implicit group messaging in peer-to-peer networks, sections 1.1 and 2.5.1: any
peer can send to any group, and keywords follow a Zipf law.
"""

from collections.abc import Callable, Sequence

import numpy as np

from harness.errors import ExperimentError
from harness.experiment.sections.workload import ExpressionsSpec, WorkloadSpec
from harness.workload.interests import generator, topic_weights
from harness.workload.membership import MembershipPlan, first_population
from harness.workload.publications import Draft, fill_schedule
from peer.core.addressing.keywords import covering_topics, find_members, keyword
from peer.core.bitset import Bitset
from peer.core.identifiers import NodeId, TopicId
from peer.core.randomness import NETWORK, substream
from peer.core.schedule import Action, Change, Population

MOST_ATTEMPTS = 100
"""Expressions that are drawn for one message until one of them has a member."""

MOST_VAIN = 1_000_000
"""Expressions without a member that are drawn for all messages together. Beyond them the experiment is refused."""

Terms = list[Sequence[TopicId]]
"""The topics of each conjunction."""


def draw_for_groups(
    workload: WorkloadSpec,
    expressions: ExpressionsSpec,
    membership: MembershipPlan,
    seed: int,
    silent: frozenset[NodeId] = frozenset(),
) -> tuple[Action, ...]:
    """Draw publications with expressions, and return them with the changes in order of time.

    Args:
        workload: the section ``[workload]``.
        expressions: the section ``[expressions]``; its kind is not ``none``.
        membership: the population and its changes.
        seed: the seed of the run.
        silent: nodes that do not publish.

    Raises:
        ExperimentError: nothing is published at any instant, or more than ``MOST_VAIN`` expressions have no member.
    """
    population = first_population(membership.up, membership.interests)
    source = GroupSource(expressions, population, workload.topics, seed, silent)
    return fill_schedule(workload, membership, seed, source)


class GroupSource:
    """Draws a publisher from the nodes that are up, and then expressions until another node satisfies one.

    If ``MOST_ATTEMPTS`` expressions in a row have no such node, or no other node is up, nothing is published. With
    ``empty_groups`` the first expression is taken.

    Args:
        spec: the section ``[expressions]``.
        population: the nodes that are up at the start; it changes with ``apply``.
        topics: number of topics.
        seed: the seed of the run.
        silent: nodes that do not publish.
    """

    def __init__(
        self, spec: ExpressionsSpec, population: Population, topics: int, seed: int, silent: frozenset[NodeId]
    ) -> None:
        self._spec = spec
        self._population = population
        self._random = substream(seed, NETWORK, "expressions")
        self._silent = silent
        self._vain = 0
        self._publishers: list[NodeId] = []
        self._described: list[NodeId] = []  # nodes with topics
        self._find_nodes()
        self._subscribers: dict[TopicId, Bitset] = {}
        for node, own in population.interests.items():
            for topic in own:
                self._subscribers[topic] = self._subscribers.get(topic, 0) | 1 << node
        recipes: dict[str, Callable[[], Callable[[NodeId], str | None]]] = {
            "keywords": lambda: _KeywordExpressions(spec, topics, seed).draw,
            "nodes": lambda: self._describe_nodes,
            "list": lambda: lambda _: self._random.choice(spec.texts),
        }
        self._draw_expression = recipes[spec.kind]()

    def apply(self, change: Change) -> None:
        begun, ended = self._population.apply(change)
        own = 1 << change.node
        for topic in begun:
            self._subscribers[topic] = self._subscribers.get(topic, 0) | own
        for topic in ended:
            self._subscribers[topic] &= ~own
        self._is_stale = True

    def draw(self) -> Draft | None:
        """Draw the next publication; None if nothing can be published now.

        Raises:
            ExperimentError: more than ``MOST_VAIN`` expressions had no member.
        """
        if self._is_stale:
            self._find_nodes()
        if not self._publishers:
            return None
        publisher = self._random.choice(self._publishers)
        for _ in range(MOST_ATTEMPTS):
            expression = self._draw_expression(publisher)
            if expression is None:
                return None
            if self._spec.empty_groups or find_members(expression, self._subscribers) & ~(1 << publisher):
                return Draft(publisher, covering_topics(expression), expression)
            self._vain += 1
            if self._vain > MOST_VAIN:
                problem = f"a node other than the publisher satisfies none of {MOST_VAIN:,} drawn expressions"
                raise ExperimentError("$.expressions", f"{problem}; ask for fewer keywords or for empty_groups = true")
        return None

    def refusal(self) -> ExperimentError:
        problem = f"a node other than the publisher satisfies none of {MOST_ATTEMPTS} expressions for any message"
        return ExperimentError("$.expressions", problem)

    def _find_nodes(self) -> None:
        nodes = sorted(self._population.interests)
        self._publishers = [node for node in nodes if node not in self._silent]
        self._described = [node for node in nodes if self._population.interests[node]]
        self._is_stale = False

    def _describe_nodes(self, publisher: NodeId) -> str | None:
        """Return an expression whose terms each have keywords of a node other than the publisher."""
        interests = self._population.interests
        nodes = [node for node in self._described if node != publisher]
        if not nodes:
            return None
        terms: Terms = []
        for _ in range(self._random.randint(self._spec.terms_min, self._spec.terms_max)):
            own = sorted(interests[self._random.choice(nodes)])
            size = self._random.randint(self._spec.keywords_min, self._spec.keywords_max)
            terms.append(self._random.sample(own, min(size, len(own))))
        return write_expression(terms)


class _KeywordExpressions:
    """Draws expressions whatever the nodes: each keyword from those not yet in its term, by its weight.

    The first k arrivals of independent exponential clocks are such a sample (see ``PopularityInterests``).
    """

    def __init__(self, spec: ExpressionsSpec, topics: int, seed: int) -> None:
        self._spec = spec
        self._weights = topic_weights("zipf", topics, spec.zipf_exponent)
        self._draws = generator(seed, NETWORK, "expression keywords")

    def draw(self, _publisher: NodeId) -> str:
        spec, draws = self._spec, self._draws
        terms: Terms = []
        for _ in range(int(draws.integers(spec.terms_min, spec.terms_max, endpoint=True))):
            size = int(draws.integers(spec.keywords_min, spec.keywords_max, endpoint=True))
            arrivals = draws.standard_exponential(len(self._weights)) / self._weights
            terms.append(np.argpartition(arrivals, size - 1)[:size].tolist())
        return write_expression(terms)


def write_expression(terms: Terms) -> str:
    """Return the text of a disjunction of conjunctions; keywords are in the order of their topics."""
    return "|".join("&".join(map(keyword, sorted(term))) for term in terms)
