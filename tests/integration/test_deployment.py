"""The deployment's steps against real sshds, with a stand-in for the agent that answers at once."""

import json
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from harness.deployment.fleet import Deployment, make_token
from harness.deployment.package import Package, build_package
from harness.errors import DeploymentError, TestbedError
from harness.experiment.inventory import Machine
from harness.testbeds.emulated.sshd import serving_ssh, start_sshd
from metrics.rundir import ClockOffset
from peer.instances.spec import AgentSpec
from tests.integration.deployment_machines import Box, machines, sandboxed

pytestmark = pytest.mark.root

STAND_IN = """
import json, os, socket, sys, threading, time
work = sys.argv[1]
path = os.path.join(work, "agent.sock")
if "--call" in sys.argv:
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        s.sendall(json.dumps(sys.argv[3:]).encode() + b"\\n")
        print(s.makefile().readline())
    sys.exit()
def lifeline():
    while os.read(0, 1):
        pass
    os._exit(7)
threading.Thread(target=lifeline, daemon=True).start()
spec = json.load(open(os.path.join(work, "agent.json")))
print("agent of", spec["machine"], flush=True)
open(os.path.join(work, "agent.pid"), "w").write(str(os.getpid()))
server = socket.socket(socket.AF_UNIX)
server.bind(path)
server.listen()
while True:
    link, _ = server.accept()
    words = json.loads(link.makefile().readline())
    exits = spec["send_queue_bytes"] * [{"process": "peer-7", "expected": "exited", "state": "exited", "status": 1}]
    link.sendall(json.dumps({"ready": True, "exits": exits, "lead_ns": 250}).encode() + b"\\n")
    link.close()
    if words[0] == "start":
        break
os.mkdir(os.path.join(work, "trace"))
for peer in spec["peers"]:
    with open(os.path.join(work, "trace", f"{peer['node']}.jsonl"), "w") as trace:
        trace.write(json.dumps([spec["machine"], words[1]]))
with open(os.path.join(work, "exits.jsonl"), "w") as exits:
    exits.write(spec["machine"])
"""


NODES = {f"m{i}": (i, i + 3) for i in range(3)}


def stand_in(folder: Path, agent: str = STAND_IN) -> Package:
    (folder / "runtime").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "runtime/__init__.py").touch()
    (folder / "runtime/agent.py").write_text(agent)
    return build_package(folder)


def spec(machine: str, *nodes: int, dead: int = 0) -> AgentSpec:
    """``dead``: how many peers the stand-in says ended early."""
    places = [{"node": node, "listen": ["127.0.0.1", 9000], "metrics": None} for node in nodes]
    return msgspec.convert(
        {"machine": machine, "peers": places, "addresses": [], "warmup_ns": 0, "stop_ns": 0, "drain_ns": 0}
        | {"send_queue_bytes": dead, "lease_s": 60.0, "run": 1},
        AgentSpec,
    )


@sandboxed
def test_three_machines_go_through_every_step(tmp_path: Path):
    with machines(tmp_path, 3) as fleet, Deployment([m for _, m in fleet], "r", tmp_path / "logs") as deployment:
        deployment.connect()
        assert set(deployment.check_versions()["m1"].packages) == {"msgspec", "prometheus_client", "uvloop"}
        package = stand_in(tmp_path / "peer")
        assert deployment.ship(package) == {"m0": True, "m1": True, "m2": True}
        assert deployment.ship(package) == {"m0": False, "m1": False, "m2": False}
        deployment.push({f"m{i}": spec(f"m{i}", i, i + 3) for i in range(3)}, b"{}", b"")
        deployment.start_agents()
        deployment.await_ready(60)
        assert deployment.start(5_000) == {"m0": 250, "m1": 250, "m2": 250}
        assert deployment.lead_s > 1.0
        assert deployment.wait(300) == {"m0": 0, "m1": 0, "m2": 0}
        deployment.collect(tmp_path / "run", NODES)
        assert not (tmp_path / "run/clocks.json").exists()
        traces = {path.name: json.loads(path.read_text()) for path in (tmp_path / "run/trace").iterdir()}
        assert {name: words[0] for name, words in traces.items()} == {f"{n}.jsonl": f"m{n % 3}" for n in range(6)}
        assert traces["4.jsonl"][1] == "5000"
        assert (tmp_path / "run/exits-m1.jsonl").read_text() == "m1"
        assert (tmp_path / "logs/agent-m2.log").read_text() == "agent of m2\n"
        assert [box.processes() for box, _ in fleet] == [[], [], []]
        assert [box.files(fleet[0][1].work) for box, _ in fleet] == [["packages"]] * 3


