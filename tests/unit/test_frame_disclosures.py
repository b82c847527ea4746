"""What each frame tells its receiver of subscriptions; an asking adversary concludes just that."""

from __future__ import annotations

import pytest

from peer.core.frames import Frame, Subscriptions, frame_type, kind_names
from peer.core.membership.cyclon import CyclonReply, CyclonShuffle
from peer.core.membership.gossip import Descriptor
from peer.core.membership.newscast import NewscastNews, NewscastReply
from peer.protocols.gossipsub.frames import Graft
from peer.protocols.registry import OVERLAYS
from peer.protocols.ring_per_topic.frames import RingLink
from peer.protocols.spidercast.frames import SpiderConnect, SpiderConnectOk, SpiderHeartbeat, SpiderRedirect
from peer.protocols.stan.frames import StanCollect, StanReply, StanRide

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
]


@pytest.mark.parametrize(("frame", "told"), FRAMES, ids=lambda value: type(value).__name__)
def test_what_a_frame_tells(frame: Frame, told: list) -> None:
    assert [(node, tuple(topics)) for node, topics in frame.disclosed(SENDER)] == told


def test_all_other_frames_tell_nothing() -> None:
    telling = {type(frame) for frame, _ in FRAMES}
    others = [kind for number in kind_names() if (kind := frame_type(number)) is not None and kind not in telling]
    assert len(others) > 10
    assert all(kind.disclosed is Frame.disclosed for kind in others)


def test_only_over_overlays_that_tell_nobody_unasked_there_are_questions() -> None:
    asked = {name: list(part.ask_interests(SENDER, (1, 2))) for name, part in OVERLAYS.items()}
    walks = [StanCollect(SENDER, 1, 0, ()), StanReply(1, (SENDER,)), StanCollect(SENDER, 2, 0, ())]
    assert {name: questions for name, questions in asked.items() if questions} == {
        "stan": [StanRide((1, 2)), *walks, StanReply(2, (SENDER,))],
        "spidercast": [SpiderConnect(0, 0, 1, 0, (1, 2))],
        "similarity": [SpiderConnect(0, 0, 1, 0, (1, 2))],
    }
