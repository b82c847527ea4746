"""What a testbed cannot do is refused or remarked on, and so are experiments in which overlays are alike."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from harness.cli import main
from harness.experiment.abilities import DEFAULTS, DEMANDS, Demand, ignored_keys, refusals
from harness.experiment.faults import VERBS
from harness.experiment.form import Experiment, resolve
from harness.experiment.loader import decode, decode_experiment
from harness.experiment.sections.faults import DegradeSpec, FaultSpec
from harness.experiment.sections.underlay import LinksSpec
from harness.planning import make_plan, remarks
from harness.testbeds.registry import TESTBEDS
from metrics.degenerate import find_degeneracies

BASE = 'name = "x"\nprotocol = "random"\nunderlay = { kind = "uniform", hosts = 20 }\n'
FAULTS: dict[str, Any] = {
    "partition": [1, 2],
    "isolate": 1,
    "cut": [1, 2],
    "sever": 0.1,
    "degrade": {"loss_ratio": 0.1},
    "flap": {"period_s": 2.0, "down_s": 1.0},
    "pause": 1,
}
IN_DISORDER = "duplicate_ratio", "reorder_ratio", "reorder_ms"
OTHER: dict[str, Any] = {
    "inventory": "machines.toml",
    "peer.command": ["node", "peer.js"],
    "peer.script": "params.json",
    "churn.silent_ratio": 0.5,
    "underlay.jitter": 1.0,
    "underlay.up_mbit": 2.0,
    "underlay.down_mbit": 2.0,
    "underlay.queue_bytes": 3000,
    **{f"faults.{verb}": [{"at_s": 1.0, verb: value}] for verb, value in FAULTS.items()},
    **{f"faults.degrade.{name}": [{"at_s": 1.0, "degrade": {name: 0.5}}] for name in IN_DISORDER},
    "underlay.links": [{"nodes": [0], "loss_ratio": 0.5}],
    "underlay.links.queue_ms": [{"nodes": [0], "queue_ms": 5.0}],
    "underlay.links.queue_bytes": [{"nodes": [0], "queue_bytes": 3000}],
    "underlay.loss_ratio": 0.5,
    "supervision": "continue",
    "plane": "auto",
}
"""Values that are not the default, of keys that are neither numbers nor switches."""


def leaves(section: Struct, path: str = "") -> list[str]:
    found = []
    for name in section.__struct_fields__:
        value = getattr(section, name)
        found += leaves(value, f"{path}{name}.") if isinstance(value, Struct) else [f"{path}{name}"]
    return found


def other_value(key: str) -> Any:
    if key in OTHER:
        return OTHER[key]
    value: Any = DEFAULTS
    for name in key.split("."):
        value = getattr(value, name)
    return not value if isinstance(value, bool) else value + 2


LISTS = ("faults", "underlay.links")


def place_of(key: str) -> str:
    """Where a key of ``with_key`` is."""
    return next((f"{each}[0]{key.removeprefix(each)}" for each in LISTS if key.startswith(f"{each}.")), key)


def with_key(key: str, testbed: str) -> Experiment:
    document: dict[str, Any] = {"name": "x", "testbed": testbed}
    *sections, last = place_of(key).partition("[")[0].split(".")
    place = document
    for name in sections:
        place = place.setdefault(name, {})
    place[last] = other_value(key)
    return decode(document, Experiment)


KEYS = [(demand, key) for demand in DEMANDS for key in demand.keys]


def test_the_table_names_keys_of_the_form_each_once() -> None:
    names = [key for _, key in KEYS]
    assert len(set(names)) == len(names)
    entries = {"underlay.links": LinksSpec, "faults": FaultSpec}
    of_entries = {f"{place}.{name}" for place, spec in entries.items() for name in spec.__struct_fields__}
    of_degrade = {f"faults.degrade.{name}" for name in IN_DISORDER}
    assert of_degrade <= {f"faults.degrade.{name}" for name in DegradeSpec.__struct_fields__}
    assert set(names) <= {*leaves(DEFAULTS), *of_entries, *of_degrade}
    of_faults = {name for name in names if name.startswith("faults.")}
    assert of_faults == {f"faults.{verb}" for verb in VERBS} | of_degrade


@pytest.mark.parametrize("testbed", TESTBEDS)
@pytest.mark.parametrize(("demand", "key"), KEYS, ids=[key for _, key in KEYS])
def test_a_key_is_honoured_refused_or_remarked_on(demand: Demand, key: str, testbed: str) -> None:
    experiment, place = with_key(key, testbed), place_of(key)
    wholes = tuple(each.rpartition(".")[0] for each in (f"$.{key}", f"$.{place}"))
    refused = [problem for problem, _ in refusals(experiment) if problem not in wholes]
    remarked = list(ignored_keys(experiment))
    if demand.ability in TESTBEDS[testbed].can:
        assert (refused, remarked) == ([], [])
    elif demand.refused:
        assert (refused, remarked) == ([f"$.{place}"], [])
    else:
        assert refused == [] and [text.split()[0] for text in remarked] == [place]


def test_defaults_are_remarked_on_nowhere() -> None:
    for testbed in TESTBEDS:
        experiment = decode({"name": "x", "testbed": testbed}, Experiment)
        assert list(refusals(experiment)) == list(ignored_keys(experiment)) == []


@pytest.mark.parametrize("verb", ["check", "plan", "run"])
def test_a_program_is_not_simulated(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "x.toml"
    file.write_text(BASE + 'peer.command = ["node", "peer.js"]\n')
    simulated = ["--testbed", "simulated"] if verb == "run" else ["--set", "testbed=simulated"]
    assert main([verb, str(file), *simulated]) == 2
    error = capsys.readouterr().err
    assert (
        error.startswith(f"trellis {verb}: {file} with --set testbed=simulated: $.peer.command: ")
        and "starts no program" in error
    )
    assert sorted(tmp_path.iterdir()) == [file]


def test_a_study_of_a_program_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "study.toml"
    file.write_text(
        'name = "s"\nmeasures = ["delivery_ratio"]\n[experiment]\nprotocol = "random"\n'
        '[experiment.peer]\ncommand = ["node"]\n[grid]\n"underlay.hosts" = [20]\n'
    )
    assert main(["check", str(file)]) == 2
    assert "$.experiment.peer.command: " in capsys.readouterr().err


def degenerate(degree: float | None = 5.0, **document: Any) -> list[str]:
    given = {"name": "x", "underlay": {"hosts": 20}, **document}
    return list(find_degeneracies(resolve(decode_experiment(given)), degree))


def test_an_experiment_that_tells_overlays_apart_has_no_remark() -> None:
    assert degenerate() == degenerate(None) == []
    assert degenerate(19.0, protocol="complete") == [], "a complete graph was asked for"


@pytest.mark.parametrize(
    ("degree", "document", "words"),
    [
        (19.0, {}, "mean degree 19 of 19"),
        (18.9, {"protocol": "gossipsub"}, "mean degree 18.9 of 19"),
        (5.0, {"interests": {"ratio": 1.0}}, "every node subscribes to every topic"),
        (
            5.0,
            {"interests": {"kind": "popularity", "subscriptions_min": 10, "subscriptions_max": 10}},
            "every node subscribes to every topic",
        ),
        (5.0, {"workload": {"topics": 1}}, "there is one topic"),
        (5.0, {"membership": {"kind": "cyclon"}}, "cyclon.view_size = 20 is more than the 19 other nodes"),
        (5.0, {"protocol": "plumtree"}, "plumtree.passive_view = 30 is more than the 19 other nodes"),
    ],
)
def test_what_makes_overlays_alike_is_said(degree: float, document: dict[str, Any], words: str) -> None:
    found = degenerate(degree, **document)
    assert any(words in remark for remark in found), found


def test_the_commands_print_the_remarks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.toml"
    text = BASE.replace("random", "gossipsub").replace("}", ", delay_ms = 150 }").replace('"uniform",', '"uniform",')
    file.write_text(text + "[gossipsub]\nconnections = 19\nseen_ttl_s = 0.2\n[probes]\nduring_per_s = 1\n")
    assert main(["check", str(file), "--set", "testbed=simulated"]) == 0
    checked = capsys.readouterr().out
    assert main(["plan", str(file), "--set", "testbed=simulated"]) == 0
    planned = capsys.readouterr().out
    for words in (
        "is linked with every other one",
        "gossipsub.seen_ttl_s = 0.2 is less than",
        "probes.during_per_s has no",
    ):
        assert f"remark: {words}" in checked or words in checked
        assert words in planned
    assert main(["check", str(file), "--set", "gossipsub.seen_ttl_s=120"]) == 0
    assert "seen_ttl" not in capsys.readouterr().out


def test_programs_that_peers_cannot_start_are_remarked_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remarks, "PRIVATE_FOLDERS", (str(tmp_path),))
    script = tmp_path / "peer.sh"
    script.write_text("#!/bin/sh\n")

    def said(*command: str) -> list[str]:
        document = tomllib.loads(BASE) | {"peer": {"command": list(command), "events": "lines"}}
        planned = make_plan(decode_experiment(document), tmp_path / "x.toml")
        return [text for text in remarks.remarks_on(planned) if " here " in text or "peers do not see" in text]

    assert said("sh", "-c", "true") == []
    lacking = "there is no program no-such-program here that can be executed: the run would end before its start"
    assert said("no-such-program") == [lacking]
    hidden = f"peers do not see {script}: {tmp_path} are empty for them"
    assert said("sh", str(script)) == [hidden]
    assert len(said(str(script))) == 2
    monkeypatch.chdir(tmp_path)
    assert said("sh", str(script)) == []
