"""The topics' publication rates: the law, what is drawn by it, and what protocols are told of it."""

from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harness.errors import ExperimentError
from harness.experiment.form import Experiment
from harness.experiment.sections.underlay import UnderlaySpec
from harness.experiment.sections.workload import InterestsSpec, WorkloadSpec
from harness.planning import make_plan
from harness.workload.membership import MembershipPlan
from harness.workload.publications import draw_schedule, publish_rule
from peer.core.rates import RateLaw, topic_rates
from peer.core.schedule import Change, Join, Leave, Publish
from peer.protocols.registry import PROTOCOLS

SECOND = 1_000_000_000
HERE = Path("x.toml")


@given(st.integers(1, 300), st.floats(0, 10), st.integers(0, 2**63 - 1))
def test_rates_follow_the_power_law_in_an_order_of_the_seed(topics: int, exponent: float, seed: int) -> None:
    rates = topic_rates(RateLaw(topics, exponent, seed))
    assert sum(rates) == pytest.approx(1)
    falling = np.array(sorted(rates, reverse=True))
    assert falling / falling[0] == pytest.approx(np.arange(1.0, topics + 1) ** -exponent)
    if topics > 100 and exponent > 0.1:
        assert list(rates) != sorted(rates, reverse=True)
        assert rates != topic_rates(RateLaw(topics, exponent, seed + 1))


def published(workload: WorkloadSpec, interests: tuple, changes: tuple[Change, ...] = (), **given) -> list[Publish]:
    membership = MembershipPlan(tuple(bool(topics) for topics in interests), interests, changes)
    schedule = draw_schedule(workload, membership, 3, publish_rule(InterestsSpec(**given)))
    return [action for action in schedule if isinstance(action, Publish)]


def test_topics_are_drawn_by_their_rates() -> None:
    workload = WorkloadSpec(topics=8, publish_rate_per_s=400, duration_s=30, rate_exponent=1.5)
    found = Counter(action.topics[0] for action in published(workload, (tuple(range(8)),) * 4))
    count = sum(found.values())
    for topic, rate in enumerate(topic_rates(RateLaw(8, 1.5, 3))):
        assert abs(found[topic] - count * rate) <= 5 * (count * rate) ** 0.5


def test_further_topics_of_a_message_are_drawn_from_the_others_by_rate() -> None:
    """The publisher subscribes to the first one drawn, which the highest rates favour, too."""
    workload = WorkloadSpec(topics=3, publish_rate_per_s=400, duration_s=30, rate_exponent=2, topics_per_message=2)
    rates = topic_rates(RateLaw(3, 2, 3))
    actions = published(workload, ((0,), (1,), (2,)))
    found = Counter((action.node, *(topic for topic in action.topics if topic != action.node)) for action in actions)
    for first in range(3):
        for second in {0, 1, 2} - {first}:
            expected = len(actions) * rates[first] * rates[second] / (1 - rates[first])
            assert abs(found[first, second] - expected) <= 5 * expected**0.5


def test_topics_without_a_subscriber_leave_their_share_to_the_others() -> None:
    workload = WorkloadSpec(topics=8, publish_rate_per_s=50, duration_s=20, rate_exponent=3)
    hottest = int(np.argmax(topic_rates(RateLaw(8, 3, 3))))
    others = tuple(topic for topic in range(8) if topic != hottest)
    changes = (Join(10 * SECOND, 1, (hottest,)), Leave(15 * SECOND, 1))
    actions = published(workload, (others, ()), changes)
    for action in actions:
        assert (action.topics == (hottest,)) <= (10 * SECOND <= action.at_ns < 15 * SECOND)
    during = [action for action in actions if 10 * SECOND <= action.at_ns < 15 * SECOND]
    assert sum(action.topics == (hottest,) for action in during) > len(during) * 0.7
    assert len(actions) > 800, "the rate of all topics together stays"


def test_in_a_follower_graph_users_publish_on_their_own_topics() -> None:
    workload = WorkloadSpec(topics=3, publish_rate_per_s=50, duration_s=20)
    changes = (Leave(10 * SECOND, 2), Join(15 * SECOND, 2, (2,)))
    actions = published(workload, ((0, 1, 2), (0, 1), (1, 2)), changes, kind="follower-graph")
    assert all(action.topics == (action.node,) for action in actions)
    assert {action.node for action in actions} == {0, 1, 2}
    away = [action.node for action in actions if 10 * SECOND <= action.at_ns < 15 * SECOND]
    assert len(away) > 100
    assert 2 not in away, "nobody publishes for a user that is down"


def test_silent_users_do_not_publish() -> None:
    workload = WorkloadSpec(topics=2, publish_rate_per_s=50)
    membership = MembershipPlan((True, True), ((0, 1), (0, 1)), ())
    for kind in ("follower-graph", "independent"):
        rule = publish_rule(InterestsSpec(kind=kind), frozenset({1}))
        assert {action.node for action in draw_schedule(workload, membership, 1, rule)} == {0}
    with pytest.raises(ExperimentError, match="0 of 2 topics have a subscriber that publishes"):
        draw_schedule(workload, membership, 1, publish_rule(InterestsSpec(), frozenset({0, 1})))


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol "complete" asks for the rates."""
    monkeypatch.setitem(PROTOCOLS, "complete", replace(PROTOCOLS["complete"], needs_rates=True))


@pytest.mark.parametrize(
    ("protocol", "exponent", "told"), [("complete", 1.5, True), ("complete", 0, False), ("random", 1.5, False)]
)
def test_overlays_that_ask_are_told_unequal_rates(asking: None, protocol: str, exponent: float, told: bool) -> None:
    experiment = Experiment(
        "x",
        protocol=protocol,
        seed=9,
        underlay=UnderlaySpec(kind="uniform", hosts=9),
        workload=WorkloadSpec(topics=40, rate_exponent=exponent),
    )
    nodes = make_plan(experiment, HERE).overlay.nodes
    laws = [spec.overlay.get("rates") for spec in nodes]
    assert all((law is not None) == told for law in laws)
    if told:
        assert {msgspec.convert(law, RateLaw) for law in laws} == {RateLaw(40, exponent, 9)}
