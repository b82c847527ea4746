"""A ``shadow.yaml`` as an experiment: its plan, its agent, what is refused, and the way back."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from harness import cli
from harness.deployment.agents import build_agent_specs, emulated_sites
from harness.errors import ExperimentError
from harness.experiment.form import resolve
from harness.experiment.loader import decode_experiment, load_experiment
from harness.planning import make_plan, remarks_on, write_plan
from harness.planning.plan import PlannedRun
from harness.planning.shadow import write_shadow
from metrics.rundir.files import EXPERIMENT_FILE, SHADOW_FILE
from peer.instances.spec import AgentSpec
from peer.runtime.foreign_processes import collected_files
from peer.runtime.names import describe_hosts, own_names
from topologies.shadow.form import read_shadow

SHELL = "/bin/sh"

BASIC = f"""
general: {{stop_time: 20 s, seed: 5, parallelism: 2}}
network: {{graph: {{type: 1_gbit_switch}}}}
hosts:
  web:
    network_node_id: 0
    processes:
    - {{path: {SHELL}, args: -c 'sleep 9', start_time: 2 s, expected_final_state: running}}
    - {{path: {SHELL}, args: [-c, "exit 1"], expected_final_state: {{exited: 1}}, environment: {{WORD: a=b}}}}
  client-1: &client
    network_node_id: 0
    bandwidth_up: 8 Mbit
    processes:
    - {{path: sh, args: -c true, shutdown_time: 9 s, shutdown_signal: SIGINT}}
  client.2: *client
"""

INTEROP = """
experimental: {socket_recv_buffer: 7500000, socket_send_buffer: 7500000, use_memory_manager: true}
general: {model_unblocked_syscall_latency: true, stop_time: 10 min}
hosts:
  node0: {network_node_id: 0, processes: [{args: --params /srv/params.json, environment: {}, path: sh}]}
  node1: {network_node_id: 1, processes: [{args: --params /srv/params.json, environment: {}, path: sh}]}
  node10: {network_node_id: 1, processes: [{args: --params /srv/params.json, environment: {}, path: sh}]}
network: {graph: {file: {path: graph.gml}, type: gml}}
"""

INTEROP_GRAPH = """graph [
  directed 1
  node [
    id 0
    label "north-supernode"
    host_bandwidth_up "1024 Mbit"
    host_bandwidth_down "1024 Mbit"
  ]
  node [
    id 1
    label "south-fullnode"
    host_bandwidth_up "50 Mbit"
    host_bandwidth_down "50 Mbit"
  ]
  edge [ source 0 target 0 label "north to north" latency "2 ms" packet_loss 0.0 ]
  edge [ source 0 target 1 label "north to south" latency "110 ms" packet_loss 0.0 ]
  edge [ source 1 target 0 label "south to north" latency "120 ms" packet_loss 0.0 ]
  edge [ source 1 target 1 label "south to south" latency "7 ms" packet_loss 0.0 ]
]
"""
"""Both in the manner of the generator of libp2p's gossipsub-interop."""


def plan(folder: Path, text: str = BASIC, *overrides: str) -> PlannedRun:
    path = folder / "shadow.yaml"
    path.write_text(text)
    return make_plan(load_experiment(path, overrides), path, overrides)


def agent_of(planned: PlannedRun) -> AgentSpec:
    places = [host.name for host in planned.underlay.hosts]
    netns = {place.host: f"/proc/{place.host}/ns/net" for place in planned.plan.placement}
    [agent] = build_agent_specs(planned.plan.experiment, emulated_sites(planned.plan, places, netns)).values()
    return agent


