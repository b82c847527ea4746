"""Measure the overlay at instants of a run with ``metrics.overlay``, from instances, subscriptions and links."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metrics.overlay.nodes import count_links
from metrics.overlay.snapshot import Snapshot
from metrics.overlay.topics import measure_topics
from metrics.tables.columns import numbers

MOST_INSTANTS = 60
FEWEST_INSTANTS = 10
LOOKS = 100_000
"""The most nodes to look at, over all instants: with 1,667 nodes or more there are fewer than 60 instants."""

_SECOND_NS = 1_000_000_000
Rows = list[dict[str, Any]]


class Intervals(NamedTuple):
    """Rows that last from from_ns to to_ns (half open)."""

    instances: pa.Table  # node
    interests: pa.Table  # node, topic
    physical: pa.Table  # node, peer, opened (by the node; null = not reported); reported by either node
    logical: pa.Table  # node, peer, topic; reported by the node
    adversaries: frozenset[int] = frozenset()  # the nodes that misbehave on purpose

    def at(self, at_ns: int) -> tuple[npt.NDArray[np.int64], Snapshot]:
        """Return the numbers of the honest nodes that are up, rising, and the overlay at that instant."""
        nodes = np.unique(_lasting(self.instances, at_ns, "node"))
        interests = _lasting(self.interests, at_ns, "node", "topic")
        links = _lasting(self.physical, at_ns, "node", "peer", "opened")
        openings = np.where(links[:, 2:] == 1, links[:, :2], links[:, 1::-1])
        views = _lasting(self.logical, at_ns, "node", "peer", "topic")
        honest = nodes[~np.isin(nodes, list(self.adversaries))]
        return honest, Snapshot.of(nodes, interests, links[:, :2], views, self.adversaries, openings)


def _lasting(table: pa.Table, at_ns: int, *columns: str) -> npt.NDArray[np.int64]:
    """Return some columns of the rows whose interval contains the instant, with 0 for null."""
    since, until = (table[name].to_numpy() for name in ("from_ns", "to_ns"))
    lasts = (since <= at_ns) & (at_ns < until)
    return np.stack([numbers(table[name], 0)[lasts] for name in columns], axis=1)


def choose_instants(grid: tuple[int, int, int], end_ns: int, nodes: int) -> list[int]:
    """Choose full seconds of the grid (see ``links.build_sharing``), evenly spread, with zero; and ``end_ns``.

    Args:
        grid: see ``metrics.tables.timespans``.
        end_ns: the last instant.
        nodes: the number of nodes of the run.
    """
    zero_ns, first, last = grid
    most = min(max(LOOKS // max(nodes, 1), FEWEST_INSTANTS), MOST_INSTANTS)
    step = -(-(last - first + 1) // most)
    return sorted({zero_ns + k * _SECOND_NS for k in range(first, last + 1) if k % step == 0} | {zero_ns, end_ns})


def build_parts(intervals: Intervals, instants: list[int]) -> tuple[Rows, Rows]:
    """Return ``overlay_topics`` and ``overlay_degrees``: one row per instant and topic, or per instant and node up."""
    topics: Rows = []
    degrees: Rows = []
    for at_ns in instants:
        nodes, snapshot = intervals.at(at_ns)
        topics += [{"at_ns": at_ns} | topic._asdict() for topic in measure_topics(snapshot)]
        subscriptions = np.bincount(snapshot.interests[:, 0], minlength=snapshot.count)
        columns = {"node": nodes, "subscriptions": subscriptions} | count_links(snapshot)._asdict()
        degrees += [{"at_ns": at_ns} | row for row in pa.table(columns).to_pylist()]
    return topics, degrees
