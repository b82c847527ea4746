"""Any frames from a node that keeps to no protocol: StAN and SpiderCast store and dial no more than the run's nodes."""

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peer.core.bitset import bitset
from peer.core.contract import Connect, Publish, Send, message_id
from peer.core.frames import UNLIMITED_TTL, Data, Frame, Subscriptions
from peer.protocols.registry import PROTOCOLS, Composition, compose
from peer.protocols.spidercast import frames as spider
from peer.protocols.stan.frames import StanCollect, StanQuit, StanReply, StanRide
from peer.protocols.stan.initial_views import draw_views, list_members
from peer.protocols.stan.overlay import MOST_DIALS
from peer.testing import Pump, Solo, numbers_stored
from tests.examples import examples, long_unless

SECOND_NS = 1_000_000_000
NODES, TOPICS, HOSTILE = 8, 4, 0
WANTED = [tuple(topic for topic in range(TOPICS) if (node + topic) % 3) for node in range(NODES)]

NO_NODES = {*range(NODES, 200), 2**20, 2**31 - 1}
NO_TOPICS = {300, 2**32 - 1}
number = st.one_of(st.integers(0, NODES - 1), st.sampled_from(sorted(NO_NODES)))
topic = st.one_of(st.integers(0, TOPICS - 1), st.sampled_from([TOPICS, *sorted(NO_TOPICS)]))
numbers, topics = (st.lists(each, max_size=6).map(tuple) for each in (number, topic))
count = st.sampled_from([0, 1, 3, 100, 2**32 - 1])
state = st.one_of(st.none(), st.tuples(count, count))
task = st.integers(0, 1)
common = [
    st.builds(Subscriptions, topics),
    st.builds(Data, st.integers(2**32, 2**63 - 1), topics, st.integers(0, 255), st.integers(0, 255), st.just(b"x")),
]
FRAMES = {
    "stan": st.one_of(
        st.builds(StanCollect, number, topic, st.sampled_from([0, 0, 1, 5, 6, 255]), numbers),
        st.builds(StanReply, topic, numbers),
        st.builds(StanRide, topics),
        st.builds(StanQuit, topics),
        *common,
    ),
    "spidercast": st.one_of(
        st.builds(spider.SpiderConnect, task, count, count, count, topics),
        st.builds(spider.SpiderConnectOk, task, count, count, count, topics),
        st.builds(spider.SpiderRedirect, task, st.one_of(st.none(), number), topics),
        st.builds(spider.SpiderDisconnect, task),
        st.builds(spider.SpiderDisconnectOk, task),
        st.builds(spider.SpiderLeave, task),
        st.builds(spider.SpiderHeartbeat, state, state, count, st.one_of(st.none(), topics)),
        *common,
    ),
}


class Hostile:
    """A node that is linked with all others and says what it is given to say, to each of them."""

    def __init__(self) -> None:
        self.words: Iterator[Frame] = iter(())

    def handle(self, now_ns: int, event: object) -> list:
        return []


def make_pump(protocol: str, members: bool) -> tuple[Pump, Hostile]:
    """``members``: the hostile node is a listed subscriber of its topics; otherwise a stranger everywhere."""
    wanted = [topics if node != HOSTILE or members else () for node, topics in enumerate(WANTED)]
    parts, given = PROTOCOLS[protocol].composition, [{} for _ in wanted]
    if protocol == "stan":
        views = draw_views(wanted, 1.0, 3)
        given = [{"views": own, "members": told} for own, told in zip(views, list_members(views), strict=True)]
    hostile = Hostile()
    nodes: dict = {HOSTILE: hostile}
    for node in range(1, NODES):
        mix = Composition(parts.overlay | given[node], parts.dissemination, parts.membership, parts.interests)
        nodes[node] = compose(node, 3, wanted[node], mix)
    pump = Pump(nodes)
    pump.start(dict(enumerate(wanted)) if parts.needs_interests else None)
    return pump, hostile


