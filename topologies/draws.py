"""Where the draws of a directed pair begin in a table: by the seed and the pair alone."""

from typing import Any, NamedTuple

TABLE_SIZE = 1 << 16
TABLE_MASK = TABLE_SIZE - 1
WORD = (1 << 64) - 1
"""All bits of a word."""


class Start(NamedTuple):
    """Where a pair begins. The stride is odd, so that the pair uses every entry before it repeats one.

    Attributes:
        cursor: the first entry, below ``TABLE_SIZE``.
        stride: how far the next entry is from the one before.
        phase: a further number that depends on the pair, below ``TABLE_SIZE``.
    """

    cursor: int
    stride: int
    phase: int


def start_of_pair(seed: int, source: int, destination: int) -> Start:
    """Return where a directed pair of hosts begins."""
    own = mix(mix(seed & WORD) ^ (source << 32 | destination))
    return Start(own & TABLE_MASK, own >> 16 & TABLE_MASK | 1, own >> 32 & TABLE_MASK)


def mix(word: Any) -> Any:  # noqa: ANN401 - an int, or an array of np.uint64
    """Return a 64-bit word in which every bit depends on every bit of ``word``; of an array, that of each element.

    It is the step of splitmix64. Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
    OOPSLA 2014, Figure 10.
    """
    word = (word + 0x9E3779B97F4A7C15) & WORD
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & WORD
    return word ^ word >> 31
