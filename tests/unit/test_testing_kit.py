"""The test kit: what Solo and Pump promise to the tests that use them, and the examples of their page."""

import re
from importlib import import_module
from pathlib import Path

import pytest

import peer.testing
from peer.core.contract import (
    CancelTimer,
    Connect,
    Effect,
    Event,
    FrameReceived,
    LinkDown,
    LinkUp,
    Publish,
    Send,
    SendEach,
    SetTimer,
    Started,
    TimerFired,
    message_id,
)
from peer.core.frames import Data, Hello, Subscriptions
from peer.protocols.registry import Composition, compose
from peer.testing import (
    Faults,
    Pump,
    Solo,
    connects,
    numbers_stored,
    outputs_under_hash_seeds,
    part_of,
    sends,
    stored,
)

PAGE = Path(__file__).parents[2] / "docs/testing-protocols.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
FLOOD = Composition({"name": "complete"}, {"name": "flood", "ttl": 255})
SECOND_NS = 1_000_000_000


class Script:
    """A node that answers each event with the effects that a test has put down for it, and keeps what it was given."""

    def __init__(self, **answers: list[Effect]) -> None:
        self.given: list[tuple[int, Event]] = []
        self.answers = answers

    def handle(self, now_ns: int, event: Event) -> list[Effect]:
        self.given.append((now_ns, event))
        return self.answers.pop(event.name if isinstance(event, TimerFired) else type(event).__name__, [])


@pytest.mark.parametrize("code", EXAMPLES, ids=range(len(EXAMPLES)))
def test_each_example_of_the_page_runs(code: str):
    exec(compile(code, str(PAGE), "exec"), {})


def test_the_page_has_examples_and_names_all_that_the_kit_offers():
    assert len(EXAMPLES) == 4
    text = PAGE.read_text()
    methods = {name for driver in (Solo, Pump) for name in vars(driver) if not name.startswith("_")}
    offered = methods | set(peer.testing.__all__) - {"part_of"}
    assert not {name for name in offered if f"{name}(" not in text and f"`{name}`" not in text}


def test_what_the_page_says_can_be_imported_is_there_and_is_all_of_the_kit():
    offered = set()
    for line in PAGE.read_text().split("## What a package outside the repository can import")[1].splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 5 and cells[3].startswith("`"):
            module, names = cells[3].strip("`"), re.findall(r"`(\w+)[(\w, )]*`", cells[2])
            assert names
            assert [name for name in names if not hasattr(import_module(module), name)] == []
            offered |= {(module, name) for name in names}
    assert {name for module, name in offered if module == "peer.testing"} == set(peer.testing.__all__)


def test_what_an_object_stores_is_found_in_slots_and_in_pairs():
    class Shelf:
        __slots__ = ("_deep",)

        def __init__(self) -> None:
            self._deep = [{(3, "x"): {4: "a value"}}, frozenset({5})]

    assert numbers_stored(Shelf()) == {3, 4, 5}
    assert "a value" in list(stored(Shelf()))


def test_a_script_that_depends_on_the_hash_seed_has_two_outputs():
    assert outputs_under_hash_seeds("print(hash(12))") == {"12\n"}
    assert len(outputs_under_hash_seeds("print(hash('twelve'))")) == 2
    with pytest.raises(AssertionError, match="the script failed"):
        outputs_under_hash_seeds("raise ValueError")
    assert outputs_under_hash_seeds("from peer.testing import Solo; print(Solo.__name__)") == {"Solo\n"}


def test_timers_fire_in_the_order_of_their_instants_and_those_that_fire_may_set_others():
    script = Script(
        Started=[SetTimer("late", 30), SetTimer("early", 10), SetTimer("moved", 15), SetTimer("gone", 20)],
        early=[SetTimer("moved", 40), CancelTimer("gone"), SetTimer("again", 10)],
    )
    solo = Solo(script)
    solo.give(Started())
    assert solo.advance(35) == [SetTimer("moved", 40), CancelTimer("gone"), SetTimer("again", 10)]
    assert [(at, event.name) for at, event in script.given[1:]] == [(10, "early"), (10, "again"), (30, "late")]
    assert (solo.now_ns, solo.timers) == (35, {"moved": 40})
    solo.fire("moved")
    assert script.given[-1] == (35, TimerFired("moved"))
    assert solo.timers == {}
    solo.advance(10)
    assert len(script.given) == 5, "it has fired"


