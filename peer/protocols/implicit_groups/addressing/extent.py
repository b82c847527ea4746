"""Extents: the cells of a d-dimensional PR quadtree, whose root is the surface of a d-torus."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple, Self

from peer.protocols.implicit_groups.addressing.bloom import Address

MAX_DIMENSIONS = 8
"""Most dimensions, since a split has 2**d parts."""


class _Fields(NamedTuple):
    dimensions: int
    depth: int
    path: int


class Extent(_Fields):
    """A cell, given by its path from the root: ``depth`` digits of ``dimensions`` bits each, the first digit highest.

    Bit i of a digit (the lowest is bit 0) chooses the half along axis i. In two dimensions, digit 0 is the top left
    quadrant, 1 the top right, 2 the bottom left, 3 the bottom right: axis 0 goes right, axis 1 down.

    Extents are ordered by depth, then by path. They are tuples for speed, since a CAST handles many.

    Raises:
        ValueError: if the dimensions are not 1 .. ``MAX_DIMENSIONS``, or the path does not fit the depth.
    """

    __slots__ = ()

    def __new__(cls, dimensions: int, depth: int = 0, path: int = 0) -> Self:
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            raise ValueError(f"expected 1 to {MAX_DIMENSIONS} dimensions, got {dimensions}")
        if depth < 0 or path < 0 or path >> (depth * dimensions):
            raise ValueError(f"path {path} does not have {depth} digits of {dimensions} bits")
        return super().__new__(cls, dimensions, depth, path)

    @classmethod
    def of_digits(cls, digits: str, dimensions: int) -> "Extent":
        """Return the extent of a path as in the paper, such as ``"303"``: one decimal character per digit.

        Raises:
            ValueError: if a character is not a digit of base 2**dimensions.
        """
        path = 0
        for character in digits:
            if character not in "0123456789" or int(character) >> dimensions:
                raise ValueError(f"{character!r} is not a digit of base {1 << dimensions}")
            path = path << dimensions | int(character)
        return cls(dimensions, len(digits), path)

    @property
    def digits(self) -> tuple[int, ...]:
        """The path's digits, from the root down."""
        mask = (1 << self.dimensions) - 1
        return tuple(self.path >> level * self.dimensions & mask for level in reversed(range(self.depth)))

    def __repr__(self) -> str:
        return f"Extent(dimensions={self.dimensions}, depth={self.depth}, path={self.path})"

    def __str__(self) -> str:
        return ("" if self.dimensions <= 3 else ".").join(map(str, self.digits))

    def covers(self, other: "Extent") -> bool:
        """Return whether all of the other extent lies in this one. An extent covers itself.

        Raises:
            ValueError: if the other extent has other dimensions.
        """
        self._check(other)
        below = other.depth - self.depth
        return below >= 0 and other.path >> below * self.dimensions == self.path

    def overlaps(self, other: "Extent") -> bool:
        """Return whether one of the two covers the other. Otherwise they share no inner point."""
        return self.covers(other) or other.covers(self)

    def ancestors(self) -> Iterator["Extent"]:
        """Yield all extents that cover this one, from itself up to the root."""
        dimensions, depth, path = self
        for up in range(depth + 1):
            yield _make((dimensions, depth - up, path >> up * dimensions))

    def parent(self) -> "Extent":
        """Return the extent of which this one is a part. The whole surface has none."""
        dimensions, depth, path = self
        return _make((dimensions, depth - 1, path >> dimensions))

    def split(self) -> tuple["Extent", ...]:
        """Return the 2**d parts on the next level, in the order of their digits."""
        dimensions, depth, path = self
        first = path << dimensions
        return tuple([_make((dimensions, depth + 1, first | digit)) for digit in range(1 << dimensions)])

    def corner(self) -> tuple[int, ...]:
        """Return the lowest coordinate along each axis, in units of the extent's side, 2**-depth."""
        return _corner(self)

    def beside(self) -> Iterator["Extent"]:
        """Yield the extents of the same size that share a face with this one on the torus: two along each axis.

        Along an axis in which this extent spans the whole torus or half of it, the two are equal.
        """
        corner, around = self.corner(), (1 << self.depth) - 1
        for axis, low in enumerate(corner):
            for step in (-1, 1):
                yield self._at((*corner[:axis], low + step & around, *corner[axis + 1 :]))

    def _at(self, corner: tuple[int, ...]) -> "Extent":
        """Return the extent of the same size with this corner."""
        path = 0
        for level in reversed(range(self.depth)):
            digit = sum((low >> level & 1) << axis for axis, low in enumerate(corner))
            path = path << self.dimensions | digit
        return _make((self.dimensions, self.depth, path))

    def adjacent(self, other: "Extent") -> bool:
        """Return whether the two share part of a face on the torus and neither covers the other.

        A common corner is not a face.

        Raises:
            ValueError: if the other extent has other dimensions.
        """
        if self.overlaps(other):
            return False
        depth = max(self.depth, other.depth)
        own, its = depth - self.depth, depth - other.depth
        around = (1 << depth) - 1
        touching = 0
        for mine, theirs in zip(self.corner(), other.corner(), strict=True):
            low, high = mine << own, mine + 1 << own
            its_low, its_high = theirs << its, theirs + 1 << its
            if low < its_high and its_low < high:
                continue
            if high & around != its_low and its_high & around != low:
                return False
            touching += 1
        return touching == 1

    def touches(self, other: "Extent") -> bool:
        """Return whether the two are adjacent, or one of them covers the other.

        The results are cached, since surfaces test the same pairs again and again.

        Raises:
            ValueError: if the other extent has other dimensions.
        """
        return _touches(self, other)

    def _check(self, other: "Extent") -> None:
        if self.dimensions != other.dimensions:
            raise ValueError(f"expected equal dimensions, got {self.dimensions} and {other.dimensions} dimensions")


