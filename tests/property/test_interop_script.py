"""params.json of gossipsub-interop: what is written is read, by every program, and what nodes cannot do is refused."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.interop.script import (
    AddPartialMessage,
    Begin,
    Connect,
    IfNodeIDEquals,
    Parameters,
    Publish,
    PublishPartial,
    Script,
    ScriptError,
    SetTopicValidationDelay,
    SubscribeToTopic,
    WaitUntil,
    check_script,
    decode_script,
    delay_connections,
    encode_script,
    find_ends,
    list_publications,
    walk,
)

NODES = 4
nodes = st.integers(0, NODES - 1)
topics = st.text(min_size=1, max_size=5)
parameters = st.builds(
    Parameters,
    D=st.integers(1, 20),
    GossipFactor=st.sampled_from([0.0, 0.25, 1.0]),
    HeartbeatInitialDelay=st.integers(0, 2**62),
    PruneBackoff=st.integers(0, 2**62),
)
for_anyone = st.one_of(
    st.builds(WaitUntil, st.integers(0, 600)),
    st.builds(SubscribeToTopic, topics, st.booleans()),
    st.builds(SetTopicValidationDelay, topics, st.floats(0, 1)),
    st.builds(AddPartialMessage, topics, st.integers(0, 255), st.integers(0, 255)),
    st.builds(PublishPartial, topics, st.integers(0, 255), st.lists(nodes, max_size=3).map(tuple)),
)


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """A script that nodes can carry out."""
    made: list[Any] = []
    for node in range(NODES):
        made.append(IfNodeIDEquals(node, Begin(draw(parameters))))
    numbers = iter(draw(st.lists(st.integers(0, 2**63 - 1), unique=True, min_size=8, max_size=8)))
    for _ in range(draw(st.integers(0, 8))):
        node = draw(nodes)
        others = st.lists(nodes.filter(lambda other, node=node: other != node), max_size=3).map(tuple)
        for_one = st.one_of(
            for_anyone,
            st.builds(Connect, others),
            st.builds(Publish, st.just(next(numbers)), st.integers(8, 1_000_000), topics),
        )
        if draw(st.booleans()):
            inner = draw(for_one)
            inner = IfNodeIDEquals(draw(nodes), inner) if draw(st.booleans()) else inner
            made.append(IfNodeIDEquals(node, inner))
        else:
            made.append(draw(for_anyone))
    return Script(tuple(made))


@given(scripts())
def test_a_script_is_read_as_it_was_written(script: Script) -> None:
    assert decode_script(encode_script(script)) == script
    check_script(script, NODES)


INTEGER, NUMBER, TEXT, FLAG, NODE_LIST = (int,), (int, float), (str,), (bool,), (list,)
REQUIRED: dict[str, dict[str, tuple[type, ...]]] = {
    "connect": {"connectTo": NODE_LIST},
    "waitUntil": {"elapsedSeconds": INTEGER},
    "subscribeToTopic": {"topicID": TEXT, "partial": FLAG},
    "setTopicValidationDelay": {"topicID": TEXT, "delaySeconds": NUMBER},
    "publish": {"messageID": INTEGER, "messageSizeBytes": INTEGER, "topicID": TEXT},
    "addPartialMessage": {"topicID": TEXT, "groupID": INTEGER, "parts": INTEGER},
    "publishPartial": {"topicID": TEXT, "groupID": INTEGER},
}
"""What the programs ask of each instruction: Rust asks for ``partial``, Go for integers."""

FLOATS = {"GossipFactor", "SlowHeartbeatWarning"}


def plain(script: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for instruction in script:
        while instruction["type"] == "ifNodeIDEquals":
            assert type(instruction["nodeID"]) is int
            instruction = instruction["instruction"]
        yield instruction


def set_values(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; Java refuses keys that it does not know, so those without a value must not be there."""
    assert all(value is not None for _, value in pairs)
    return dict(pairs)


@given(scripts())
def test_every_program_finds_the_values_that_it_needs(script: Script) -> None:
    document = json.loads(encode_script(script), object_pairs_hook=set_values)
    assert document.keys() == {"script"}
    for instruction in plain(document["script"]):
        if instruction["type"] == "initGossipSub":
            for key, value in instruction["gossipSubParams"].items():
                assert key in FLOATS or type(value) is int
            continue
        for key, kinds in REQUIRED[instruction["type"]].items():
            assert type(instruction[key]) in kinds


