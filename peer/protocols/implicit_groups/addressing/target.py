"""Targets: the addresses and extents that may have receivers of an expression."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from peer.core.addressing.expression import Expression
from peer.protocols.implicit_groups.addressing.bloom import Address, BloomScheme
from peer.protocols.implicit_groups.addressing.extent import AddressSpace, Extent
from peer.protocols.implicit_groups.addressing.region import Region, disjoint

NOTHING, SOME, ALL = 0, 1, 2


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
    def of(cls, expression: Expression, scheme: BloomScheme, dimensions: int, prefix_bits: int = 0) -> "Target":
        """Return the target of an expression: one element per disjunctive term.

        Args:
            expression: the attributes of receivers.
            scheme: the scheme of the filters.
            dimensions: the dimensions of the surface.
            prefix_bits: the number of bits before the filter in an address, all of them wildcards.

        Raises:
            ExpressionError: if the expression has too many disjunctive terms.
            ValueError: if the dimensions are out of their range.
        """
        elements = frozenset(scheme.address(term) for term in expression.terms())
        return cls(AddressSpace(prefix_bits + scheme.bits, dimensions), elements)

    def matches(self, address: Address) -> bool:
        """Return whether a peer at the address gets the message: it is a receiver or a false positive."""
        return any(element & address == element for element in self.elements)

    def touches(self, extent: Extent) -> bool:
        """Return whether a matching address lies in the extent."""
        return self._look(extent) != NOTHING

    def fills(self, extent: Extent) -> bool:
        """Return whether every address in the extent matches the same element, and there is at least one."""
        return self._look(extent) == ALL

    def expand(self, within: Iterable[Extent], limit: int) -> Expansion:
        """Return the extents that the target matches. It descends the tree only in extents that touch the target.

        The number of extents is exponential in the number of wildcards. So the descent is breadth-first, and an extent
        whose division would exceed the limit stays whole. The result then covers more than the target, never less. It
        takes at most limit * depth divisions.

        Args:
            within: the extents to search, such as those that a CAST has not explored.
            limit: the largest number of extents; if ``within`` has more, their number.

        Raises:
            ValueError: if an extent of ``within`` is smaller than the extents of addresses, or has other dimensions.
        """
        done = []
        pending: deque[Extent] = deque()
        for extent in sorted(disjoint(within)):
            found = self._look(extent)
            if found == ALL:
                done.append(extent)
            elif found == SOME:
                pending.append(extent)
        exact = True
        look = self._seek()
        while pending:
            extent = pending.popleft()
            parts = [(part, found) for part in extent.split() if (found := look(part)) != NOTHING]
            if len(parts) > 1 and len(done) + len(pending) + len(parts) > limit:
                done.append(extent)
                exact = False
                continue
            done += [part for part, found in parts if found == ALL]
            pending += [part for part, found in parts if found == SOME]
        return Expansion(frozenset(done), exact)

    def _look(self, extent: Extent) -> int:
        """Return ``NOTHING``, ``SOME`` or ``ALL``: how many of the extent's addresses match. ``ALL`` match one element.

        At the depth of addresses, an extent has one address, or none if its padding is not zero.
        """
        if not self.space.contains(extent):
            raise ValueError(f"extent {extent} is not of {self.space}")
        return self._seek()(extent)

    def _seek(self) -> Callable[[Extent], int]:
        """Return ``_look`` without its check, for speed: a CAST looks at thousands of extents."""
        padding, total, dimensions = self.space.padding, self.space.depth, self.space.dimensions
        padded = [element << padding for element in self.elements]
        padding_bits = (1 << padding) - 1

        def look(extent: Extent) -> int:
            _, depth, path = extent
            missing = (total - depth) * dimensions
            first = path << missing
            if first & padding_bits:
                return NOTHING
            unset = ~first
            found = NOTHING
            for element in padded:
                lacking = element & unset
                if not lacking:
                    return ALL
                if not lacking >> missing:
                    found = SOME
            return found

        return look
