"""What each protocol's frames tell an observer of the logical links of one end."""

import pytest

from peer.core.frames import Frame, Subscriptions
from peer.core.observed_links import ObservedLinks
from peer.protocols.gossipsub.frames import Graft, Prune, Pruned
from peer.protocols.plumtree.frames import HyparviewAnswer, HyparviewDisconnect
from peer.protocols.registry import PROTOCOLS, observe_links
from peer.protocols.ring_per_topic.frames import RingLink, RingRefusal
from peer.protocols.scribe.frames import ScribeJoin, ScribeLeave, ScribeRedirect
from peer.protocols.spidercast.frames import (
    SpiderConnect,
    SpiderConnectOk,
    SpiderDisconnectOk,
    SpiderHeartbeat,
    SpiderLeave,
)
from peer.protocols.stan.frames import StanRide
from peer.protocols.tman.frames import Profile
from peer.protocols.vitis.frames import VitisProfile

Steps = list[tuple[str, Frame, set[int]]]
"""Whose frame it is, the frame, and the topics after it."""


def state(kind: type[Frame], task: int, *topics: int) -> Frame:
    return kind(task, 3, 3, 0, topics)


def beat(greedy: bool, random: bool, *topics: int) -> Frame:
    named = [(3, 3) if is_neighbour else None for is_neighbour in (greedy, random)]
    return SpiderHeartbeat(*named, 1, topics or None)


SHARED: Steps = [
    ("own", Subscriptions((1, 2, 3)), set()),
    ("other", Subscriptions((2, 3, 4)), {2, 3}),
    ("own", Subscriptions((2,)), {2}),
    ("other", Subscriptions(()), set()),
]

TASKS: Steps = [
    ("own", state(SpiderConnect, 0, 1, 2, 3), set()),
    ("other", state(SpiderConnectOk, 0, 2, 3, 4), {2, 3}),
    ("other", state(SpiderConnect, 1, 2, 3, 4), {2, 3}),
    ("own", state(SpiderConnectOk, 1, 1, 2, 3), {2, 3}),
    ("other", SpiderLeave(0), {2, 3}),
    ("own", SpiderDisconnectOk(1), set()),
    ("other", state(SpiderConnectOk, 0, 1), {1}),
    ("other", beat(False, False), {1}),
    ("other", beat(True, False, 1, 3), {1, 3}),
    ("own", beat(False, True), {1, 3}),
    ("own", beat(False, False, 1), set()),
    ("own", beat(True, False), {1}),
]

STEPS: dict[str, Steps] = {
    "random": SHARED,
    "complete": SHARED,
    "topiary": SHARED,
    "gossipsub-bounded": SHARED,
    "gossipsub": [
        ("own", Subscriptions((1, 2, 3)), set()),
        ("other", Subscriptions((1, 2, 3, 4)), set()),
        ("own", Graft((1, 2)), {1, 2}),
        ("other", Graft((3, 4)), {1, 2, 3}),
        ("other", Prune((Pruned(1),)), {2, 3}),
        ("own", Prune((Pruned(2),)), {3}),
        ("other", Graft((1, 2)), {1, 2, 3}),
        ("other", Subscriptions((2, 3)), {2, 3}),
        ("own", Subscriptions((3,)), {3}),
        ("other", Graft((2,)), {3}),
    ],
    "stan": [
        ("own", StanRide((1, 2)), {1, 2}),
        ("other", StanRide((3,)), {1, 2}),
        ("own", StanRide((2, 5)), {2, 5}),
        ("own", StanRide(()), set()),
    ],
    "spidercast": TASKS,
    "similarity": TASKS,
    "scribe": [
        ("own", ScribeJoin((1, 2)), {1, 2}),
        ("other", ScribeJoin((3, 4)), {1, 2, 3, 4}),
        ("own", ScribeLeave((1,)), {2, 3, 4}),
        ("other", ScribeLeave((3,)), {2, 4}),
        ("own", ScribeRedirect(4, ()), {2}),
        ("own", ScribeRedirect(2, ()), {2}),
        ("other", ScribeRedirect(2, (7,)), set()),
    ],
    "ring-per-topic": [
        ("own", RingLink((1, 2)), {1, 2}),
        ("other", RingLink((2, 3)), {1, 2, 3}),
        ("own", RingRefusal((3,)), {1, 2}),
        ("other", RingRefusal((1,)), {1, 2}),
        ("own", RingLink((2,)), {2}),
        ("other", RingLink(()), {2}),
    ],
    "plumtree": [
        ("own", HyparviewAnswer(1, True), {1}),
        ("other", HyparviewAnswer(2, True), {1, 2}),
        ("other", HyparviewAnswer(1, False), {1, 2}),
        ("own", HyparviewAnswer(1, False), {1, 2}),  # it crossed the answer that accepts
        ("own", HyparviewDisconnect(1, True, ()), {2}),
        ("other", HyparviewDisconnect(2, True, ()), set()),
        ("other", HyparviewAnswer(3, True), {3}),
        ("own", HyparviewDisconnect(3, False, ()), set()),
    ],
    "opt": [
        ("own", Profile(frozenset({1, 2}), ()), set()),
        ("other", Profile(frozenset({2, 3}), ()), {2}),
        ("own", Profile(frozenset({3}), ()), {3}),
    ],
    "vitis": [
        ("own", VitisProfile(frozenset({1, 2}), (), ()), set()),
        ("other", VitisProfile(frozenset({2, 3}), (), ()), {2}),
        ("other", VitisProfile(frozenset({1}), (), ()), {1}),
    ],
}


def observer_of(protocol: str) -> type[ObservedLinks] | None:
    parts = PROTOCOLS[protocol].composition
    return observe_links(parts.overlay, parts.interests)


@pytest.mark.parametrize("protocol", STEPS)
def test_frames_begin_replace_and_end_the_topics_of_an_end(protocol: str) -> None:
    observer = observer_of(protocol)
    assert observer is not None
    links = observer()
    assert links.topics == frozenset()
    for place, (whose, frame, topics) in enumerate(STEPS[protocol]):
        assert isinstance(frame, observer.frames)
        links.take(frame, own=whose == "own")
        assert links.topics == topics, (place, frame)


def test_every_protocol_whose_frames_tell_is_here() -> None:
    assert {name for name in PROTOCOLS if observer_of(name) is not None} == set(STEPS)
    assert observe_links({}, "private") is None


@pytest.mark.parametrize("protocol", STEPS)
def test_every_frame_that_is_named_is_read(protocol: str) -> None:
    observer = observer_of(protocol)
    assert observer is not None
    assert {type(frame) for _, frame, _ in STEPS[protocol]} == set(observer.frames)