@given(scripts(), st.integers(0, 60))
def test_no_node_connects_before_the_others_listen(script: Script, at_s: int) -> None:
    delayed = delay_connections(script, NODES, at_s)
    check_script(delayed, NODES)
    steps, before = list(walk(delayed, NODES)), list(walk(script, NODES))
    assert all(step.at_s >= at_s for step in steps if isinstance(step.instruction, Connect))
    assert [(step.node, step.instruction) for step in steps] == [(step.node, step.instruction) for step in before]
    assert all(later.at_s >= step.at_s for later, step in zip(steps, before, strict=True))
    assert delay_connections(delayed, NODES, at_s) == delayed
    needed = any(step.at_s < at_s for step in before if isinstance(step.instruction, Connect))
    assert (delayed == script) == (not needed)


@given(scripts())
def test_a_node_does_each_thing_when_its_waits_are_over(script: Script) -> None:
    """Compared with a node that carries out the script on its own, as a program does."""
    steps = list(walk(script, NODES))
    for node in range(NODES):
        elapsed_s, done = 0, []
        for instruction in script.script:
            inner, mine = instruction, True
            while isinstance(inner, IfNodeIDEquals):
                mine, inner = mine and inner.node_id == node, inner.instruction
            if mine and isinstance(inner, WaitUntil):
                elapsed_s = max(elapsed_s, inner.elapsed_s)
            elif mine:
                done.append((elapsed_s, inner))
        assert done == [(step.at_s, step.instruction) for step in steps if step.node == node]
        assert find_ends(script, NODES)[node] == elapsed_s
    published = list_publications(script, NODES)
    assert len(published) == sum(isinstance(step.instruction, Publish) for step in steps)
    assert [each.at_s for each in published] == sorted(each.at_s for each in published)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "nodeID", "instruction", "connectTo", "topicID"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(st.binary(max_size=60) | json_values.map(lambda value: json.dumps({"script": [value]}).encode()))
def test_other_content_is_refused_in_one_line(content: bytes) -> None:
    try:
        check_script(decode_script(content), NODES)
    except ScriptError as error:
        assert "\n" not in str(error)


def test_a_script_that_is_nested_too_deeply_is_refused() -> None:
    deep = b'{"type":"ifNodeIDEquals","nodeID":0,"instruction":' * 100_000
    with pytest.raises(ScriptError):
        decode_script(b'{"script":[' + deep)


INIT = {"type": "initGossipSub", "gossipSubParams": {}}
SUBSCRIBE = {"type": "subscribeToTopic", "topicID": "a", "partial": False}


def for_node(node: int, instruction: dict[str, Any]) -> dict[str, Any]:
    return {"type": "ifNodeIDEquals", "nodeID": node, "instruction": instruction}


def publish(number: int = 1, size: int = 8) -> dict[str, Any]:
    return {"type": "publish", "messageID": number, "messageSizeBytes": size, "topicID": "a"}


WRONG: dict[str, tuple[list[Any], str]] = {
    "float": (
        [{"type": "initGossipSub", "gossipSubParams": {"HeartbeatInterval": 1e9}}],
        r"\$\.script\[0\]\.gossipSubParams\.HeartbeatInterval: Expected `int`, got `float`",
    ),
    "unset": ([{"type": "initGossipSub", "gossipSubParams": {"D": None}}], "Expected `int`, got `null`"),
    "misspelt": ([{"type": "initGossipSub", "gossipSubParams": {"Dhigh": 3}}], "unknown field `Dhigh`"),
    "unknown": ([INIT, {"type": "dance"}], r"\$\.script\[1\]\.type: Invalid value 'dance'"),
    "half a second": ([INIT, {"type": "waitUntil", "elapsedSeconds": 0.5}], "Expected `int`, got `float`"),
    "small": ([INIT, for_node(0, publish(size=7))], "messageSizeBytes: Expected `int` >= 8"),
    "twice": ([INIT, for_node(0, publish()), for_node(1, publish())], r"script\[2\]: messageID 1 is published by"),
    "everyone": ([INIT, publish()], "every node would publish the same message; use ifNodeIDEquals"),
    "stranger": ([INIT, for_node(4, SUBSCRIBE)], r"script\[1\]: names node 4, but nodes are 0 to 3"),
    "strange neighbour": ([INIT, for_node(0, {"type": "connect", "connectTo": [9]})], "names node 9"),
    "itself": ([INIT, {"type": "connect", "connectTo": [2]}], "node 2 would connect to itself"),
    "no start": ([for_node(0, INIT), SUBSCRIBE], r"script\[1\]: node 1 needs initGossipSub once, before all other"),
    "two starts": ([INIT, for_node(3, INIT)], "node 3 needs initGossipSub once"),
    "nothing": ([for_node(0, INIT)], "node 1 has no initGossipSub"),
}


@pytest.mark.parametrize("case", WRONG)
def test_the_reason_names_the_instruction(case: str) -> None:
    script, reason = WRONG[case]
    with pytest.raises(ScriptError, match=reason):
        check_script(decode_script(msgspec.json.encode({"script": script})), NODES)