def test_links_and_frames_are_as_the_test_says():
    script = Script()
    solo = Solo(script)
    solo.at(3).link_up(5, outbound=False)
    solo.at(4).receive(5, Subscriptions((1,)))
    solo.at(5).link_down(5, "stop", retrying=True)
    assert script.given == [
        (3, LinkUp(5, False)),
        (4, FrameReceived(5, Subscriptions((1,)))),
        (5, LinkDown(5, "stop", True)),
    ]


def test_effects_are_kept_until_they_are_forgotten():
    hello, topics = Hello(1, 2), Subscriptions((1,))
    solo = Solo(Script(Started=[Send(4, hello), SendEach((5, 6), topics), Connect(7)], LinkUp=[Send(5, hello)]))
    solo.give(Started())
    assert solo.link_up(5) == [Send(5, hello)]
    assert solo.sent(Hello) == [(4, hello), (5, hello)]
    assert solo.sent(Subscriptions, to=6) == [(6, topics)]
    assert sends(solo.effects) == [(4, hello), (5, topics), (6, topics), (5, hello)]
    assert connects(solo.effects) == [7]
    solo.forget()
    assert solo.effects == []


def test_a_part_is_found_by_its_role_and_other_nodes_have_none():
    node = compose(0, 1, (), FLOOD)
    assert type(Solo(node).part("overlay")).__name__ == "CompleteGraph"
    with pytest.raises(AssertionError, match="Script has no parts"):
        part_of(Script(), "overlay")


def network(nodes: int, **options) -> Pump:
    pump = Pump({node: compose(node, 1, (0,), FLOOD) for node in range(nodes)}, **options)
    pump.start()
    pump.run(SECOND_NS)
    return pump


def test_the_others_see_the_links_of_a_node_that_vanished_and_it_gets_nothing_any_more():
    pump = network(3)
    pump.vanish(2)
    before = len(pump.effects)
    pump.give(2, Publish((0,), message_id(2, 0), b"x"))
    assert len(pump.effects) == before
    pump.give(0, Publish((0,), message_id(0, 0), b"x"))
    pump.run(SECOND_NS)
    assert pump.linked(0) == {1, 2}
    assert [node for _, node, _ in pump.delivered] == [0, 1]
    with pytest.raises(KeyError):
        pump.give(3, Publish((0,), message_id(3, 0), b"x"))


def test_the_links_of_a_node_that_crashed_are_gone():
    pump = network(3)
    pump.crash(2)
    assert pump.links() == {(0, 1)}
    assert sorted(pump.nodes) == [0, 1]


def test_a_node_without_timers_acts_on_none():
    script = Script(Started=[SetTimer("test/a", 10)])
    pump = Pump({0: script})
    pump.start()
    pump.clear_timers(0)
    pump.run(20)
    assert not [event for _, event in script.given if isinstance(event, TimerFired)]


def test_faults_hold_for_what_is_sent_from_then_on():
    pump = network(2, faults=Faults(drop_ratio=1.0))
    pump.give(0, Publish((0,), message_id(0, 0), b"lost"))
    pump.run(SECOND_NS)
    pump.faults = Faults()
    pump.give(0, Publish((0,), message_id(0, 1), b"sent"))
    pump.run(SECOND_NS)
    assert [message.payload for _, node, message in pump.delivered if node == 1] == [b"sent"]


def test_a_test_may_act_for_a_node_of_its_own():
    script = Script()
    pump = Pump({0: script, 1: compose(1, 1, (0,), FLOOD)})
    pump.start()
    pump.perform(0, Connect(1))
    pump.run(SECOND_NS)
    pump.perform(0, Send(1, Data(message_id(0, 0), (0,), 1, 0, b"by hand")))
    pump.run(SECOND_NS)
    assert [message.payload for _, _, message in pump.delivered] == [b"by hand"]
