"""Plans the introduction: the order in which hosts exchange their first packets, and a control for each packet.

Half of the hosts are introduced to each other first; the others are the reserve. If first packets seem late, attempts
with hosts and pairs that have exchanged nothing yet decide (``metrics.recorded.first_packets``). A pair here has no
direction, since the answer uses the way back.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from metrics.recorded.first_packets import RULES

FEWEST_FOR_RESERVE = 16
"""With fewer hosts, half of them are too few to find a fault of first packets, so all are introduced at once."""

SPREAD_S = 4.0
"""The slots of an attempt are spread over at least this time, so that a stall of the machine affects few of them."""

MOST_APART_S = 0.1
"""Longest time between two slots."""

PARTNERS = 16
"""Most partners considered for a host's first packet; the one with the best control is taken."""

MOST_CONTROLS = 300
"""Most warm pairs considered as a control, chosen evenly among all: more of them improve the match little."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Pair = tuple[int, int]
NONE: Pair = (-1, -1)
"""No control."""


class Slots(NamedTuple):
    """The slots of an attempt, in order of time.

    Attributes:
        first: (m, 2) source and destination of the first packet.
        control: (m, 2) source and destination of the control; -1 if no warm pair has similar delays.
        host_first: (m,) whether one of the hosts has exchanged nothing with any host.
        due_s: (m,) real time from the attempt's start.
    """

    first: Ints
    control: Ints
    host_first: npt.NDArray[np.bool_]
    due_s: Floats


class Introduction:
    """The hosts that have exchanged packets, and those to introduce next."""

    def __init__(self, there_ms: Floats, rtt_ms: Floats, random: np.random.Generator) -> None:
        """Divide the hosts' pairs into attempts.

        Args:
            there_ms: (n, n) configured one-way delays.
            rtt_ms: (n, n) configured round trips: the delays of both directions and of limited access links.
            random: draws the reserve, the order and the directions.
        """
        self._random = random
        self._delays_ms = np.stack([there_ms, rtt_ms - there_ms], axis=-1)  # (n, n, 2): there and back
        self._met: set[int] = set()
        self._warm: list[Pair] = []
        order = random.permutation(len(there_ms)).tolist()
        reserve = (len(order) - 2) // 2 if len(order) >= FEWEST_FOR_RESERVE else 0
        early, late = order[: len(order) - reserve], order[len(order) - reserve :]
        mixed = [
            (early[(turn + place) % len(early)], host) for turn in range(len(early)) for place, host in enumerate(late)
        ]
        among_early, among_late = list(combinations(early, 2)), list(combinations(late, 2))
        most = len(among_early)
        second = max(most - len(among_late), len(late))
        self._attempts = [(early, among_early), (late, among_late + mixed[:second]), ([], mixed[second:][:most])]

    def next_attempt(self, rate_per_s: float, settle_s: Floats) -> Slots | None:
        """Return the slots of the next attempt; None if no new pair is left.

        Args:
            rate_per_s: probes per second that the data plane carries.
            settle_s: (n, n) real time after its first packet from which a pair may be a control.
        """
        newcomers, pairs = self._attempts.pop(0) if self._attempts else ([], [])
        if not pairs:
            return None
        apart_s = min(max(SPREAD_S / len(pairs), 2 / rate_per_s), MOST_APART_S)
        warm = _Warm(self._warm, len(pairs), self._delays_ms)
        rows: list[tuple[Pair, Pair, bool, float]] = []
        at_s = 0.0
        for block in self._blocks(newcomers, pairs):
            while block:
                introduces = not self._met.issuperset(block[0])
                options = block[: PARTNERS if introduces else 1]
                pair, control = warm.match(options, RULES["hosts" if introduces else "pairs"].apart_ms, at_s)
                block.remove(pair)
                rows.append((pair, control, introduces, at_s))
                ready_s = at_s + float(settle_s[pair])
                warm.add(pair, ready_s)
                self._met.update(pair)
                # If no pair is warm, wait for the first one.
                at_s = max(at_s + apart_s, warm.first_s)
        self._warm = warm.pairs
        first, control, host_first, due_s = zip(*rows, strict=True)
        return Slots(np.array(first), np.array(control), np.array(host_first), np.array(due_s))

    def _blocks(self, newcomers: Sequence[int], pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
        """Yield the pairs in random order and direction, grouped by the later introduced of their hosts."""
        rank = dict.fromkeys(range(len(self._delays_ms)), -1) | {host: place for place, host in enumerate(newcomers)}
        blocks: dict[int, list[Pair]] = defaultdict(list)
        flipped = self._random.integers(2, size=len(pairs))
        for index in self._random.permutation(len(pairs)):
            one, other = pairs[index]
            blocks[max(rank[one], rank[other])].append((other, one) if flipped[index] else (one, other))
        return (blocks[place] for place in sorted(blocks))


class _Warm:
    """Directed pairs that may be controls, each from an instant on."""

    def __init__(self, warm: Sequence[Pair], coming: int, delays_ms: Floats) -> None:
        self.pairs = list(warm)
        self._delays_ms = delays_ms
        size = len(warm) + 2 * coming
        self._theirs_ms, self._from_s = np.empty((size, 2)), np.full(size, -np.inf)
        for place, pair in enumerate(warm):
            self._theirs_ms[place] = delays_ms[pair]

    @property
    def first_s(self) -> float:
        """The instant of the first control."""
        return float(self._from_s[: len(self.pairs)].min())

    def match(self, options: Sequence[Pair], apart_ms: float, at_s: float) -> tuple[Pair, Pair]:
        """Return the option with the best control, and that control; (-1, -1) if none is within ``apart_ms``."""
        some = slice(0, len(self.pairs), len(self.pairs) // MOST_CONTROLS + 1)
        wanted_ms = np.array([self._delays_ms[pair] for pair in options])
        difference_ms = np.abs(wanted_ms[:, None] - self._theirs_ms[some]).max(axis=-1)
        difference_ms[:, self._from_s[some] > at_s] = np.inf
        if not self.pairs or difference_ms.min() > apart_ms:
            return options[0], NONE
        option, place = np.unravel_index(difference_ms.argmin(), difference_ms.shape)
        return options[option], self.pairs[place * some.step]

    def add(self, pair: Pair, from_s: float) -> None:
        """Make both directions of a pair controls."""
        for directed in (pair, pair[::-1]):
            self._theirs_ms[len(self.pairs)], self._from_s[len(self.pairs)] = self._delays_ms[directed], from_s
            self.pairs.append(directed)
