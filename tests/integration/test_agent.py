"""The agent with real peer processes on loopback, in a network namespace of their own where the test has root."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from peer.core.contract import message_id
from peer.core.schedule import Crash, Join, Publish, encode_schedule
from peer.files import record_file
from peer.instances.spec import AgentSpec, NodeSpec, OverlayDocument, PeerPlace
from peer.runtime.agent import call
from peer.runtime.children import descendants
from peer.runtime.limits import needed_files
from peer.runtime.recording import replay
from peer.trace import EVENTS, TraceEvent
from tests.examples import long_unless
from tests.processes import is_alive

CHECKOUT = Path(__file__).parents[2]
WARMUP_S, STOP_S, DRAIN_S = 1.0, 2.0, 0.5
LIMIT_S = 300


class Machine:
    """A work folder with its documents, and the agent that was started on it."""

    def __init__(
        self,
        folder: Path,
        nodes: int,
        documents: dict[str, str] | None = None,
        under: tuple[str, ...] = (),
        **changes: Any,
    ) -> None:
        self.folder = folder
        ports = free_ports(2 * nodes + 1)
        self.metrics = ports[nodes : 2 * nodes]
        self.agent_metrics = ports[-1]
        addresses = tuple(("127.0.0.1", port) for port in ports[:nodes])
        spec = AgentSpec(
            machine="m",
            run=5,
            peers=tuple(PeerPlace(n, addresses[n], ("127.0.0.1", self.metrics[n])) for n in range(nodes)),
            addresses=addresses,
            warmup_ns=int(WARMUP_S * 1e9),
            stop_ns=int(STOP_S * 1e9),
            drain_ns=int(DRAIN_S * 1e9),
            send_queue_bytes=1 << 20,
            lease_s=60.0,
            agent_metrics=("127.0.0.1", self.agent_metrics),
        )
        self.spec = msgspec.structs.replace(spec, **changes)
        self.actions = [
            Publish(k * 50_000_000, k % nodes, message_id(k % nodes, k), (k % 4,), 100 + k) for k in range(20)
        ]
        self.topics = [tuple(t for t in range(4) if (n + t) % 2 == 0) for n in range(nodes)]
        overlay = {"name": "complete"}
        self.overlay = OverlayDocument(
            5, "complete", tuple(NodeSpec(n, 1, self.topics[n], overlay, {"name": "flood"}) for n in range(nodes))
        )
        folder.joinpath("agent.json").write_bytes(msgspec.json.encode(self.spec))
        folder.joinpath("overlay.json").write_bytes(msgspec.json.encode(self.overlay))
        folder.joinpath("schedule.jsonl").write_bytes(encode_schedule(self.actions))
        for name, content in (documents or {}).items():
            folder.joinpath(name).write_text(content)
        command = [*under, sys.executable, "-m", "peer.runtime.agent", str(folder)]
        self.process = subprocess.Popen(command, cwd=CHECKOUT, stdin=subprocess.PIPE, stderr=subprocess.PIPE)

    def call(self, *words: str) -> dict[str, Any]:
        return call(self.folder, list(words))

    def await_ready(self) -> dict[str, Any]:
        return until(lambda: (status := self.status()) and status["ready"] and status)

    def status(self) -> dict[str, Any] | None:
        """None while nobody listens yet: the socket's file is there before."""
        try:
            return self.call("status")
        except (FileNotFoundError, ConnectionRefusedError):
            return None

    def start(self, lead_s: float = 0.2) -> int:
        zero_ns = time.time_ns() + int((WARMUP_S + lead_s) * 1e9)
        return self.call("start", str(zero_ns))["zero_ns"]

    def wait(self) -> int:
        return self.process.wait(LIMIT_S)

    def exits(self) -> dict[str, dict[str, Any]]:
        lines = self.folder.joinpath("exits.jsonl").read_text().splitlines()
        return {line["process"]: line for line in map(json.loads, lines)}

    def trace(self, node: int) -> list[TraceEvent]:
        return msgspec.json.Decoder(TraceEvent).decode_lines(self.folder.joinpath(f"trace/{node}.jsonl").read_bytes())


