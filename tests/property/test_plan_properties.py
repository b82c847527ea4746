"""What holds of every workload and every plan, whatever the parameters."""

import math
from pathlib import Path
from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.experiment.form import Experiment
from harness.experiment.sections.underlay import UnderlaySpec
from harness.experiment.sections.workload import InterestsSpec, WorkloadSpec
from harness.planning import make_plan
from harness.workload.interests import IndependentInterests
from harness.workload.membership import MembershipPlan
from harness.workload.publications import draw_instants, draw_schedule, publish_rule
from peer.core.contract import message_id
from peer.core.schedule import Publish
from peer.protocols.random_graph.overlay import RandomParameters
from tests.examples import examples

seeds = st.integers(0, 2**63 - 1)
workloads = st.builds(
    WorkloadSpec,
    topics=st.integers(3, 30),
    publish_interval=st.sampled_from(["poisson", "fixed"]),
    publish_rate_per_s=st.floats(0.1, 300),
    topics_per_message=st.integers(1, 2),
    duration_s=st.floats(0.01, 5),
)


@given(workloads, st.floats(0.3, 1), st.integers(10, 40), seeds)
def test_schedules_are_sorted_inside_the_window_and_published_by_subscribers(
    workload: WorkloadSpec, ratio: float, nodes: int, seed: int
) -> None:
    model = IndependentInterests(ratio, workload.topics, seed)
    interests = tuple(model.draw(node, 0) for node in range(nodes))
    schedule = draw_schedule(
        workload, MembershipPlan((True,) * nodes, interests, ()), seed, publish_rule(InterestsSpec())
    )
    instants = [action.at_ns for action in schedule]
    assert instants == sorted(set(instants))
    assert all(0 <= at_ns < round(workload.duration_s * 1e9) for at_ns in instants)
    subscribed = {topic for topics in interests for topic in topics}
    for number, action in enumerate(schedule):
        assert isinstance(action, Publish)
        assert set(action.topics) & set(interests[action.node])
        assert set(action.topics) <= subscribed
        assert len(set(action.topics)) == workload.topics_per_message
        assert list(action.topics) == sorted(action.topics)
        assert action.message_id == message_id(action.node, number)
        assert action.payload_bytes == workload.payload_bytes


@given(workloads, seeds)
def test_fixed_intervals_are_equal(workload: WorkloadSpec, seed: int) -> None:
    workload = msgspec.structs.replace(workload, publish_interval="fixed")
    instants = draw_instants(workload, Random(seed))
    assert instants[0] == 0
    assert len(instants) == math.ceil(round(workload.duration_s * 1e9) / (1e9 / workload.publish_rate_per_s))
    interval_ns = 1e9 / workload.publish_rate_per_s
    assert all(abs(at_ns - number * interval_ns) <= 1 for number, at_ns in enumerate(instants))


@given(st.floats(20, 500), seeds)
@settings(max_examples=examples(30))
def test_poisson_counts_lie_within_six_deviations_of_the_rate(rate_per_s: float, seed: int) -> None:
    workload = WorkloadSpec(publish_rate_per_s=rate_per_s, duration_s=20)
    expected = rate_per_s * 20
    assert abs(len(draw_instants(workload, Random(seed))) - expected) <= 6 * math.sqrt(expected) + 1


@given(st.sampled_from(["world-cities", "unit-square", "uniform"]), st.integers(6, 30), workloads, seeds)
@settings(max_examples=examples(25), deadline=None)
def test_plans_repeat(kind: str, hosts: int, workload: WorkloadSpec, seed: int) -> None:
    experiment = Experiment(
        name="x",
        seed=seed,
        underlay=UnderlaySpec(kind=kind, hosts=hosts),
        random=RandomParameters(degree=5),
        workload=msgspec.structs.replace(workload, publish_interval="fixed"),
        interests=InterestsSpec(ratio=1.0),
    )
    once, again = (make_plan(experiment, Path("x.toml")) for _ in range(2))
    assert once.plan == again.plan
    assert once.schedule == again.schedule
    assert once.plan.hashes.keys() == {"plan", "underlay", "placement", "overlay", "schedule"}
