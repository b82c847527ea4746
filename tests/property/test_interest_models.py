"""Interest models: marginals, bounds, and draws that depend on nothing but the seed, the node and its life."""

import gzip
import json
import math
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import ExperimentError
from harness.experiment.sections.workload import InterestsSpec
from harness.workload.interests import (
    GridInterests,
    IndependentInterests,
    InterestModel,
    Interests,
    PopularityInterests,
    make_model,
    power_law,
    topic_weights,
)
from peer.core.randomness import NETWORK, substream
from tests.examples import examples

HERE = Path()


def draw_interests(model: InterestModel, nodes: int) -> Interests:
    """Every node's first topics."""
    return tuple(model.draw(node, 0) for node in range(nodes))


seeds = st.integers(0, 2**63 - 1)
specs = st.builds(
    InterestsSpec,
    kind=st.sampled_from(["independent", "popularity", "grid"]),
    ratio=st.floats(0, 1),
    popularity=st.sampled_from(["zipf", "nyse", "uniform"]),
    zipf_exponent=st.floats(0, 10),
    subscriptions_min=st.integers(1, 4),
    subscriptions_max=st.integers(4, 9),
    grid_side=st.integers(1, 60),
    copies_exponent=st.floats(0, 3),
    copies_max=st.integers(1, 30),
    radius_exponent=st.floats(0, 3),
    radius_max=st.integers(1, 30),
)


def popularity(popularity: str, topics: int, fewest: int, most: int, seed: int = 1) -> PopularityInterests:
    spec = InterestsSpec(popularity=popularity, subscriptions_min=fewest, subscriptions_max=most)
    return PopularityInterests(spec, topics, seed)


@given(specs, st.integers(9, 60), st.integers(1, 30), seeds)
@settings(max_examples=examples(60), deadline=None)
def test_topics_rise_strictly_and_lie_within_bounds(spec: InterestsSpec, topics: int, nodes: int, seed: int) -> None:
    for chosen in draw_interests(make_model(spec, topics, nodes, seed, HERE), nodes):
        assert list(chosen) == sorted(set(chosen))
        assert all(0 <= topic < topics and type(topic) is int for topic in chosen)
        if spec.kind == "popularity":
            assert spec.subscriptions_min <= len(chosen) <= spec.subscriptions_max


@given(specs, st.integers(9, 40), seeds)
@settings(max_examples=examples(40), deadline=None)
def test_draws_depend_on_seed_node_and_life_alone(spec: InterestsSpec, topics: int, seed: int) -> None:
    once = make_model(spec, topics, 5, seed, HERE)
    again = make_model(spec, topics, 500, seed, HERE)
    asked = [(node, life) for node in range(5) for life in range(3)]
    forward = [once.draw(*which) for which in asked]
    assert [again.draw(*which) for which in reversed(asked)] == forward[::-1]


buckets = st.builds(
    lambda count, size, drawn, taken: (
        InterestsSpec(
            kind="buckets", buckets=count, buckets_per_node=min(drawn, count), topics_per_bucket=min(taken, size)
        ),
        count * size,
    ),
    *[st.integers(1, 8)] * 4,
)