def free_ports(count: int) -> list[int]:
    doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [door.getsockname()[1] for door in doors]
    for door in doors:
        door.close()
    return ports


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if answer := condition():
            return answer
        time.sleep(0.01)
    raise AssertionError("it did not happen in time")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    started: list[Machine] = []

    def make(nodes: int = 5, **changes: Any) -> Machine:
        started.append(Machine(tmp_path, nodes, **changes))
        return started[-1]

    yield make
    for one in started:
        one.process.stdin.close()
        one.process.wait(LIMIT_S)
        one.process.stderr.close()


def frame_set(traces: list[list[TraceEvent]], event: str) -> Counter:
    return Counter(
        (e.conn, e.direction, e.off, e.len_bytes, e.kind, e.message_id)
        for trace in traces
        for e in trace
        if e.event == event
    )


def test_a_healthy_run_delivers_everything_and_loses_no_frame(machine):
    m = machine()
    status = m.await_ready()
    assert status["counts"] == {"ready": 5}
    assert 'trellis_agent_peers{state="ready"} 5.0' in scrape(m.agent_metrics)
    assert m.call("status", "pss")["pss_bytes"] < 5 * 20e6
    zero_ns = m.start()
    page = until(lambda: "trellis_publications_total 4.0" in (text := scrape(m.metrics[0])) and text)
    assert "trellis_links 4.0" in page
    assert 'trellis_sent_frames_total{kind="hello"} 4.0' in page
    assert m.wait() == 0
    assert {(e["state"], e["status"], e["expected"]) for e in m.exits().values()} == {("exited", 0, "exited")}
    traces = [m.trace(node) for node in range(5)]
    sent, received = frame_set(traces, "send"), frame_set(traces, "receive")
    assert sent == received
    assert set(sent.values()) == {1}
    delivered = Counter((e.node, e.message_id) for trace in traces for e in trace if e.event == "deliver")
    assert delivered == {(n, a.message_id): 1 for a in m.actions for n in range(5) if set(a.topics) & set(m.topics[n])}
    for node, trace in enumerate(traces):
        check_trace(trace, node, zero_ns)


def check_trace(trace: list[TraceEvent], node: int, zero_ns: int) -> None:
    """Every line follows ``peer.trace``, and the timeline was kept."""
    assert (trace[0].event, trace[-1].event, trace[-1].records) == ("start", "stop", len(trace) - 1)
    assert {event.event for event in trace} <= EVENTS.keys()
    assert {event.node for event in trace} == {node}
    published = [event.ts_ns for event in trace if event.event == "publish"]
    assert published
    assert all(zero_ns <= at < zero_ns + STOP_S * 1e9 for at in published)
    assert min(event.ts_ns for event in trace[1:]) >= zero_ns - WARMUP_S * 1e9
    assert trace[-1].ts_ns >= zero_ns + (STOP_S + DRAIN_S) * 1e9
    up, sent = {}, defaultdict(int)
    for event in trace:
        if event.event == "add_peer":
            up[event.conn] = event.direction
        if event.event == "send":
            assert event.off == sent[event.conn]
            sent[event.conn] += event.len_bytes
    assert len(up) == 4


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_S) as page:
        return page.read().decode()


def page_of_metrics(port: int) -> str | None:
    """None while the process that will listen has not come that far."""
    try:
        return scrape(port)
    except urllib.error.URLError as error:
        if not isinstance(error.reason, ConnectionRefusedError):
            raise
        return None


