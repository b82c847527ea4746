"""The population and its changes: turns sessions and interests, or a script, into actions."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from harness.errors import ExperimentError
from harness.experiment.sections.workload import ScriptedAction
from harness.workload.churn import Session, Sessions, Span
from harness.workload.interests import InterestModel, Interests, Topics
from peer.core.schedule import Change, Crash, Join, Leave, Population, Vanish


class MembershipPlan(NamedTuple):
    """Which nodes are up at the start, with which topics (none if a node is down), and the changes in order of time."""

    up: tuple[bool, ...]
    interests: Interests
    changes: tuple[Change, ...]


def first_population(up: Sequence[bool], interests: Interests) -> Population:
    """Return the population at the start; index = node."""
    return Population({node: topics for node, topics in enumerate(interests) if up[node]})


def follow_sessions(sessions: Sessions, model: InterestModel, span: Span, new_interests: bool) -> MembershipPlan:
    """Return the membership of drawn or recorded sessions. ``new_interests``: draw new topics at every join."""
    up: list[bool] = []
    interests: list[Topics] = []
    changes: list[Change] = []
    for node, own in enumerate(sessions):
        up.append(bool(own) and own[0].from_ns == span.start_ns)
        interests.append(model.draw(node, 0) if up[node] else ())
        for life, session in enumerate(own):
            if session.from_ns > span.start_ns:
                topics = model.draw(node, life if new_interests else 0)
                changes.append(Join(session.from_ns, node, topics))
            if session.to_ns < span.end_ns:
                changes.append(_make_end(session, node))
    changes.sort(key=lambda action: action.at_ns)
    return MembershipPlan(tuple(up), tuple(interests), tuple(changes))


def _make_end(session: Session, node: int) -> Change:
    if not session.crashes:
        return Leave(session.to_ns, node)
    return Vanish(session.to_ns, node) if session.silent else Crash(session.to_ns, node)


def follow_script(
    script: tuple[ScriptedAction, ...], model: InterestModel, nodes: int, topics: int, span: Span
) -> MembershipPlan:
    """Return the membership of a script. A node whose first join is before any leave or crash is down at the start.

    Args:
        script: its entries, in any order.
        model: draws the topics at the start, and those of a join without topics.
        nodes: number of nodes.
        topics: number of topics.
        span: the interval in which the entries must lie.

    Raises:
        ExperimentError: the script is impossible; the place is its entry.
    """
    entries = _entries_by_node(script)
    up = _starters((entry for _, entry in entries), nodes)
    interests = tuple(model.draw(node, 0) if is_up else () for node, is_up in enumerate(up))
    population = first_population(up, interests)
    lives = [int(is_up) for is_up in up]
    changes: list[Change] = []
    for place, entry in entries:
        try:
            _check_range(entry, nodes, topics, span)
            change = _make_change(entry, model, lives[entry.node])
            population.apply(change)
        except ValueError as error:
            raise ExperimentError(f"$.churn.script[{place}]", str(error)) from None
        lives[entry.node] += isinstance(change, Join)
        changes.append(change)
    return MembershipPlan(up, interests, tuple(changes))


def _entries_by_node(script: Sequence[ScriptedAction]) -> list[tuple[int, ScriptedAction]]:
    """Return the entries in order of time, each with its place and once for each of its nodes."""
    single = (
        (place, replace(entry, node=entry.node + more))
        for place, entry in enumerate(script)
        for more in range(entry.count)
    )
    return sorted(single, key=lambda pair: pair[1].at_s)


def _starters(entries: Iterable[ScriptedAction], nodes: int) -> tuple[bool, ...]:
    """Return whether each node is up at the start: it is unless its first entry is a join."""
    first: dict[int, str] = {}
    for entry in entries:
        first.setdefault(entry.node, entry.action)
    return tuple(first.get(node) != "join" for node in range(nodes))


def _check_range(entry: ScriptedAction, nodes: int, topics: int, span: Span) -> None:
    """Refuse an entry outside the run. ``Population`` checks whether the change is possible at that time.

    Raises:
        ValueError: the entry is outside the run.
    """
    if not span.start_ns <= _instant_ns(entry) < span.end_ns:
        raise ValueError(f"{entry.at_s:g} s is not within the run, {span.start_ns / 1e9:g} to {span.end_ns / 1e9:g} s")
    if entry.node >= nodes:
        raise ValueError(f"expected a node from 0 to {nodes - 1}, got {entry.node}")
    if any(topic >= topics for topic in entry.topics):
        raise ValueError(f"expected topics from 0 to {topics - 1}, got {list(entry.topics)}")


def _make_change(entry: ScriptedAction, model: InterestModel, life: int) -> Change:
    """Return the change of an entry. A join without topics takes those that the model draws.

    Raises:
        ValueError: the entry names topics for an action that takes none.
    """
    topics = tuple(sorted(entry.topics))
    if topics and entry.action in ("leave", "crash", "vanish"):
        raise ValueError(f'"{entry.action}" takes no topics')
    if entry.action == "join":
        topics = topics or model.draw(entry.node, life)
    fields = {"action": entry.action, "at_ns": _instant_ns(entry), "node": entry.node, "topics": topics}
    change: Change = msgspec.convert(fields, Change)
    return change


def _instant_ns(entry: ScriptedAction) -> int:
    return round(entry.at_s * 1e9)
