"""Publications with expressions: who publishes, what is drawn, and for whom it is."""

from collections import Counter
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import ExperimentError
from harness.experiment.form import AdversarySpec, Experiment, resolve
from harness.experiment.loader import check_rules, decode_experiment
from harness.experiment.sections.underlay import UnderlaySpec
from harness.experiment.sections.workload import ChurnSpec, ExpressionsSpec, InterestsSpec, WorkloadSpec
from harness.planning import make_plan
from harness.workload import expressions
from harness.workload.expressions import draw_for_groups
from harness.workload.interests import topic_weights
from harness.workload.membership import MembershipPlan, first_population
from harness.workload.workload import draw_workload
from peer.core.addressing.expression import parse
from peer.core.addressing.keywords import covering_topics, keyword, keywords
from peer.core.payload import least_payload_bytes, make_payload, topic_sequence
from peer.core.schedule import Change, Join, Leave, Publish, Subscribe, Unsubscribe
from tests.examples import examples

HERE = Path("x.toml")
SECOND = 1_000_000_000


def read_expression(payload: bytes) -> str:
    """The expression in a payload, by the layout that ``peer.core.payload`` states."""
    length = int.from_bytes(payload[12:14], "big")
    return payload[14 : 14 + length].decode("ascii")


def published(
    spec: ExpressionsSpec, interests: tuple[tuple[int, ...], ...], changes: tuple[Change, ...] = (), **given: object
) -> list[Publish]:
    workload = WorkloadSpec(**{"topics": 8, "publish_rate_per_s": 200, "duration_s": 20} | given)
    membership = MembershipPlan(tuple(bool(topics) for topics in interests), interests, changes)
    schedule = draw_for_groups(workload, spec, membership, 3)
    assert [action for action in schedule if not isinstance(action, Publish)] == list(changes)
    return [action for action in schedule if isinstance(action, Publish)]


@given(
    st.sampled_from(["keywords", "nodes", "list"]),
    st.booleans(),
    st.sampled_from(["none", "exponential"]),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 2**32),
)
@settings(max_examples=examples(60), deadline=None)
def test_any_node_that_is_up_publishes_to_groups_of_that_instant(
    kind: str, empty: bool, churn: str, terms: int, words: int, seed: int
) -> None:
    texts = ("a&b", "f", "(a|c)&d") if kind == "list" else ()
    experiment = Experiment(
        "x",
        seed=seed,
        workload=WorkloadSpec(topics=6, duration_s=20),
        interests=InterestsSpec(ratio=0.4),
        churn=ChurnSpec(kind=churn, on_s=6),
        adversary=AdversarySpec(kind="dropper", nodes=(2,), publish=False),
        expressions=ExpressionsSpec(kind, 1, terms, 1, words, texts=texts, empty_groups=empty),
    )
    check_rules(experiment)
    try:
        drawn = draw_workload(experiment, 9, Path())
    except ExperimentError as error:
        assert error.path == "$.expressions"
        return
    population = first_population(drawn.up, drawn.interests)
    numbers = Counter[tuple[int, int]]()
    for action in drawn.schedule:
        if not isinstance(action, Publish):
            population.apply(action)
            continue
        up = population.interests
        assert action.node in up
        assert action.node != 2
        expression = parse(action.expression)
        assert action.topics == covering_topics(action.expression)
        assert action.sequence == numbers[action.node, action.topics[0]]
        numbers[action.node, action.topics[0]] += 1
        group = {node for node, own in up.items() if expression.matches(keywords(own))} - {action.node}
        assert group or (empty and kind != "nodes")
        if kind == "list":
            assert action.expression in texts
        else:
            drawn_terms = [term.split("&") for term in action.expression.split("|")]
            assert 1 <= len(drawn_terms) <= terms
            assert all(1 <= len(set(term)) == len(term) <= words for term in drawn_terms)
        if kind == "nodes":
            others = [keywords(own) for node, own in up.items() if node != action.node]
            assert all(any(own.issuperset(term) for own in others) for term in drawn_terms)
        size = experiment.workload.payload_bytes
        payload = make_payload(action.message_id, action.sequence, size, action.expression)
        assert len(payload) == size
        assert read_expression(payload) == action.expression
        assert topic_sequence(payload) == action.sequence
        assert payload[:8] == action.message_id.to_bytes(8, "big")