def test_a_peer_killed_by_hand_shows_and_the_others_go_on(machine):
    m = machine()
    m.await_ready()
    m.start(0.1)
    until(lambda: "trellis_links 4.0" in scrape(m.metrics[1]))
    victim = m.call("status")["peers"]["2"]["pid"]
    os.kill(victim, signal.SIGKILL)
    until(lambda: m.call("status")["counts"] == {"ready": 4, "signalled": 1})
    assert m.wait() == 1
    exits = m.exits()
    assert (exits["peer-2"]["state"], exits["peer-2"]["status"]) == ("signalled", signal.SIGKILL)
    assert {exits[f"peer-{n}"]["status"] for n in (0, 1, 3, 4)} == {0}
    assert m.trace(0)[-1].event == "stop"
    removed = [e for n in (0, 1, 3, 4) for e in m.trace(n) if e.event == "remove_peer" and e.peer == 2]
    assert len(removed) == 4


CRASHES = encode_schedule([
    Crash(0, 1),
    Join(200_000_000, 1, (0, 2)),
    Publish(2_200_000_000, 1, message_id(1, 0), (0,), 100),
    Crash(2_500_000_000, 1),
    Publish(2_600_000_000, 0, message_id(0, 0), (0,), 100),
    Join(2_700_000_000, 1, (0,)),
    Publish(4_700_000_000, 0, message_id(0, 1), (0,), 100),
]).decode()  # fmt: skip
"""On a busy machine a new process has its links late: two seconds after it joins."""

STOPS_LATE = {"stop_ns": 5_000_000_000}


def process_below(machine: Machine, node: int, other: int | None = None) -> int:
    """The present process of a node that crashes, once it is another one than ``other``."""
    parent = machine.call("status")["peers"][str(node)]["pid"]
    return until(lambda: next((pid for pid in descendants(parent) if is_alive(pid) and pid != other), None))


def test_a_node_that_crashes_is_killed_and_started_again_as_another_process(machine):
    m = machine(3, documents={"schedule.jsonl": CRASHES}, record=True, **STOPS_LATE)
    m.await_ready()
    first = process_below(m, 1)
    m.start()
    second = process_below(m, 1, first)
    assert not is_alive(first)
    third = process_below(m, 1, second)
    assert not is_alive(second)
    assert m.wait() == 0
    assert not is_alive(third)
    assert {(e["state"], e["status"]) for e in m.exits().values()} == {("exited", 0)}
    trace = m.trace(1)
    assert (trace[0].event, trace[-1].event, trace[-1].records) == ("start", "stop", len(trace) - 1)
    story = [(event.event, event.topics) for event in trace if event.event in ("join", "leave", "publish", "deliver")]
    assert story == [
        ("leave", (1, 3)),
        ("join", (0, 2)),
        ("publish", (0,)),
        ("deliver", (0,)),
        ("leave", (0, 2)),
        ("join", (0,)),
        ("deliver", (0,)),
    ]
    ends = [(event.peer, event.reason) for event in trace if event.event == "remove_peer"]
    assert sorted(ends[:4]) == [(0, "crashed")] * 2 + [(2, "crashed")] * 2
    seen = [event.reason for event in m.trace(0) if event.event == "remove_peer" and event.peer == 1]
    assert set(seen[:2]) <= {"closed", "ConnectionResetError"}
    assert [event.message_id for event in m.trace(2) if event.event == "deliver"] == [message_id(1, 0)] + [
        message_id(0, k) for k in range(2)
    ]
    played = replay(m.folder / record_file(1), m.overlay.nodes[1])
    assert (played.instances, played.difference) == (3, None)


def test_another_end_of_a_node_that_crashes_is_told(machine):
    m = machine(2, documents={"schedule.jsonl": CRASHES}, **STOPS_LATE)
    m.await_ready()
    m.start()
    os.kill(process_below(m, 1), signal.SIGKILL)
    assert m.wait() == 1
    assert (m.exits()["peer-1"]["state"], m.exits()["peer-1"]["status"]) == ("exited", 128 + signal.SIGKILL)


