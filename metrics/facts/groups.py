"""Follow messages with expressions among honest nodes: the members, relays and other nodes that each one reaches."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from metrics.facts.population import TracedPopulation
from metrics.measures.steiner import Matrix, bound_tree
from peer.core.addressing.keywords import find_members, terms_of_topics
from peer.core.bitset import Bitset, members

Ints = npt.NDArray[np.int64]

Rate = Callable[[int, tuple[int, ...]], float]
"""See ``peer.protocols.description.Description.false_positive_rate``; without the parameters."""


class GroupMessage(Struct):
    """A message with an expression, from its publication on.

    The events of one node come in order of time. The events of different nodes may come in any order.

    Attributes:
        expression: the expression of the message.
        publisher: the node that published it.
        group: the members at the publication.
        others: the nodes that were up then, without members and publisher.
        predicted: the false positives that the protocol predicts among the others; None = it predicts nothing.
        reached: see ``metrics.measures.groups.GroupMessages``; so are ``latecomers``, ``false_positives``, ``relays``
            and ``copies``.
        delay_ns: the one-way delays of the copies' links, added up; None = not known.
    """

    expression: str
    publisher: int
    group: Bitset
    others: Bitset
    predicted: float | None = None
    reached: Bitset = 0
    latecomers: Bitset = 0
    false_positives: Bitset = 0
    relays: Bitset = 0
    copies: int = 0
    delay_ns: int | None = 0

    @classmethod
    def begin(
        cls, expression: str, publisher: int, population: TracedPopulation, honest: Bitset, rate: Rate | None = None
    ) -> Self:
        """Return a message at its publication.

        Args:
            expression: the expression of the message.
            publisher: the node that publishes it.
            population: the nodes that are up now, and what they subscribe to.
            honest: the nodes that count.
            rate: predicts false positives; None = predict nothing.
        """
        satisfying = find_members(expression, population.subscribers)
        counted = honest & ~(1 << publisher)
        message = cls(expression, publisher, satisfying & counted, population.up & ~satisfying & counted)
        if rate is not None:
            others = count_sets(message.others, population.subscribers.values())
            message.predicted = predict(rate, expression, others, population.subscribers)
        return message

    def relay(self, nodes: Bitset) -> None:
        """Record nodes that passed a first copy on without handing it to their application."""
        self.relays |= nodes & ~(1 << self.publisher | self.group | self.latecomers | self.false_positives)

    def deliver(self, node: int, subscribers: Mapping[int, Bitset]) -> None:
        """Record a node that handed the message to its application.

        Args:
            node: which node.
            subscribers: the subscribers of each topic at this instant.
        """
        own = 1 << node
        if node == self.publisher:
            return
        self.relays &= ~own
        if self.group & own:
            self.reached |= own
        elif find_members(self.expression, subscribers) & own:
            self.latecomers |= own
        else:
            self.false_positives |= own

    def summarise(self, lengths: Matrix | None, place: Callable[[int], int] = int) -> dict[str, Any]:
        """Return the values of ``metrics.measures.groups.GroupMessages`` for a message, by their names there.

        Args:
            lengths: (n, n) the shortest paths between places, in ms; None = compute no bound.
            place: returns the place of a node.
        """
        ends = [place(node) for node in (self.publisher, *members(self.reached))]
        return {
            "members": self.group.bit_count(),
            "reached": self.reached.bit_count(),
            "latecomers": self.latecomers.bit_count(),
            "false_positives": self.false_positives.bit_count(),
            "false_positives_predicted": self.predicted,
            "relays": self.relays.bit_count(),
            "others": self.others.bit_count(),
            "copies": self.copies,
            "delay_ms": None if self.delay_ns is None else self.delay_ns / 1e6,
            "bound_ms": None if lengths is None else bound_tree(lengths, ends),
        }


def predict(rate: Rate, expression: str, others: Mapping[int, Bitset], subscribers: Mapping[int, Bitset]) -> float:
    """Return how many nodes that do not satisfy an expression are expected to take its message as theirs.

    Args:
        rate: the rate of one node.
        expression: the expression of the message.
        others: the nodes, by their number of topics.
        subscribers: the subscribers of each topic in the expression.
    """
    terms = terms_of_topics(expression)
    groups: dict[tuple[int, ...], Bitset] = {(own,): nodes for own, nodes in others.items()}
    for topics in terms:
        sets = [subscribers.get(topic, 0) for topic in topics]
        groups = {
            (*counts, count): some
            for counts, nodes in groups.items()
            for count, some in count_sets(nodes, sets).items()
        }
    return sum(
        some.bit_count() * rate(own, tuple(len(term) - held for term, held in zip(terms, held_of, strict=True)))
        for (own, *held_of), some in groups.items()
    )


def count_sets(nodes: Bitset, sets: Iterable[Bitset]) -> dict[int, Bitset]:
    """Return some nodes by the number of sets to which they belong."""
    found = {0: nodes}
    for each in sets:
        after: dict[int, Bitset] = {}
        for count, some in found.items():
            for number, part in ((count, some & ~each), (count + 1, some & each)):
                if part:
                    after[number] = after.get(number, 0) | part
        found = after
    return found


def count_expressions(link: Ints, expression: Ints, links: int) -> Ints:
    """Return how many different expressions the copies on each link had, (links,).

    Args:
        link: (n,) the number of each copy's link.
        expression: (n,) the number of its message's expression, from 0.
        links: how many links there are.
    """
    expressions = int(expression.max(initial=0)) + 1
    different = np.unique(link * expressions + expression)
    return np.bincount(different // expressions, minlength=links)
