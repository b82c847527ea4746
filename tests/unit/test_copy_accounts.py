"""Copies that a node read against its events, where nodes come and go, wait on purpose, or refuse copies."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metrics.changes import PairChanges
from metrics.checks.accounts import NODE_DELAY
from metrics.checks.consistency import CHURN_MARGIN, SETTLE
from metrics.checks.evidence import LateCounts
from metrics.executors.in_process import InProcess
from metrics.recorded.stalls import Stalls
from metrics.tables.accounts import AccountEvidence, AccountSources, number_instances, weigh_accounts
from metrics.tables.condensed import TRANSMISSIONS
from metrics.tables.interests import INTERESTS, UPTIMES
from metrics.tables.links import PHYSICAL
from metrics.tables.published import PUBLISHED
from metrics.tables.schemas import arrow_schema
from metrics.tables.timespans import FOREVER
from metrics.tables.traces import FURTHER, TOLD
from topologies.timeline import Change

MS = 1_000_000
MESSAGE, NODE, PEER, TOPIC = 7 << 32, 1, 2, 4
AT = 10_000 * MS

Row = dict[str, Any]


def read(at_ns: int = AT, **changes: Any) -> Row:
    return {"message_id": MESSAGE, "src_node": PEER, "dst_node": NODE, "log_recv_ns": at_ns} | changes


def event(name: str, at_ns: int = AT, **changes: Any) -> Row:
    row = {"event": name, "node": NODE, "peer": PEER, "ts_ns": at_ns, "message_id": MESSAGE, "topics": [TOPIC]}
    return row | changes


class Case:
    """What a run has; node 1 subscribes and is linked with node 2 all the time unless a test says otherwise."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.links = [(0, FOREVER)]
        self.subscribed = [(0, FOREVER)]
        self.up = [(0, FOREVER)]
        self.expression: str | None = None

    def weigh(self, copies: Sequence[Row], events: Sequence[Row], **changes: Any) -> AccountEvidence:
        spans = {"node": NODE, "peer": PEER, "conn": "c", "opened": True}
        staged = {
            "messages": (arrow_schema("messages"), [{"message_id": MESSAGE}]),
            "published": (PUBLISHED, [{"message_id": MESSAGE, "topics": [TOPIC], "expression": self.expression}]),
            "transmissions": (TRANSMISSIONS, copies),
            "told": (TOLD, [row for row in events if row["event"] in ("deliver", "relay", "publish")]),
            "further": (FURTHER, [row for row in events if row["event"] in ("duplicate", "reject")]),
            "interests": (INTERESTS, [{"topic": TOPIC, "due_ns": 0} | row for row in spread(self.subscribed)]),
            "uptimes": (UPTIMES, spread(self.up)),
            "physical": (PHYSICAL, [spans | row for row in spread(self.links)]),
        }
        for name, (schema, rows) in staged.items():
            (self.folder / name).mkdir()
            pq.write_table(pa.Table.from_pylist(list(rows), schema), self.folder / name / "part-0.parquet")
        given: dict[str, Any] = {
            "silent": (),
            "processing_ns": {},
            "approximate": False,
            "stalls": Stalls(*np.empty((2, 0, 2), np.int64)),
            "changes": PairChanges((), 0),
        }
        places = {name: self.folder / name for name in staged}
        with InProcess(1) as executor:
            return weigh_accounts(executor, AccountSources(**places, **given | changes), 1)

    def deviations(self, copies: Sequence[Row], events: Sequence[Row], **changes: Any) -> list[str]:
        """The first words of what is wrong."""
        found = self.weigh(copies, events, **changes).accounts.deviations
        return sorted(what for what, number in found.items() for _ in range(number))


def spread(spans: Sequence[tuple[int, int]]) -> list[Row]:
    return [{"node": NODE, "from_ns": since, "to_ns": until} for since, until in spans]


LACKING, EXCESS = "copies were read without an event", "events are about a copy that was not read"
AGAIN, UNBEGUN = "first copies are traced again", "duplicates have no first copy"
UNASKED, UNDELIVERED = (
    "messages were delivered without a subscription",
    "messages were relayed in spite of a subscription",
)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


@pytest.mark.parametrize(
    ("copies", "events", "wrong"),
    [
        (1, ["deliver"], []),
        (3, ["deliver", "duplicate", "duplicate"], []),
        (2, ["deliver", "reject"], []),
        (1, ["reject"], []),
        (1, [], [LACKING]),
        (3, ["deliver", "duplicate"], [LACKING]),
        (1, ["deliver", "duplicate"], [EXCESS]),
        (0, ["deliver"], [EXCESS]),
        (2, ["deliver", "deliver"], [AGAIN]),
        (1, ["duplicate"], [UNBEGUN]),
        (1, ["relay"], [UNDELIVERED]),
    ],
)
def test_each_copy_has_one_event(case: Case, copies: int, events: list[str], wrong: list[str]) -> None:
    assert case.deviations([read()] * copies, [event(name) for name in events]) == wrong