@pytest.mark.parametrize("ending", long_unless({"lifeline"}, ["stop", "lifeline"]))
def test_a_node_that_crashes_ends_in_order_when_it_is_down(machine, ending: str):
    m = machine(2, documents={"schedule.jsonl": encode_schedule([Crash(0, 1)]).decode()}, stop_ns=int(LIMIT_S * 1e9))
    m.await_ready()
    first = process_below(m, 1)
    m.start()
    second = process_below(m, 1, first)
    until(lambda: page_of_metrics(m.metrics[1]))
    if ending == "stop":
        m.call("stop")
    else:
        m.process.stdin.close()
    assert m.wait() == (0 if ending == "stop" else 1)
    assert not is_alive(second)
    assert {(e["state"], e["status"]) for e in m.exits().values()} == {("exited", 0)}
    assert m.trace(1)[-1].event == "stop"


@pytest.mark.parametrize("ending", long_unless({"stop"}, ["lifeline", "stop"]))
def test_a_paused_peer_goes_on_and_ends_in_order(machine, ending: str):
    m = machine(2, stop_ns=int(LIMIT_S * 1e9))
    pids = [peer["pid"] for peer in m.await_ready()["peers"].values()]
    m.start()
    until(lambda: "trellis_links 1.0" in scrape(m.metrics[1]))
    os.kill(pids[1], signal.SIGSTOP)
    until(lambda: "T" in status_of(pids[1])["State"])
    if ending == "stop":
        m.call("stop")
    else:
        m.process.stdin.close()
    assert m.wait() == (0 if ending == "stop" else 1)
    assert {(e["state"], e["status"]) for e in m.exits().values()} == {("exited", 0)}


@pytest.mark.parametrize("ending", ["lifeline", "stop", "terminate", "lease"])
def test_whatever_ends_the_agent_early_ends_the_peers_in_order(machine, ending: str):
    m = machine(lease_s=2.5 if ending == "lease" else 60.0)
    pids = [peer["pid"] for peer in m.await_ready()["peers"].values()]
    m.start(0.1)
    until(lambda: "trellis_links 4.0" in scrape(m.metrics[1]))
    match ending:
        case "lifeline":
            m.process.stdin.close()
        case "stop":
            m.call("stop")
        case "terminate":
            m.process.terminate()
    assert m.wait() == (0 if ending == "stop" else 1)
    assert not any(map(is_alive, pids))
    assert {(e["state"], e["status"]) for e in m.exits().values()} == {("exited", 0)}
    traces = [m.trace(node) for node in range(5)]
    assert all(trace[-1].event == "stop" for trace in traces)
    assert frame_set(traces, "send") == frame_set(traces, "receive")


def test_the_lease_counts_from_the_start(machine):
    """Between an agent's start and that of its peers the network is probed, for as long as it takes."""
    m = machine(lease_s=0.5)
    m.await_ready()
    time.sleep(1.0)
    assert m.process.poll() is None
    m.start(0.1)
    assert m.wait() == 1


def test_a_low_soft_limit_of_open_files_is_raised_for_agent_and_peers(machine):
    """The agent keeps two descriptors per peer. What is started inherits the limit, which is not the hard one."""
    m = machine(20, under=("prlimit", "--nofile=32:"), command=("sleep", "60"))
    pids = [peer["pid"] for peer in m.await_ready()["peers"].values()]
    assert {resource.prlimit(pid, resource.RLIMIT_NOFILE)[0] for pid in pids} == {needed_files(20)}


def test_a_killed_agent_takes_its_peers_along(machine):
    m = machine()
    pids = [peer["pid"] for peer in m.await_ready()["peers"].values()]
    m.process.kill()
    m.wait()
    until(lambda: not any(map(is_alive, pids)))


def test_a_peer_that_cannot_listen_ends_the_agent_with_its_words(machine):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = PeerPlace(0, taken.getsockname(), None)
        m = machine(1, peers=(place,))
        assert m.wait() == 1
        words = m.process.stderr.read().decode()
    assert "peer-0 exited (1) before the start" in words
    assert "Address already in use" in words


def test_an_agent_without_a_lifeline_does_not_run(machine):
    m = machine(1)
    m.await_ready()
    m.call("stop")
    m.wait()
    command = [sys.executable, "-m", "peer.runtime.agent", str(m.folder)]
    told = subprocess.run(
        command, cwd=CHECKOUT, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False
    )
    assert told.returncode == 1
    assert b"lifeline" in told.stderr


