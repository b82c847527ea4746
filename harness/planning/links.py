"""Makes the links of ``[underlay]`` and ``[[underlay.links]]``: rates and queues of access links, values of pairs.

Later entries take the place of earlier ones, key by key.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from harness.errors import ExperimentError
from harness.experiment.form import Experiment
from harness.experiment.links import ACCESS, PAIRS
from harness.experiment.sections.underlay import LinksSpec, UnderlaySpec
from harness.planning.groups import Groups, Nodes
from topologies.limits import LARGEST_DELAY_MS
from topologies.model import DOWN, UP, Host, Matrix
from topologies.network import OfPair

_RATES = {"rate_mbit": (UP, DOWN), "up_mbit": (UP,), "down_mbit": (DOWN,)}
"""Which directions each key sets."""


class Block(NamedTuple):
    """The directed pairs from some hosts to others, and what an entry sets for them; None = nothing."""

    sources: Nodes
    destinations: Nodes
    jitter_ms: float | None
    loss_ratio: float | None


class Links(NamedTuple):
    """What an experiment sets for its links.

    Attributes:
        rate_mbit: (2, n) rates of the access links, ``UP`` and ``DOWN``; 0 = unlimited.
        queue_ms: (2, n) lengths of their queues.
        blocks: of pairs; later ones take the place of earlier ones.
    """

    rate_mbit: Matrix
    queue_ms: Matrix
    blocks: tuple[Block, ...]

    def fill(self, name: str, matrix: Matrix) -> Matrix:
        """Return the (n, n) values of all pairs, ``jitter_ms`` or ``loss_ratio``, with those of the blocks."""
        blocks = self._of(name)
        if blocks:
            matrix = matrix.copy()
        for block in blocks:
            matrix[np.ix_(sorted(block.sources), sorted(block.destinations))] = getattr(block, name)
        if blocks:
            np.fill_diagonal(matrix, 0.0)
        return matrix

    def of_pair(self, name: str, value: float) -> OfPair | None:
        """Return the same as a function of the pair, for one value of all pairs; None if it is 0 everywhere."""
        last_first: list[tuple[Nodes, Nodes, float]] = [
            (block.sources, block.destinations, round(getattr(block, name), 6)) for block in reversed(self._of(name))
        ]
        if not any(own for _, _, own in last_first) and not value:
            return None

        def find(source: int, destination: int) -> float:
            for sources, destinations, own in last_first:
                if source in sources and destination in destinations:
                    return own
            return value

        return find

    def _of(self, name: str) -> list[Block]:
        return [block for block in self.blocks if getattr(block, name) is not None]


def make_links(experiment: Experiment, hosts: Sequence[Host], rate_mbit: Matrix) -> Links:
    """Return the links of an experiment, with access links rounded as in ``underlay.json``.

    Args:
        experiment: with ``underlay``, ``groups`` and the seed.
        hosts: of the underlay.
        rate_mbit: (2, n) rates of the data's access links, which hold where the experiment sets none.

    Raises:
        ExperimentError: a group is unknown or does not fit, or a queue is too long.
    """
    spec, groups = experiment.underlay, Groups(experiment, hosts)
    members = [_members(entry, f"$.underlay.links[{number}]", groups) for number, entry in enumerate(spec.links)]
    entries = list(zip(spec.links, members, strict=True))
    owned = [(entry, nodes) for entry, (nodes, _) in entries if entry.nodes is not None]
    rate_mbit, queue_ms = _access([(spec, groups.everyone), *owned], rate_mbit)
    blocks = tuple(block for entry, pair in entries for block in _blocks(entry, *pair))
    return Links(np.round(rate_mbit, 6), np.round(queue_ms, 6), blocks)


def describe_links(experiment: Experiment, hosts: Sequence[Host]) -> Iterator[str]:
    """Yield a line per entry: how many hosts or pairs it concerns, and the keys that it sets."""
    groups, size = Groups(experiment, hosts), len(hosts)
    for number, entry in enumerate(experiment.underlay.links):
        one, other = _members(entry, f"$.underlay.links[{number}]", groups)
        if access := _given(entry, ACCESS):
            yield f"{len(one):,} of {size:,} hosts: {access}"
        if own := _given(entry, PAIRS):
            pairs, both = len(one) * len(other) - len(one & other), len(one & other) * (len(one & other) - 1)
            reached = 2 * pairs - both if entry.direction == "both" else pairs
            yield f"{reached:,} of {size * (size - 1):,} directed pairs: {own}"


def _given(entry: LinksSpec, keys: Sequence[str]) -> str:
    return ", ".join(f"{key} = {own:g}" for key in keys if (own := getattr(entry, key)) is not None)


def _access(sections: Sequence[tuple[UnderlaySpec | LinksSpec, Nodes]], rate_mbit: Matrix) -> tuple[Matrix, Matrix]:
    """Return rates (Mbit/s) and queues (ms) of the access links, (2, n) each.

    Args:
        sections: with the hosts that each is about.
        rate_mbit: (2, n) the rates that hold where no section sets one.
    """
    rate_mbit = rate_mbit.copy()
    queue_ms, queue_bytes = np.zeros((2, *rate_mbit.shape))
    for section, nodes in sections:
        index = sorted(nodes)
        for key, sides in _RATES.items():
            if (own := getattr(section, key)) is not None:
                rate_mbit[np.ix_(sides, index)] = own
        if section.queue_ms is not None:
            queue_ms[:, index], queue_bytes[:, index] = section.queue_ms, 0
        if section.queue_bytes is not None:
            queue_bytes[:, index] = section.queue_bytes
    counted = (queue_bytes > 0) & (rate_mbit > 0)
    queue_ms[counted] = queue_bytes[counted] * 8 / 1000 / rate_mbit[counted]
    if (longest_ms := queue_ms.max()) > LARGEST_DELAY_MS:
        problem = f"expected at most {LARGEST_DELAY_MS:g} ms at the rate of the link, got {longest_ms:g} ms"
        raise ExperimentError("$.underlay", f"queue_bytes: {problem}")
    return rate_mbit, queue_ms


def _members(entry: LinksSpec, place: str, groups: Groups) -> tuple[Nodes, Nodes]:
    """Return the two groups of an entry; all nodes are the second one of ``nodes``."""
    if entry.nodes is not None:
        return groups.find(entry.nodes, f"{place}.nodes"), groups.everyone
    assert entry.between is not None, "an entry has one of the two"
    one, other = groups.several(entry.between, f"{place}.between")
    return one, other


def _blocks(entry: LinksSpec, one: Nodes, other: Nodes) -> Iterator[Block]:
    for direction, pairs in (("from", (one, other)), ("to", (other, one))):
        if entry.direction in ("both", direction):
            yield Block(*pairs, entry.jitter_ms, entry.loss_ratio)
