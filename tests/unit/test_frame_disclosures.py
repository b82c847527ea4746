"""What each frame tells its receiver of subscriptions; an asking adversary concludes just that."""

from pathlib import Path

import pytest

from peer.core.frames import Frame, Subscriptions, frame_type, kind_names
from peer.core.membership.cyclon import CyclonReply, CyclonShuffle
from peer.core.membership.gossip import Descriptor
from peer.core.membership.newscast import NewscastNews, NewscastReply
from peer.protocols.description import section_name
from peer.protocols.gossipsub.frames import Graft
from peer.protocols.registry import OVERLAYS
from peer.protocols.ring_per_topic.frames import RingLink
from peer.protocols.spidercast.frames import SpiderConnect, SpiderConnectOk, SpiderHeartbeat, SpiderRedirect
from peer.protocols.stan.frames import StanCollect, StanReply, StanRide
from peer.protocols.tman.frames import Contact, Profile, TManReply, TManRequest
from peer.protocols.vitis.frames import Proposal, VitisProfile

SENDER = 9
NEWS = (Descriptor(3, 1, (4, 5)), Descriptor(6, 0, None))

FRAMES = [
    (Subscriptions((1, 2)), [(SENDER, (1, 2))]),
    (StanCollect(7, 1, 3, (4, 5)), [(SENDER, (1,)), (7, (1,)), (4, (1,)), (5, (1,))]),
    (StanReply(1, (4, 5)), [(SENDER, (1,)), (4, (1,)), (5, (1,))]),
    (StanRide((1, 2)), [(SENDER, (1, 2))]),
    (SpiderConnect(0, 1, 2, 0, (1, 2)), [(SENDER, (1, 2))]),
    (SpiderConnectOk(0, 1, 2, 0, (1, 2)), [(SENDER, (1, 2))]),
    (SpiderRedirect(0, 7, (1, 2)), [(7, (1, 2))]),
    (SpiderRedirect(0, None, (1, 2)), []),
    (SpiderHeartbeat((1, 2), None, 0, (1, 2)), [(SENDER, (1, 2))]),
    (SpiderHeartbeat((1, 2), None, 0, None), [(SENDER, ())]),
    (CyclonShuffle(NEWS), [(3, (4, 5)), (6, ())]),
    (CyclonReply(NEWS), [(3, (4, 5)), (6, ())]),
    (NewscastNews(NEWS), [(3, (4, 5)), (6, ())]),
    (NewscastReply(NEWS), [(3, (4, 5)), (6, ())]),
    (Graft((1, 2)), [(SENDER, (1, 2))]),
    (RingLink((1, 2)), [(SENDER, (1, 2))]),
    (TManRequest((Contact(3, 1, frozenset({4})), Contact(6, 0, frozenset()))), [(3, (4,)), (6, ())]),
    (TManReply((Contact(3, 1, frozenset({4})),)), [(3, (4,))]),
    (Profile(frozenset({5}), (1, 2)), [(SENDER, (5,))]),
    (VitisProfile(frozenset({4, 5}), (Proposal(3, 3, 0), Proposal(9, 9, 0)), (1, 2)), [(SENDER, (4, 5))]),
]


TESTS = Path(__file__).parents[1]


def has_its_own_test(package: str, method: str) -> bool:
    """Whether a test module of a protocol's package (`test_<package>.py` or `test_<package>_*.py`) calls the method."""
    modules = [*TESTS.glob(f"*/test_{package}.py"), *TESTS.glob(f"*/test_{package}_*.py")]
    return any(f".{method}(" in module.read_text(encoding="utf-8") for module in modules)


@pytest.mark.parametrize(("frame", "told"), FRAMES, ids=lambda value: type(value).__name__)
def test_what_a_frame_tells(frame: Frame, told: list) -> None:
    assert [(node, tuple(topics)) for node, topics in frame.disclosed(SENDER)] == told


def test_all_other_frames_tell_nothing_or_are_in_the_test_of_their_protocol() -> None:
    telling = {type(frame) for frame, _ in FRAMES}
    others = [kind for number in kind_names() if (kind := frame_type(number)) is not None and kind not in telling]
    assert len(others) > 10
    for kind in others:
        package = kind.__module__.split(".")[-2]
        tells_nothing = kind.disclosed is Frame.disclosed and not kind.own_topics
        assert tells_nothing or has_its_own_test(package, "disclosed")


def test_only_over_overlays_that_tell_nobody_unasked_there_are_questions() -> None:
    asked = {name: list(part.ask_interests(SENDER, (1, 2))) for name, part in OVERLAYS.items()}
    walks = [StanCollect(SENDER, 1, 0, ()), StanReply(1, (SENDER,)), StanCollect(SENDER, 2, 0, ())]
    questioned = {name: questions for name, questions in asked.items() if questions}
    here = {name for name in questioned if not has_its_own_test(section_name(name), "ask_interests")}
    assert {name: questioned[name] for name in here} == {
        "stan": [StanRide((1, 2)), *walks, StanReply(2, (SENDER,))],
        "spidercast": [SpiderConnect(0, 0, 1, 0, (1, 2))],
        "similarity": [SpiderConnect(0, 0, 1, 0, (1, 2))],
    }