def test_the_publisher_needs_no_topic_and_all_are_equally_likely() -> None:
    actions = published(ExpressionsSpec("list", texts=("a", "b")), ((0,), (1,), (0, 1), (7,)))
    found = Counter(action.node for action in actions)
    assert sorted(found) == [0, 1, 2, 3]
    assert all(abs(count - len(actions) / 4) < 5 * (len(actions) / 4) ** 0.5 for count in found.values())
    texts = Counter(action.expression for action in actions if action.node == 3)
    assert all(abs(count - found[3] / 2) < 5 * (found[3] / 2) ** 0.5 for count in texts.values())


def test_keywords_are_drawn_by_popularity() -> None:
    spec = ExpressionsSpec("keywords", keywords_max=1, zipf_exponent=1.5, empty_groups=True)
    actions = published(spec, ((0,), (1,)))
    found = Counter(action.expression for action in actions)
    for topic, weight in enumerate(topic_weights("zipf", 8, 1.5)):
        expected = len(actions) * weight
        assert abs(found[keyword(topic)] - expected) < 5 * expected**0.5


def test_sizes_of_expressions_are_drawn_uniformly() -> None:
    for kind in ("keywords", "nodes"):
        spec = ExpressionsSpec(kind, 1, 3, 2, 4, zipf_exponent=0, empty_groups=True)
        actions = published(spec, (tuple(range(8)),) * 3)
        terms = [action.expression.split("|") for action in actions]
        sizes = Counter(map(len, terms))
        lengths = Counter(len(term.split("&")) for own in terms for term in own)
        assert sorted(sizes) == [1, 2, 3]
        assert sorted(lengths) == [2, 3, 4]
        for counts in (sizes, lengths):
            share = counts.total() / 3
            assert all(abs(count - share) < 5 * share**0.5 for count in counts.values())


def test_a_group_is_that_of_the_instant() -> None:
    changes = (
        Join(5 * SECOND, 2, (1,)),
        Subscribe(8 * SECOND, 2, (0,)),
        Unsubscribe(12 * SECOND, 2, (1,)),
        Leave(15 * SECOND, 2),
    )
    actions = published(ExpressionsSpec("list", texts=("a&b", "b&b")), ((3,), (3,), ()), changes)
    for action in actions:
        assert 5 * SECOND <= action.at_ns < 12 * SECOND
        assert action.node != 2, "no other node is in the group"
        assert action.expression == "b&b" or action.at_ns >= 8 * SECOND


def test_expressions_without_a_member_are_drawn_a_bounded_number_of_times() -> None:
    spec, interests = ExpressionsSpec("list", texts=("a", "c")), ((0,), (0,))
    assert len(published(spec, interests)) > 3000
    with patch.object(expressions, "MOST_VAIN", 50), pytest.raises(ExperimentError, match="none of 50 drawn") as caught:
        published(spec, interests)
    assert "\n" not in str(caught.value)


def test_without_empty_groups_an_experiment_needs_a_member() -> None:
    with pytest.raises(ExperimentError, match="satisfies none of 100 expressions"):
        published(ExpressionsSpec("list", texts=("c",)), ((0,), (1,)))
    assert len(published(ExpressionsSpec("list", texts=("c",), empty_groups=True), ((0,), (1,)))) > 3000
    with pytest.raises(ExperimentError, match="satisfies none"):
        published(ExpressionsSpec("nodes"), ((0,),))


def test_the_publisher_alone_is_no_group() -> None:
    assert {action.node for action in published(ExpressionsSpec("list", texts=("a",)), ((0,), (1,)))} == {1}


