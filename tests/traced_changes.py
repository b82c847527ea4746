"""Nodes that join, leave and change their topics, as traces describe them: for tests of what is made of such events."""

from typing import Any, NamedTuple

from hypothesis import strategies as st

from peer.trace import CRASHED, JOINED, LEFT

Row = dict[str, Any]

NODES, TOPICS = range(5), range(4)

topic_sets = st.sets(st.sampled_from(TOPICS))


class History(NamedTuple):
    """The topics of each node at the start, None for a node that is down; and what changes, in order of time."""

    starters: list[set[int] | None]
    changes: list[Row]

    def held(self, node: int, at_ns: int) -> set[int] | None:
        """Return the topics of a node at an instant, after the changes of that instant; None if it is down."""
        held = self.starters[node]
        for change in self.changes:
            if change["node"] == node and change["ts_ns"] <= at_ns:
                held = change["then"]
        return held

    def joined_ns(self, node: int, at_ns: int) -> int | None:
        """Return when a node last joined by an instant; None if it did not."""
        joins = [row["ts_ns"] for row in self.changes if row["node"] == node and row["reason"] == JOINED]
        return max((each for each in joins if each <= at_ns), default=None)

    def starter_rows(self) -> list[Row]:
        """Return the rows of ``metrics.tables.interests.STARTERS``."""
        return [
            {"node": node, "topics": sorted(topics or ()), "up": topics is not None}
            for node, topics in enumerate(self.starters)
        ]

    def change_rows(self) -> list[Row]:
        """Return the events, one node's after the other's."""
        rows = [{name: value for name, value in row.items() if name != "then"} for row in self.changes]
        return sorted(rows, key=lambda row: int(row["node"]))


@st.composite
def histories(draw: st.DrawFn, instants: st.SearchStrategy[int]) -> History:
    """Draw what happens to the nodes; a change that cannot happen is left out."""
    starters = draw(st.lists(st.none() | topic_sets, min_size=len(NODES), max_size=len(NODES)))
    kinds = st.sampled_from(["join", "leave", "crash", "subscribe", "unsubscribe"])
    steps = draw(st.lists(st.tuples(instants, st.sampled_from(NODES), kinds, topic_sets), max_size=12))
    held = dict(enumerate(starters))
    changes: list[Row] = []
    for at_ns, node, kind, topics in sorted(steps, key=lambda step: step[0]):
        own = held[node]
        reason: str | None = None
        if kind == "join" and own is None:
            reason, named, held[node] = JOINED, topics, topics
        elif kind in ("leave", "crash") and own is not None:
            reason, named, held[node] = (LEFT if kind == "leave" else CRASHED), own, None
        elif kind == "subscribe" and own is not None and topics - own:
            named, held[node] = topics - own, own | topics
        elif kind == "unsubscribe" and own is not None and topics & own:
            named, held[node] = topics & own, own - topics
        else:
            continue
        event = "join" if kind in ("join", "subscribe") else "leave"
        row = {"event": event, "node": node, "ts_ns": at_ns, "topics": sorted(named), "reason": reason}
        changes.append(row | {"then": held[node]})
    return History(starters, changes)
