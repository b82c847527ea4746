"""The bootstrap service's answers against a slow reference, and the structure that makes them cheap."""

import time
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from peer.core.bitset import bitset
from peer.core.directory import Directory, PeerInfo, PersistentMap
from peer.core.schedule import Action, Crash, Join, Leave, Publish, Subscribe, Unsubscribe, Vanish
from peer.instances.bootstrap import Step, first_directory, tell, timeline
from peer.instances.spec import NodeSpec, OverlayDocument
from tests.examples import examples

NODES, TOPICS = 8, 5
START_NS = -1000
PARTS: dict[str, Any] = {"overlay": {"name": "random"}, "dissemination": {"name": "flood"}}
topic_sets = st.sets(st.integers(0, TOPICS - 1)).map(lambda found: tuple(sorted(found)))


@st.composite
def histories(draw: st.DrawFn) -> tuple[OverlayDocument, list[Action]]:
    """A network and a schedule that is possible there."""
    up = draw(st.lists(st.booleans(), min_size=NODES, max_size=NODES))
    specs = tuple(
        NodeSpec(node, 1, draw(topic_sets) if up[node] else (), **PARTS, up=up[node]) for node in range(NODES)
    )
    overlay = OverlayDocument(1, "random", specs, draw(st.booleans()), draw(st.integers(1, 400)))
    topics = {spec.node: set(spec.topics) for spec in specs if spec.up}
    actions = [
        draw_action(draw, topics, at_ns) for at_ns in sorted(draw(st.lists(st.integers(START_NS, 3000), max_size=40)))
    ]
    return overlay, actions


def draw_action(draw: st.DrawFn, topics: dict[int, set[int]], at_ns: int) -> Action:
    """A possible action; ``topics``, those of the nodes that are up, are as it leaves them."""
    node, named = draw(st.integers(0, NODES - 1)), draw(topic_sets)
    own = topics.get(node)
    if own is None:
        topics[node] = set(named)
        return Join(at_ns, node, named)
    kind = draw(st.sampled_from([Leave, Crash, Vanish, Subscribe, Unsubscribe, Publish]))
    if kind is Subscribe and (new := set(named) - own):
        own |= new
        return Subscribe(at_ns, node, tuple(sorted(new)))
    if kind is Unsubscribe and (old := set(named) & own):
        own -= old
        return Unsubscribe(at_ns, node, tuple(sorted(old)))
    if kind in (Leave, Crash, Vanish):
        del topics[node]
        return kind(at_ns, node)
    return Publish(at_ns, node, 1, named)


def reference(overlay: OverlayDocument, known: list[Action]) -> Directory:
    """The directory after these first actions, made anew."""
    topics = {spec.node: set(spec.topics) for spec in overlay.nodes if spec.up}
    for action in known:
        match action:
            case Join():
                topics[action.node] = set(action.topics)
            case Leave() | Crash() | Vanish():
                del topics[action.node]
            case Subscribe():
                topics[action.node] |= set(action.topics)
            case Unsubscribe():
                topics[action.node] -= set(action.topics)
    return Directory(PeerInfo(n, tuple(sorted(t)) if overlay.discloses else None) for n, t in topics.items())


def check_equal(found: Directory, expected: Directory) -> None:
    assert found == expected
    assert len(found) == len(expected.peers)
    for topic in range(TOPICS):
        assert found.subscribers(topic) == bitset(info.node for info in expected if topic in (info.topics or ()))
    for node in range(NODES):
        assert found.topics_of(node) == frozenset(next((i.topics or () for i in expected if i.node == node), ()))


@given(histories())
@settings(max_examples=examples(200))
def test_answers_equal_a_slow_reference(history: tuple[OverlayDocument, list[Action]]) -> None:
    overlay, actions = history
    found = list(timeline(overlay, actions, START_NS))
    assert [step.at_ns for step in found] == sorted(step.at_ns for step in found)
    assert [step.action for step in found if step.action is not None] == actions
    check_equal(first_directory(overlay), reference(overlay, []))
    for place, step in enumerate(step for step in found if step.action is not None):
        assert (step.directory is not None) == isinstance(step.action, Join)
        if step.directory is not None:
            check_equal(step.directory, reference(overlay, actions[: place + 1]))
    changes = [action.at_ns for action in actions if not isinstance(action, Publish)]
    expected = sorted(
        {START_NS + -(-(at_ns - START_NS) // overlay.refresh_ns) * overlay.refresh_ns for at_ns in changes}
    )
    to_all = [step for step in found if step.action is None]
    assert [step.at_ns for step in to_all] == expected
    for step in to_all:
        check_equal(step.directory, reference(overlay, [action for action in actions if action.at_ns <= step.at_ns]))


def test_without_churn_nothing_is_refreshed() -> None:
    overlay = OverlayDocument(1, "random", tuple(NodeSpec(node, 1, (0,), **PARTS) for node in range(3)))
    action = Publish(5, 0, 1, (0,))
    assert list(timeline(overlay, [action], START_NS)) == [Step(5, action)]


def test_a_node_hears_only_of_those_it_may_hear_of() -> None:
    everybody = Directory(PeerInfo(node, (node,)) for node in range(6))
    spec = NodeSpec(0, 1, (), **PARTS, bootstrap=(5, 2))
    assert tell(spec, everybody).peers == (PeerInfo(2, (2,)), PeerInfo(5, (5,)))
    assert tell(NodeSpec(0, 1, (), **PARTS), everybody) is everybody


@given(st.lists(st.dictionaries(st.integers(0, 300), st.none() | st.integers()), max_size=8))
def test_a_changed_map_is_a_dict_and_leaves_its_ancestors_alone(steps: list[dict[int, int | None]]) -> None:
    values: PersistentMap[int] = PersistentMap()
    truth: dict[int, int] = {}
    history = [(values, truth)]
    for changes in steps:
        values = values.changed(changes)
        truth = {number: value for number, value in {**truth, **changes}.items() if value is not None}
        history.append((values, truth))
    for made, expected in history:
        assert {number: value for number in range(301) if (value := made.get(number)) is not None} == expected


def test_thousands_of_joins_among_ten_thousand_nodes_are_cheap() -> None:
    nodes = tuple(NodeSpec(node, 1, tuple(range(node % 90, node % 90 + 10)), **PARTS) for node in range(10_000))
    schedule: list[Action] = []
    for step in range(2000):
        schedule += [Leave(2 * step, step), Join(2 * step + 1, step, tuple(range(10)))]
    overlay = OverlayDocument(1, "random", nodes, refresh_ns=1000)
    begin = time.process_time()
    kept = [step for step in timeline(overlay, schedule, 0) if step.directory is not None]
    assert len(kept) == 2000 + 5
    assert time.process_time() - begin < 5
