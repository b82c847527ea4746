"""Counts the copies of a message that each dissemination sends over a model of the overlay, duplicates included.

This module has the rules of shared disseminations; the rule of a protocol's own is in the protocol's module of
``harness.planning.models``.

Copies advance hop by hop, in a real run by delay: there a copy with a smaller TTL may arrive first.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from harness.planning.models import find_model
from harness.planning.overlay_models import OverlayModel, read_parameters
from peer.core.dissemination.flood import FloodParameters
from peer.core.dissemination.topic_flood import TopicFloodParameters
from peer.core.frames import UNLIMITED_TTL
from peer.protocols.description import Choice
from peer.protocols.registry import DISSEMINATIONS

Held = TypeVar("Held")

Subscribed = Sequence[frozenset[int]]
"""Every node's topics."""


def count_copies(
    chosen: Choice, model: OverlayModel, subscribed: Subscribed, publisher: int, topics: Sequence[int]
) -> int | None:
    """Count the copies of one message; None if this dissemination has no model.

    Args:
        chosen: the dissemination's name and parameters.
        model: the overlay.
        subscribed: every node's topics.
        publisher: the node that publishes.
        topics: the topics of the message.
    """
    rule = _RULES.get(chosen["name"]) or find_model(chosen["name"], "count_copies")
    if rule is None:
        return None
    copies: int = rule(read_parameters(DISSEMINATIONS, chosen), model, subscribed, publisher, frozenset(topics))
    return copies


def _spread(
    publisher: int,
    held: Held,
    send_on: Callable[[int, Held], Iterable[tuple[int, Held]]],
    take: Callable[[int, Held], Held | None],
) -> int:
    """Count copies hop by hop. No node sends to the node from which it has the message.

    Args:
        publisher: the node that publishes.
        held: what the publisher sends.
        send_on: (node, what it holds) -> receivers and what each is sent.
        take: (node, what it was sent) -> what it forwards; None = nothing.
    """
    queue = deque([(publisher, publisher, held)])
    copies = 0
    while queue:
        node, sender, holding = queue.popleft()
        for receiver, sent in send_on(node, holding):
            if receiver == sender:
                continue
            copies += 1
            if (fresh := take(receiver, sent)) is not None:
                queue.append((receiver, node, fresh))
    return copies


def spread_once(publisher: int, receivers: Callable[[int], Iterable[int]]) -> int:
    """Count copies if every node forwards only the first copy that it gets, to ``receivers(node)``."""
    seen = {publisher}

    def send_on(node: int, held: bool) -> Iterator[tuple[int, bool]]:
        return ((other, held) for other in receivers(node))

    def take(node: int, held: bool) -> bool | None:
        if node in seen:
            return None
        seen.add(node)
        return held

    return _spread(publisher, True, send_on, take)


def _flood(
    parameters: FloodParameters, model: OverlayModel, subscribed: Subscribed, publisher: int, topics: frozenset[int]
) -> int:
    """Count copies of a flood. A relay reduces the TTL by 1, and at TTL 0 a node sends to subscribers only."""
    interested = [not own.isdisjoint(topics) for own in subscribed]
    seen = {publisher}

    def send_on(node: int, ttl: int) -> Iterator[tuple[int, int]]:
        return ((other, ttl) for other in model.neighbours[node] if ttl or interested[other])

    def take(node: int, ttl: int) -> int | None:
        if node in seen:
            return None
        seen.add(node)
        return ttl if interested[node] or ttl == UNLIMITED_TTL else max(ttl - 1, 0)

    return _spread(publisher, parameters.ttl, send_on, take)


def _topic_flood(
    parameters: TopicFloodParameters,
    model: OverlayModel,
    subscribed: Subscribed,
    publisher: int,
    topics: frozenset[int],
) -> int:
    """Count copies along the links that carry the message's topics: one with all topics, or one per topic."""
    if not parameters.whole:
        return spread_by_topics(model, subscribed, publisher, topics)
    return spread_once(
        publisher, lambda node: (other for other, carried in links_of(model, subscribed, node) if topics & carried)
    )


def spread_by_topics(model: OverlayModel, subscribed: Subscribed, publisher: int, topics: frozenset[int]) -> int:
    """Count copies if each has the message's topics that its link carries, and every node forwards a topic once."""
    passed = {publisher: topics}

    def send_on(node: int, held: frozenset[int]) -> Iterator[tuple[int, frozenset[int]]]:
        return ((other, sent) for other, carried in links_of(model, subscribed, node) if (sent := held & carried))

    def take(node: int, sent: frozenset[int]) -> frozenset[int] | None:
        before = passed.get(node, frozenset())
        passed[node] = before | sent
        return sent - before or None

    return _spread(publisher, topics, send_on, take)


def links_of(model: OverlayModel, subscribed: Subscribed, node: int) -> Iterable[tuple[int, frozenset[int] | set[int]]]:
    """Return a node's neighbours and the topics on which it sends to each."""
    if model.logical is not None:
        return model.logical[node].items()
    return ((other, subscribed[node] & subscribed[other]) for other in model.neighbours[node])


_RULES: dict[str, Callable[[Any, OverlayModel, Subscribed, int, frozenset[int]], int]] = {
    "flood": _flood,
    "topic-flood": _topic_flood,
}
