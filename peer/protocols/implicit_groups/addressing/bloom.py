"""Addresses from attributes: Bloom filters, and the theory of their false positives."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from math import comb

Address = int
"""A Bloom filter of m bits as a number below 2**m. The most significant bit is the first one of the address."""


@dataclass(frozen=True, slots=True)
class BloomScheme:
    """The hashing of keywords: each sets exactly ``hashes`` (k) distinct positions out of ``bits`` (m).

    ``key``: only peers with the same key compute the same positions; empty = no key.

    Raises:
        ValueError: unless 1 <= hashes <= bits.
    """

    bits: int
    hashes: int
    key: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.hashes <= self.bits:
            raise ValueError(f"hashes ({self.hashes}) must be between 1 and bits ({self.bits})")

    def positions(self, keyword: str) -> tuple[int, ...]:
        """Return the keyword's k positions, in rising order; position 0 is the first bit of the address.

        They are k draws without replacement from SHA-256 of the key and the keyword, so all peers compute the same.
        """
        name = f"{self.key}/{keyword}" if self.key else keyword
        pool: dict[int, int] = {}  # the exchanges of a Fisher-Yates shuffle of 0 .. m - 1, of which k steps are made
        drawn = []
        for step in range(self.hashes):
            digest = hashlib.sha256(f"{step}/{name}".encode()).digest()
            index = step + int.from_bytes(digest[:8], "big") % (self.bits - step)
            drawn.append(pool.get(index, index))
            pool[index] = pool.get(step, step)
        return tuple(sorted(drawn))

    def address(self, keywords: Iterable[str]) -> Address:
        """Return the filter in which the positions of all keywords are set; 0 without keywords."""
        address = 0
        for keyword in keywords:
            for position in self.positions(keyword):
                address |= 1 << (self.bits - 1 - position)
        return address

    def false_positive_rate(self, attributes: int, lacking: int) -> float:
        """Return the probability that a conjunction matches a peer although the peer lacks some of its keywords.

        The formula is exact for positions drawn uniformly: the ``lacking`` keywords set u distinct positions, and all u
        are set by the peer's own keywords.

        Args:
            attributes: the number of keywords of the peer.
            lacking: the number of keywords of the conjunction that the peer lacks.
        """
        unset = self._uncovered(self.bits, lacking)
        return sum(
            share * self._uncovered(self.bits - left, attributes)[0] for left, share in enumerate(unset) if share
        )

    def _uncovered(self, chosen: int, keywords: int) -> list[float]:
        """Return the probabilities that 0, 1, ... ``chosen`` of ``chosen`` fixed positions stay unset."""
        chances = [0.0] * chosen + [1.0]
        for _ in range(keywords):
            after = [0.0] * (chosen + 1)
            for left, chance in enumerate(chances):
                if not chance:
                    continue
                for hit in range(min(left, self.hashes) + 1):
                    ways = comb(left, hit) * comb(self.bits - left, self.hashes - hit)
                    after[left - hit] += chance * (ways / comb(self.bits, self.hashes))
            chances = after
        return chances