def test_instants_and_population_do_not_depend_on_the_expressions() -> None:
    def drawn(kind: str) -> tuple[list[int], list[Change]]:
        experiment = Experiment(
            "x",
            churn=ChurnSpec(kind="exponential", on_s=10),
            interests=InterestsSpec(ratio=0.9),
            expressions=ExpressionsSpec(kind),
        )
        schedule = draw_workload(experiment, 20, Path()).schedule
        return (
            [action.at_ns for action in schedule if isinstance(action, Publish)],
            [action for action in schedule if not isinstance(action, Publish)],
        )

    assert drawn("none") == drawn("keywords") == drawn("nodes")


def test_a_plan_names_the_section_only_if_messages_have_expressions() -> None:
    experiment = Experiment("x", underlay=UnderlaySpec(hosts=9))
    assert "expressions" not in resolve(experiment)
    with_them = msgspec.structs.replace(experiment, expressions=ExpressionsSpec("nodes"))
    assert resolve(with_them)["expressions"]["kind"] == "nodes"
    planned = make_plan(with_them, HERE)
    assert all(action.expression for action in planned.schedule if isinstance(action, Publish))
    assert decode_experiment(resolve(with_them)) == with_them


@pytest.mark.parametrize(
    ("sections", "place", "problem"),
    [
        ({"expressions": {"texts": ["a"]}}, "expressions.texts", 'kind = "none" does not use it'),
        ({"expressions": {"kind": "list"}}, "expressions.texts", "missing"),
        ({"expressions": {"kind": "list", "texts": ["a", "a&"]}}, "expressions.texts[1]", "at the end at position 2"),
        ({"expressions": {"kind": "list", "texts": ["a|k"]}}, "expressions.texts[0]", "keywords a to j at position 2"),
        (
            {"expressions": {"kind": "list", "texts": ["(a|b)(c|d)"]}},
            "expressions.texts[0]",
            "expected an operator instead of '(' at position 5",
        ),
        ({"expressions": {"kind": "nodes", "terms_min": 2}}, "expressions.terms_min", "at most terms_max = 1, got 2"),
        ({"expressions": {"kind": "nodes", "keywords_min": 3}}, "expressions.keywords_min", "keywords_max = 2, got 3"),
        ({"expressions": {"kind": "nodes", "keywords_max": 11}}, "expressions.keywords_max", "workload.topics = 10"),
        (
            {"expressions": {"kind": "nodes", "terms_max": 60, "keywords_max": 9}, "workload": {"payload_bytes": 9000}},
            "expressions.keywords_max",
            "may have at most 1024 characters, but these may have 1079",
        ),
        (
            {"expressions": {"kind": "nodes"}, "workload": {"payload_bytes": 16}},
            "workload.payload_bytes",
            "expected at least 17",
        ),
        (
            {"expressions": {"kind": "list", "texts": ["a", "a&b"]}, "workload": {"payload_bytes": 16}},
            "workload.payload_bytes",
            "expected at least 17",
        ),
        (
            {"expressions": {"kind": "nodes"}, "workload": {"topics_per_message": 2}},
            "workload.topics_per_message",
            "expected 1, since messages have expressions, got 2",
        ),
        (
            {"expressions": {"kind": "nodes"}, "workload": {"rate_exponent": 0.5}},
            "workload.rate_exponent",
            "expected 0, since messages have expressions, got 0.5",
        ),
    ],
)
def test_keys_that_do_not_fit_are_refused(sections: dict, place: str, problem: str) -> None:
    document = {"name": "x", "underlay": {"hosts": 5}, **sections}
    with pytest.raises(ExperimentError) as caught:
        decode_experiment(document)
    assert caught.value.path == f"$.{place}"
    assert problem in caught.value.problem


def test_the_smallest_payload_with_an_expression_is_accepted() -> None:
    sections = {"expressions": {"kind": "nodes"}, "workload": {"payload_bytes": 17, "topics": 26}}
    decode_experiment({"name": "x", **sections})
    assert read_expression(make_payload(1 << 63, 5, 17, "x&y")) == "x&y"
    assert least_payload_bytes(3) == 17