def say(pump: Pump, frame: Frame) -> None:
    """The hostile node links with everybody and says this to each."""
    for node in range(1, NODES):
        pump.perform(HOSTILE, Connect(node))
    pump.run(SECOND_NS // 100)
    for node in range(1, NODES):
        pump.perform(HOSTILE, Send(node, frame))
    pump.run(SECOND_NS // 50)


def check_stan(pump: Pump, node: int) -> None:
    """A node has nobody in its views but subscribers, and stores nothing of nodes and topics that do not exist."""
    overlay, admits = pump.part(node, "overlay"), pump.nodes[node].state.admits
    listed = {topic: {n for n in range(NODES) if admits(n, topic)} for topic in range(TOPICS)}
    for of in overlay.views.topics:
        assert set(overlay.views[of]) <= listed[of] | {HOSTILE}
        assert set(overlay.views.present(of)) <= listed[of]
    assert set(overlay.views.topics) <= set(WANTED[node])
    assert {topic for topic, nodes in listed.items() if nodes} == set(WANTED[node])
    assert all(len(waiting) <= TOPICS for waiting in overlay.replies.values())
    assert numbers_stored(overlay).isdisjoint(NO_NODES | NO_TOPICS)


def check_spidercast(pump: Pump, node: int) -> None:
    """A task has no more neighbours than it may, and nothing is stored of nodes that do not exist."""
    overlay = pump.part(node, "overlay")
    for task in overlay.tasks:
        assert len(task.neighbours) <= task.limit + 5
    assert numbers_stored(overlay).isdisjoint(NO_NODES)


CHECKS = {"stan": check_stan, "spidercast": check_spidercast}


def check_seen(pump: Pump, node: int) -> None:
    """Of each message a node remembers no more topics than it subscribes to."""
    for remembered in pump.part(node, "dissemination").seen.values():
        assert len(set(remembered)) == len(remembered)
        assert set(remembered) <= set(WANTED[node])


@pytest.mark.parametrize(("protocol", "members"), [("stan", True), ("stan", False), ("spidercast", True)])
@settings(max_examples=examples(30), deadline=None)
@given(data=st.data())
def test_nothing_grows_and_nobody_is_dialled_beyond_the_runs_nodes(protocol, members, data):
    pump, _ = make_pump(protocol, members)
    pump.run(SECOND_NS)
    for frame in data.draw(st.lists(FRAMES[protocol], min_size=5, max_size=25)):
        say(pump, frame)
    pump.run(2 * SECOND_NS)
    for node in range(1, NODES):
        CHECKS[protocol](pump, node)
        check_seen(pump, node)
        assert pump.nodes[node].state.numbers == NODES
    dialled = {effect.peer for _, _, effect in pump.effects if isinstance(effect, Connect)}
    assert dialled <= set(range(NODES))


@pytest.mark.parametrize("frame", [StanCollect(7, 1, 0, ()), StanRide((0, 1, 2, 3)), StanReply(1, (3, 4))])
def test_the_same_frame_a_thousand_times_dials_nobody_more_often_than_a_few_times_a_period(frame: Frame):
    """So slowly that each link which it makes a node open has come up and is closed again."""
    pump, _ = make_pump("stan", members=True)
    pump.run(SECOND_NS)
    say(pump, frame)
    before = len(pump.effects)
    for _ in range(1000):
        for node in range(1, NODES):
            pump.perform(HOSTILE, Send(node, frame))
        pump.run(SECOND_NS // 100)
    dials = Counter((node, effect.peer) for _, node, effect in pump.effects[before:] if isinstance(effect, Connect))
    assert max(dials.values(), default=0) <= 11 * (TOPICS * MOST_DIALS + 1)
    for node in range(1, NODES):
        check_stan(pump, node)


@pytest.mark.parametrize("protocol", ["stan", "spidercast"])
def test_one_message_repeated_with_ever_more_topics_is_remembered_once(protocol: str):
    pump, _ = make_pump(protocol, members=True)
    pump.run(SECOND_NS)
    for first in range(0, 2000, 100):
        say(pump, Data(77 << 32, tuple(range(first, first + 100)), 1, UNLIMITED_TTL, b"x"))
    for node in range(1, NODES):
        check_seen(pump, node)
        delivered = [message for _, to, message in pump.delivered if to == node]
        assert len(delivered) == 1


@pytest.mark.parametrize("protocol", long_unless(PROTOCOLS.keys() - {"implicit-groups"}, sorted(PROTOCOLS)))
def test_a_forged_copy_of_the_next_message_silences_no_node(protocol: str):
    pump, _ = make_pump(protocol, members=True)
    pump.run(3 * SECOND_NS)
    for node in range(1, NODES):
        say(pump, Data(message_id(node, 0), WANTED[node], 1, UNLIMITED_TTL, b"forged"))
    for node in range(1, NODES):
        pump.give(node, Publish(WANTED[node], message_id(node, 0), b"genuine"))
        pump.run(SECOND_NS)
        assert [m.payload for _, to, m in pump.delivered if (to, m.message_id) == (node, message_id(node, 0))] == [
            b"genuine"
        ]


def subscriber_of(topics: tuple[int, ...]) -> Solo:
    """StAN's node 1, linked with subscribers 2 and 3 of the same topics, on a walk in each, and with a stranger."""
    listed = f"{bitset(range(1, NODES)):x}"
    given = {"views": [(each, (2, 3)) for each in topics], "members": [(each, listed) for each in topics]}
    parts = PROTOCOLS["stan"].composition
    mix = Composition(parts.overlay | given, parts.dissemination, interests=parts.interests)
    solo = Solo(compose(1, 3, topics, mix))
    solo.start({})
    solo.link_up(2)
    solo.link_up(3)
    solo.fire("overlay/walk")
    solo.link_up(HOSTILE, outbound=False)
    return solo


@given(st.lists(FRAMES["stan"], max_size=12))
def test_a_strangers_frames_have_the_same_effects_at_a_subscriber_and_at_another_node(frames: list[Frame]):
    subscriber, other = subscriber_of(tuple(range(TOPICS))), subscriber_of(tuple(range(1000, 1000 + TOPICS)))
    for frame in frames:
        at_one, at_the_other = (solo.at(1).receive(HOSTILE, frame) for solo in (subscriber, other))
        assert at_one == at_the_other
