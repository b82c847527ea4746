"""Hints for unknown keys and values: by meaning, then by spelling, and from words that the form still has."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from harness.errors import ExperimentError
from harness.experiment.form import Experiment
from harness.experiment.hints import ABSENT, MEANINGS, same_meaning, suggest, words_of
from harness.experiment.loader import decode_experiment


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("underlay.loss", 0.1, "did you mean loss_ratio?"),
        ("underlay.packet_loss", 0.1, "did you mean loss_ratio?"),
        ("underlay.latency", 5, "did you mean delay_ms?"),
        ("underlay.rtt_ms", 5, "did you mean delay_ms?"),
        ("underlay.bandwidth", 5, "did you mean rate_mbit?"),
        ("underlay.upload_mbit", 5, "did you mean up_mbit?"),
        ("underlay.downlink_mbit", 5, "did you mean down_mbit?"),
        ("underlay.nodes", 5, "did you mean hosts?"),
        ("underlay.csv", "x", "did you mean path?"),
        ("underlay.partition", 1, "did you mean faults.partition?"),
        ("split", ["a", "b"], "did you mean faults.partition?"),
        ("underlay.reordering", 1, "only faults reorder packets: reorder_ratio of degrade"),
        ("workload.messageSize", 5, "did you mean payload_bytes?"),
        ("workload.messages_per_s", 5, "did you mean publish_rate_per_s?"),
        ("workload.warm_up", 5, "did you mean warmup_s?"),
        ("workload.latency", 5, "did you mean underlay.delay_ms or adversary.delay_ms?"),
        ("workload.hosts", 5, "did you mean underlay.hosts?"),
        ("gossipsub.mesh_degree", 6, "did you mean connections or d?"),
        ("gossipsub.heartbeat_period", 6, "did you mean heartbeat_interval_s?"),
        ("random.fanout", 6, "did you mean degree?"),
        ("peer.executable", "x", "did you mean command or programs?"),
        ("network", {}, "did you mean underlay?"),
        ("traffic", {}, "did you mean workload?"),
        ("sybil", {}, "did you mean adversary?"),
        ("topics", 3, "did you mean workload.topics?"),
        ("underlay.hots", 5, "did you mean hosts?"),
        ("underlai", {}, "did you mean underlay?"),
        ("random.zzz", 3, "known are degree"),
    ],
)
def test_unknown_keys_are_explained(key: str, value: object, hint: str) -> None:
    section, _, name = key.rpartition(".")
    document: dict[str, Any] = {"name": "x", **({section: {name: value}} if section else {name: value})}
    with pytest.raises(ExperimentError) as caught:
        decode_experiment(document)
    assert str(caught.value) == f"$.{key}: unknown field; {hint}"


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("protocol", "gossip", "gossipsub"),
        ("protocol", "flooding", "random"),
        ("protocol", "epidemic", "plumtree"),
        ("protocol", "dht", "scribe"),
        ("protocol", "rendom", "random"),
        ("testbed", "mininet", "emulated"),
        ("testbed", "ssh", "remote"),
        ("underlay.kind", "csv", "matrix"),
        ("underlay.kind", "cities", "world-cities"),
        ("underlay.kind", "constant", "uniform"),
        ("underlay.kind", "euclidean", "unit-square"),
        ("underlay.kind", "wondernet", "wondernetwork"),
        ("interests.kind", "zipf", "popularity"),
        ("interests.kind", "twitter", "follower-graph"),
        ("churn.kind", "poisson", "exponential"),
        ("churn.kind", "traces", "sessions"),
        ("underlay.kind", "mars", None),
    ],
)
def test_unknown_values_are_explained(key: str, value: str, meant: str | None) -> None:
    section, _, name = key.rpartition(".")
    with pytest.raises(ExperimentError) as caught:
        decode_experiment({"name": "x", **({section: {name: value}} if section else {name: value})})
    hint = f'; did you mean "{meant}"?' if meant else ""
    assert str(caught.value).startswith(f"$.{key}: expected ")
    assert str(caught.value).endswith(f"got {value!r}{hint}")


def test_each_group_of_words_has_one_that_the_form_uses() -> None:
    used = set(_words(msgspec.inspect.type_info(Experiment)))
    assert [sorted(group) for group in MEANINGS if not group & used] == []
    assert not used & ABSENT.keys(), "a key that there is cannot be absent"
    assert all(word in words_of(word) for group in MEANINGS for word in group), "a filler or a plural is never found"


def _words(kind: msgspec.inspect.Type) -> Iterator[str]:
    """Yield the words of the keys and values of a form."""
    if isinstance(kind, msgspec.inspect.UnionType):
        for part in kind.types:
            yield from _words(part)
    elif isinstance(kind, msgspec.inspect.StructType):
        for field in kind.fields:
            yield from words_of(field.encode_name)
            yield from _words(field.type)
    elif isinstance(kind, msgspec.inspect.VarTupleType):
        yield from _words(kind.item_type)
    elif isinstance(kind, msgspec.inspect.LiteralType):
        for value in kind.values:
            yield from words_of(str(value))


def test_meaning_comes_before_spelling() -> None:
    assert suggest("loss", ["hosts", "loss_ratio"]) == ["loss_ratio"]
    assert suggest("hosst", ["hosts", "loss_ratio"]) == ["hosts"]
    assert suggest("partition", ["path", "hosts"]) == []
    assert same_meaning("latency", ["a.delay_ms", "b.heartbeat_initial_delay_s", "c.delay_ms"]) == [
        "a.delay_ms",
        "c.delay_ms",
    ]