@sandboxed
def test_a_work_folder_on_our_own_disk_is_moved_home_and_not_copied(tmp_path: Path):
    here = tmp_path / "server/work"
    with (
        serving_ssh(tmp_path / "server", "127.0.0.1", 2222, name="m", work_here=here) as machine,
        Deployment([machine], "r", tmp_path / "run/logs") as deployment,
    ):
        deployment.connect()
        deployment.ship(stand_in(tmp_path / "peer"))
        deployment.push({"m": spec("m", 0, 1)}, b"{}", b"")
        deployment.start_agents()
        deployment.await_ready(60)
        deployment.start(5_000)
        deployment.wait(300)
        (work,) = [path for path in here.iterdir() if path.name != "packages"]
        (work / "logs").mkdir()
        (work / "logs/0.log").touch()
        files = {path.name: path.stat().st_ino for path in (work / "trace").iterdir()}
        deployment.collect(tmp_path / "run", {"m": (0, 1)})
        assert {path.name: path.stat().st_ino for path in (tmp_path / "run/trace").iterdir()} == files
        assert set(files) == {"0.jsonl", "1.jsonl"}
        assert sorted(path.name for path in (tmp_path / "run/logs").iterdir()) == ["0.log", "agent-m.log"]
        assert (tmp_path / "run/exits-m.jsonl").read_text() == "m"
        assert not work.exists()


@sandboxed
def test_clocks_are_read_before_and_after_within_their_bound(tmp_path: Path):
    with machines(tmp_path, 2) as fleet:
        with_clocks = [msgspec.structs.replace(machine, own_clock=True) for _, machine in fleet]
        with Deployment(with_clocks, "r", tmp_path / "logs") as deployment:
            deployment.connect()
            deployment.ship(stand_in(tmp_path / "peer"))
            deployment.push({f"m{i}": spec(f"m{i}", i) for i in range(2)}, b"{}", b"")
            deployment.start_agents()
            deployment.await_ready(60)
            before = deployment.clocks
            deployment.start(5_000)
            deployment.wait(300)
            deployment.collect(tmp_path / "run", NODES)
        told = json.loads((tmp_path / "run/trace/1.jsonl").read_text())
        assert int(told[1]) == 5_000 + before["m1"].realtime_ns
        clocks = msgspec.json.decode((tmp_path / "run/clocks.json").read_bytes(), type=dict[str, ClockOffset])
        assert set(clocks) == {"m0", "m1"}
        # One kernel behind both machines: the true offset is 0, and every bound must hold it.
        for clock in (*before.values(), *clocks.values()):
            assert abs(clock.monotonic_ns) <= clock.error_ns
            assert abs(clock.realtime_ns) <= clock.error_ns + 1_000_000
            assert clock.error_ns < 100_000_000


@sandboxed
def test_a_dropped_connection_ends_the_agent_and_removes_its_folder(tmp_path: Path):
    with machines(tmp_path, 1) as [(box, machine)]:
        deployment = deployed(machine, tmp_path, "r")
        assert any("peer.runtime.agent" in line for line in box.processes())
        # The cable is pulled: the connection ends without a word from us.
        deployment.sessions["m0"].connection.transport.sock.close()
        await_bare(box)
        assert box.processes() == []
        assert box.files(machine.work) == ["packages"]


