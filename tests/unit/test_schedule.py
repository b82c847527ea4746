"""The lines of ``schedule.jsonl``, what each action is to a node, and the order of what happens at one instant."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.experiment.sections.workload import InterestsSpec, WorkloadSpec
from harness.workload.membership import MembershipPlan
from harness.workload.publications import draw_schedule, publish_rule
from peer.core import contract
from peer.core.directory import Directory, PeerInfo
from peer.core.payload import make_payload
from peer.core.schedule import (
    Action,
    Crash,
    Join,
    Leave,
    Publish,
    Subscribe,
    Unsubscribe,
    Vanish,
    decode_schedule,
    encode_schedule,
)
from peer.instances.bootstrap import Step, timeline
from peer.instances.lifecycle import enact
from peer.instances.spec import NodeSpec, OverlayDocument

PARTS: dict[str, Any] = {"overlay": {"name": "complete"}, "dissemination": {"name": "flood"}}

ONE_OF_EACH = [
    Leave(-5, 3),
    Join(-4, 3, (1, 2)),
    Publish(0, 3, 7, (1,), 200, 4),
    Publish(0, 3, 8, (1, 2), 200, 4, "b&c|(d|a)"),
    Subscribe(1, 3, (4,)),
    Unsubscribe(2, 3, (1, 4)),
    Crash(3, 3),
    Vanish(4, 3),
]
LINES = b"""\
{"at_ns":-5,"node":3,"action":"leave","message_id":0,"topics":[],"payload_bytes":0,"sequence":0}
{"at_ns":-4,"node":3,"action":"join","message_id":0,"topics":[1,2],"payload_bytes":0,"sequence":0}
{"at_ns":0,"node":3,"action":"publish","message_id":7,"topics":[1],"payload_bytes":200,"sequence":4}
{"at_ns":0,"node":3,"action":"publish","message_id":8,"topics":[1,2],"payload_bytes":200,"sequence":4,"expression":"b&c|(d|a)"}
{"at_ns":1,"node":3,"action":"subscribe","message_id":0,"topics":[4],"payload_bytes":0,"sequence":0}
{"at_ns":2,"node":3,"action":"unsubscribe","message_id":0,"topics":[1,4],"payload_bytes":0,"sequence":0}
{"at_ns":3,"node":3,"action":"crash","message_id":0,"topics":[],"payload_bytes":0,"sequence":0}
{"at_ns":4,"node":3,"action":"vanish","message_id":0,"topics":[],"payload_bytes":0,"sequence":0}
"""

numbers = st.integers(0, 2**53)
topics = st.lists(numbers, max_size=3).map(tuple)
schedules = st.lists(
    st.one_of(
        st.builds(Publish, numbers, numbers, numbers, topics, numbers, numbers, st.text(max_size=5)),
        *(st.builds(kind, numbers, numbers, topics) for kind in (Join, Subscribe, Unsubscribe)),
        *(st.builds(kind, numbers, numbers) for kind in (Leave, Crash, Vanish)),
    ),
    max_size=5,
)


def test_the_bytes_of_a_schedule_are_fixed() -> None:
    """Plan hashes depend on them, and so do programs that read them."""
    assert encode_schedule(ONE_OF_EACH) == LINES
    assert decode_schedule(LINES) == ONE_OF_EACH


@given(schedules)
def test_a_schedule_is_read_as_it_was_written(schedule: list[Action]) -> None:
    assert decode_schedule(encode_schedule(schedule)) == schedule


@pytest.mark.parametrize(
    "line",
    [
        b'{"at_ns":1,"node":0,"topics":[1]}',
        b'{"at_ns":1,"node":0,"action":"dance","topics":[1]}',
        b'{"at_ns":1,"node":0,"action":"join"}',
        b'{"at_ns":1,"action":"leave"}',
        b'{"at_ns":"1","node":0,"action":"leave"}',
    ],
)
def test_a_line_that_is_no_action_is_refused(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_schedule(LINES + line)


class RecordingSlot:
    """Keeps what a node would have been told or done."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def join(self, topics: Sequence[int], directory: Directory) -> str:
        self.calls.append(("join", topics, directory))
        return "joining"

    def leave(self) -> None:
        self.calls.append("leave")

    def crash(self) -> None:
        self.calls.append("crash")

    def vanish(self) -> None:
        self.calls.append("vanish")

    def feed(self, event: contract.Event) -> None:
        self.calls.append(event)


EVERYBODY = Directory(PeerInfo(node, (node,)) for node in range(4))
TOLD = Directory(PeerInfo(node, (node,)) for node in (1, 2))


@pytest.mark.parametrize(
    ("step", "calls", "returned"),
    [
        (Step(5, Publish(5, 0, 7, (1, 2), 99, 4)), [contract.Publish((1, 2), 7, make_payload(7, 4, 99))], None),
        (
            Step(5, Publish(5, 0, 7, (1,), 19, 4, "b")),
            [contract.Publish((1,), 7, make_payload(7, 4, 19, "b"), "b")],
            None,
        ),
        (Step(5, Subscribe(5, 0, (3, 1))), [contract.Subscribe(3), contract.Subscribe(1)], None),
        (Step(5, Unsubscribe(5, 0, (3, 1))), [contract.Unsubscribe(3), contract.Unsubscribe(1)], None),
        (Step(5, Join(5, 0, (4,)), EVERYBODY), [("join", (4,), TOLD)], "joining"),
        (Step(5, Leave(5, 0)), ["leave"], None),
        (Step(5, Crash(5, 0)), ["crash"], None),
        (Step(5, Vanish(5, 0)), ["vanish"], None),
        (Step(5, None, EVERYBODY), [contract.PeerList(TOLD)], None),
    ],
    ids=lambda value: type(value.action).__name__ if isinstance(value, Step) else "",
)
def test_each_step_reaches_its_node(step: Step, calls: list[object], returned: str | None) -> None:
    slot = RecordingSlot()
    assert enact(step, NodeSpec(0, 1, (), **PARTS, bootstrap=(1, 2)), slot) == returned
    assert slot.calls == calls


def test_of_one_instant_the_bootstrap_service_takes_the_changes_in_the_order_of_the_schedule() -> None:
    overlay = OverlayDocument(1, "complete", tuple(NodeSpec(node, 1, (node,), **PARTS) for node in range(2)))
    leave, join = Leave(7, 0), Join(7, 0, (5, 6))
    steps = list(timeline(overlay, [leave, join], 0))
    assert [step.action for step in steps] == [leave, join, None]
    assert steps[1].directory == Directory([PeerInfo(0, (5, 6)), PeerInfo(1, (1,))])
    with pytest.raises(ValueError, match=r"^node 0 is up at 7e-09 s$"):
        list(timeline(overlay, [join, leave], 0))


def test_of_one_instant_changes_come_before_publications() -> None:
    workload = WorkloadSpec(topics=1, publish_interval="fixed", publish_rate_per_s=1, duration_s=3)
    changes = (Subscribe(0, 1, (0,)), Unsubscribe(1_000_000_000, 1, (0,)))
    schedule = draw_schedule(
        workload, MembershipPlan((True, True), ((), ()), changes), 1, publish_rule(InterestsSpec())
    )
    subscribe, publish, unsubscribe = schedule
    assert (subscribe, unsubscribe) == changes
    assert (type(publish), publish.at_ns, publish.node) == (Publish, 0, 1)
