"""Targets: the addresses and extents where receivers of an expression can be."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from peer.core.addressing.bloom import Address, BloomScheme
from peer.core.addressing.expression import Expression
from peer.core.addressing.extent import AddressSpace, Extent
from peer.core.addressing.region import Region, disjoint


@dataclass(frozen=True, slots=True)
class Expansion:
    """Extents that cover all matching addresses. They are ``exact`` if all addresses in them match."""

    extents: Region
    exact: bool


@dataclass(frozen=True, slots=True)
class Target:
    """A set of target elements: in each, set bits must be set in an address, and unset bits are wildcards.

    Raises:
        ValueError: if an element has more bits than an address.
    """

    space: AddressSpace
    elements: frozenset[Address]

    def __post_init__(self) -> None:
        for element in self.elements:
            self.space.extent(element)

    @classmethod
    def of(cls, expression: Expression, scheme: BloomScheme, dimensions: int) -> "Target":
        """The target of an expression: one element per disjunctive term.

        Raises:
            ExpressionError: if the expression has too many disjunctive terms.
            ValueError: if the dimensions are out of their range.
        """
        elements = frozenset(scheme.address(term) for term in expression.terms())
        return cls(AddressSpace(scheme.bits, dimensions), elements)

    def matches(self, address: Address) -> bool:
        """Whether a peer at the address gets the message: it is a receiver or a false positive."""
        return any(element & address == element for element in self.elements)

    def touches(self, extent: Extent) -> bool:
        """Whether a matching address lies in the extent."""
        prefix, below = self._bits_of(extent)
        return not prefix & ((1 << self.space.padding) - 1) and any(
            not element >> below << below & ~(prefix >> self.space.padding) for element in self.elements
        )

    def fills(self, extent: Extent) -> bool:
        """Whether every address in the extent matches the same element, and there is at least one."""
        prefix, _ = self._bits_of(extent)
        return self.touches(extent) and any(not element & ~(prefix >> self.space.padding) for element in self.elements)

    def expand(self, within: Iterable[Extent], limit: int) -> Expansion:
        """The extents that the target matches, by descending the tree only where it touches the target.

        Wildcards make the number of extents exponential in their number. So the descent is breadth-first, and an extent
        whose division would exceed the limit stays whole: the result then covers more than the target, never less. It
        takes at most limit * depth divisions.

        Args:
            within: the extents to look into, such as those that a CAST has not explored.
            limit: the largest number of extents; if ``within`` has more, their number.

        Raises:
            ValueError: if an extent of ``within`` is smaller than the extents of addresses, or has other dimensions.
        """
        pending = deque(sorted(extent for extent in disjoint(within) if self.touches(extent)))
        done = []
        exact = True
        while pending:
            extent = pending.popleft()
            if self.fills(extent):  # always so at the depth of addresses
                done.append(extent)
                continue
            parts = [part for part in extent.split() if self.touches(part)]
            if len(parts) > 1 and len(done) + len(pending) + len(parts) > limit:
                done.append(extent)
                exact = False
            else:
                pending.extend(parts)
        return Expansion(frozenset(done), exact)

    def _bits_of(self, extent: Extent) -> tuple[int, int]:
        """The extent's path as an address with zeros appended, padding included, and how many address bits are free."""
        if not self.space.contains(extent):
            raise ValueError(f"extent {extent} is not of {self.space}")
        missing = (self.space.depth - extent.depth) * extent.dimensions
        return extent.path << missing, max(0, missing - self.space.padding)


def permutations(element: Address, bits: int) -> Iterator[Address]:
    """All addresses that match an element, one after another in rising order: 2 ** (number of unset bits)."""
    wildcards = (1 << bits) - 1 & ~element
    chosen = 0
    while True:
        yield element | chosen
        if chosen == wildcards:
            return
        chosen = (chosen - wildcards) & wildcards