def test_the_barrier_is_lifted_once_and_a_late_order_says_how_late_it_came(machine):
    m = machine(2)
    m.await_ready()
    zero_ns = time.time_ns() + int(WARMUP_S * 1e9)
    late = m.call("start", str(zero_ns - 300_000_000))
    assert -300_000_000 - LIMIT_S * 1e9 < late["lead_ns"] < -300_000_000
    assert m.call("start", "1") == {"error": "started already"}
    assert "no such call" in m.call("dance")["error"]


def test_the_client_prints_json_and_says_when_nobody_answers(machine, tmp_path: Path):
    m = machine(1)
    m.await_ready()
    client = [sys.executable, "-m", "peer.runtime.agent", str(m.folder), "--call"]
    told = subprocess.run([*client, "status"], cwd=CHECKOUT, capture_output=True, check=True)
    assert json.loads(told.stdout)["ready"] is True
    client[3] = str(tmp_path / "nothing")
    told = subprocess.run([*client, "status"], cwd=CHECKOUT, capture_output=True, check=False)
    assert (told.returncode, told.stdout) == (1, b"")
    assert b"no agent answers" in told.stderr


@pytest.mark.parametrize(("expected", "script", "state"), [
    ("exited", "sleep 0.3", ("exited", 0)),
    ("exited", "exit 7", ("exited", 7)),
    ("running", "exec sleep 60", ("running", None)),
    ("exited", "trap 'exit 0' TERM; while :; do sleep 0.02; done", ("exited", 0)),
])  # fmt: skip
def test_another_program_runs_as_given_and_its_end_is_told(machine, expected: str, script: str, state: tuple):
    note = "echo {node} {spec} {trace} '{x}' > {spec}.args; "
    m = machine(2, command=("sh", "-c", note + script), expected_final_state=expected)
    m.await_ready()
    assert not m.folder.joinpath("spec").exists()
    zero_ns = m.start()
    assert m.wait() == (1 if state[1] == 7 else 0)
    assert {(e["state"], e["status"]) for e in m.exits().values()} == {state}
    for node in range(2):
        spec = m.folder / f"spec/{node}.json"
        trace = m.folder / f"trace/{node}.jsonl"
        assert m.folder.joinpath(f"spec/{node}.json.args").read_text() == f"{node} {spec} {trace} {{x}}\n"
        document = json.loads(spec.read_text())
        assert (document["zero_ns"], document["node"]["topics"]) == (zero_ns, list(m.topics[node]))
        own = [action for action in m.actions if action.node == node]
        assert document["actions"] == [json.loads(line) for line in encode_schedule(own).splitlines()]


LEAVES_BEHIND = """
(trap '' TERM; sleep 61 & sh -c 'sleep 62 & wait' & setsid sh -c 'sleep 63 & sleep 64' & (setsid sleep 65 &) ; wait) &
sh -c 'exit 0' &
{end}
"""
"""Children that ignore SIGTERM, in the program's process group and in sessions of their own, and an orphan."""


@pytest.mark.parametrize(
    ("end", "expected", "ending"),
    [
        ("sleep 1; exit 0", "exited", "plan"),
        ("wait", "exited", "lifeline"),
        ("exec sleep 66", "running", "plan"),
        pytest.param("sleep 1; exit 0", "exited", "lifeline", marks=pytest.mark.long),
        pytest.param("wait", "exited", "plan", marks=pytest.mark.long),
        pytest.param("exec sleep 66", "running", "lifeline", marks=pytest.mark.long),
    ],
)
def test_nothing_that_a_program_has_started_outlives_the_agent(machine, end: str, expected: str, ending: str):
    m = machine(1, command=("sh", "-c", LEAVES_BEHIND.replace("{end}", end)), expected_final_state=expected)
    m.await_ready()
    m.start(0.1)
    until(lambda: len(sleepers(m.process.pid)) >= 5)
    started = sleepers(m.process.pid)
    if ending == "lifeline":
        m.process.stdin.close()
    m.wait()
    assert [process for process in started if is_alive(process)] == []