def test_an_experiment_of_shadow_is_planned(tmp_path: Path) -> None:
    planned = plan(tmp_path)
    experiment = planned.plan.experiment
    assert (experiment.name, experiment.seed, experiment.peer.events) == ("shadow", 5, "none")
    assert experiment.workload.duration_s == 20
    assert planned.schedule == ()
    assert planned.plan.prediction.links_per_node is None
    assert planned.plan.prediction.processes == 3 * 2 + 4 + 10
    ignored, fast = remarks_on(planned)
    assert ignored == "general.parallelism has no effect: it is about Shadow's own execution"
    assert fast.startswith("3 of 3 hosts may send or receive more than the 600 Mbit/s")
    write_plan(planned, tmp_path / "run")
    assert (tmp_path / "run" / SHADOW_FILE).read_text() == BASIC
    assert not (tmp_path / "run" / EXPERIMENT_FILE).exists()
    assert len(json.loads((tmp_path / "run/plan.json").read_text())["experiment"]["peer"]["processes"]) == 4


def test_the_agent_has_processes_names_and_files(tmp_path: Path) -> None:
    agent = agent_of(plan(tmp_path))
    assert own_names(agent) == ["client-1", "client.2", "web"]
    assert describe_hosts(agent).splitlines() == [
        "127.0.0.1 localhost",
        "10.0.0.1 client-1",
        "10.0.0.2 client.2",
        "10.0.0.3 web",
    ]
    assert [(each.node, each.name, each.start_ns, each.expected) for each in agent.processes] == [
        (0, "sh.1000", 0, "exited 0"),
        (1, "sh.1000", 0, "exited 0"),
        (2, "sh.1000", 0, "exited 1"),
        (2, "sh.1001", 2 * 10**9, "running"),
    ]
    client, web = agent.processes[0], agent.processes[2]
    assert client.command[1:] == ("-c", "true")
    assert Path(client.command[0]).is_absolute()
    assert (client.shutdown_ns, client.shutdown_signal) == (9 * 10**9, "SIGINT")
    assert (web.command, web.environment) == ((SHELL, "-c", "exit 1"), ("WORD=a=b",))
    files = set(collected_files(agent))
    assert {"hosts/web/sh.1001.stdout", "hosts/client.2/sh.1000.stderr", "hosts/web/processes.jsonl"} <= files
    assert len(files) == 2 * 4 + 3


def test_an_experiment_in_the_manner_of_gossipsub_interop_is_planned(tmp_path: Path) -> None:
    (tmp_path / "graph.gml").write_text(INTEROP_GRAPH)
    planned = plan(tmp_path, INTEROP)
    assert own_names(agent_of(planned)) == ["node0", "node1", "node10"]
    assert describe_hosts(agent_of(planned)).splitlines()[1:] == ["10.0.0.1 node0", "10.0.0.2 node1", "10.0.0.3 node10"]
    assert planned.underlay.delay_ms.tolist() == [[0, 110, 110], [120, 0, 7], [120, 7, 0]]
    assert planned.underlay.rate_mbit.tolist() == [[1024, 50, 50]] * 2
    assert planned.plan.experiment.peer.processes[0].command[1:] == ("--params", "/srv/params.json")


def test_node_i_of_gossipsub_interop_is_the_host_of_its_number(tmp_path: Path) -> None:
    """In the order of names, node2 would be where node10 is."""
    (tmp_path / "graph.gml").write_text(INTEROP_GRAPH)
    said = yaml.safe_load(INTEROP)
    said["hosts"] = {f"node{number}": said["hosts"]["node1" if number == 10 else "node0"] for number in range(11)}
    planned = plan(tmp_path, yaml.dump(said))
    assert own_names(agent_of(planned)) == [f"node{number}" for number in range(11)]
    assert planned.underlay.rate_mbit.tolist() == [[1024] * 10 + [50]] * 2


def test_paths_to_the_folder_of_the_data_lead_to_that_of_the_file(tmp_path: Path) -> None:
    words = "-c ../../../a.conf --in=../../../b x/../../../c ../../d"
    planned = plan(tmp_path, BASIC.replace("args: -c true", f"args: {words}"))
    found = planned.plan.experiment.peer.processes[0].command[1:]
    assert found == ("-c", f"{tmp_path}/a.conf", f"--in={tmp_path}/b", "x/../../../c", "../../d")


