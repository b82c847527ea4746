"""Deliveries recounted from the documents, against a slow reference and with instants that change places."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import ExperimentError
from harness.experiment.form import Experiment
from harness.experiment.sections.workload import ChurnSpec, ExpressionsSpec, InterestsSpec, WorkloadSpec
from harness.workload.workload import draw_workload
from metrics.recount import Recount, count_changes, recount
from metrics.rundir.documents import NodeOutline
from peer.core.addressing.expression import parse
from peer.core.addressing.keywords import keywords
from peer.core.schedule import Join, Publish, encode_schedule
from tests.examples import examples

SECOND = 1_000_000_000


class Documents:
    """What ``recount`` reads of a run directory."""

    def __init__(self, nodes: list[tuple[int, ...]], actions: list[dict[str, Any]]) -> None:
        self._actions = actions
        self.overlay = tuple(NodeOutline(node, topics, {"name": "flood"}) for node, topics in enumerate(nodes))

    def schedule(self) -> list[dict[str, Any]]:
        return self._actions


def counted(
    nodes: list[tuple[int, ...]],
    actions: list[dict[str, Any]],
    margin_ns: int = 0,
    settle_ns: int = 0,
    lags_ns: Mapping[int, int] | None = None,
) -> tuple[Recount, int]:
    run: Any = Documents(nodes, actions)
    return recount(run, margin_ns, settle_ns, lags_ns or {}), count_changes(run)


@given(
    st.integers(0, 2**32),
    st.floats(0.5, 20),
    st.floats(0.2, 1),
    st.integers(2, 15),
    st.sampled_from([0, 3]),
    st.sampled_from(["none", "list"]),
)
@settings(max_examples=examples(100), deadline=None)
def test_the_count_equals_a_slow_reference(
    seed: int, on_s: float, ratio: float, nodes: int, settle_s: int, kind: str
) -> None:
    experiment = Experiment(
        "x",
        seed=seed,
        workload=WorkloadSpec(topics=5, topics_per_message=2 if kind == "none" else 1, duration_s=10),
        expressions=ExpressionsSpec(kind, texts=("a&b", "(a|b)&(c|d)", "e|a&c")),
        interests=InterestsSpec(ratio=ratio),
        churn=ChurnSpec(kind="exponential", on_s=on_s, crash_ratio=0.5, silent_ratio=0.5),
    )
    try:
        drawn = draw_workload(experiment, nodes, Path())
    except ExperimentError:
        return
    expected = 0
    for place, publication in enumerate(drawn.schedule):
        if not isinstance(publication, Publish):
            continue
        for node in set(range(nodes)) - {publication.node}:
            own, joined_ns = drawn.interests[node], -(2**62)
            for action in drawn.schedule[:place]:
                if action.node == node and not isinstance(action, Publish):
                    own = action.topics if isinstance(action, Join) else ()
                    joined_ns = action.at_ns
            settled = publication.at_ns >= joined_ns + settle_s * SECOND
            text = publication.expression
            wants = parse(text).matches(keywords(own)) if text else bool(set(own) & set(publication.topics))
            expected += settled and wants
    actions = [json.loads(line) for line in encode_schedule(drawn.schedule).splitlines()]
    found, changes = counted(list(drawn.interests), actions, 0, settle_s * SECOND)
    assert found == Recount(expected, found.uncertain)
    assert changes == sum(not isinstance(action, Publish) for action in drawn.schedule)


def at(second: float, node: int, action: str, *topics: int) -> dict[str, Any]:
    return {"at_ns": round(second * SECOND), "node": node, "action": action, "topics": topics}


def test_what_changes_near_a_publication_is_uncertain() -> None:
    actions = [
        at(1.0, 1, "leave"),  # 0.05 s before: may come after it
        at(1.05, 0, "publish", 7),
        at(1.06, 2, "unsubscribe", 7),
        at(1.07, 3, "subscribe", 8),  # another topic
        at(1.2, 4, "crash"),  # too late to matter
        at(5, 0, "publish", 7, 8),
    ]
    nodes = [(7,), (7, 8), (7,), (7,), (7,)]
    assert counted(nodes, actions, SECOND // 10) == (Recount(3 + 1, 2), 4)
    assert counted(nodes, actions) == (Recount(4, 0), 4)


def test_a_late_publication_makes_only_its_own_surroundings_uncertain() -> None:
    actions = [
        at(1.0, 1, "leave"),
        at(3.0, 0, "publish", 7) | {"message_id": 4},  # two seconds late: node 2 may have left before it
        at(5.0, 2, "leave"),
        at(5.2, 0, "publish", 7) | {"message_id": 5},  # in time
    ]
    nodes = [(7,), (7,), (7,), (7,)]
    lags: list[tuple[dict[int, int], int]] = [
        ({}, 0), ({4: 2 * SECOND}, 2), ({4: 2 * SECOND - 1}, 0), ({5: SECOND // 5}, 1)
    ]  # fmt: skip
    for lags_ns, uncertain in lags:
        assert counted(nodes, actions, SECOND // 10, 0, lags_ns)[0] == Recount(2 + 1, uncertain)


def test_a_node_that_settles_near_a_publication_is_uncertain() -> None:
    actions = [
        at(1, 1, "join", 7),
        at(2, 2, "join", 7),
        at(2.95, 0, "publish", 7),  # node 1 settles 0.05 s later, node 2 after another second
        at(5, 0, "publish", 7),
    ]
    nodes = [(7,), (), (), (7,)]
    assert counted(nodes, actions, SECOND // 10, 2 * SECOND)[0] == Recount(1 + 3, 1)


def test_a_change_of_any_topic_of_an_expression_is_uncertain() -> None:
    actions = [
        at(1.0, 1, "unsubscribe", 0),  # a is no topic of the message, but a keyword of its expression
        at(1.01, 2, "unsubscribe", 3),
        at(1.05, 0, "publish", 1) | {"expression": "b&(a|ab)"},
        at(1.06, 3, "unsubscribe", 27),
    ]
    nodes = [(7,), (0, 1), (0, 1, 3), (1, 27), (0,), (27,)]
    assert counted(nodes, actions, SECOND // 10) == (Recount(2, 2), 3)
