"""The arrays that all measures read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Snapshot:
    """Who is up at an instant, with which interests and links. Nodes go by their place 0 .. count-1.

    Attributes:
        count: nodes that are up.
        interests: (s, 2) subscriptions (node, topic), each once; topics keep their numbers.
        links: (l, 2) physical links, the lower place first, each once, no link of a node with itself.
        views: (v, 3) logical links (node, neighbour, topic), each by the word of the node alone, each once.
    """

    count: int
    interests: Integers
    links: Integers
    views: Integers

    @classmethod
    def of(cls, nodes: npt.ArrayLike, interests: npt.ArrayLike, links: npt.ArrayLike, views: npt.ArrayLike) -> Snapshot:
        """Put nodes into their places; leave out what concerns a node that is not up, and what is there twice.

        Args:
            nodes: (n,) the numbers of the nodes that are up, in any order.
            interests: (., 2) node, topic.
            links: (., 2) node, neighbour: by the word of one of them or of both.
            views: (., 3) node, neighbour, topic.
        """
        numbers = np.unique(np.asarray(nodes, np.int64))
        pairs = np.sort(_place(numbers, _rows(links, 2), 2), axis=1)
        return cls(
            len(numbers),
            np.unique(_place(numbers, _rows(interests, 2), 1), axis=0),
            np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0),
            np.unique(_place(numbers, _rows(views, 3), 2), axis=0),
        )


def _rows(values: npt.ArrayLike, width: int) -> Integers:
    return np.asarray(values, np.int64).reshape(-1, width)


def _place(numbers: Integers, rows: Integers, ends: int) -> Integers:
    """The rows whose first ``ends`` columns are nodes that are up, with their places there."""
    if not len(numbers):
        return rows[:0]
    places = np.minimum(np.searchsorted(numbers, rows[:, :ends]), len(numbers) - 1)
    known = (numbers[places] == rows[:, :ends]).all(axis=1)
    placed: Integers = np.hstack((places, rows[:, ends:]))[known]
    return placed
