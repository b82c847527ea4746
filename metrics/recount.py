"""Count the deliveries that a run's documents call for without Spark, from schedule and initial subscriptions alone.

This module does not use ``peer.core.schedule``, on purpose: the run was planned and enacted with that module's
``Population``, and a mistake there would also be in a count that uses it. So this module reads the documents as plain
JSON and applies the changes with its own code.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from metrics.rundir import NodeOutline, RunDir
from peer.core.addressing.expression import And, Attribute, Expression, parse
from peer.core.addressing.keywords import topic_of

ENDS = ("leave", "crash", "vanish")

_NO_LAGS: Final[Mapping[int, int]] = {}


class Recount(NamedTuple):
    """The number of expected (message, subscriber) pairs, and for how many more or fewer the documents are uncertain.

    A pair is uncertain if its node joined, settled, left or changed its subscription at about the instant of the
    publication: then the order of the two depends on the peers' delays.
    """

    expected: int
    uncertain: int


def recount(run: RunDir, margin_ns: int, settle_ns: int, lags_ns: Mapping[int, int] = _NO_LAGS) -> Recount:
    """Count the deliveries that are expected.

    Args:
        run: the run.
        margin_ns: how close to each other two instants of the schedule may have changed places.
        settle_ns: the time after a join in which no deliveries to the node are expected.
        lags_ns: by message, how much later than scheduled it was published; such a publication may have changed places
            with changes that are as close to it.
    """
    changes: list[tuple[int, int, frozenset[int]]] = []
    expected = sum(len(due) for _, due in list_due(run.overlay, run.schedule(), settle_ns, changes))
    if not changes:
        return Recount(expected, 0)
    changes.sort(key=lambda change: change[0])
    publications = (action for action in run.schedule() if action["action"] == "publish")
    return Recount(expected, sum(_count_close(publications, changes, margin_ns, lags_ns)))


def list_due(
    nodes: Iterable[NodeOutline],
    schedule: Iterable[dict[str, Any]],
    settle_ns: int,
    changes: list[tuple[int, int, frozenset[int]]] | None = None,
) -> Iterator[tuple[dict[str, Any], set[int]]]:
    """Yield each publication of a schedule, with the nodes at which its delivery is expected.

    Args:
        nodes: with their topics at the start.
        schedule: the lines of ``schedule.jsonl``.
        settle_ns: the time after a join in which no deliveries to the node are expected.
        changes: gets the changes of the schedule, and the ends of the times after joins: (instant in ns, node, topics).
    """
    topics = {spec.node: set(spec.topics) for spec in nodes}
    members: dict[int, set[int]] = {}
    for node, own in topics.items():
        for topic in own:
            members.setdefault(topic, set()).add(node)
    due_ns: dict[int, int] = {}  # for nodes that have joined: when deliveries begin to be expected
    for action in schedule:
        at_ns, node = action["at_ns"], action["node"]
        if action["action"] == "publish":
            others = _audience(action, members) - {node}
            yield action, {other for other in others if due_ns.get(other, at_ns) <= at_ns}
            continue
        changed = frozenset(_apply(action, topics, members))
        found = [(at_ns, node, changed)]
        if action["action"] == "join":
            due_ns[node] = at_ns + settle_ns
            found.append((due_ns[node], node, changed))
        if changes is not None:
            changes += found


def count_changes(run: RunDir) -> int:
    """Count the ``join`` and ``leave`` events that the scheduled changes cause in complete traces."""
    total = 0
    for action in run.schedule():
        if action["action"] in ("subscribe", "unsubscribe"):
            total += len(action["topics"])
        elif action["action"] != "publish":
            total += 1
    return total


def _apply(action: dict[str, Any], topics: dict[int, set[int]], members: dict[int, set[int]]) -> Iterable[int]:
    """Apply a change, and return the topics that it begins or ends."""
    node, own = action["node"], topics[action["node"]]
    changed = set(own) if action["action"] in ENDS else set(action["topics"])
    gone = action["action"] in (*ENDS, "unsubscribe")
    for topic in changed:
        (own.discard if gone else own.add)(topic)
        subscribers = members.setdefault(topic, set())
        (subscribers.discard if gone else subscribers.add)(node)
    return changed


def _audience(action: dict[str, Any], members: dict[int, set[int]]) -> set[int]:
    """Return the nodes that a publication is for."""
    if "expression" in action:
        return _satisfying(parse(action["expression"]), members)
    return set().union(*(members.get(topic, set()) for topic in action["topics"]))


def _satisfying(expression: Expression, members: dict[int, set[int]]) -> set[int]:
    """Return the nodes that satisfy an expression, by the expression itself and not by its disjunctive form."""
    if isinstance(expression, Attribute):
        return members.get(topic_of(expression.name), set())
    operands = [_satisfying(operand, members) for operand in expression.operands]
    return set.intersection(*operands) if isinstance(expression, And) else set().union(*operands)


def _named(action: dict[str, Any]) -> set[int]:
    """Return the topics that decide for which nodes a publication is."""
    words = re.findall("[a-z]+", action.get("expression", ""))
    return {topic_of(word) for word in words} or set(action["topics"])


def _count_close(
    publications: Iterable[dict[str, Any]],
    changes: list[tuple[int, int, frozenset[int]]],
    margin_ns: int,
    lags_ns: Mapping[int, int],
) -> Iterator[int]:
    """Yield for each publication the number of other nodes whose interest in it changed at about its instant."""
    instants = [at_ns for at_ns, _, _ in changes]
    for action in publications:
        distance_ns = max(margin_ns, lags_ns.get(action.get("message_id", -1), 0))
        first = bisect_left(instants, action["at_ns"] - distance_ns)
        last = bisect_right(instants, action["at_ns"] + distance_ns)
        topics = _named(action)
        close = {node for _, node, changed in changes[first:last] if not changed.isdisjoint(topics)}
        yield len(close - {action["node"]})