def test_a_program_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"hosts.client-1.processes\[0\].path: there is no program 'no-such-sh'"):
        plan(tmp_path, BASIC.replace("path: sh", "path: no-such-sh"))


def test_hosts_without_any_process_are_refused(tmp_path: Path) -> None:
    text = "general: {stop_time: 5}\nnetwork: {graph: {type: 1_gbit_switch}}\nhosts:\n"
    hosts = "".join(f"  {name}: {{network_node_id: 0, processes: []}}\n" for name in "ab")
    with pytest.raises(ExperimentError, match="no host has a process"):
        plan(tmp_path, text + hosts)


def test_more_than_the_machine_has_is_refused_with_the_numbers(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"3 hosts need \d+ MiB of memory, this machine has \d+"):
        plan(tmp_path, BASIC, "peer.memory_mib=1000000")


@pytest.mark.parametrize("override", ["underlay.hosts=3", "peer.events=none", "peer.memory_mib=20"])
def test_what_the_file_means_may_be_said_again(tmp_path: Path, override: str) -> None:
    assert plan(tmp_path, BASIC, override).plan.experiment.peer.events == "none"


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("time_dilation=2", "expected 1: the programs know nothing of Trellis"),
        ("testbed=simulated", "testbed"),
        ("churn.kind=exponential", "not possible: the programs know nothing"),
        ("adversary.kind=dropper", "not possible: the programs know nothing"),
        ("peer.record=true", "only events of Python peers can be recorded"),
        ("peer.implementation=go-libp2p", "peer.processes says what is run"),
        ('peer.command=["x"]', "peer.processes says what is run"),
        ("workload.duration_s=2", r"processes\[\d\].s[a-z]+_s: expected"),
        ("peer.events=lines", 'expected "none" with peer.processes, got "lines"'),
        ("underlay.hosts=2", "expected 3, since processes run on all hosts of the file, got 2"),
        ("underlay.hosts=4", "expected 3, since processes run on all hosts of the file, got 4"),
    ],
)
def test_what_processes_cannot_have_is_refused(tmp_path: Path, override: str, problem: str) -> None:
    with pytest.raises(ExperimentError, match=problem):
        plan(tmp_path, BASIC, override)


PROCESS = {"node": 0, "command": ["sh", "-c", "exit 0"]}


def experiment(**peer: Any) -> Any:
    return decode_experiment({"name": "x", "protocol": "complete", "underlay": {"hosts": 3}, "peer": peer})


def test_an_experiment_of_trellis_can_have_processes_too() -> None:
    found = experiment(processes=[PROCESS, PROCESS | {"environment": ["A=1"], "expected": "running", "start_s": 2}])
    assert found.peer.command == ("sh", "-c", "exit 0")
    assert found.peer.events == "none"
    assert "processes" not in resolve(experiment())["peer"]
    assert len(resolve(found)["peer"]["processes"]) == 2


@pytest.mark.parametrize(
    ("peer", "problem"),
    [
        ({"events": "none"}, r"\$.peer.processes: missing"),
        ({"processes": [PROCESS | {"node": 3}]}, r"processes\[0\].node: expected a node from 0 to 2, got 3"),
        ({"processes": [PROCESS | {"environment": ["A"]}]}, "environment"),
        ({"processes": [PROCESS | {"command": []}]}, "command"),
        ({"processes": [PROCESS | {"expected": "exited"}]}, "expected"),
        ({"processes": [PROCESS | {"expected": "signalled SIGNOTHING"}]}, "there is no signal SIGNOTHING"),
        ({"processes": [PROCESS | {"shutdown_signal": "SIGNOTHING"}]}, "there is no signal SIGNOTHING"),
        ({"processes": [PROCESS | {"start_s": 99}]}, "expected less than the 33 s of the run"),
        ({"processes": [PROCESS | {"start_s": 3, "shutdown_s": 2}]}, "expected more than start_s = 3 and less than"),
    ],
)
def test_wrong_processes_are_refused(peer: dict[str, Any], problem: str) -> None:
    with pytest.raises(ExperimentError, match=problem):
        experiment(**peer)