_make = partial(tuple.__new__, Extent)
"""Makes an extent of fields that are known to be valid."""


@lru_cache(maxsize=1 << 16)
def _touches(one: Extent, other: Extent) -> bool:
    return one.overlaps(other) or one.adjacent(other)


@lru_cache(1 << 16)
def _corner(extent: Extent) -> tuple[int, ...]:
    corner = [0] * extent.dimensions
    for digit in extent.digits:
        for axis in range(extent.dimensions):
            corner[axis] = corner[axis] << 1 | digit >> axis & 1
    return tuple(corner)


@dataclass(frozen=True, slots=True)
class AddressSpace:
    """The mapping of addresses of ``bits`` bits to a surface of ``dimensions`` dimensions.

    Zeros are appended to an address until its length is a multiple of the dimensions.

    Raises:
        ValueError: if there are no bits, or the dimensions are not 1 .. ``MAX_DIMENSIONS``.
    """

    bits: int
    dimensions: int

    def __post_init__(self) -> None:
        if self.bits < 1:
            raise ValueError(f"expected an address of at least 1 bit, got {self.bits}")
        Extent(self.dimensions)

    @property
    def depth(self) -> int:
        """The number of digits of an address."""
        return -(-self.bits // self.dimensions)

    @property
    def padding(self) -> int:
        """The number of zeros that are appended to an address."""
        return self.depth * self.dimensions - self.bits

    def contains(self, extent: Extent) -> bool:
        """Return whether the extent belongs to this surface and is not smaller than the extent of an address.

        Use it to check the extents that other peers send, since the work of their methods grows with their depth.
        """
        return extent.dimensions == self.dimensions and extent.depth <= self.depth

    def extent(self, address: Address) -> Extent:
        """Return the smallest extent of the address.

        Raises:
            ValueError: if the address has more than ``bits`` bits.
        """
        if address < 0 or address >> self.bits:
            raise ValueError(f"address {address} does not have {self.bits} bits")
        return Extent(self.dimensions, self.depth, address << self.padding)