def test_what_a_publisher_reads_of_its_own_message_is_a_duplicate(case: Case) -> None:
    own = {"message_id": NODE << 32}
    events = [event("publish", **own), event("deliver", **own, peer=None), event("duplicate", **own)]
    assert case.deviations([read(**own)], events) == []


@pytest.mark.parametrize(("lasted_ns", "wrong"), [(SETTLE.ns, []), (SETTLE.ns + 1, [LACKING])])
def test_a_copy_may_be_left_aside_as_its_link_ends(case: Case, lasted_ns: int, wrong: list[str]) -> None:
    case.links = [(0, AT + lasted_ns)]
    assert case.deviations([read()], []) == wrong


def test_a_copy_that_still_waits_on_purpose_as_the_link_ends_may_be_left_aside(case: Case) -> None:
    case.links = [(0, AT + SETTLE.ns + 50 * MS)]
    assert case.deviations([read()], [], processing_ns={NODE: 50 * MS}) == []


@pytest.mark.parametrize("kept", [False, True])
def test_a_new_instance_of_a_node_knows_nothing_of_the_copies_before(case: Case, kept: bool) -> None:
    again = AT + 5000 * MS
    case.up = case.links = [(0, AT + 1000 * MS), (AT + 2000 * MS, FOREVER)]
    second = "duplicate" if kept else "deliver"
    assert case.deviations([read(), read(again)], [event("deliver"), event(second, again)]) == [UNBEGUN] * kept


@pytest.mark.parametrize("name", ["deliver", "relay"])
@pytest.mark.parametrize(("apart_ns", "fails"), [(CHURN_MARGIN.ns, False), (CHURN_MARGIN.ns + 1, True)])
def test_both_are_right_while_a_subscription_changes(case: Case, name: str, apart_ns: int, fails: bool) -> None:
    since = {"deliver": AT + apart_ns, "relay": AT - apart_ns}[name]
    case.subscribed = [(since, FOREVER)]
    wrong = {"deliver": UNASKED, "relay": UNDELIVERED}[name]
    assert case.deviations([read()], [event(name)]) == [wrong] * fails


def test_a_false_positive_is_delivered_without_a_subscription_where_the_protocol_has_them(case: Case) -> None:
    case.subscribed = []
    assert case.deviations([read()], [event("deliver")], approximate=True) == []


def test_a_subscriber_may_relay_a_message_whose_expression_it_does_not_satisfy(case: Case) -> None:
    case.expression = "a&b"
    assert case.deviations([read()], [event("relay")]) == []


def test_nodes_whose_trace_says_nothing_are_left_out(case: Case) -> None:
    found = case.weigh([read()], [event("duplicate")], silent=(NODE,))
    assert (found.accounts.tested, sum(found.accounts.deviations.values()), found.handling) == (0, 0, {})


@pytest.mark.parametrize(("late_ns", "stalled", "counts"), [
    (NODE_DELAY.ns, False, (1, 0, 0)),
    (NODE_DELAY.ns + 1, False, (1, 1, 0)),
    (NODE_DELAY.ns + 1, True, (1, 1, 1)),
])  # fmt: skip
def test_a_delivery_is_late_from_the_first_reading_and_the_processing_on(
    case: Case, late_ns: int, stalled: bool, counts: tuple[int, int, int]
) -> None:
    due_ns = AT + 20 * MS
    host = np.array([[due_ns, due_ns + 10 * MS]] * stalled, np.int64).reshape(-1, 2)
    stalls, waiting = Stalls(host, np.empty((0, 2), np.int64)), {NODE: 20 * MS}
    events = [event(name, due_ns + late_ns) for name in ("deliver", "duplicate")]
    found = case.weigh([read(AT + MS), read(AT)], events, processing_ns=waiting, stalls=stalls)
    assert found.handling == {NODE: LateCounts(*counts)}


def test_instances_are_numbered_by_the_joins_before() -> None:
    spans = [(NODE, 0, 10), (NODE, 20, 30), (PEER, 5, FOREVER), (NODE, 40, FOREVER)]
    uptimes = pa.Table.from_pylist(
        [dict(zip(("node", "from_ns", "to_ns"), span, strict=True)) for span in spans], UPTIMES
    )
    node, at_ns = np.array([NODE] * 5 + [PEER] * 2 + [0]), np.array([0, 19, 20, 39, 40, 4, 5, 99])
    assert number_instances(uptimes, node, at_ns).tolist() == [0, 0, 1, 1, 2, 0, 1, 0]


@pytest.mark.parametrize("paused", [(NODE,), (PEER,)])
def test_a_delivery_of_a_paused_peer_is_not_late(case: Case, paused: tuple[int, ...]) -> None:
    pause = PairChanges([Change(AT + MS, 0, AT + 9 * MS, paused=paused)], 3)
    found = case.weigh([read()], [event("deliver", AT + 10 * MS)], changes=pause)
    assert found.handling == ({} if paused == (NODE,) else {NODE: LateCounts(1, 1, 0)})
