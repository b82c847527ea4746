"""What an experiment's membership and adversaries come to in its plan."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from harness.errors import ExperimentError
from harness.experiment.loader import load_experiment
from harness.planning import make_plan
from harness.planning.plan import PlannedRun
from harness.studies.form import RunSpec, Study
from harness.studies.point_run import PointRun
from harness.studies.points import points_of
from peer.core.schedule import Join, Publish
from peer.instances.lifecycle import make_node
from peer.instances.spec import OverlayDocument
from peer.protocols.implicit_groups.landmarks import prefix_of
from peer.protocols.registry import PROTOCOLS, Composition
from peer.testing import part_of

FILE = """name = "x"
[underlay]
hosts = 20
[workload]
topics = 6
[interests]
ratio = 0.3
"""


@pytest.fixture
def plan(tmp_path: Path):
    path = tmp_path / "x.toml"
    path.write_text(FILE)

    def make(*overrides: str) -> PlannedRun:
        return make_plan(load_experiment(path, overrides), path)

    return make


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("full", {}),
        ("partial", {"known_ratio": 0.25}),
        ("cyclon", {"view_size": 9, "shuffle_length": 4, "period_s": 2.0, "contacts": 3}),
        ("newscast", {"cache_size": 9, "period_s": 2.0, "contacts": 3}),
    ],
)
def test_the_membership_is_the_section_of_its_name(plan, kind: str, parameters: dict) -> None:
    overrides = [f"{kind}.{name}={value}" for name, value in parameters.items()]
    planned = plan(f"membership.kind={kind}", *overrides)
    assert all(spec.membership == {"name": kind} | parameters for spec in planned.overlay.nodes)
    make_node(planned.overlay.nodes[0])


@pytest.fixture
def particular(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol "complete" sets of its parts what others leave to the sections."""
    dissemination, membership = {"name": "flood", "ttl": 3}, {"name": "partial", "known_ratio": 0.5}
    composition = Composition({"name": "complete"}, dissemination, membership)
    monkeypatch.setitem(PROTOCOLS, "complete", replace(PROTOCOLS["complete"], composition=composition))


@pytest.mark.parametrize(
    ("overrides", "ttl", "membership"),
    [
        ([], 3, {"name": "partial", "known_ratio": 0.5}),
        (["dissemination.kind=flood", "flood.seen_messages=9"], 3, {"name": "partial", "known_ratio": 0.5}),
        (["flood.ttl=1", "partial.known_ratio=0.25"], 1, {"name": "partial", "known_ratio": 0.25}),
        (["membership.kind=full"], 3, {"name": "full"}),
        (["protocol=random"], 1, {"name": "full"}),
    ],
)
def test_a_protocols_own_settings_hold_where_the_file_says_nothing_else(
    plan, particular: None, overrides: list[str], ttl: int, membership: dict
) -> None:
    planned = plan("protocol=complete", *overrides)
    node = planned.overlay.nodes[0]
    assert (node.dissemination["ttl"], node.membership) == (ttl, membership)
    assert planned.plan.experiment.flood.ttl == ttl, "what plan prints is what holds"


def test_a_study_takes_a_protocols_own_settings_too(particular: None) -> None:
    study = Study("x", ("degree_mean",), grid={"protocol": ["complete", "random"]})
    assert [point.experiment.flood.ttl for point in points_of(study)] == [3, 1]


def test_without_adversaries_everybody_is_honest(plan) -> None:
    assert {spec.behaviour for spec in plan("adversary.ratio=0.5").overlay.nodes} == {None}


ATTACKS = {
    "topic-attacker": {"victim_topics": (5,)},
    "eclipse": {},
    "slow": {"delay_ms": 20.0},
    "dropper": {"drop_ratio": 0.75},
}


@pytest.mark.parametrize("kind", ATTACKS)
def test_a_share_of_the_nodes_misbehaves_and_the_seed_says_which(plan, kind: str) -> None:
    told = {name: value for name, value in ATTACKS[kind].items() if name != "victim_topics"}
    overrides = [f"adversary.kind={kind}", "adversary.ratio=0.25", "adversary.victim_topics=[5]"]
    overrides += [f"adversary.{name}={value}" for name, value in told.items()]
    planned = plan(*overrides)
    bad = {spec.node for spec in planned.overlay.nodes if spec.behaviour is not None}
    assert len(bad) == 5
    expected = {"name": kind} | (ATTACKS[kind] or {"accomplices": tuple(sorted(bad))})
    assert all(planned.overlay.nodes[node].behaviour == expected for node in bad)
    assert {spec.node for spec in plan(*overrides, "seed=2").overlay.nodes if spec.behaviour} != bad

    honest = plan().overlay
    for before, after in zip(honest.nodes, planned.overlay.nodes, strict=True):
        assert set(after.topics) == set(before.topics) | ({5} if after.node in bad else set())
    again = msgspec.json.decode(msgspec.json.encode(planned.overlay), type=OverlayDocument)
    for spec in again.nodes:
        assert (type(make_node(spec)).__name__ == "ComposedNode") == (spec.node not in bad)


def test_every_node_knows_how_many_the_plan_has(plan) -> None:
    """Also of those that join later, whom the bootstrap service has not named yet."""
    planned = plan()
    again = msgspec.json.decode(msgspec.json.encode(planned.overlay), type=OverlayDocument)
    for spec in again.nodes:
        assert [make_node(spec, instance).state.numbers for instance in (0, 1)] == [len(planned.overlay.nodes)] * 2