def deployed(machine: Machine, folder: Path, token: str) -> Deployment:
    """A deployment of one machine whose agent is ready."""
    deployment = Deployment([machine], token, folder / "logs", held=True)
    deployment.connect()
    deployment.ship(stand_in(folder / f"peer-{token}"))
    deployment.push({"m0": spec("m0", 0)}, b"{}", b"")
    deployment.start_agents()
    deployment.await_ready(60)
    return deployment


def await_bare(box: Box) -> None:
    deadline = time.monotonic() + 300
    while box.processes() and time.monotonic() < deadline:
        time.sleep(0.05)


@sandboxed
def test_two_runs_on_a_machine_leave_each_other_alone(tmp_path: Path):
    assert make_token() != make_token()
    with machines(tmp_path, 1) as [(box, machine)]:
        first, second = (deployed(machine, tmp_path, token) for token in ("a", "b"))
        assert box.files(machine.work) == ["a", "b", "packages"]
        with pytest.raises(DeploymentError, match=r"push failed on m0: .*File exists"):
            deployed(machine, tmp_path / "again", "a")
        second.disconnect()
        assert box.files(machine.work) == ["a", "packages"]
        assert first.status()["m0"]["ready"]
        first.disconnect()
        assert box.files(machine.work) == ["packages"]
        assert box.processes() == []


