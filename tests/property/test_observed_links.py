"""An observer at a node's host finds the node's logical links in the frames alone, whatever the nodes do."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from peer.core.contract import Effect, Event, FrameReceived, LinkUp, NodeId, Send, Subscribe, Unsubscribe
from peer.core.observed_links import ObservedLinks
from peer.protocols.description import FirstNetwork
from peer.protocols.registry import PROTOCOLS, compose, observe_links
from peer.testing import Pump
from tests.examples import examples

NODES, TOPICS = 8, 4
SECOND_NS = 1_000_000_000
SETTLED_NS = 4 * SECOND_NS
"""By then nodes have told each other what changed, and have refused what they refuse."""

UNTOLD = ("implicit-groups", "rvr")
"""Protocols without logical links."""

TOLD = sorted(set(PROTOCOLS) - set(UNTOLD))

interests = st.lists(st.sets(st.integers(0, TOPICS - 1)).map(sorted).map(tuple), min_size=NODES, max_size=NODES)
changes = st.lists(
    st.tuples(
        st.sampled_from(["subscribe", "unsubscribe", "cut", "crash"]),
        st.integers(0, NODES - 1),
        st.integers(0, TOPICS - 1),
        st.integers(0, SETTLED_NS),
    ),
    max_size=6,
)


class Watched(Pump):
    """Nodes with an observer at each end of each of their links."""

    def __init__(self, protocol: str, wanted: list[tuple[int, ...]], seed: int) -> None:
        described = PROTOCOLS[protocol]
        parts, given = described.composition, [{}] * len(wanted)
        if described.draw_initial_state is not None:
            network = FirstNetwork(wanted, [True] * len(wanted), seed)
            given = described.draw_initial_state(network, described.parameters())
        made = {
            node: compose(node, seed, topics, replace(parts, overlay=parts.overlay | given[node]), nodes=len(wanted))
            for node, topics in enumerate(wanted)
        }
        self.observer = observe_links(parts.overlay, parts.interests)
        self.observed: dict[tuple[NodeId, NodeId], ObservedLinks] = {}
        super().__init__(made, lambda source, destination: (1 + (source * 7 + destination) % 40) * 1_000_000)
        self.start(dict(enumerate(wanted)) if parts.needs_interests else None)

    def give(self, node: NodeId, event: Event) -> None:
        if isinstance(event, LinkUp):
            self.observed[node, event.peer] = self.observer()
        elif isinstance(event, FrameReceived) and isinstance(event.frame, self.observer.frames):
            self.observed[node, event.peer].take(event.frame, own=False)
        super().give(node, event)

    def perform(self, node: NodeId, effect: Effect) -> None:
        if (
            isinstance(effect, Send)
            and isinstance(effect.frame, self.observer.frames)
            and effect.peer in self.linked(node)
        ):
            self.observed[node, effect.peer].take(effect.frame, own=True)
        super().perform(node, effect)

    def apply(self, change: str, node: NodeId, topic: int) -> None:
        if node not in self.nodes:
            return
        peers = sorted(self.linked(node))
        if change == "crash":
            self.crash(node)
        elif change != "cut":
            self.give(node, (Subscribe if change == "subscribe" else Unsubscribe)(topic))
        elif peers:
            self.cut(node, peers[topic % len(peers)])

    def links(self) -> dict[tuple[NodeId, NodeId], tuple[int, ...]]:
        """The topics of each link by the word of its node."""
        return {
            (node, peer): neighbour.logical
            for node, whole in self.nodes.items()
            for peer, neighbour in whole.state.neighbours.items()
        }


@pytest.mark.parametrize("protocol", TOLD)
@settings(max_examples=examples(12), deadline=None)
@given(wanted=interests, steps=changes, seed=st.integers(0, 99))
def test_the_frames_of_a_connection_tell_the_logical_links_of_each_end(protocol, wanted, steps, seed):
    pump = Watched(protocol, wanted, seed)
    pump.run(2 * SETTLED_NS)
    for change, node, topic, pause_ns in steps:
        pump.apply(change, node, topic)
        pump.run(pause_ns)
    pump.run(SETTLED_NS)
    known = pump.links()
    assert {ends: set(topics) for ends, topics in known.items()} == {ends: pump.observed[ends].topics for ends in known}


@pytest.mark.parametrize("protocol", TOLD)
def test_there_are_logical_links_to_find(protocol):
    pump = Watched(protocol, [(0, 1, 2)] * NODES, 1)
    pump.run(2 * SETTLED_NS)
    assert any(pump.links().values())


@pytest.mark.parametrize("protocol", UNTOLD)
def test_a_protocol_without_logical_links_has_no_frames_that_tell_of_them(protocol):
    parts = PROTOCOLS[protocol].composition
    assert observe_links(parts.overlay, parts.interests) is None


@pytest.mark.parametrize(
    ("overlay", "key", "value"), [("scribe", "grouping", "random"), ("plumtree", "scope", "shared")]
)
def test_where_links_follow_from_more_than_the_frames_nothing_is_read(overlay, key, value):
    chosen = {"name": overlay}
    interests = PROTOCOLS[overlay].composition.interests
    assert observe_links(chosen, interests) is not None
    assert observe_links(chosen | {key: value}, interests) is None