def sleepers(agent: int) -> list[int]:
    """Those below the agent that sleep for 61 to 66 seconds."""
    names = {f"sleep\0{seconds}\0".encode() for seconds in range(61, 67)}
    found = []
    for process in descendants(agent):
        with suppress(OSError):  # it has ended meanwhile
            if Path(f"/proc/{process}/cmdline").read_bytes() in names:
                found.append(process)
    return found


def test_a_word_to_end_reaches_what_a_wrapping_shell_has_started(machine):
    script = "sh -c 'trap \"exit 0\" TERM; echo up >&2; while :; do sleep 0.02; done'; exit 3"
    m = machine(1, command=("sh", "-c", f"trap : TERM; {script}"))
    m.await_ready()
    m.start(0.1)
    until(lambda: m.folder.joinpath("logs/0.log").read_text() == "up\n")
    m.call("stop")
    m.wait()
    status = m.exits()["peer-0"]["status"]
    assert status == 3, "not killed after a grace period: the word reached the inner shell"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("agent.json", "{"),
        ("agent.json", "{}"),
        ("overlay.json", '{"run": 1, "protocol": "complete", "nodes": []}'),
        ("overlay.json", '{"run": "one"}'),
        ("schedule.jsonl", '{"at_ns": 1}'),
        ("schedule.jsonl", '{"at_ns": 1, "node": 0, "action": "dance"}'),
        ("schedule.jsonl", '{"at_ns": 1, "node": 0, "action": "join", "topics": []}'),
        ("schedule.jsonl", '{"at_ns": 1, "node": 0, "action": "vanish"}'),  # its host is not its own
    ],
)
def test_malformed_documents_are_refused_before_anything_starts(machine, name: str, content: str):
    m = machine(1, documents={name: content})
    assert m.wait() == 2
    words = m.process.stderr.read().decode()
    assert name in words
    assert len(words.splitlines()) == 1
    assert not m.folder.joinpath("trace").exists()


@pytest.mark.root
def test_each_peer_lives_in_its_namespace(machine):
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "ip link set lo up; echo; exec sleep 60"], stdout=subprocess.PIPE
    )
    try:
        holder.stdout.readline()
        netns = f"/proc/{holder.pid}/ns/net"
        place = PeerPlace(0, ("127.0.0.1", 9000), ("127.0.0.1", 9100), netns)
        m = machine(1, peers=(place,))
        pid = m.await_ready()["peers"]["0"]["pid"]
        theirs, inside, ours = (Path(path).readlink() for path in (f"/proc/{pid}/ns/net", netns, "/proc/self/ns/net"))
        assert theirs == inside != ours
    finally:
        holder.kill()
        holder.wait()


@pytest.mark.root
@pytest.mark.parametrize(
    "under", [(), ("unshare", "--user", "--map-current-user", "--keep-caps")], ids=["root", "user"]
)
@pytest.mark.parametrize("command", [None, ("sleep", "60")], ids=["python", "command"])
def test_a_peer_has_no_privilege_and_cannot_gain_any(machine, under: tuple[str, ...], command: tuple[str, ...] | None):
    """Neither with the agent's user as root, nor where a user namespace's capabilities are ambient ones."""
    m = machine(1, under=under, command=command)
    pid = m.await_ready()["peers"]["0"]["pid"]
    assert status_of(m.process.pid)["CapEff"] != NO_CAPABILITY
    m.start(0.0)
    until(lambda: command is None or Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
    status = status_of(pid)
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {NO_CAPABILITY}
    assert status["NoNewPrivs"] == "1"
    m.process.kill()
    m.wait()
    until(lambda: not is_alive(pid))


NO_CAPABILITY = "0" * 16


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, value in (line.split(":", 1) for line in lines)}
