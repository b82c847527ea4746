"""Packets that arrive twice, or are overtaken, as faults ask: which packets of a pair, and by how much.

Whether a packet is chosen is a function of the seed, of the pair, and of the instant at which the packet is read from
its host. So everybody who knows the seed chooses the same packets: the data plane, the checks.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from topologies.draws import WORD, mix

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_DUPLICATE: Final = 0x6475706C
_REORDER: Final = 0x72656F72
"""Numbers of the two choices, so that one does not depend on the other."""

_MS: Final = 1e6


class Disorder(NamedTuple):
    """What is asked of the packets of a pair besides delay, jitter and loss; the defaults ask for nothing.

    Each may be an array, with a value for each of several packets.

    Attributes:
        duplicate_ratio: the probability that a packet enters the link of its pair twice, 0..1.
        reorder_ratio: the probability that a packet is overtaken, 0..1.
        reorder_ms: the further delay of such a packet, in which later packets overtake it.
    """

    duplicate_ratio: Any = 0.0
    reorder_ratio: Any = 0.0
    reorder_ms: Any = 0.0

    def join(self, other: Disorder) -> Disorder:
        """Return what is asked if both are: choices are independent, and the longer further delay holds."""
        return Disorder(
            self.duplicate_ratio + other.duplicate_ratio - self.duplicate_ratio * other.duplicate_ratio,
            self.reorder_ratio + other.reorder_ratio - self.reorder_ratio * other.reorder_ratio,
            np.maximum(self.reorder_ms, other.reorder_ms),
        )


IN_ORDER: Final = Disorder()


class PairDisorder:
    """Chooses the packets of a directed pair.

    Args:
        seed: of the run.
        source: the host that sends.
        destination: the host that receives.
        zero_ns: the instant from which instants count: the workload's zero.
        asked: what is asked of the packets of the pair.

    Attributes:
        reorder_ns: the further delay of a packet that is overtaken.
    """

    __slots__ = ("_duplicate_ratio", "_reorder_ratio", "_words", "_zero_ns", "reorder_ns")

    def __init__(self, seed: int, source: int, destination: int, zero_ns: int, asked: Disorder) -> None:
        self._words = tuple(_word(seed, choice, source, destination) for choice in (_DUPLICATE, _REORDER))
        self._zero_ns = zero_ns
        self._duplicate_ratio, self._reorder_ratio = float(asked.duplicate_ratio), float(asked.reorder_ratio)
        self.reorder_ns = round(float(asked.reorder_ms) * _MS)

    def choose(self, read_ns: int) -> tuple[bool, bool]:
        """Return whether a packet that is read at an instant enters the link twice, and whether it is overtaken."""
        since, (duplicate, reorder) = (read_ns - self._zero_ns) & WORD, self._words
        return _draw(duplicate, since) < self._duplicate_ratio, _draw(reorder, since) < self._reorder_ratio


def choose_packets(seed: int, source: Ints, destination: Ints, since_ns: Ints, asked: Disorder) -> tuple[Bools, Ints]:
    """Return what ``PairDisorder`` chooses of packets of any pairs.

    Args:
        seed: of the run.
        source: (n,) the hosts that send.
        destination: (n,) the hosts that receive.
        since_ns: (n,) when each packet was read, from the workload's zero.
        asked: what is asked, in arrays of (n,).

    Returns:
        (n,) whether each packet enters the link of its pair twice; and its further delay in ns, 0 unless it is
        overtaken.
    """
    ends = source.astype(np.uint64), destination.astype(np.uint64)
    since = since_ns.astype(np.uint64)  # an instant before zero becomes the same word as in ``PairDisorder``
    is_doubled, is_overtaken = (
        _draw(_word(seed, choice, *ends), since) < ratio
        for choice, ratio in ((_DUPLICATE, asked.duplicate_ratio), (_REORDER, asked.reorder_ratio))
    )
    reorder_ns = np.rint(asked.reorder_ms * _MS).astype(np.int64)
    return np.asarray(is_doubled), np.where(is_overtaken, reorder_ns, 0)


def _word(seed: int, choice: int, source: Any, destination: Any) -> Any:  # noqa: ANN401 - an int or an array of them
    """Return a word that depends on seed, choice and pair."""
    return mix(mix(mix(seed & WORD) ^ choice) ^ (source << 32 | destination))


def _draw(word: Any, since: Any) -> Any:  # noqa: ANN401 - an int or an array of them
    """Return a number from 0 to below 1 that depends on a word and an instant."""
    return (mix(word ^ since) >> 11) / (1 << 53)