@pytest.mark.parametrize("kind", ["constant", "uniform", "exponential"])
def test_every_node_takes_its_own_time_and_the_seed_says_which(plan, kind: str) -> None:
    overrides = [f"processing.kind={kind}", "processing.mean_ms=20", "underlay.hosts=200", "random.degree=3"]
    times_ns = [spec.processing_ns for spec in plan(*overrides).overlay.nodes]
    assert times_ns == [spec.processing_ns for spec in plan(*overrides).overlay.nodes]
    assert len(set(times_ns)) == (1 if kind == "constant" else 200)
    assert sum(times_ns) / 200 == pytest.approx(20e6, rel=0.25)
    assert max(times_ns) <= {"constant": 20e6, "uniform": 40e6, "exponential": 60e9}[kind]
    others = [spec.processing_ns for spec in plan(*overrides, "seed=2").overlay.nodes]
    assert (others == times_ns) == (kind == "constant")
    assert all(spec.processing_ns == 0 for spec in plan().overlay.nodes)


def test_adversaries_may_be_named(plan) -> None:
    nodes = plan("adversary.kind=dropper", "adversary.nodes=[3, 19]").overlay.nodes
    assert [spec.node for spec in nodes if spec.behaviour] == [3, 19]


def test_adversaries_take_the_victim_topics_at_every_join(plan) -> None:
    planned = plan(
        "adversary.kind=slow", "adversary.nodes=[1]", "adversary.victim_topics=[5]",
        "interests.ratio=0.1", "churn.kind=exponential", "churn.on_s=5", "seed=4",
    )  # fmt: skip
    joins = [action for action in planned.schedule if isinstance(action, Join) and action.node == 1]
    assert joins
    assert all(5 in action.topics for action in joins)


@pytest.mark.parametrize("churn", [[], ["churn.kind=exponential", "churn.on_s=5"]])
def test_adversaries_that_do_not_publish_leave_it_to_honest_nodes(plan, churn: list[str]) -> None:
    """The victim topic has as many messages as any other, and none is an attacker's own."""
    attack = ["adversary.kind=topic-attacker", "adversary.ratio=0.5", "adversary.victim_topics=[5]"]
    attack += ["workload.publish_rate_per_s=20", "interests.ratio=0.5", *churn]
    publishers: dict[str, list[int]] = {}
    for told in ("true", "false"):
        planned = plan(*attack, f"adversary.publish={told}")
        bad = {spec.node for spec in planned.overlay.nodes if spec.behaviour}
        published = [action for action in planned.schedule if isinstance(action, Publish)]
        publishers[told] = [action.node for action in published]
        assert bool(bad & set(publishers[told])) == (told == "true")
        on_victim = sum(5 in action.topics for action in published)
        assert 0.5 < on_victim / (len(published) / 6) < 1.6
    assert len(publishers["false"]) == len(publishers["true"]) > 400
    assert plan(*attack).schedule == plan(*attack, "adversary.publish=true").schedule


def test_where_nobody_else_may_publish_nothing_is_planned(plan) -> None:
    with pytest.raises(ExperimentError, match="0 of 6 topics have a subscriber that publishes"):
        plan("adversary.kind=dropper", "adversary.ratio=1", "adversary.publish=false")


@pytest.mark.parametrize(
    ("overrides", "place", "problem"),
    [
        (["adversary.kind=topic-attacker"], ": $.adversary.victim_topics", "missing"),
        (
            ["adversary.kind=slow", "adversary.victim_topics=[6]"],
            "--set adversary.victim_topics=[6]",
            "expected topics from 0 to 5, got [6]",
        ),
        (
            ["adversary.kind=slow", "adversary.nodes=[3, 20]"],
            "--set adversary.nodes=[3, 20]",
            "expected nodes from 0 to 19, got [20]",
        ),
    ],
)
def test_what_cannot_be_is_refused(plan, overrides: list[str], place: str, problem: str) -> None:
    with pytest.raises(ExperimentError, match="adversary") as caught:
        plan(*overrides)
    assert caught.value.path.endswith(place)
    assert problem in caught.value.problem


@pytest.mark.parametrize("kind", ["world-cities", "unit-square"])
def test_placed_nodes_have_the_prefixes_of_their_hosts_in_runs_and_in_studies(plan, kind: str) -> None:
    planned = plan(
        "protocol=implicit-groups", f"underlay.kind={kind}", "implicit_groups.start=placed",
        "implicit_groups.prefix_bits=4", "implicit_groups.landmarks=3",
    )  # fmt: skip
    delay_ms = planned.underlay.delay_ms
    prefixes = [
        prefix_of([round((delay_ms[node, mark] + delay_ms[mark, node]) * 1e6) for mark in range(3)], 4)
        for node in range(20)
    ]
    assert [spec.overlay["prefix"] for spec in planned.overlay.nodes] == prefixes
    assert len(set(prefixes)) > 2
    simulation = PointRun(planned.plan.experiment, RunSpec(), (), Path()).simulation
    simulation.run(2 * 10**9)
    assert [part_of(simulation.hosts[node].node, "overlay").address >> 64 for node in range(20)] == prefixes
