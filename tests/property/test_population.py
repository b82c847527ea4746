"""The fold over a schedule's changes against a naive model, and what it refuses."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from peer.core.schedule import Change, Crash, Join, Leave, Population, Subscribe, Turnover, Unsubscribe, Vanish

SECOND = 1_000_000_000
NODES, TOPICS = 4, 4

instants = st.integers(-5 * SECOND, 5 * SECOND)
nodes = st.integers(0, NODES - 1)
topic_lists = st.lists(st.integers(0, TOPICS - 1), max_size=3).map(tuple)
starts = st.dictionaries(nodes, st.frozensets(st.integers(0, TOPICS - 1)))
changes = st.one_of(
    st.builds(Join, instants, nodes, topic_lists),
    st.builds(Leave, instants, nodes),
    st.builds(Crash, instants, nodes),
    st.builds(Vanish, instants, nodes),
    st.builds(Subscribe, instants, nodes, topic_lists),
    st.builds(Unsubscribe, instants, nodes, topic_lists),
)


class Model:
    """The nodes that are up, and the (node, topic) pairs that are subscriptions, as two plain sets."""

    def __init__(self, start: dict[int, frozenset[int]]) -> None:
        self.up = set(start)
        self.pairs = {(node, topic) for node, topics in start.items() for topic in topics}

    def allows(self, change: Change) -> bool:
        if isinstance(change, Join):
            return change.node not in self.up and len(change.topics) == len(set(change.topics))
        if change.node not in self.up:
            return False
        if isinstance(change, Leave | Crash | Vanish):
            return True
        exist = {(change.node, topic) in self.pairs for topic in change.topics}
        return len(change.topics) == len(set(change.topics)) and exist == {isinstance(change, Unsubscribe)}

    def apply(self, change: Change) -> None:
        if isinstance(change, Leave | Crash | Vanish):
            self.up.remove(change.node)
            self.pairs = {pair for pair in self.pairs if pair[0] != change.node}
            return
        self.up.add(change.node)
        named = {(change.node, topic) for topic in change.topics}
        self.pairs = self.pairs - named if isinstance(change, Unsubscribe) else self.pairs | named

    def interests(self) -> dict[int, frozenset[int]]:
        return {node: frozenset(topic for topic in range(TOPICS) if (node, topic) in self.pairs) for node in self.up}


@given(starts, st.lists(changes, max_size=40))
@example({0: frozenset({1})}, [Leave(0, 0), Join(0, 0, (2,)), Crash(0, 0), Join(0, 0, ())])
def test_a_population_equals_the_naive_model_and_refuses_what_that_does_not_allow(
    start: dict[int, frozenset[int]], asked: list[Change]
) -> None:
    population, model = Population(start), Model(start)
    for change in asked:
        pairs = model.pairs
        if not model.allows(change):
            with pytest.raises(ValueError, match=f"^node {change.node} "):
                population.apply(change)
        else:
            model.apply(change)
            begun, ended = population.apply(change)
            assert sorted(begun) == sorted(topic for _, topic in model.pairs - pairs)
            assert sorted(ended) == sorted(topic for _, topic in pairs - model.pairs)
        assert population.interests == model.interests()


def test_a_node_leaves_and_joins_again_at_one_instant_but_not_the_other_way_round() -> None:
    population = Population({0: (1, 2)})
    with pytest.raises(ValueError, match=r"^node 0 is up at 3 s$"):
        population.apply(Join(3 * SECOND, 0, (2, 3)))
    assert population.apply(Leave(3 * SECOND, 0)) == Turnover((), (1, 2))
    assert population.interests == {}
    assert population.apply(Join(3 * SECOND, 0, (3, 2))) == Turnover((3, 2), ())
    assert population.interests == {0: {2, 3}}


def test_nothing_of_an_instance_is_left_in_the_next_one() -> None:
    population = Population({0: (1,), 1: (1, 3)})
    population.apply(Subscribe(0, 0, (2, 3)))
    assert population.apply(Crash(1, 0)) == Turnover((), (1, 2, 3))
    assert population.apply(Join(2, 0, ())) == Turnover((), ())
    assert population.interests == {0: set(), 1: {1, 3}}, "it is up without interests, and the other node is as before"
    assert population.apply(Leave(3, 0)) == Turnover((), ())
    assert population.interests == {1: {1, 3}}


def test_the_start_is_copied() -> None:
    start = {0: {1}}
    population = Population(start)
    population.apply(Subscribe(0, 0, (2,)))
    assert start == {0: {1}}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (Join(2 * SECOND, 0, (5,)), "node 0 is up at 2 s"),
        (Leave(2 * SECOND, 2), "node 2 is down at 2 s"),
        (Crash(2 * SECOND, 2), "node 2 is down at 2 s"),
        (Subscribe(2 * SECOND, 2, (1,)), "node 2 is down at 2 s"),
        (Unsubscribe(2 * SECOND, 2, (1,)), "node 2 is down at 2 s"),
        (Subscribe(SECOND // 2, 0, (2, 1)), "node 0 subscribes to [1] at 0.5 s"),
        (Unsubscribe(-SECOND, 0, (1, 2)), "node 0 does not subscribe to [2] at -1 s"),
        (Subscribe(0, 1, ()), "node 1 names no topics at 0 s"),
        (Unsubscribe(0, 1, ()), "node 1 names no topics at 0 s"),
        (Join(0, 2, (3, 3)), "node 2 names a topic twice in [3, 3] at 0 s"),
        (Subscribe(0, 0, (3, 3)), "node 0 names a topic twice in [3, 3] at 0 s"),
        (Unsubscribe(0, 0, (1, 1)), "node 0 names a topic twice in [1, 1] at 0 s"),
    ],
)
def test_what_cannot_happen_is_refused_in_words_and_changes_nothing(change: Change, problem: str) -> None:
    population = Population({0: (1,), 1: ()})
    with pytest.raises(ValueError) as caught:
        population.apply(change)
    assert str(caught.value) == problem
    assert population.interests == {0: {1}, 1: set()}
