"""Describes an assignment of interests to nodes, independent of the overlay."""

from collections.abc import Iterator, Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from metrics.overlay.snapshot import Integers

Reals = npt.NDArray[np.float32]

_BLOCK = 512
"""The number of nodes that are compared with all others at a time: 20 MB for 10,000 nodes."""


def intersect_top(count: int, interests: Integers, depth: int) -> float | None:
    """Return the top-d intersection: the mean share of a node's interests in its ``depth`` nearest nodes (0..1).

    The intersection of two nodes is |common topics| / min(|topics of one|, |topics of the other|); SpiderCast prints it
    in percent. Nodes without interests are left out. The result is None if fewer than two nodes have any.

    Args:
        count: nodes.
        interests: (s, 2) node, topic; each once.
        depth: d; more than the number of other nodes does not count.

    Source: SpiderCast section 3.4.
    """
    matrix = interest_matrix(count, interests)
    matrix = matrix[matrix.any(axis=1)]
    depth = min(depth, len(matrix) - 1)
    if depth < 1:
        return None
    sizes = matrix.sum(axis=1)
    total = 0.0
    for first, common in _blocks(matrix):
        common /= np.minimum(sizes[first : first + len(common), None], sizes)
        common[np.arange(len(common)), first + np.arange(len(common))] = -1  # a node is not its own neighbour
        total += float(np.partition(common, -depth, axis=1)[:, -depth:].sum(dtype=np.float64))
    return total / (len(matrix) * depth)


def correlate(count: int, interests: Integers, topics: int, levels: Sequence[float]) -> list[float]:
    """Return the share of pairs of nodes whose subscriptions correlate, at each confidence level (0..1).

    The measure is Pearson's correlation r of the two nodes' subscriptions, as vectors of 0 and 1 over all topics. It
    differs from 0 at a level if sqrt(topics) |r| reaches the normal distribution's two-sided quantile (the chi-squared
    test of the pair's 2 x 2 table). A node with no topic or with all of them correlates with no other node.

    StAN's Table 1 prints "% Nodes" by "confidence level" without a definition, and its text speaks of the correlation
    of each pair of subscriptions. ``correlate_topics`` interprets this as pairs of topics, this function as pairs of
    nodes.

    Args:
        count: nodes.
        interests: (s, 2) node, topic; each once.
        topics: how many topics there are, with subscribers or without.
        levels: such as 0.95.

    Source: StAN section 3, Table 1.
    """
    return _correlate_rows(count, interests, topics, levels)


def correlate_topics(count: int, interests: Integers, topics: int, levels: Sequence[float]) -> list[float]:
    """Return the share of pairs of topics whose subscribers correlate: as ``correlate``, for vectors over all nodes.

    A topic with no subscriber or with all nodes correlates with no other topic. Arguments and source: see
    ``correlate``.

    Args:
        count: the number of nodes.
        interests: (s, 2) node, topic; each once.
        topics: how many topics there are, with subscribers or without.
        levels: such as 0.95.
    """
    return _correlate_rows(topics, interests[:, ::-1], count, levels)


def _correlate_rows(count: int, interests: Integers, topics: int, levels: Sequence[float]) -> list[float]:
    """Return the share of pairs of rows, 0 .. count - 1, that correlate over ``topics`` columns."""
    matrix = interest_matrix(count, interests)
    sizes = matrix.sum(axis=1).astype(np.float64)
    spread = np.sqrt(sizes * (topics - sizes))
    scale = np.divide(1, spread, out=np.zeros(count), where=spread > 0)
    limits = [NormalDist().inv_cdf((1 + level) / 2) / np.sqrt(topics) for level in levels]
    reached = np.zeros(len(levels), np.int64)
    for first, common in _blocks(matrix):
        own = slice(first, first + len(common))
        r = np.abs((topics * common - np.outer(sizes[own], sizes)) * np.outer(scale[own], scale))
        r[np.arange(len(common)), first + np.arange(len(common))] = -1
        reached += [np.count_nonzero(r >= limit) for limit in limits]
    return [float(pairs / max(count * (count - 1), 1)) for pairs in reached]


def interest_matrix(count: int, interests: Integers) -> Reals:
    """Return (count, topics with a subscriber) 1 where the node subscribes; sums of products are exact in float32."""
    topics, columns = np.unique(interests[:, 1], return_inverse=True)
    matrix = np.zeros((count, len(topics)), np.float32)
    matrix[interests[:, 0], columns.ravel()] = 1
    return matrix


def _blocks(matrix: Reals) -> Iterator[tuple[int, Reals]]:
    """Yield blocks of rows of the matrix of common topics, each with the number of its first row."""
    for first in range(0, len(matrix), _BLOCK):
        yield first, matrix[first : first + _BLOCK] @ matrix.T
