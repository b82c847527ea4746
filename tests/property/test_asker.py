"""The adversary that asks, on the pump: what it learns over each protocol, and what it does to be told."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peer.core.asker import MOST_PROBED, STAY_NS, Asking
from peer.core.bitset import bitset
from peer.core.contract import Connect, Directory, Disconnect, PeerInfo, Publish, Send, message_id
from peer.core.parts import Turn
from peer.protocols.registry import PROTOCOLS, Composition, compose
from peer.protocols.stan.frames import StanCollect, StanReply, StanRide
from peer.protocols.stan.initial_views import draw_views, list_members
from peer.testing import Faults, Pump
from tests.examples import examples

SECOND_NS = 1_000_000_000
TOPICS = 4
ASKER = 0
interests = st.lists(st.sets(st.integers(0, TOPICS - 1)).map(sorted).map(tuple), min_size=3, max_size=10)
faulty = st.sampled_from([None, Faults(0.1, 0.2, 0.2)])


def make_pump(
    protocol: str, wanted: list, seed: int, faults: Faults | None, *, lists: str = "true", interval_ms: float = 50.0
) -> Pump:
    """Node 0 asks. ``lists``: "open" = StAN's lists of subscribers name everybody, which is as good as no lists."""
    parts, given = PROTOCOLS[protocol].composition, [{} for _ in wanted]
    if protocol == "stan":
        views = draw_views(wanted, 1.0, seed)
        members = list_members(views)
        if lists == "open":
            everybody = f"{bitset(range(len(wanted))):x}"
            members = [[(topic, everybody) for topic in range(TOPICS)] for _ in wanted]
        given = [{"views": own, "members": listed} for own, listed in zip(views, members, strict=True)]
    nodes = {
        node: compose(
            node,
            seed,
            topics,
            Composition(parts.overlay | given[node], parts.dissemination, parts.membership, parts.interests),
            {"name": "asker", "topics": TOPICS, "ask_interval_ms": interval_ms} if node == ASKER else None,
        )
        for node, topics in enumerate(wanted)
    }
    pump = Pump(nodes, lambda a, b: 1_000_000 * (1 + (3 * a + 5 * b) % 17), faults, seed)
    pump.start(dict(enumerate(wanted)) if parts.needs_interests else None)
    return pump


def publish_everything(pump: Pump, wanted: list) -> None:
    for number, (node, topic) in enumerate((node, topic) for node, topics in enumerate(wanted) for topic in topics):
        pump.give(node, Publish((topic,), message_id(node, number), b"x"))
        pump.run(SECOND_NS // 20)


def concluded(pump: Pump) -> set[tuple[int, int]]:
    told = [event for event in pump.traced if event.event == "disclose"]
    assert {event.node for event in told} <= {ASKER}
    return {(event.peer, topic) for event in told for topic in event.topics}


def subscriptions(wanted: list) -> set[tuple[int, int]]:
    """Of other nodes, to topics that the asker does not have."""
    return {(n, topic) for n, topics in enumerate(wanted) for topic in topics if n != ASKER and topic not in wanted[0]}


@settings(max_examples=examples(25), deadline=None)
@given(interests, st.integers(0, 2**32), faulty)
def test_over_stan_an_asker_learns_nothing_of_topics_that_it_does_not_have(wanted, seed, faults):
    pump = make_pump("stan", wanted, seed, faults)
    pump.run(3 * SECOND_NS)
    publish_everything(pump, wanted)
    pump.run(3 * SECOND_NS)
    assert not {(node, topic) for node, topic in concluded(pump) if topic not in wanted[ASKER]}


@settings(max_examples=examples(15), deadline=None)
@given(interests, st.integers(0, 2**32))
def test_over_stan_without_lists_it_learns_everything(wanted, seed):
    """So that the property above is about something."""
    pump = make_pump("stan", wanted, seed, None, lists="open")
    pump.run(4 * SECOND_NS)
    assert concluded(pump) >= subscriptions(wanted)


@settings(max_examples=examples(15), deadline=None)
@given(interests, st.integers(0, 2**32), faulty)
def test_over_rvr_it_learns_nothing(wanted, seed, faults):
    """No frame says what a node subscribes to: a node asks for a relay path as a subscriber or as a relay."""
    pump = make_pump("rvr", wanted, seed, faults)
    pump.run(3 * SECOND_NS)
    publish_everything(pump, wanted)
    assert not concluded(pump)


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
@settings(max_examples=examples(4), deadline=None)
@given(interests, st.integers(0, 2**32), faulty)
def test_over_any_other_protocol_it_learns_everything_and_it_never_errs(protocol, wanted, seed, faults):
    pump = make_pump(protocol, wanted, seed, faults)
    pump.run(3 * SECOND_NS)
    publish_everything(pump, wanted)
    said = concluded(pump)
    assert all(topic in wanted[node] for node, topic in said)
    if protocol not in ("stan", "rvr", "implicit-groups"):
        assert said >= subscriptions(wanted)


@pytest.mark.parametrize(
    "protocol", ["topiary", "spidercast", "similarity", "gossipsub", "scribe", "random", "vitis", "opt"]
)
def test_it_learns_from_frames_alone_what_the_bootstrap_service_does_not_tell(protocol: str, monkeypatch):
    meet = Asking.meet

    def meet_without_interests(asking: Asking, turn: Turn, directory: Directory) -> None:
        meet(asking, turn, Directory(PeerInfo(entry.node) for entry in directory))

    monkeypatch.setattr(Asking, "meet", meet_without_interests)
    wanted = [(0,), (0, 1), (1, 2), (2, 3), (1, 3)]
    pump = make_pump(protocol, wanted, 1, None)
    pump.run(4 * SECOND_NS)
    assert concluded(pump) >= subscriptions(wanted)


def test_a_guest_is_asked_and_told_nothing_else_and_its_link_ends():
    wanted = [(0,), *[(topic,) for topic in (1, 2, 3)] * 3]
    pump = make_pump("stan", wanted, 5, None)
    pump.run(8 * SECOND_NS)
    own = [(at_ns, effect) for at_ns, node, effect in pump.effects if node == ASKER]
    sent = [effect for _, effect in own if isinstance(effect, Send)]
    topics = tuple(range(TOPICS))
    asked = [StanRide(topics)]
    asked += [frame for topic in topics for frame in (StanCollect(ASKER, topic, 0, ()), StanReply(topic, (ASKER,)))]
    assert {effect.frame for effect in sent} == set(asked)
    assert {effect.peer for effect in sent} == set(range(1, len(wanted)))
    ends = {}
    for at_ns, effect in own:
        if isinstance(effect, Connect):
            ends[effect.peer] = at_ns + STAY_NS
        if isinstance(effect, Disconnect):
            assert 0 <= at_ns - ends.pop(effect.peer) <= 50_000_000
    assert len(ends) <= MOST_PROBED


def test_no_more_than_the_limit_of_probed_nodes_at_a_time():
    wanted = [(0,)] * 2 + [(1,)] * 120
    pump = make_pump("stan", wanted, 5, None, interval_ms=1.0)
    most = 0
    for _ in range(40):
        pump.run(SECOND_NS // 10)
        most = max(most, len(pump.part(ASKER, "adversary").probed))
    assert most == MOST_PROBED
