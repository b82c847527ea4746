"""Extents, addresses and a CAST's way as bytes.

An extent of any depth is a number: a 1, followed by the bits of its path. What comes from another node is checked
before any of it is used, since the work of extents grows with their depth and number.
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
"""Extents that a frame may list."""

Packed = bytes
Natural = Annotated[int, Meta(ge=0)]


@lru_cache(1 << 16)
def pack(extent: Extent) -> Packed:
    """The bytes of an extent."""
    bits = extent.depth * extent.dimensions
    return (1 << bits | extent.path).to_bytes(bits // 8 + 1, "big")


@lru_cache(1 << 16)
def unpack(content: Packed, space: AddressSpace) -> Extent:
    """The extent of some bytes.

    Raises:
        ValueError: if they are none of this surface.
    """
    bits = int.from_bytes(content, "big").bit_length() - 1
    if len(content) > space.depth * space.dimensions // 8 + 1 or bits < 0 or bits % space.dimensions:
        raise ValueError(f"{content[:8]!r} is no extent")
    extent = Extent(space.dimensions, bits // space.dimensions, int.from_bytes(content, "big") ^ 1 << bits)
    if not space.contains(extent):
        raise ValueError(f"{extent} is smaller than an address")
    return extent


def pack_all(extents: Iterable[Extent]) -> tuple[Packed, ...]:
    """The bytes of several extents, in rising order of the extents."""
    return tuple(pack(extent) for extent in sorted(extents))


def unpack_all(contents: Sequence[Packed], space: AddressSpace) -> Region:
    """The extents of a list of bytes, without those that another one covers.

    Raises:
        ValueError: if one of them is no extent of this surface, or there are more than ``MOST_EXTENTS``.
    """
    if len(contents) > MOST_EXTENTS:
        raise ValueError(f"{len(contents)} extents: at most {MOST_EXTENTS} are possible")
    return disjoint(unpack(content, space) for content in contents)


class Way(Struct, frozen=True, array_like=True, gc=False):
    """What a copy of a CAST carries besides the message (``Data.routing``).

    Attributes:
        elements: the target's elements, each as the bytes of an address.
        unexplored: the extents that this copy is to reach (``pack``).
        branch_factor: phi of this CAST, in radians.
        hops: how many links this copy has crossed.
        visited: the nodes that it has passed since it met one from which no neighbour is nearer to its destination.
    """

    elements: Annotated[tuple[bytes, ...], Meta(min_length=1, max_length=MAX_TERMS)]
    unexplored: tuple[Packed, ...]
    branch_factor: Annotated[float, Meta(ge=0, le=2 * pi)]
    hops: Natural
    visited: tuple[NodeId, ...] = ()


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Way)


def encode_way(way: Way) -> bytes:
    """The bytes of ``Data.routing``."""
    return _encode(way)


def decode_way(content: bytes) -> Way:
    """The way in ``Data.routing``. Its extents and elements are not checked yet.

    Raises:
        ValueError: if the bytes are none.
    """
    try:
        return _decoder.decode(content)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None


@lru_cache(1 << 12)
def target_of(elements: tuple[bytes, ...], space: AddressSpace) -> Target:
    """The target with these elements.

    Raises:
        ValueError: if an element is not as long as an address.
    """
    length = -(-space.bits // 8)
    if any(len(element) != length for element in elements):
        raise ValueError(f"an element has not {length} bytes")
    return Target(space, frozenset(int.from_bytes(element, "big") for element in elements))


def elements_of(target: Target) -> tuple[bytes, ...]:
    """The elements of a target as bytes, in rising order."""
    length = -(-target.space.bits // 8)
    return tuple(element.to_bytes(length, "big") for element in sorted(target.elements))
