"""The arrays that all measures read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Snapshot:
    """The nodes that are up at an instant, with their interests and links. Nodes are numbered by place, 0 .. count-1.

    Adversaries have the places from ``count`` on. They count only as neighbours of the honest nodes: honest nodes that
    are connected only through adversaries count as not connected.
    """

    count: int  # nodes that are up and honest
    interests: Integers  # (s, 2) subscriptions (node, topic), each once; topics keep their numbers
    links: Integers  # (l, 2) physical links, the lower place first, each once, no link of a node with itself
    views: Integers  # (v, 3) logical links (node, neighbour, topic), each as the node reports it, each once
    links_aside: Integers  # (., 2) physical links with adversaries, the honest node first
    views_aside: Integers  # (., 3) logical links with adversaries, as the honest node reports them
    openings: (
        Integers  # (o, 2) the connections of the physical links, each once: the node that opened it, the other one
    )

    @classmethod
    def of(
        cls,
        nodes: npt.ArrayLike,
        interests: npt.ArrayLike,
        links: npt.ArrayLike,
        views: npt.ArrayLike,
        adversaries: Collection[int] = (),
        openings: npt.ArrayLike = (),
    ) -> Snapshot:
        """Put nodes into their places; leave out duplicates, and rows about nodes that are not up.

        Args:
            nodes: (n,) the numbers of the nodes that are up, in any order.
            interests: (., 2) node, topic.
            links: (., 2) node, neighbour: reported by one of them or by both.
            views: (., 3) node, neighbour, topic.
            adversaries: which of all nodes misbehave.
            openings: (., 2) opener, other node: reported by one of them or by both.
        """
        numbers = np.unique(np.asarray(nodes, np.int64))
        bad = np.isin(numbers, list(adversaries))
        places = np.argsort(np.argsort(bad, kind="stable"))
        count = int(np.sum(~bad))
        pairs = np.sort(_place(numbers, places, _rows(links, 2), 2), axis=1)
        pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
        held = np.unique(_place(numbers, places, _rows(views, 3), 2), axis=0)
        wanted = np.unique(_place(numbers, places, _rows(interests, 2), 1), axis=0)
        opened = np.unique(_place(numbers, places, _rows(openings, 2), 2), axis=0)
        pairs, held, wanted = (rows[rows[:, 0] < count] for rows in (pairs, held, wanted))
        among, known = pairs[:, 1] < count, held[:, 1] < count
        opened = opened[(opened.min(axis=1, initial=count) < count) & (opened[:, 0] != opened[:, 1])]
        return cls(count, wanted, pairs[among], held[known], pairs[~among], held[~known], opened)


def _rows(values: npt.ArrayLike, width: int) -> Integers:
    return np.asarray(values, np.int64).reshape(-1, width)


def _place(numbers: Integers, places: Integers, rows: Integers, ends: int) -> Integers:
    """Return the rows whose first ``ends`` columns are nodes that are up, with the nodes' places."""
    if not len(numbers):
        return rows[:0]
    found = np.minimum(np.searchsorted(numbers, rows[:, :ends]), len(numbers) - 1)
    known = (numbers[found] == rows[:, :ends]).all(axis=1)
    placed: Integers = np.hstack((places[found], rows[:, ends:]))[known]
    return placed
