"""What a plan predicts of links and data frames, against what a simulation of the same experiment counts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.experiment.form import Experiment
from harness.planning import make_plan
from harness.studies.form import RunSpec
from harness.studies.point_run import simulate_point
from peer.core.frames import Data
from peer.protocols.registry import PROTOCOLS

NODES, DURATION_S, FACTOR = 40, 10, 2
INTERESTS = {
    "few topics, many subscribers": ({"kind": "independent", "ratio": 0.4}, 8),
    "many topics": ({"kind": "popularity"}, 40),
    "clustered": ({"kind": "grid"}, 20),
}


def experiment(protocol: str, interests: dict, topics: int, **sections: object) -> Experiment:
    document = {
        "name": "predicted",
        "protocol": protocol,
        "testbed": "simulated",
        "underlay": {"kind": "unit-square", "hosts": NODES},
        "interests": interests,
        "workload": {"topics": topics, "publish_rate_per_s": 5, "warmup_s": 10, "duration_s": DURATION_S},
        **sections,
    }
    return msgspec.convert(document, Experiment)


def compare(asked: Experiment) -> dict[str, float]:
    """Predicted over counted, of links and of frames."""
    rows = simulate_point(asked, RunSpec(), ["degree_mean", "frames"], Path())
    [degree] = [row.value for row in rows if row.measure == "degree_mean"]
    [frames] = [row.value for row in rows if row.measure == "frames" and row.by == Data.kind]
    predicted = make_plan(asked, Path("predicted.toml")).plan.prediction
    assert predicted.frames_per_s is not None
    return {
        "links": predicted.links_per_node / degree,
        "frames": predicted.frames_per_s * DURATION_S / frames,
    }


def of_every_protocol() -> Iterator[Any]:
    """Yield each protocol with each kind of interests: the usual ones are a protocol with each, and each with one.

    Networks of implicit groups take as long as all others: usual is one with other parameters, below.
    """
    for protocol in PROTOCOLS:
        for kind in INTERESTS:
            usual = protocol == "spidercast" or (kind == "many topics" and protocol != "implicit-groups")
            yield pytest.param(protocol, kind, marks=() if usual else pytest.mark.long)


@pytest.mark.parametrize(("protocol", "kind"), of_every_protocol())
def test_links_and_frames_are_about_as_predicted(protocol: str, kind: str) -> None:
    ratios = compare(experiment(protocol, *INTERESTS[kind]))
    assert all(1 / FACTOR < ratio < FACTOR for ratio in ratios.values()), ratios


@pytest.mark.parametrize(
    ("protocol", "sections"),
    [
        ("stan", {"dissemination": {"kind": "flood"}}),
        ("stan", {"stan": {"both_directions": False}}),
        ("random", {"dissemination": {"kind": "topic-flood"}}),
        ("random", {"membership": {"kind": "partial"}, "partial": {"known_ratio": 0.3}}),
        ("spidercast", {"spidercast": {"greedy_coverage": 2, "random_coverage": 2}}),
        ("spidercast", {"dissemination": {"kind": "flood"}, "flood": {"ttl": 0}}),
        ("similarity", {"similarity": {"similar": 3, "random": 4}}),
        ("gossipsub", {"gossipsub": {"connections": 4, "profile": "go"}}),
        ("topiary", {"flood": {"ttl": 3}}),
        ("scribe", {"scribe": {"grouping": "random", "groups": 3}}),
        ("implicit-groups", {"expressions": {"kind": "nodes"}, "implicit_groups": {"branch_factor": 3.2}}),
        pytest.param(
            "implicit-groups", {"implicit_groups": {"dimensions": 1, "start": "placed"}}, marks=pytest.mark.long
        ),
    ],
)
def test_other_parts_and_parameters_count(protocol: str, sections: dict) -> None:
    interests, topics = INTERESTS["many topics"]
    ratios = compare(experiment(protocol, interests, topics, **sections))
    assert all(1 / FACTOR < ratio < FACTOR for ratio in ratios.values()), ratios


def test_messages_on_several_topics_are_counted_as_they_share_links() -> None:
    interests, topics = INTERESTS["many topics"]
    asked = experiment("spidercast", interests, topics)
    ratios = compare(
        msgspec.structs.replace(asked, workload=msgspec.structs.replace(asked.workload, topics_per_message=3))
    )
    assert all(1 / FACTOR < ratio < FACTOR for ratio in ratios.values()), ratios


def test_churn_is_overestimated_but_never_refused() -> None:
    """In the model everybody is up."""
    interests, topics = INTERESTS["many topics"]
    asked = experiment("spidercast", interests, topics, churn={"kind": "exponential", "on_s": 20, "off_s": 20})
    assert compare(asked)["frames"] > 1


def test_nodes_without_interests_have_no_links_and_refuse_nothing() -> None:
    asked = experiment("spidercast", {"kind": "independent", "ratio": 0.01}, 10)
    assert make_plan(asked, Path("predicted.toml")).plan.prediction.links_per_node < 1
