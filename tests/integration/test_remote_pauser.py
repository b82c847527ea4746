"""The pauser of a machine stops the processes of peers at planned instants, and nothing stays stopped."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from harness.deployment.fleet import Deployment, make_token
from harness.testbeds import remote
from metrics.rundir import RunDir
from tests.e2e.run_experiment import QUICKLY, trellis
from tests.integration.trial_machines import ROOT, printed_inventory
from tests.processes import ended

PAUSER = Path(remote.__file__).with_name("pauser.py")
HOUR_NS = 3_600_000_000_000
DEADLINE_S = 300.0


def state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]


def await_state(process: int, wanted: str) -> None:
    until_s = time.monotonic() + DEADLINE_S
    while state(process) not in wanted:
        assert time.monotonic() < until_s
        time.sleep(0.01)


@contextmanager
def agent(folder: Path, peers: dict[int, int]) -> Iterator[None]:
    """An agent that answers with these processes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(folder / "agent.sock"))
        server.listen()

        def serve() -> None:
            while True:
                try:
                    link, _ = server.accept()
                except OSError:
                    return
                with link:
                    assert json.loads(link.makefile("rb").readline()) == ["status"]
                    answer = {"peers": {str(node): {"pid": process} for node, process in peers.items()}}
                    link.sendall(json.dumps(answer).encode() + b"\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@contextmanager
def pauser(folder: Path, *steps: dict) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, str(PAUSER)]
    with ended(subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.stdin.write(json.dumps(steps).encode() + b"\n")
        process.stdin.flush()
        yield process


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[list[int]]:
    """A peer with a child, the child, and another peer, behind an agent; the first is that of node 4."""
    command = ["sh", "-c", "sleep 1000 & echo $!; wait"]
    with (
        ended(subprocess.Popen(command, stdout=subprocess.PIPE)) as first,
        ended(subprocess.Popen(["sleep", "1000"])) as second,
    ):
        assert first.stdout
        child = int(first.stdout.readline())
        try:
            with agent(tmp_path, {4: first.pid, 5: second.pid}):
                yield [first.pid, child, second.pid]
        finally:
            subprocess.run(["kill", "-KILL", str(child)], check=True)


def test_peers_stop_and_go_on_at_their_instants(peers: list[int], tmp_path: Path) -> None:
    parent, child, other = peers
    now_ns = time.monotonic_ns()
    steps = (
        {"at_ns": now_ns, "stop": [4], "resume": []},
        {"at_ns": now_ns + 1_000_000_000, "stop": [5], "resume": [4]},
        {"at_ns": now_ns + HOUR_NS, "stop": [], "resume": [5]},
    )
    with pauser(tmp_path, *steps) as process:
        await_state(other, "T")
        for each in (parent, child):
            await_state(each, "S")  # node 4 goes on when node 5 stops, as soon as a processor is free
        out, _ = process.communicate(timeout=DEADLINE_S)
    await_state(other, "S")
    applied_ns = json.loads(out)
    assert len(applied_ns) == 2, "the last instant did not come"
    assert all(at_ns >= step["at_ns"] for at_ns, step in zip(applied_ns, steps, strict=False))


@pytest.mark.parametrize("sent", [None, signal.SIGTERM, signal.SIGHUP])
def test_all_go_on_however_the_run_ends(peers: list[int], tmp_path: Path, sent: signal.Signals | None) -> None:
    """None = the connection is lost."""
    parent, child, _ = peers
    with pauser(tmp_path, {"at_ns": 0, "stop": [4], "resume": []}) as process:
        await_state(parent, "T")
        await_state(child, "T")
        if sent is None:
            process.stdout.close()
            process.stdin.close()
        else:
            process.send_signal(sent)
        process.wait(DEADLINE_S)
    await_state(parent, "S")
    await_state(child, "S")


def test_without_an_agent_nothing_is_stopped(tmp_path: Path) -> None:
    with pauser(tmp_path, {"at_ns": 0, "stop": [4], "resume": []}) as process:
        out, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert len(json.loads(out)) <= 1


EXPERIMENT = """
name = "paused"
protocol = "gossipsub"
testbed = "remote"
inventory = "inventory.toml"
underlay = { kind = "uniform", hosts = 6 }
workload = { topics = 2, publish_rate_per_s = 10, warmup_s = 4, duration_s = 6, cooldown_s = 4 }
interests = { ratio = 1.0 }
prometheus = { enabled = false }
[[faults]]
at_s = 2
for_s = 2
pause = [1, 4]
"""


@pytest.mark.root
@pytest.mark.slow
def test_a_run_over_two_machines_pauses_peers_on_both(tmp_path: Path) -> None:
    experiment, run_dir = tmp_path / "experiment.toml", tmp_path / "run"
    experiment.write_text(EXPERIMENT)
    with printed_inventory(tmp_path, "--hosts", "3", "--inventory", str(tmp_path / "inventory.toml")) as (inventory, _):
        command = trellis("run", experiment, *QUICKLY, "--out", run_dir)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        with Deployment(inventory.machines, make_token(), tmp_path / "logs") as deployment:
            deployment.connect()
            left = deployment.each("look", lambda session: session.run("pgrep -f '[s]tdin.buffer' | cat"))
    assert set(left.values()) == {""}
    run = RunDir(run_dir)
    zero_ns = run.manifest.zero_ns
    applied = run.lines("faults.jsonl")
    assert [line["asked_ns"] - zero_ns for line in applied] == [2_000_000_000, 4_000_000_000], done.stdout + done.stderr
    begin_ns, end_ns = (line["applied_ns"] for line in applied)
    deliveries = pq.read_table(run_dir / "tables" / "deliveries.parquet").to_pylist()
    during = {row["node"] for row in deliveries if begin_ns < row["delivered_ns"] < end_ns}
    assert {0, 2, 3, 5} <= during, "the other nodes go on"
    assert not during & {1, 4}
    after = {row["node"] for row in deliveries if row["delivered_ns"] > end_ns}
    assert {1, 4} <= after
