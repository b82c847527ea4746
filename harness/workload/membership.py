"""Who is up with which interests, and how that changes: a node's sessions and its interests become actions."""

from __future__ import annotations

from typing import NamedTuple

from harness.errors import ExperimentError
from harness.experiment import ScriptedAction
from harness.workload.churn import Sessions, Span
from harness.workload.interests import InterestModel, Interests, Topics
from peer.runtime.lifecycle import CRASH, JOIN, LEAVE, SUBSCRIBE, UNSUBSCRIBE
from peer.runtime.spec import Action


class Membership(NamedTuple):
    """Who is up at the start, with which topics (none where not up), and the changes in the order of their instants."""

    up: tuple[bool, ...]
    interests: Interests
    changes: tuple[Action, ...]


def follow_sessions(sessions: Sessions, model: InterestModel, span: Span, new_interests: bool) -> Membership:
    """What drawn or recorded sessions come to; ``new_interests``: topics are drawn anew at every join."""
    up: list[bool] = []
    interests: list[Topics] = []
    changes: list[Action] = []
    for node, own in enumerate(sessions):
        up.append(bool(own) and own[0].from_ns == span.start_ns)
        interests.append(model.draw(node, 0) if up[node] else ())
        for life, session in enumerate(own):
            if session.from_ns > span.start_ns:
                topics = model.draw(node, life if new_interests else 0)
                changes.append(Action(session.from_ns, node, JOIN, topics=topics))
            if session.to_ns < span.end_ns:
                changes.append(Action(session.to_ns, node, CRASH if session.crashes else LEAVE))
    changes.sort(key=lambda action: action.at_ns)
    return Membership(tuple(up), tuple(interests), tuple(changes))


def follow_script(
    script: tuple[ScriptedAction, ...], model: InterestModel, nodes: int, topics: int, span: Span
) -> Membership:
    """What a script comes to. A node whose first join comes before any leave or crash is down at the start.

    Raises:
        ExperimentError: the script asks for what cannot be; the place is its entry.
    """
    order = sorted(range(len(script)), key=lambda place: script[place].at_s)
    crowd = _Crowd(model, _starters(script, order, nodes))
    up, first = tuple(crowd.up), tuple(crowd.interests)
    changes = []
    for place in order:
        action = script[place]
        at_ns = round(action.at_s * 1e9)
        problem = _problem(action, at_ns, nodes, topics, span) or crowd.problem(action)
        if problem:
            raise ExperimentError(f"$.churn.script[{place}]", problem)
        changes.append(Action(at_ns, action.node, action.action, topics=crowd.apply(action)))
    return Membership(up, first, tuple(changes))


def _starters(script: tuple[ScriptedAction, ...], order: list[int], nodes: int) -> list[bool]:
    """Whether each node is up at the start: unless the first thing it does is to join."""
    first: dict[int, str] = {}
    for place in order:
        first.setdefault(script[place].node, script[place].action)
    return [first.get(node) != JOIN for node in range(nodes)]


def _problem(action: ScriptedAction, at_ns: int, nodes: int, topics: int, span: Span) -> str:
    """What is wrong with an entry on its own."""
    if not span.start_ns <= at_ns < span.end_ns:
        return f"{action.at_s:g} s is not within the run, {span.start_ns / 1e9:g} .. {span.end_ns / 1e9:g} s"
    if action.node >= nodes:
        return f"node {action.node}: the run has the nodes 0 .. {nodes - 1}"
    if any(topic >= topics for topic in action.topics) or len(set(action.topics)) < len(action.topics):
        return f"expected different topics of 0 .. {topics - 1}, got {list(action.topics)}"
    if action.action in (LEAVE, CRASH) and action.topics:
        return f'"{action.action}" takes no topics'
    if action.action in (SUBSCRIBE, UNSUBSCRIBE) and not action.topics:
        return f'"{action.action}" needs topics'
    return ""


class _Crowd:
    """Who is up with which topics while a script goes on."""

    def __init__(self, model: InterestModel, up: list[bool]) -> None:
        self.up = up
        self.interests = [model.draw(node, 0) if is_up else () for node, is_up in enumerate(up)]
        self._model = model
        self._lives = [int(is_up) for is_up in up]

    def problem(self, action: ScriptedAction) -> str:
        """Why this cannot happen now."""
        node, own = action.node, self.interests[action.node]
        if self.up[node] == (action.action == JOIN):
            return f"node {node} is {'up' if self.up[node] else 'down'} at {action.at_s:g} s"
        wanted = action.action == UNSUBSCRIBE
        if action.action in (SUBSCRIBE, UNSUBSCRIBE):
            wrong = [topic for topic in action.topics if (topic in own) != wanted]
            if wrong:
                return f"node {node} {'does not subscribe' if wanted else 'subscribes'} to {wrong} at {action.at_s:g} s"
        return ""

    def apply(self, action: ScriptedAction) -> Topics:
        """Do it; the topics that the action names, in rising order."""
        node, topics = action.node, tuple(sorted(action.topics))
        own = set(self.interests[node])
        if action.action == JOIN:
            topics = topics or self._model.draw(node, self._lives[node])
            self._lives[node] += 1
            own = set(topics)
        elif action.action in (LEAVE, CRASH):
            own = set()
        elif action.action == SUBSCRIBE:
            own.update(topics)
        else:
            own.difference_update(topics)
        if action.action in (JOIN, LEAVE, CRASH):
            self.up[node] = action.action == JOIN
        self.interests[node] = tuple(sorted(own))
        return topics
