"""Recordings: what was recorded is read back and answered alike; what was changed or cut off is noticed."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peer.core.contract import Publish, Subscribe, Unsubscribe, message_id
from peer.instances.lifecycle import make_node
from peer.instances.spec import NodeSpec
from peer.protocols.description import FirstNetwork
from peer.protocols.registry import PROTOCOLS
from peer.runtime.recording import Recorder, replay
from peer.testing import Pump
from tests.examples import examples, long_unless

SECOND_NS = 1_000_000_000
OVERLAYS = [{"name": "random", "degree": 2}, {"name": "complete"}, {"name": "topiary", "epoch_s": 2.0}]
MEMBERSHIPS = [{"name": "full"}, {"name": "cyclon"}, {"name": "newscast"}]


def record(folder: Path, overlay: dict, seed: int, nodes: int = 6) -> list[NodeSpec]:
    """Recordings of every node of a small network, each of which has two instances."""
    specs = [NodeSpec(node, seed, (node % 2, 2), overlay, {"name": "flood"}) for node in range(nodes)]
    return record_specs(folder, specs, seed)


def record_specs(folder: Path, specs: list[NodeSpec], seed: int) -> list[NodeSpec]:
    """The same of these nodes, 0 .. n-1."""
    nodes = len(specs)
    recorders = {spec.node: Recorder(folder / f"{spec.node}.msgpack") for spec in specs}
    draws = Random(seed)
    for instance in range(2):
        instances = {spec.node: recorders[spec.node].watch(make_node(spec, instance), instance) for spec in specs}
        pump = Pump(instances, seed=seed + instance)
        pump.start()
        for sequence in range(5):
            pump.run(SECOND_NS)
            publisher = draws.randrange(nodes)
            pump.give(publisher, Publish((2,), message_id(publisher, 10 * instance + sequence), b"payload"))
            pump.give(draws.randrange(nodes), draws.choice([Subscribe(5), Unsubscribe(2)]))
        pump.run(SECOND_NS)
    for recorder in recorders.values():
        recorder.close()
    return specs


@given(overlay=st.sampled_from(OVERLAYS), seed=st.integers(0, 2**32))
@settings(max_examples=examples(15), deadline=None)
def test_every_effect_comes_again(tmp_path_factory, overlay: dict, seed: int):
    folder = tmp_path_factory.mktemp("record")
    for spec in record(folder, overlay, seed):
        outcome = replay(folder / f"{spec.node}.msgpack", spec)
        assert outcome.difference is None
        assert outcome.instances == 2
        assert outcome.events > 10


@pytest.mark.parametrize("name", long_unless(PROTOCOLS.keys() - {"implicit-groups"}, PROTOCOLS))
@given(membership=st.sampled_from(MEMBERSHIPS), seed=st.integers(0, 2**32))
@settings(max_examples=examples(4), deadline=None)
def test_every_effect_of_every_protocol_comes_again(tmp_path_factory, name: str, membership: dict, seed: int):
    folder, protocol = tmp_path_factory.mktemp("record"), PROTOCOLS[name]
    parts, topics = protocol.composition, [(node % 2, 2) for node in range(6)]
    initial: list[dict] = [{}] * 6
    if protocol.draw_initial_state is not None:
        assert protocol.parameters is not None
        initial = protocol.draw_initial_state(FirstNetwork(topics, [True] * 6, seed), protocol.parameters())
    specs = [
        NodeSpec(
            node,
            seed,
            topics[node],
            parts.overlay | initial[node],
            parts.dissemination,
            membership=membership,
            interests=parts.interests,
        )
        for node in range(6)
    ]
    for spec in record_specs(folder, specs, seed):
        outcome = replay(folder / f"{spec.node}.msgpack", spec)
        assert outcome.difference is None
        assert outcome.instances == 2


def test_another_seed_is_noticed_at_its_first_draw(tmp_path: Path):
    spec = record(tmp_path, OVERLAYS[0], 3)[1]
    other = NodeSpec(spec.node, 4, spec.topics, spec.overlay, spec.dissemination)
    found = replay(tmp_path / "1.msgpack", other).difference
    assert found is not None
    assert type(found.event).__name__ == "PeerList"


def test_a_recording_that_was_cut_off_is_replayed_up_to_there(tmp_path: Path):
    spec = record(tmp_path, OVERLAYS[0], 3)[1]
    path = tmp_path / "1.msgpack"
    whole = replay(path, spec)
    path.write_bytes(path.read_bytes()[:-3])
    part = replay(path, spec)
    assert part.difference is None
    assert part.events == whole.events - 1


@pytest.mark.parametrize("entry", [b"\xc0", b"\x94\x01\xa1x\x90", b"\xc1\xc1", b""])
def test_what_is_no_recording_is_refused(tmp_path: Path, entry: bytes):
    path = tmp_path / "0.msgpack"
    path.write_bytes(len(entry).to_bytes(4, "big") + entry + bytes(8))
    with pytest.raises(ValueError, match=str(path)):
        replay(path, NodeSpec(0, 1, (), OVERLAYS[0], {"name": "flood"}))