def test_an_exported_experiment_reads_back_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "graph.gml").write_text(INTEROP_GRAPH.replace('"110 ms" packet_loss 0.0', '"110 ms" packet_loss 0.25'))
    text = BASIC.replace("type: 1_gbit_switch", "type: gml, file: {path: graph.gml}")
    planned = plan(tmp_path, text.replace("web:\n    network_node_id: 0", "web:\n    network_node_id: 1"))
    assert planned.underlay.loss_ratio[0].tolist() == [0, 0, 0.25]
    assert write_shadow(planned, tmp_path / "out") == ["the lengths of queues: Shadow has its own"]
    path = tmp_path / "out/shadow.yaml"
    again = make_plan(load_experiment(path), path)
    for name in ("delay_ms", "loss_ratio", "rate_mbit"):
        assert np.array_equal(getattr(again.underlay, name), getattr(planned.underlay, name)), name
    assert [host.name for host in again.underlay.hosts] == [host.name for host in planned.underlay.hosts]
    assert set(again.plan.experiment.peer.processes) == set(planned.plan.experiment.peer.processes)
    assert again.plan.seed == planned.plan.seed
    assert read_shadow(path).stop_ns == 20 * 10**9
    with pytest.raises(ExperimentError, match="File exists"):
        write_shadow(planned, tmp_path / "out")


def test_the_network_of_any_experiment_is_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = 'name = "x"\nprotocol = "complete"\n[underlay]\nkind = "measured-cities"\nhosts = 4\nup_mbit = 0.3\n'
    (tmp_path / "x.toml").write_text(text)
    assert cli.main(["export", "shadow", str(tmp_path / "x.toml"), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "the hosts have no processes" in said
    assert "hosts without a limit of their rate have 1 Tbit" in said
    document = yaml.safe_load((tmp_path / "out/shadow.yaml").read_text())
    assert document["general"]["stop_time"] == "33 s"
    assert all(host["processes"] == [] for host in document["hosts"].values())
    path = tmp_path / "x.toml"
    planned = make_plan(load_experiment(path), path)
    own = 'name = "y"\nprotocol = "complete"\n[underlay]\nkind = "shadow"\npath = "out/shadow.yaml"\n'
    (tmp_path / "y.toml").write_text(own)
    again = make_plan(load_experiment(tmp_path / "y.toml"), tmp_path / "y.toml")
    assert np.array_equal(np.sort(again.underlay.delay_ms.ravel()), np.sort(planned.underlay.delay_ms.ravel()))
    assert again.underlay.rate_mbit[0].tolist() == [0.3] * 4


def test_check_and_plan_say_what_a_file_of_shadow_asks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shadow.yaml").write_text(BASIC)
    assert cli.main(["check", str(tmp_path / "shadow.yaml")]) == 0
    assert "shadow.yaml: valid: shadow, 3 hosts on shadow, 0 messages" in capsys.readouterr().out
    assert cli.main(["plan", str(tmp_path / "shadow.yaml")]) == 0
    said = capsys.readouterr().out
    assert "programs     4 processes, which know nothing of Trellis; no messages are published" in said
    assert "remark       general.parallelism has no effect" in said
    (tmp_path / "shadow.yaml").write_text(BASIC.replace("seed: 5", "sead: 5"))
    assert cli.main(["plan", str(tmp_path / "shadow.yaml")]) == 2
    assert "shadow.yaml: general.sead: unknown key; did you mean seed?" in capsys.readouterr().err
