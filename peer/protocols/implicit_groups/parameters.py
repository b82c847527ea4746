"""The parameters of implicit group messaging, and those that the plan adds."""

from math import pi
from typing import Annotated, Literal

from msgspec import Meta, Struct

from peer.protocols.implicit_groups.addressing.bloom import BloomScheme
from peer.protocols.implicit_groups.addressing.extent import MAX_DIMENSIONS, AddressSpace

Hexadecimal = Annotated[str, Meta(pattern="^[0-9a-f]+\\Z")]


class ImplicitGroupsParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """Implicit groups: messages to the nodes whose attributes satisfy an expression."""

    dimensions: Annotated[int, Meta(ge=1, le=MAX_DIMENSIONS)] = 2
    """d: dimensions of the torus. A digit of an address has as many bits."""
    address_bits: Annotated[int, Meta(ge=1, le=1024)] = 64
    """m: bits of the Bloom filter that is a node's address. The paper gives no length."""
    hashes: Annotated[int, Meta(ge=1, le=64)] = 2
    """k: bits that a keyword sets in an address; at most `address_bits`. The paper gives no number."""
    keyed_hash: bool = False
    """Whether positions depend on a key besides the keyword, which is the seed of the run, so that results over several
    seeds contain the chance in the positions. Ours; otherwise a keyword sets the same positions in every run."""
    branch_factor: Annotated[float, Meta(ge=0, le=2 * pi)] = 1.0
    """phi, in radians: a CAST branches if two unexplored extents differ by more than this in direction."""
    parallel_branch_factors: Annotated[tuple[Annotated[float, Meta(ge=0, le=2 * pi)], ...], Meta(max_length=8)] = ()
    """A publisher sends its message once with each of these instead of `branch_factor`, so that copies take different
    ways past nodes that drop them. Section 5.1; sending them at the same time is ours. Empty = off."""
    start: Literal["joins", "placed"] = "joins"
    """`joins`: one node manages the whole surface at first, and the others join through it. `placed`: nodes begin with
    the extents that they would have after they had joined one after another."""
    join_spread_s: Annotated[float, Meta(ge=0, le=3600)] = 5.0
    """With `start = "joins"`, nodes join at instants that are uniform in this time."""
    join_timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 3.0
    """Time after which a JOIN without an answer is sent again, through another node."""
    expansion_limit: Annotated[int, Meta(ge=1, le=1024)] = 64
    """Most extents into which a CAST's target is divided at a node. At the limit they cover more than the target."""
    hop_limit: Annotated[int, Meta(ge=1, le=65_535)] = 1024
    """Most links that a frame crosses on its way through the surface."""
    check_s: Annotated[float, Meta(ge=0, le=3600)] = 1.0
    """Time between two checks whether known neighbours manage all of the surface next to the node's extents. If not,
    the node looks for unknown ones. Ours; 0 = never, as in the paper."""
    takeover_s: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    """Time after which nodes begin to take over surface next to their own that no node manages; each does so within
    twice this time. Ours; needs `check_s`; 0 = never, as in the paper."""
    heartbeat_s: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    """Time between two heartbeats to each neighbour. One that is silent for three of them is lost. Ours; 0 = none."""
    replay_s: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    """Time for which nodes keep the messages that they receive. A node that has just joined asks nodes that share an
    attribute with it for copies of messages for it. Section 5.1; 0 = never."""
    reshuffle_s: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    """Mean time after which a node that manages more than twice as much as its neighbours do on average hands extents
    to them. Section 5.1; 0 = never."""
    shortcuts: Annotated[int, Meta(ge=0, le=64)] = 0
    """Links that a node keeps to nodes encountered on the way from a random node to its own address. Messages take them
    if they come nearer to the destination by them. Section 5.1; 0 = none."""
    prefix_bits: Annotated[int, Meta(ge=0, le=16)] = 0
    """Bits before the filter in a node's address, from the order of the round-trip times that it measures to
    `landmarks`: nodes that are near each other in the network get places near each other on the surface. Targets match
    every prefix. Section 5.1; 0 = none."""
    landmarks: Annotated[int, Meta(ge=1, le=8)] = 4
    """Number of landmarks, which are the nodes 0, 1, ... Needs `prefix_bits`."""
    seen_messages: Annotated[int, Meta(ge=1)] = 1 << 16
    """Number of latest messages that a node remembers."""

    def make_scheme(self, hash_key: str) -> BloomScheme:
        return BloomScheme(self.address_bits, self.hashes, hash_key)

    @property
    def space(self) -> AddressSpace:
        return AddressSpace(self.prefix_bits + self.address_bits, self.dimensions)


class PlacedImplicitGroupsParameters(ImplicitGroupsParameters, frozen=True):
    """The parameters with those that the plan gives every node (``hash_key``), or nodes that are up at the start."""

    hash_key: str = ""
    """The key of ``BloomScheme``."""

    first_seed: int | None = None
    """The seed of the instance that begins with these; None for a node that is not up at the start."""
    prefix: int = 0
    """The prefix of its address, if it begins with a place."""
    extents: tuple[Hexadecimal, ...] = ()
    """The extents that it manages (``encoding.pack``)."""
    linked: tuple[int, ...] = ()
    """The nodes that manage adjacent extents; for a cohabitant that manages none, the manager of its address."""
    cohabitants: tuple[int, ...] = ()
    """The other nodes at its address, if it manages it."""

    @property
    def scheme(self) -> BloomScheme:
        return self.make_scheme(self.hash_key)
