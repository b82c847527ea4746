"""The encoding of extents, addresses and the way of a CAST.

An extent of any depth is a number: a 1, followed by the bits of its path. Input from other nodes is checked before use,
since the work with extents grows with their depth and number.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import pi
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from peer.core.addressing.expression import MAX_TERMS
from peer.core.contract import NodeId
from peer.protocols.implicit_groups.addressing.extent import AddressSpace, Extent
from peer.protocols.implicit_groups.addressing.region import Region, disjoint
from peer.protocols.implicit_groups.addressing.target import Target

MOST_EXTENTS = 4096
"""Most extents that a frame may list."""

Packed = bytes
Natural = Annotated[int, Meta(ge=0)]


@lru_cache(1 << 16)
def pack(extent: Extent) -> Packed:
    """Encode an extent."""
    bits = extent.depth * extent.dimensions
    return (1 << bits | extent.path).to_bytes(bits // 8 + 1, "big")


@lru_cache(1 << 16)
def unpack(content: Packed, space: AddressSpace) -> Extent:
    """Decode an extent.

    Raises:
        ValueError: if the bytes are not an extent of this surface.
    """
    bits = int.from_bytes(content, "big").bit_length() - 1
    if len(content) > space.depth * space.dimensions // 8 + 1 or bits < 0 or bits % space.dimensions:
        raise ValueError(f"{content[:8]!r} is not an extent")
    extent = Extent(space.dimensions, bits // space.dimensions, int.from_bytes(content, "big") ^ 1 << bits)
    if not space.contains(extent):
        raise ValueError(f"{extent} is smaller than an address")
    return extent


def pack_all(extents: Iterable[Extent]) -> tuple[Packed, ...]:
    """Encode several extents, in rising order of the extents."""
    return tuple(pack(extent) for extent in sorted(extents))


def unpack_all(contents: Sequence[Packed], space: AddressSpace) -> Region:
    """Decode several extents, and leave out those that another one covers.

    Raises:
        ValueError: if one of them is not an extent of this surface, or there are more than ``MOST_EXTENTS``.
    """
    if len(contents) > MOST_EXTENTS:
        raise ValueError(f"expected at most {MOST_EXTENTS} extents, got {len(contents)}")
    return disjoint(unpack(content, space) for content in contents)


class Way(Struct, frozen=True, array_like=True, gc=False):
    """The routing information of a copy of a CAST (``Data.routing``).

    Attributes:
        elements: the target's elements, each as the bytes of an address.
        unexplored: the extents that this copy must reach (``pack``).
        branch_factor: phi of this CAST in radians.
        hops: the number of links that this copy has crossed.
        visited: the nodes that it has passed since a node without a neighbour nearer to its destination.
    """

    elements: Annotated[tuple[bytes, ...], Meta(min_length=1, max_length=MAX_TERMS)]
    unexplored: tuple[Packed, ...]
    branch_factor: Annotated[float, Meta(ge=0, le=2 * pi)]
    hops: Natural
    visited: tuple[NodeId, ...] = ()


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Way)


def encode_way(way: Way) -> bytes:
    """Encode ``Data.routing``."""
    return _encode(way)


def decode_way(content: bytes) -> Way:
    """Decode ``Data.routing``. The caller must check its extents and elements.

    Raises:
        ValueError: if the bytes are not a way.
    """
    try:
        return _decoder.decode(content)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None


@lru_cache(1 << 12)
def target_of(elements: tuple[bytes, ...], space: AddressSpace) -> Target:
    """Return the target with these elements.

    Raises:
        ValueError: if an element is not as long as an address.
    """
    length = -(-space.bits // 8)
    if any(len(element) != length for element in elements):
        raise ValueError(f"expected elements of {length} bytes")
    return Target(space, frozenset(int.from_bytes(element, "big") for element in elements))


def elements_of(target: Target) -> tuple[bytes, ...]:
    """Return the elements of a target as bytes, in rising order."""
    length = -(-target.space.bits // 8)
    return tuple(element.to_bytes(length, "big") for element in sorted(target.elements))
