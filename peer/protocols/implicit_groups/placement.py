"""The surface after nodes have joined one after another, for runs that begin in that state."""

from collections.abc import Iterator, Sequence

from peer.core.addressing.keywords import keywords
from peer.core.contract import NodeId
from peer.core.randomness import NETWORK, substream
from peer.protocols.description import Choice, FirstNetwork
from peer.protocols.implicit_groups.addressing.extent import AddressSpace, Extent
from peer.protocols.implicit_groups.encoding import pack_all
from peer.protocols.implicit_groups.landmarks import prefix_of
from peer.protocols.implicit_groups.parameters import ImplicitGroupsParameters


def draw_initial_state(network: FirstNetwork, parameters: ImplicitGroupsParameters) -> list[Choice]:
    """Return the initial state of each node (``PlacedImplicitGroupsParameters``).

    With ``start = "joins"``, the first node of a random order manages the whole surface. With ``"placed"``, the nodes
    have joined in this order.
    """
    order = [node for node, up in enumerate(network.up) if up]
    substream(network.seed, NETWORK, "joins").shuffle(order)
    every: Choice = {"hash_key": str(network.seed)} if parameters.keyed_hash else {}
    given: list[Choice] = [every | ({"first_seed": network.seed} if up else {}) for up in network.up]
    if not order:
        return given
    if parameters.start == "joins":
        given[order[0]]["extents"] = _text(frozenset({Extent(parameters.dimensions)}))
        return given
    scheme, space = parameters.make_scheme(every.get("hash_key", "")), parameters.space
    prefixes = _measure_prefixes(network, parameters)
    addresses = [
        space.extent(prefix << scheme.bits | scheme.address(keywords(topics)))
        for prefix, topics in zip(prefixes, network.interests, strict=True)
    ]
    partition = Partition(space, addresses, order)
    for node in order:
        given[node] |= {
            **({"prefix": prefixes[node]} if parameters.prefix_bits else {}),
            "extents": _text(partition.extents(node)),
            "linked": tuple(partition.linked(node)),
            "cohabitants": tuple(partition.cohabitants(node)),
        }
    return given


def _measure_prefixes(network: FirstNetwork, parameters: ImplicitGroupsParameters) -> list[int]:
    """Return the prefix of every node's address, as the node would have measured it when it joined."""
    measure = network.round_trip_ns
    if not parameters.prefix_bits or measure is None:
        return [0] * len(network.up)
    landmarks = range(min(parameters.landmarks, len(network.up)))
    return [
        prefix_of(
            [(0 if mark == node else measure(node, mark)) if network.up[mark] else None for mark in landmarks],
            parameters.prefix_bits,
        )
        for node in range(len(network.up))
    ]


def _text(extents: frozenset[Extent]) -> tuple[str, ...]:
    return tuple(content.hex() for content in pack_all(extents))


class Partition:
    """The managers of all extents of the surface after nodes have joined.

    Args:
        space: the surface.
        addresses: the smallest extent of every node's address, indexed by node.
        order: the nodes in the order in which they join.

    Attributes:
        managers: every extent of the partition with its manager.
    """

    def __init__(self, space: AddressSpace, addresses: Sequence[Extent], order: Sequence[NodeId]) -> None:
        self._addresses = addresses
        self._hosts: dict[NodeId, NodeId] = {}
        self._guests: dict[NodeId, list[NodeId]] = {}
        self.managers: dict[Extent, NodeId] = {Extent(space.dimensions): order[0]}
        for node in order[1:]:
            self._join(node)
        self._extents: dict[NodeId, list[Extent]] = {}
        for extent, node in self.managers.items():
            self._extents.setdefault(node, []).append(extent)
        self._above = {above for extent in self.managers for above in extent.ancestors()} - self.managers.keys()

    def extents(self, node: NodeId) -> frozenset[Extent]:
        """Return the extents that a node manages."""
        return frozenset(self._extents.get(node, ()))

    def linked(self, node: NodeId) -> list[NodeId]:
        """Return the managers of extents adjacent to a node's, in rising order; a cohabitant has one, its host."""
        if node in self._hosts:
            return [self._hosts[node]]
        found = {self.managers[near] for extent in self._extents[node] for near in self._beside(extent)}
        return sorted(found - {node})

    def cohabitants(self, node: NodeId) -> list[NodeId]:
        """Return the other nodes at an address, in the order in which they joined, for the manager of the address."""
        return self._guests.get(node, [])

    def _join(self, node: NodeId) -> None:
        goal = self._addresses[node]
        extent = self._covering(goal)
        manager = self.managers[extent]
        own = self._addresses[manager]
        if own == goal:
            self._hosts[node] = manager
            self._guests.setdefault(manager, []).append(node)
            return
        while extent.covers(own):
            del self.managers[extent]
            parts = extent.split()
            self.managers.update(dict.fromkeys(parts, manager))
            extent = next(part for part in parts if part.covers(goal))
        self.managers[extent] = node

    def _covering(self, extent: Extent) -> Extent:
        return next(above for above in extent.ancestors() if above in self.managers)

    def _beside(self, extent: Extent) -> Iterator[Extent]:
        """Yield the extents of the partition that are adjacent to one of them."""
        pending = [cell for cell in extent.beside() if cell != extent]
        while pending:
            cell = pending.pop()
            if cell in self._above:
                pending += [part for part in cell.split() if part.adjacent(extent)]
            else:
                found = self._covering(cell)
                if found != extent:
                    yield found
