"""Networks of implicit groups on the pump: what happens in them, and what their nodes must know and manage together."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import cache
from random import Random
from typing import Any

import msgspec

from peer.core.addressing.expression import parse
from peer.core.addressing.keywords import keyword, keywords
from peer.core.contract import (
    Connect,
    Directory,
    Leaving,
    MessageId,
    NodeId,
    PeerInfo,
    PeerList,
    Publish,
    Send,
    Started,
    message_id,
)
from peer.core.frames import Frame
from peer.protocols.description import FirstNetwork
from peer.protocols.implicit_groups.addressing.bloom import Address
from peer.protocols.implicit_groups.addressing.extent import Extent
from peer.protocols.implicit_groups.addressing.region import neighbours
from peer.protocols.implicit_groups.surface import Surface
from peer.protocols.registry import PROTOCOLS, compose
from peer.testing import Pump
from peer.trace import TraceEvent

PROTOCOL = PROTOCOLS["implicit-groups"]
SECOND_NS = 1_000_000_000
MILLISECOND_NS = 1_000_000
TOPICS = 12
COPIES = ("deliver", "duplicate", "relay")
"""The trace events that say that a copy of a message has arrived."""

Interests = Sequence[tuple[int, ...]]


def draw_interests(nodes: int, seed: int, topics: int = TOPICS, each: int = 3) -> list[tuple[int, ...]]:
    """As many topics for every node."""
    draws = Random(seed)
    return [tuple(sorted(draws.sample(range(topics), each))) for _ in range(nodes)]


def draw_delays(seed: int, longest_ms: int) -> Callable[[NodeId, NodeId], int]:
    """A delay of 1 ms to ``longest_ms`` for each pair, the same in both directions."""

    @cache
    def delay(lower: NodeId, higher: NodeId) -> int:
        return Random(f"{seed}/{lower}/{higher}").randrange(1, longest_ms + 1) * MILLISECOND_NS

    return lambda one, other: delay(min(one, other), max(one, other))


class _Gone:
    """A node after its last turn: it answers nothing."""

    def handle(self, now_ns: int, event: object) -> list[Any]:
        return []


class Network:
    """Nodes of which the last ``late`` ones are down at the start. The others start, and have 3 s.

    Args:
        interests: every node's topics, or how many nodes there are, with drawn ones.
        seed: of everything.
        late: how many nodes ``join`` later.
        droppers: the nodes that pass on no message of others.
        longest_ms: the longest delay of a link.
        addresses: every node's address, if not that of its topics.
        parameters: of the protocol; nodes are placed unless ``start`` says otherwise.

    Attributes:
        pump: the nodes that run, and what they did.
        up: the nodes that are up, in the order in which they started.
    """

    def __init__(
        self,
        interests: Interests | int,
        seed: int,
        late: int = 0,
        droppers: Iterable[NodeId] = (),
        longest_ms: int = 60,
        addresses: Sequence[Address] = (),
        **parameters: object,
    ) -> None:
        self.draws = Random(seed)
        self.interests = draw_interests(interests, seed) if isinstance(interests, int) else interests
        size = len(self.interests)
        parameters = {"start": "placed", **parameters}
        self.droppers = frozenset(droppers)
        assert PROTOCOL.draw_initial_state is not None
        initial = PROTOCOL.draw_initial_state(
            FirstNetwork(self.interests, [node < size - late for node in range(size)], seed),
            msgspec.convert(parameters, PROTOCOL.parameters),
        )
        parts = PROTOCOL.composition
        nodes = {
            node: compose(
                node,
                seed,
                topics,
                msgspec.structs.replace(parts, overlay=parts.overlay | parameters | initial[node]),
                {"name": "dropper"} if node in self.droppers else None,
                nodes=size,
            )
            for node, topics in enumerate(self.interests)
        }
        self.pump = Pump(nodes, draw_delays(seed, longest_ms), seed=seed)
        self.pump.unanswered_ns = 60 * SECOND_NS
        for node, address in enumerate(addresses):
            part = self.overlay(node)
            part.address, part.surface = address, Surface(part.surface.space, address)
        self.up: list[NodeId] = []
        self._sequence = iter(range(1 << 20, 1 << 30))
        self.start(*range(size - late))
        self.run(3)

    # What happens

    def run(self, time_s: float) -> None:
        self.pump.run(round(time_s * SECOND_NS))

    def tell(self) -> None:
        """The bootstrap service names the nodes that are up to all of them."""
        directory = Directory(PeerInfo(node, None) for node in self.up)
        for node in self.up:
            self.pump.give(node, PeerList(directory))

    def start(self, *nodes: NodeId) -> None:
        """Start some nodes at the same time."""
        for node in nodes:
            self.up.append(node)
            self.pump.give(node, Started())
        self.tell()

    def join(self, node: NodeId) -> None:
        """Let a node join, in 5 s."""
        self.start(node)
        self.run(5)

    def leave(self, node: NodeId) -> None:
        """Let a node leave, and end it when what it said has arrived."""
        self.pump.give(node, Leaving())
        self.pump.clear_timers(node)
        self.pump.nodes[node] = _Gone()
        self.run(1)
        self.crash(node)

    def crash(self, *nodes: NodeId, silently: bool = False) -> None:
        """End some nodes at the same time; the others notice, or do not."""
        for node in nodes:
            self.up.remove(node)
            (self.pump.vanish if silently else self.pump.crash)(node)
        self.tell()

    def publish(self, publisher: NodeId, number: int, text: str) -> MessageId:
        """Publish to an expression."""
        identifier = message_id(publisher, number)
        self.pump.give(publisher, Publish((0,), identifier, b"x", text))
        return identifier

    def cast(self, publisher: NodeId, text: str, wait_s: float = 5.0) -> Counter[NodeId]:
        """Publish to an expression, wait, and return how often each node delivered the message."""
        identifier = self.publish(publisher, next(self._sequence), text)
        self.run(wait_s)
        return self.receivers(identifier)

    def say(self, source: NodeId, goal: NodeId, *frames: Frame) -> None:
        """A node opens a link to another one and says something that is not of its protocol's making."""
        self.pump.perform(source, Connect(goal))
        self.run(0.2)
        for frame in frames:
            self.pump.perform(source, Send(goal, frame))
        self.run(0.2)

    def draw_expression(self) -> str:
        terms = ["&".join(map(keyword, self.draws.sample(range(TOPICS), count))) for count in (1, 2)]
        return "|".join(terms[: self.draws.choice((1, 2))])

    # What has happened

    def overlay(self, node: NodeId) -> Any:
        return self.pump.part(node, "overlay")

    def members(self, text: str, nodes: Iterable[NodeId]) -> set[NodeId]:
        """The nodes for which a message is, of some."""
        return {node for node in nodes if parse(text).matches(keywords(self.interests[node]))}

    def receivers(self, identifier: MessageId) -> Counter[NodeId]:
        """How often each node delivered a message."""
        return Counter(node for _, node, message in self.pump.delivered if message.message_id == identifier)

    def traced(self, *events: str) -> list[TraceEvent]:
        """The trace so far, or some kinds of its events."""
        return [it for it in self.pump.traced if not events or it.event in events]

    def managers(self) -> dict[Extent, list[NodeId]]:
        """Every managed extent, with the nodes that manage it."""
        found: dict[Extent, list[NodeId]] = {}
        for node in self.up:
            for extent in self.overlay(node).surface.extents:
                found.setdefault(extent, []).append(node)
        return found

    def is_partition(self) -> bool:
        """Whether every point of the surface has one manager that is up."""
        found = self.managers()
        size = sum(Fraction(len(nodes), 2 ** (extent.depth * extent.dimensions)) for extent, nodes in found.items())
        overlapping = any(above in found for extent in found for above in extent.ancestors() if above != extent)
        return size == 1 and not overlapping and all(len(nodes) == 1 for nodes in found.values())

    def misplaced(self) -> list[NodeId]:
        """The nodes that neither manage their address nor are cohabitants of the node that does."""
        wrong = []
        for node in self.up:
            part = self.overlay(node)
            own = part.surface.own
            if part.host is None:
                fine = part.surface.manages(own)
            else:
                fine = part.host in self.up and self.overlay(part.host).surface.manages(own)
                fine = fine and node in self.overlay(part.host).cohabitants
            if not fine:
                wrong.append(node)
        return wrong

    def wrong_neighbours(self) -> dict[NodeId, tuple[set[NodeId], set[NodeId]]]:
        """The managers that know too few or other nodes than those next to them: (missing, superfluous)."""
        found = {extent: nodes[0] for extent, nodes in self.managers().items()}
        wrong = {}
        for node in self.up:
            surface = self.overlay(node).surface
            if surface.extents:
                near = {
                    manager
                    for extent, manager in found.items()
                    if manager != node and any(extent.adjacent(own) for own in surface.extents)
                }
                known = set(surface.neighbours)
                if near != known:
                    wrong[node] = (near - known, known - near)
        return wrong

    def assert_divided(self) -> None:
        """The surface is divided exactly, and every node has its place."""
        assert self.is_partition()
        assert self.misplaced() == []

    def assert_exact(self) -> None:
        """Nodes also know exactly the managers and extents next to their own, and are linked with them."""
        self.assert_divided()
        assert self.wrong_neighbours() == {}
        for node in self.up:
            own = self.overlay(node).surface.extents
            for peer, region in self.overlay(node).surface.neighbours.items():
                assert neighbours(own, region) == neighbours(own, self.overlay(peer).surface.extents)
                assert peer in self.pump.linked(node)
