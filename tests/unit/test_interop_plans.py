"""Plans with programs of gossipsub-interop: the script of a schedule, the schedule of a script, and their keys."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from harness.deployment.agents import Site, build_agent_specs
from harness.deployment.identities import find_peer_id
from harness.errors import ExperimentError
from harness.experiment.form import Experiment
from harness.experiment.inventory import PEER_PORT
from harness.experiment.loader import decode_experiment
from harness.planning import make_plan, read_plan
from harness.planning.documents import write_plan
from harness.planning.plan import PlannedRun
from peer.core.schedule import Publish, Subscribe
from peer.interop.script import Begin, Connect, SubscribeToTopic, decode_script, walk
from peer.runtime.names import describe_hosts
from peer.runtime.scripted import fit_script

HOSTS = 6
COMMAND = ["/opt/gossipsub-bin"]
SECOND_NS = 1_000_000_000


def experiment(peer: dict[str, Any] | None = None, **sections: Any) -> Experiment:
    scripted = {"command": COMMAND, "events": "gossipsub-interop", **(peer or {})}
    document = {
        "name": "x",
        "protocol": "gossipsub",
        "underlay": {"kind": "world-cities", "hosts": HOSTS},
        "workload": {"topics": 3, "warmup_s": 12, "duration_s": 9.5, "cooldown_s": 2},
        "interests": {"ratio": 0.6},
        "peer": scripted,
    }
    return decode_experiment(document | sections)


def plan(folder: Path, asked: Experiment) -> PlannedRun:
    source = folder / "x.toml"
    source.write_text('name = "x"\n')
    return make_plan(asked, source)


def fits(planned: PlannedRun) -> None:
    """The peers find the messages of the schedule in the script."""
    warmup_ns = round(planned.plan.experiment.workload.warmup_s * SECOND_NS)
    published = [action for action in planned.schedule if isinstance(action, Publish)]
    part = fit_script(decode_script(planned.script), planned.schedule, HOSTS, warmup_ns)
    assert sorted(part.messages.values()) == sorted(action.message_id for action in published) != []
    assert {action.message_id: action.at_ns + warmup_ns for action in published} == {
        message: due_s * SECOND_NS for message, due_s in part.due_s.items()
    }


def test_the_script_of_a_schedule_does_what_the_schedule_says(tmp_path: Path) -> None:
    planned = plan(tmp_path, experiment({"connect": 2}, gossipsub={"d": 5, "heartbeat_interval_s": 0.7}))
    fits(planned)
    steps = list(walk(decode_script(planned.script), HOSTS))
    subscribes = [step for step in steps if isinstance(step.instruction, SubscribeToTopic)]
    wanted = [(spec.node, str(topic)) for spec in planned.overlay.nodes for topic in spec.topics]
    assert [(step.node, step.instruction.topic_id) for step in subscribes] == wanted != []
    connects = [step for step in steps if isinstance(step.instruction, Connect)]
    links = [(step.node, peer) for step in connects for peer in step.instruction.connect_to]
    assert {step.at_s for step in connects} == {10}
    assert len(links) == len({frozenset(link) for link in links}) > HOSTS / 2
    starts = [step.instruction.parameters for step in steps if isinstance(step.instruction, Begin)]
    assert {(start.D, start.HeartbeatInterval) for start in starts} == {(5, 700_000_000)}
    assert len({start.HeartbeatInitialDelay for start in starts}) == HOSTS
    ends = json.loads(planned.script)["script"][-1]
    assert ends == {"type": "waitUntil", "elapsedSeconds": 24}


def test_the_same_seed_makes_the_same_script_which_the_run_directory_keeps(tmp_path: Path) -> None:
    planned = plan(tmp_path, experiment())
    assert plan(tmp_path, experiment()).script == planned.script
    assert plan(tmp_path, experiment(seed=2)).script != planned.script
    write_plan(planned, tmp_path / "run")
    assert (tmp_path / "run/params.json").read_bytes() == planned.script
    assert read_plan(tmp_path / "run").script == planned.script
    assert planned.plan.hashes["script"] == hashlib.sha256(planned.script).hexdigest()


def test_another_protocol_leaves_the_parameters_to_the_program(tmp_path: Path) -> None:
    planned = plan(tmp_path, experiment(protocol="random"))
    first = json.loads(planned.script)["script"][0]["instruction"]
    assert first["gossipSubParams"] == {"HeartbeatInitialDelay": 100_100_000}


def test_other_runs_have_no_script(tmp_path: Path) -> None:
    planned = plan(tmp_path, experiment({"events": "lines"}))
    write_plan(planned, tmp_path / "run")
    assert not (tmp_path / "run/params.json").exists()
    assert "script" not in planned.plan.hashes


# ------------------------------------------------------------------------------------------ a script of the user

INIT = {"type": "initGossipSub", "gossipSubParams": {"D": 3}}


def wait(elapsed_s: int) -> dict[str, Any]:
    return {"type": "waitUntil", "elapsedSeconds": elapsed_s}


def of(node: int, instruction: dict[str, Any]) -> dict[str, Any]:
    return {"type": "ifNodeIDEquals", "nodeID": node, "instruction": instruction}


def subscribe(topic: str) -> dict[str, Any]:
    return {"type": "subscribeToTopic", "topicID": topic, "partial": False}


def publish(number: int, topic: str, size: int = 50) -> dict[str, Any]:
    return {"type": "publish", "messageID": number, "messageSizeBytes": size, "topicID": topic}


RING = [of(node, {"type": "connect", "connectTo": [(node + 1) % HOSTS]}) for node in range(HOSTS)]
OWN = [
    INIT,
    *RING,
    subscribe("a-subnet"),
    of(2, subscribe("other")),
    wait(20),
    of(4, publish(90, "a-subnet", 900)),
    of(1, publish(7, "other")),
    wait(23),
    of(5, subscribe("other")),
    of(5, subscribe("other")),
    of(4, publish(8, "a-subnet")),
    wait(31),
]


def own(folder: Path, script: list[Any], **peer: Any) -> PlannedRun:
    (folder / "params.json").write_text(json.dumps({"script": script}))
    return plan(folder, experiment({"script": "params.json"} | peer, workload={}, interests={}))


def test_the_schedule_of_a_script_is_what_the_script_says(tmp_path: Path) -> None:
    planned = own(tmp_path, OWN)
    fits(planned)
    workload = planned.plan.experiment.workload
    assert workload.spans_s == {"warmup": 20, "workload": 4, "cooldown": 7}
    assert (workload.topics, workload.payload_bytes) == (2, 900)
    assert [spec.topics for spec in planned.overlay.nodes] == [(0,), (0,), (0, 1), (0,), (0,), (0,)]
    first, second, joins, last = planned.schedule
    assert first == Publish(0, 4, 4 << 32, (0,), 900, 0)
    assert second == Publish(0, 1, 1 << 32 | 1, (1,), 50, 0)
    assert joins == Subscribe(3 * SECOND_NS, 5, (1,))
    assert last == Publish(3 * SECOND_NS, 4, 4 << 32 | 2, (0,), 50, 1)


def test_nodes_wait_before_they_connect_unless_the_script_says_so(tmp_path: Path) -> None:
    script = json.loads(own(tmp_path, OWN).script)["script"]
    assert script == [INIT, wait(10), *OWN[1:]]
    assert json.loads(own(tmp_path, script).script)["script"] == script
    assert json.loads(own(tmp_path, OWN, connect_at_s=0).script)["script"] == OWN


def test_topics_whose_names_are_numbers_keep_them(tmp_path: Path) -> None:
    planned = own(tmp_path, [INIT, subscribe("7"), subscribe("2"), wait(20), of(0, publish(1, "7"))])
    assert planned.overlay.nodes[0].topics == (2, 7)
    assert planned.plan.experiment.workload.topics == 8


NO_CONTRACT = {"events": "lines"}
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "half a second": ({}, {"workload": {"warmup_s": 12.5}}, r"\$\.workload\.warmup_s: expected whole seconds"),
    "no time to connect": ({}, {"workload": {"warmup_s": 10}}, "expected more than peer.connect_at_s = 10, got 10"),
    "small": ({}, {"workload": {"warmup_s": 12, "payload_bytes": 7}}, "payload_bytes: expected at least 8"),
    "dilated": ({}, {"time_dilation": 2}, r"\$\.time_dilation: expected 1"),
    "churn": ({}, {"churn": {"kind": "exponential"}}, r"\$\.churn: a script has no joins and leaves"),
    "simulated": ({}, {"testbed": "simulated"}, "starts no program"),
    "remote": ({}, {"testbed": "remote", "inventory": "x"}, r'\$\.peer\.events: only testbed = "emulated" uses it'),
    "links": ({"says": ["link"]}, {}, r"\$\.peer\.says: programs of gossipsub-interop report duplicates"),
    "no command": ({"command": None}, {}, 'missing: events = "gossipsub-interop" needs it'),
    "running": ({"expected_final_state": "running"}, {}, "the program ends with the run"),
    "unused script": (NO_CONTRACT | {"script": "x.json"}, {}, r'\$\.peer\.script: events = "lines" does not use it'),
    "unused wait": (NO_CONTRACT | {"connect_at_s": 3}, {}, r"\$\.peer\.connect_at_s: events"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_script_can_do_is_refused(case: str) -> None:
    peer, sections, reason = REFUSED[case]
    with pytest.raises(ExperimentError, match=reason):
        experiment(peer, **sections)


WRONG: dict[str, tuple[list[Any], str]] = {
    "not for all nodes": ([of(0, INIT), wait(20)], r"params\.json: node 1 has no initGossipSub"),
    "unknown": ([INIT, {"type": "dance"}], r"params\.json: \$\.script\[1\]\.type: Invalid value 'dance'"),
    "silent": ([INIT, subscribe("a"), wait(20)], r"\$\.peer\.script: it publishes no message"),
    "early": ([INIT, *RING, wait(10), of(0, publish(1, "a"))], "publishes 10 s after .*, and nodes connect after 10 s"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_script_that_cannot_be_run_is_refused(case: str, tmp_path: Path) -> None:
    script, reason = WRONG[case]
    with pytest.raises(ExperimentError, match=reason):
        own(tmp_path, script)


SET: list[dict[str, Any]] = [
    *({"workload": {"topics": 3}}, {"workload": {"warmup_s": 9}}, {"interests": {"ratio": 1}}),
    *({"connect": 2}, {"gossipsub": {"d": 5}}),
]


@pytest.mark.parametrize("section", SET)
def test_keys_that_the_script_sets_are_refused(section: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text(json.dumps({"script": OWN}))
    peer = {"script": "params.json"} | {key: value for key, value in section.items() if key == "connect"}
    sections = {"workload": {}, "interests": {}} | {key: value for key, value in section.items() if key != "connect"}
    with pytest.raises(ExperimentError, match="the script sets it"):
        plan(tmp_path, experiment(peer, **sections))


def test_parameters_that_are_as_usual_may_be_said_with_a_script(tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text(json.dumps({"script": OWN}))
    said = experiment({"script": "params.json", "connect": 4}, workload={}, interests={}, gossipsub={"d": 6})
    assert plan(tmp_path, said).plan.experiment.workload.topics == 2


def test_a_script_that_is_not_there_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"params\.json: No such file"):
        plan(tmp_path, experiment({"script": "params.json"}, workload={}, interests={}))


def test_the_schedule_must_be_that_of_the_script(tmp_path: Path) -> None:
    planned = own(tmp_path, OWN)
    with pytest.raises(ValueError, match="its publications are not those of the schedule"):
        fit_script(decode_script(planned.script), planned.schedule[1:], HOSTS, 20 * SECOND_NS)


# ------------------------------------------------------------------------------------------------ keys and names


def test_peer_ids_are_those_of_the_programs() -> None:
    """The sum is in the program in Rust, which checks its own keys by it."""
    lines = "".join(f">{node}:{find_peer_id(node)}\n" for node in range(10_000))
    expected = "11395ea896d00ca25f7f648ebb336488ee092096a5498d90d76b92eaec27867a"
    assert hashlib.sha256(lines.encode()).hexdigest() == expected


def test_peers_are_told_the_keys_of_all_nodes_and_have_the_port_of_the_contract(tmp_path: Path) -> None:
    sites = [Site(node, "m", (f"10.0.0.{node + 1}", PEER_PORT), None, name="node1") for node in range(3)]
    spec = build_agent_specs(plan(tmp_path, experiment()).plan.experiment, sites)["m"]
    assert PEER_PORT == 9000
    assert (spec.scripted, spec.drives, spec.executes) == (True, True, False)
    assert spec.peer_ids == tuple(map(find_peer_id, range(3)))
    assert spec.program_of(1).says == ("duplicate",)
    assert describe_hosts(spec).splitlines()[1:] == ["10.0.0.1 node0", "10.0.0.2 node1", "10.0.0.3 node2"]


FILE = """
version = "1"
about = "A test."
command = ["/opt/{name}"]
contract = {contract}
memory_mib = 20
start_cpu_s = {start_s}
"""


def implementation(folder: Path, name: str, *contracts: str, start_s: float = 0.1) -> str:
    """A file that names a contract, or a list of several."""
    contract = json.dumps(contracts if len(contracts) > 1 else contracts[0])
    path = folder / f"{name}.toml"
    path.write_text(FILE.format(name=name, contract=contract, start_s=start_s))
    return str(path)


def test_an_implementation_names_its_contract(tmp_path: Path) -> None:
    go, rust = (implementation(tmp_path, name, "gossipsub-interop") for name in ("go", "rust"))
    mix = [{"implementation": go, "share": 1}, {"implementation": rust, "nodes": [1]}]
    made = experiment({"command": None, "events": "trace", "mix": mix}).peer
    assert (made.events, made.says) == ("gossipsub-interop", ("duplicate",))
    lines = implementation(tmp_path, "other", "lines")
    mix = [{"implementation": go, "share": 1}, {"implementation": lines, "share": 1}]
    problem = r"expected implementations with a contract in common, got go \(gossipsub-interop\), other \(lines\)"
    with pytest.raises(ExperimentError, match=problem):
        experiment({"command": None, "events": "trace", "mix": mix})


def test_implementations_are_driven_as_all_of_them_can_be_or_as_the_experiment_says(tmp_path: Path) -> None:
    go = implementation(tmp_path, "go", "gossipsub-interop")
    both = implementation(tmp_path, "both", "lines", "gossipsub-interop")
    mix = [{"implementation": both, "share": 1}, {"implementation": go, "share": 1}]
    made = experiment({"command": None, "events": "trace", "mix": mix}).peer
    assert [made.events, *(program.contract for program in made.programs)] == ["gossipsub-interop"] * 3
    alone: dict[str, Any] = {"command": None, "implementation": both}
    for events, contract, says in (
        ("trace", "lines", ()),
        ("lines", "lines", ()),
        ("gossipsub-interop", "gossipsub-interop", ("duplicate",)),
    ):
        made = experiment(alone | {"events": events}).peer
        assert (made.events, made.says, made.programs[0].contract) == (contract, says, contract)
    problem = r"\$\.peer\.events: expected gossipsub-interop, as the implementations have it, got lines"
    with pytest.raises(ExperimentError, match=problem):
        experiment({"command": None, "events": "lines", "implementation": go})


def test_programs_that_cannot_listen_before_they_connect_are_refused(tmp_path: Path) -> None:
    slow = implementation(tmp_path, "slow", "gossipsub-interop", start_s=3600)
    with pytest.raises(ExperimentError, match=r"programs need .* s to start here, and must be ready within 10 s"):
        plan(tmp_path, experiment({"command": None, "events": "trace", "implementation": slow}))