@sandboxed
def test_a_killed_agent_is_seen_at_once_and_nothing_of_it_stays(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    with machines(tmp_path, 1) as [(box, machine)]:
        deployment = deployed(machine, tmp_path, "r")
        assert deployment.faults() == {}
        session = deployment.sessions["m0"]
        run = f"TRELLIS_RUN={session.work}"
        session.run(f"env {run} setsid sh -c 'trap \"\" HUP TERM; sleep 600 & wait' > /dev/null 2>&1 < /dev/null &")
        session.run(f"kill -KILL $(cat {session.work}/agent.pid)")
        deadline = time.monotonic() + 300
        while not (faults := deployment.faults()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert faults == {"m0": "the agent was killed"}
        assert any("sleep 600" in line for line in box.processes())
        deployment.disconnect()
        assert box.processes() == []
        assert box.files(machine.work) == ["packages"]
    assert capfd.readouterr().err == ""


@sandboxed
def test_a_package_that_somebody_has_put_there_is_not_run(tmp_path: Path):
    with machines(tmp_path, 1) as [(_, machine)], Deployment([machine], "r", tmp_path / "logs") as deployment:
        deployment.connect()
        package = stand_in(tmp_path / "peer")
        place = f"{machine.work}/packages/{package.sha256[:16]}"
        deployment.sessions["m0"].run(f"mkdir -p {place}/peer && echo evil > {place}/peer/__init__.py")
        with pytest.raises(DeploymentError, match="does not match its name; remove it"):
            deployment.ship(package)
        deployment.sessions["m0"].run(f"rm -r {place} && chmod 777 {machine.work}")
        with pytest.raises(DeploymentError, match="others may write to /tmp/work"):
            deployment.ship(package)


@sandboxed
def test_a_machine_that_sends_something_else_is_named_and_keeps_what_it_has(tmp_path: Path):
    """A tar in front of the machine's own sends a link where a trace is expected, and the plan."""
    with machines(tmp_path, 2) as fleet:
        with Deployment([m for _, m in fleet], "r", tmp_path / "logs", held=True) as deployment:
            deployment.connect()
            deployment.ship(stand_in(tmp_path / "peer"))
            deployment.push({f"m{i}": spec(f"m{i}", i) for i in range(2)}, b"{}", b"")
            deployment.start_agents()
            deployment.await_ready(60)
            deployment.start(5_000)
            deployment.wait(300)
            bad = deployment.sessions["m1"]
            bad.run(f"cd {bad.work} && echo mine > plan.json && printf '%s' '{LIAR}' > /tmp/tar && chmod +x /tmp/tar")
            run = bad.open_channel
            bad.open_channel = lambda command, **options: run(f"PATH=/tmp:$PATH; {command}", **options)
            (tmp_path / "run").mkdir()
            (tmp_path / "run/plan.json").write_text("ours")
            with pytest.raises(DeploymentError, match=r"collect failed on m1: sent 'plan\.json', which was not"):
                deployment.collect(tmp_path / "run", NODES)
        assert (tmp_path / "run/plan.json").read_text() == "ours"
        assert (tmp_path / "run/trace/0.jsonl").exists()
        assert [box.files("/tmp/work") for box, _ in fleet] == [["packages"], ["packages", "r"]]


LIAR = "#!/bin/sh\nexec /bin/tar -czf - plan.json"


@sandboxed
def test_a_step_names_the_machines_that_failed_and_their_words(tmp_path: Path):
    with machines(tmp_path, 2) as [(_, good), (_, bad)]:
        lame = msgspec.structs.replace(bad, python="/no/python")
        with Deployment([good, lame], "r", tmp_path / "logs") as deployment:
            deployment.connect()
            with pytest.raises(DeploymentError) as caught:
                deployment.check_versions()
        assert set(caught.value.results_by_machine) == {"m1"}
        assert "/no/python" in str(caught.value)


@sandboxed
def test_an_agent_that_ends_early_is_reported_at_once(tmp_path: Path):
    with machines(tmp_path, 1) as [(_, machine)], Deployment([machine], "r", tmp_path / "logs") as deployment:
        deployment.connect()
        deployment.ship(stand_in(tmp_path / "peer", "raise SystemExit('no such luck')"))
        deployment.push({"m0": spec("m0")}, b"{}", b"")
        deployment.start_agents()
        with pytest.raises(DeploymentError, match="status 1: no such luck"):
            deployment.await_ready(60)


@sandboxed
def test_peers_that_end_before_the_start_are_reported(tmp_path: Path):
    with machines(tmp_path, 1) as [(_, machine)], Deployment([machine], "r", tmp_path / "logs") as deployment:
        deployment.connect()
        deployment.ship(stand_in(tmp_path / "peer"))
        deployment.push({"m0": spec("m0", 0, dead=2)}, b"{}", b"")
        deployment.start_agents()
        with pytest.raises(DeploymentError, match="2 peers ended before the start, first peer-7, status 1"):
            deployment.await_ready(60)


@sandboxed
def test_a_machine_with_another_host_key_is_refused(tmp_path: Path):
    with serving_ssh(tmp_path / "a", "127.0.0.1", 2222) as machine:
        line = Path(machine.known_hosts).read_text().split()
        other = (tmp_path / "a/user_key.pub").read_text().split()[1]
        Path(machine.known_hosts).write_text(f"{line[0]} ssh-ed25519 {other}\n")
        with pytest.raises(DeploymentError, match="does not match"):
            Deployment([machine], "r", tmp_path / "logs").connect()
        Path(machine.known_hosts).write_text("")
        with pytest.raises(DeploymentError, match=r"has no ssh-ed25519 key of .*ssh-keyscan"):
            Deployment([machine], "r", tmp_path / "logs").connect()


@sandboxed
def test_a_strange_key_and_a_dead_endpoint_are_refused(tmp_path: Path):
    with serving_ssh(tmp_path / "a", "127.0.0.1", 2222) as machine:
        strange = tmp_path / "strange"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(strange)], check=True)
        with pytest.raises(DeploymentError, match="Authentication failed"):
            Deployment([msgspec.structs.replace(machine, key=str(strange))], "r", tmp_path).connect()
        with pytest.raises(DeploymentError, match="2223"):
            Deployment([msgspec.structs.replace(machine, port=2223)], "r", tmp_path).connect()


@sandboxed
def test_an_sshd_whose_port_is_taken_says_so(tmp_path: Path):
    with (
        serving_ssh(tmp_path / "a", "127.0.0.1", 2222),
        pytest.raises(TestbedError, match="Address already in use"),
    ):
        start_sshd(tmp_path / "b", "127.0.0.1", 2222)