@given(buckets, seeds)
def test_a_node_takes_equally_many_topics_from_each_of_its_buckets(drawn: tuple[InterestsSpec, int], seed: int) -> None:
    spec, topics = drawn
    model, again = (make_model(spec, topics, nodes, seed, HERE) for nodes in (3, 300))
    for chosen in draw_interests(model, 3):
        assert list(chosen) == sorted(set(chosen))
        assert all(0 <= topic < topics and type(topic) is int for topic in chosen)
        of_bucket = Counter(topic // (topics // spec.buckets) for topic in chosen)
        assert list(of_bucket.values()) == [spec.topics_per_bucket] * spec.buckets_per_node
    assert [again.draw(node, life) for life in (1, 0) for node in range(3)] == [
        model.draw(node, life) for life in (1, 0) for node in range(3)
    ]


@pytest.mark.parametrize(("drawn", "taken"), [(5, 10), (2, 25)])
def test_buckets_leave_popularity_uniform_and_correlate_interests(drawn: int, taken: int) -> None:
    """The paper's low and high correlation: 50 of 5000 topics, from 5 or 2 of 100 buckets."""
    nodes = 2000
    spec = InterestsSpec(kind="buckets", buckets=100, buckets_per_node=drawn, topics_per_bucket=taken)
    interests = draw_interests(make_model(spec, 5000, nodes, 1, HERE), nodes)
    popular = np.bincount(np.concatenate([np.array(topics) for topics in interests]), minlength=5000)
    assert popular.mean() == nodes / 100
    assert popular.var() == pytest.approx(nodes * 0.01 * 0.99, rel=0.15)
    own = [frozenset(topics) for topics in interests[:400]]
    shared = [len(a & b) for place, a in enumerate(own) for b in own[:place]]
    sharing = sum(1 for count in shared if count) / len(shared)
    none_common = math.comb(100 - drawn, drawn) / math.comb(100, drawn)
    assert sharing == pytest.approx(1 - none_common, rel=0.15), (
        "nodes with a bucket in common share topics, others none"
    )
    assert sum(shared) / len(shared) == pytest.approx(0.5, rel=0.1), "as many as with random interests"


def follower_model(lines: str, nodes: int, seed: int, name: str = "x.adj") -> InterestModel:
    with tempfile.TemporaryDirectory() as folder:
        content = lines.encode()
        Path(folder, name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return make_model(InterestsSpec(kind="follower-graph", path=name), nodes, nodes, seed, Path(folder))


follows = st.dictionaries(st.integers(0, 15), st.sets(st.integers(0, 15)), min_size=1)


@given(follows, st.integers(2, 16), seeds, st.sampled_from(["x.adj", "x.adj.gz"]))
@settings(max_examples=examples(60), deadline=None)
def test_a_sample_of_followers_has_all_relations_within_it(
    graph: dict[int, set[int]], nodes: int, seed: int, name: str
) -> None:
    users = {*graph, *(user for own in graph.values() for user in own)}
    lines = "".join(f"{' '.join(map(str, [user, *own]))}\n" for user, own in graph.items())
    if len(users) < nodes:
        with pytest.raises(ExperimentError, match=f"expected a graph of at least {nodes} users, got {len(users)}"):
            follower_model(lines, nodes, seed, name)
        return
    starts = list(graph)
    substream(seed, NETWORK, "follower graph").shuffle(starts)
    order = list(dict.fromkeys(user for start in starts for user in [start, *graph[start]]))[:nodes]
    expected = tuple(
        tuple(number for number, other in enumerate(order) if other == user or other in graph.get(user, ()))
        for user in order
    )
    if all(len(topics) == 1 for topics in expected):
        with pytest.raises(ExperimentError, match=f"nobody among {nodes} users follows another one"):
            follower_model(lines, nodes, seed, name)
        return
    assert draw_interests(follower_model(lines, nodes, seed, name), nodes) == expected


def test_a_sample_starts_with_a_follower_that_the_seed_draws() -> None:
    lines = "a b c\n" + "d e f\n" + "g h i\nb c\n"
    samples = {draw_interests(follower_model(lines, 3, seed), 3) for seed in range(20)}
    assert samples == {
        ((0, 1, 2), (1,), (2,)),  # d or g with its followees
        ((0, 1, 2), (1, 2), (2,)),  # a with b, which follows c
        ((0, 1), (1,), (2,)),  # b and c, then d or g without its followees
        ((0, 1), (1,), (0, 1, 2)),  # b and c, then a
    }


@pytest.mark.parametrize("kind", ["independent", "popularity", "grid"])
def test_seeds_nodes_and_lives_differ(kind: str) -> None:
    spec = InterestsSpec(kind=kind, ratio=0.5)
    model, other = (make_model(spec, 100, 9, seed, HERE) for seed in (1, 2))
    drawn = [model.draw(0, 0), model.draw(1, 0), model.draw(0, 1), other.draw(0, 0)]
    assert len(set(drawn)) == 4


@given(st.floats(0, 1), seeds)
@settings(max_examples=examples(30))
def test_independent_interests_lie_within_six_deviations_of_the_ratio(ratio: float, seed: int) -> None:
    interests = draw_interests(IndependentInterests(ratio, 50, seed), 60)
    taken = sum(len(topics) for topics in interests)
    assert abs(taken - 3000 * ratio) <= 6 * math.sqrt(3000 * ratio * (1 - ratio)) + 1


@given(st.sampled_from(["zipf", "nyse", "uniform"]), st.integers(1, 1000), st.floats(0, 5))
def test_weights_fall_and_add_up(kind: str, topics: int, exponent: float) -> None:
    weights = topic_weights(kind, topics, exponent)
    assert weights.sum() == pytest.approx(1)
    assert (np.diff(weights) <= 0).all()
    assert (weights > 0).all()


@pytest.mark.parametrize("topics", [10, 100, 1000])
def test_weights_are_the_papers(topics: int) -> None:
    assert topic_weights("nyse", topics, 0)[: topics // 10].sum() == pytest.approx(0.55)
    zipf = topic_weights("zipf", topics, 0.5)
    assert zipf[0] / zipf[3] == pytest.approx(2)
    assert topic_weights("uniform", topics, 0.5)[-1] == pytest.approx(1 / topics)


@pytest.mark.parametrize("kind", ["zipf", "nyse", "uniform"])
def test_popularity_draws_one_after_the_other_by_weight(kind: str) -> None:
    """Against the exact inclusion probabilities of drawing two topics of six, the second among the other five."""
    nodes, weights = 4000, topic_weights(kind, 6, 0.5)
    model = popularity(kind, 6, 2, 2)
    found = Counter(topic for node in range(nodes) for topic in model.draw(node, 0))
    for topic, weight in enumerate(weights):
        second = sum(other / (1 - other) for rank, other in enumerate(weights) if rank != topic)
        expected = weight * (1 + second)
        assert abs(found[topic] - nodes * expected) <= 5 * math.sqrt(nodes * expected * (1 - expected))


def test_numbers_of_subscriptions_are_uniform() -> None:
    model = popularity("zipf", 100, 10, 19)
    sizes = Counter(len(model.draw(node, 0)) for node in range(3000))
    assert set(sizes) == set(range(10, 20))
    assert all(abs(count - 300) <= 5 * math.sqrt(300 * 0.9) for count in sizes.values())


@given(seeds, st.integers(1, 40), st.integers(1, 25), st.integers(1, 12))
@settings(max_examples=examples(30))
def test_a_node_on_the_grid_takes_what_lies_within_its_radius(seed: int, side: int, topics: int, radius: int) -> None:
    spec = InterestsSpec(grid_side=side, radius_max=radius, copies_max=5)
    model = GridInterests(spec, topics, seed)
    everything = GridInterests(InterestsSpec(grid_side=side, radius_max=1, copies_max=5), topics, seed)
    assert set(model.topic.tolist()) == set(range(topics)), "every topic has a copy"
    assert ((model.x >= 0) & (model.x < side) & (model.y >= 0) & (model.y < side)).all()
    assert (everything.x == model.x).all(), "the radii leave the topics where they are"
    if side == 1:
        assert model.draw(3, 0) == tuple(range(topics))


def test_neighbours_on_the_grid_share_more_topics_than_strangers() -> None:
    """The point of the model: who shares one topic shares more of the others than independent draws would."""
    model = GridInterests(InterestsSpec(kind="grid"), 200, 4)
    interests = [frozenset(model.draw(node, 0)) for node in range(400)]
    popular = Counter(topic for topics in interests for topic in topics)
    pairs = 400 * 399 / 2
    shared = [len(a & b) for i, a in enumerate(interests) for b in interests[:i]]
    sharing_any = sum(1 for count in shared if count) / pairs
    by_chance = 1 - math.prod(1 - (count / 400) ** 2 for count in popular.values())
    assert sharing_any < 0.9 * by_chance
    assert len(set(map(len, interests))) > 30, "a power law of radii gives very different numbers of topics"


@given(st.floats(0, 4), st.integers(1, 500))
def test_power_laws_are_distributions_that_fall(exponent: float, largest: int) -> None:
    chances = power_law(exponent, largest)
    steps = np.diff(chances, prepend=0)
    assert chances[-1] == 1.0
    assert len(chances) == largest
    assert (steps >= 0).all()
    assert steps[0] / steps[-1] == pytest.approx(largest**exponent, rel=1e-3)


@given(st.lists(st.sets(st.integers(0, 20)), min_size=1, max_size=12), st.booleans(), seeds)
def test_files_are_read_as_written(interests: list[set[int]], as_json: bool, seed: int) -> None:
    pairs = [(node, topic) for node, topics in enumerate(interests) for topic in topics]
    np.random.default_rng(seed).shuffle(pairs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.jsonl" if as_json else "x.csv")
        lines = [json.dumps({"node": int(n), "topics": [int(t)]}) if as_json else f"{n}, {t}" for n, t in pairs]
        path.write_text("\n".join(lines if as_json else ["node,topic", *lines]))
        model = make_model(InterestsSpec(kind="file", path=path.name), 21, len(interests), 1, Path(folder))
    assert draw_interests(model, len(interests)) == tuple(tuple(sorted(topics)) for topics in interests)
    assert model.draw(0, 0) == model.draw(0, 7)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("x.csv", "0,1\n0,1\n", "x.csv:2: node 0 subscribes to topic 1 twice"),
        ("x.csv", "node,topic\n4,1\n", r"x.csv:2: expected a node from 0 to 3, got 4"),
        ("x.csv", "0,9\n", r"x.csv:1: expected a topic from 0 to 8, got 9"),
        ("x.csv", "0,-1\n", "x.csv:1: expected node,topic as two numbers, got '0,-1'"),
        ("x.csv", "0\n", "x.csv:1: expected node,topic"),
        ("x.jsonl", '{"node": -1, "topics": []}\n', "x.jsonl:1: Expected `int` >= 0"),
        ("x.jsonl", '{"node": 1}\n', "x.jsonl:1: Object missing required field `topics`"),
        ("x.csv", None, "x.csv: No such file"),
    ],
)
def test_files_that_are_wrong_are_refused_with_their_line(
    name: str, content: str | None, problem: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ExperimentError, match=problem):
        make_model(InterestsSpec(kind="file", path=name), 9, 4, 1, tmp_path)


@pytest.mark.parametrize("kind", ["independent", "popularity", "grid"])
def test_ten_thousand_nodes_and_a_thousand_topics_take_seconds(kind: str) -> None:
    model: InterestModel = make_model(InterestsSpec(kind=kind, ratio=0.05), 1000, 10_000, 1, HERE)
    begin = time.process_time()
    draw_interests(model, 1000)
    assert time.process_time() - begin < 2, "a tenth of the nodes in a tenth of twenty seconds, on any machine"
