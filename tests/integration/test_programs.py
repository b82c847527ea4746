"""Programs that read and write lines as peers: real processes on loopback."""

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from peer.core import contract
from peer.core.schedule import Crash, Join, Leave, Publish, encode_schedule
from peer.instances.spec import AgentSpec, NodeSpec, OverlayDocument, PeerPlace, ProgramSpec
from peer.runtime.children import descendants
from peer.runtime.clock import UNDILATED
from peer.runtime.line_programs import Programs, Setting
from peer.runtime.piped_program import ProgramError
from peer.runtime.tracefile import TraceFile
from peer.trace import CRASHED, JOINED, LEFT
from tests.event_loop import run
from tests.integration.test_agent import CHECKOUT, Machine, free_ports, machine, until

__all__ = ["machine"]

EXAMPLES = CHECKOUT / "playbooks/programs"
FLOOD = (sys.executable, str(EXAMPLES / "flood.py"))
LINES: dict[str, Any] = {"command": FLOOD, "events": "lines", "says": ("duplicate",), "connect": 2}

LISTENS = """
import os, socket, sys, time
def tell(*words):
    print(*words, flush=True)
server = socket.create_server((os.environ["TRELLIS_HOST"], int(os.environ["TRELLIS_PORT"])))
"""


def program(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", LISTENS + text)


def events(m: Machine, node: int, *names: str) -> list[tuple]:
    return [(e.event, e.message_id, e.reason) for e in m.trace(node) if e.event in names]


@pytest.mark.parametrize("language", ["python", "c"])
def test_a_program_delivers_what_the_schedule_publishes(machine, language: str):
    in_c = ("tcc", "-run", str(EXAMPLES / "flood.c"))
    m = machine(3, **LINES | {"command": FLOOD if language == "python" else in_c})
    m.await_ready()
    m.start()
    assert m.wait() == 0
    assert {(e["state"], e["status"], e["detail"]) for e in m.exits().values()} == {("exited", 0, "")}
    for node in range(3):
        published = {a.message_id for a in m.actions if a.node == node}
        due = {a.message_id for a in m.actions if a.node != node and a.topics[0] in m.topics[node]}
        assert {number for _, number, _ in events(m, node, "publish")} == published
        assert {number for _, number, _ in events(m, node, "deliver")} == due
        assert m.trace(node)[-1].event == "stop"
        assert m.folder.joinpath(f"logs/{node}.log").read_text() == ""
    assert (Counter(event.event for event in m.trace(0))["duplicate"] > 0) == (language == "python")


def test_programs_of_a_mix_are_peers_of_one_network(machine):
    """Each is started by its own words, and may report what it says itself."""
    in_c = ProgramSpec(("tcc", "-run", str(EXAMPLES / "flood.c")), ())
    mix = (ProgramSpec(FLOOD, ("duplicate",)), in_c)
    m = machine(3, **LINES | {"says": (), "programs": mix, "assigned": (0, 1, 0)})
    m.await_ready()
    m.start()
    assert m.wait() == 0
    for node in range(3):
        due = {a.message_id for a in m.actions if a.node != node and a.topics[0] in m.topics[node]}
        assert {number for _, number, _ in events(m, node, "deliver")} == due
        assert bool(events(m, node, "duplicate")) == (node != 1)


def test_instances_join_leave_and_crash_with_their_programs(machine):
    changes = [Leave(100_000_000, 1), Crash(200_000_000, 2), Join(500_000_000, 1, (0,)), Join(600_000_000, 2, (0,))]
    last = [Publish(5_000_000_000, 0, 99, (0,), 100)]
    documents = {"schedule.jsonl": encode_schedule([*changes, *last]).decode()}
    m = machine(3, documents=documents, stop_ns=6_000_000_000, **LINES)
    m.await_ready()
    m.start()
    assert m.wait() == 0
    for node, end in ((1, LEFT), (2, CRASHED)):
        assert [(event, reason) for event, _, reason in events(m, node, "join", "leave")] == [
            ("leave", end),
            ("join", JOINED),
        ]
        assert ("deliver", 99, None) in events(m, node, "deliver")


def test_the_agent_waits_until_programs_listen(machine):
    """Their start takes nothing from the warm-up: the barrier counts programs that are ready, not processes."""
    m = machine(1, **LINES | {"command": program("sys.stdin.readline()")})
    until(lambda: len(descendants(m.process.pid)) == 2 and m.status())
    assert m.status()["counts"] == {"created": 1}
    assert m.call("start", str(time.time_ns())) == {"error": "not ready: nodes [0]"}


READY = "tell('ready')\n"
THEN = READY + "for line in sys.stdin:\n if line.startswith('publish'):\n  "
"""What follows is done at the first publication, which is after the start."""

FAULTS = {
    "malformed": ("tell('dance')", "wrote the line 'dance': expected one of ready, publish"),
    "false": ("tell('deliver 77')", "reported message 77, which the schedule does not have"),
    "undeclared": ("tell('link 0')", "reported 'link', but peer.says lacks 'link'"),
    "endless": ("tell('x' * 10_000_000)", "a line has at most 1,024 bytes"),
    "exits": ("sys.exit(3)", "exited with status 3 before it was told to stop"),
    "ends early": ("sys.exit(0)", "exited with status 0 before it was told to stop"),
    "killed": ("os.kill(os.getpid(), 9)", "was killed by SIGKILL before it was told to stop"),
    "fails": ("pass\n if line == 'stop\\n':\n  sys.exit(4)", "exited with status 4 after 'stop'"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_program_is_the_reason_of_its_peers_end(machine, fault: str):
    text, reason = FAULTS[fault]
    m = machine(1, **LINES | {"command": program(THEN + text)})
    m.await_ready()
    m.start(0.1)
    assert m.wait() == 1
    ended = m.exits()["peer-0"]
    assert (ended["state"], ended["status"]) == ("exited", 1)
    assert reason in ended["detail"]
    log = m.folder.joinpath("logs/0.log").read_text().splitlines()
    assert log == [ended["detail"]]


EARLY = {
    "deaf": ("server.close(); tell('ready'); sys.stdin.read()", "reported 'ready', but nothing listens on port"),
    "exits": ("print('no key', file=sys.stderr); sys.exit(2)", "exited with status 2 before it was told to stop"),
    "silent about ready": ("tell('deliver 1'); sys.stdin.read()", "reported 'deliver' before 'ready'"),
}


@pytest.mark.parametrize("fault", EARLY)
def test_a_fault_before_the_start_cuts_the_run_short(machine, fault: str):
    text, reason = EARLY[fault]
    m = machine(2, **LINES | {"command": program(text)})
    assert m.wait() == 1
    assert reason in m.process.stderr.read().decode()
    assert reason in m.exits()["peer-0"]["detail"] + m.exits()["peer-1"]["detail"]


def test_a_program_that_is_not_there(machine):
    m = machine(1, **LINES | {"command": ("/no/such/program",)})
    assert m.wait() == 1
    assert "cannot be started: [Errno 2] No such file or directory: '/no/such/program'" in m.exits()["peer-0"]["detail"]


def test_what_a_program_starts_ends_with_it(machine):
    text = "import subprocess; subprocess.Popen(['sleep', '61']); tell('ready'); [0 for _ in sys.stdin]"
    m = machine(1, **LINES | {"command": program(text)})
    m.await_ready()
    started = descendants(m.process.pid)
    m.process.stdin.close()
    m.wait()
    assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []


# ----------------------------------------------------------------------------------------------- in this process


class Peer:
    """A peer with short deadlines, whose program is a text."""

    def __init__(self, folder: Path, text: str, ready_s: float = 30.0) -> None:
        self.faults: list[str] = []
        [port] = free_ports(1)
        address = ("127.0.0.1", port)
        place = PeerPlace(0, address, None)
        agent = AgentSpec("m", 1, (place,), (address, address), 0, 0, 0, 0, 9.0, command=program(text), events="lines")
        specs = tuple(NodeSpec(node, 1, (0,), {"name": "complete"}, {"name": "flood"}) for node in range(2))
        overlay, self.temporary = OverlayDocument(1, "complete", specs), folder / "tmp"
        setting = Setting(0, agent, overlay, {5: (0,)}, UNDILATED, self.temporary, ready_s=ready_s, end_s=0.3)
        self.trace = TraceFile(folder / "0.jsonl", 0, (0,), 1)
        self.programs = Programs(setting, self.trace, self._fail)

    def _fail(self, error: ProgramError) -> None:
        self.faults.append(str(error))
        self.failed.set()

    def fail(self, orders: int = 0) -> list[str]:
        """Start the program, give it orders and have it end. Returns its faults."""
        run(lambda: self._live(orders))
        return self.faults

    async def _live(self, orders: int) -> None:
        self.failed = asyncio.Event()
        listening = asyncio.create_task(self.programs.listen())
        failing = asyncio.create_task(self.failed.wait())
        await asyncio.wait([listening, failing], return_when=asyncio.FIRST_COMPLETED)
        for _ in range(orders if listening.done() else 0):
            if self.failed.is_set():
                break
            self.programs.feed(contract.Subscribe(0))
        await self.programs.close()
        for task in (listening, failing):
            task.cancel()


def test_silence_has_an_end(tmp_path: Path):
    assert Peer(tmp_path, "time.sleep(60)", ready_s=0.5).fail() == ["did not report 'ready' within 0.5 s"]


LEAVES_ITS_GROUP = "os.setpgid(0, os.getpgid(os.getppid()))\n"


@pytest.mark.parametrize("first", ["", LEAVES_ITS_GROUP])
def test_a_program_that_does_not_stop_is_killed(tmp_path: Path, first: str):
    peer = Peer(tmp_path, first + READY + "while True: time.sleep(60)")
    assert peer.fail() == ["did not end within 0.3 s after 'stop'"]


WRITES = "import tempfile; tempfile.mkdtemp(); told = open(os.environ['TMPDIR'] + '/file', 'w')\n"


STOPS = "for line in sys.stdin:\n if line == 'stop\\n':\n  break"


@pytest.mark.parametrize("end", [STOPS, "while True: time.sleep(60)"])
def test_temporary_files_vanish_with_the_program(tmp_path: Path, end: str):
    """Also when it is killed."""
    peer = Peer(
        tmp_path, WRITES + f"assert os.path.dirname(tempfile.mkdtemp()) == {str(tmp_path / 'tmp/1')!r}\n" + READY + end
    )
    assert peer.fail() in ([], ["did not end within 0.3 s after 'stop'"])
    assert not peer.temporary.exists()


def test_each_instance_has_a_folder_for_temporary_files_and_none_is_left(machine):
    changes = [Crash(100_000_000, 0), Join(500_000_000, 0, (0,))]
    last = [Publish(5_000_000_000, 0, 99, (0,), 100)]
    writes = "folder = os.environ['TMPDIR']; open(folder + '/file', 'w'); print(folder, file=sys.stderr)\n"
    text = writes + THEN + "tell('publish', line.split()[1])\n if line == 'stop\\n':\n  break"
    documents = {"schedule.jsonl": encode_schedule([*changes, *last]).decode()}
    m = machine(1, documents=documents, stop_ns=6_000_000_000, **LINES | {"command": program(text)})
    m.await_ready()
    m.start()
    assert m.wait() == 0
    log = m.folder.joinpath("logs/0.log").read_text().splitlines()
    assert log == [f"{m.folder}/tmp/0/1", f"{m.folder}/tmp/0/2"]
    assert not m.folder.joinpath("tmp").exists()


def test_temporary_files_vanish_when_the_peer_that_drives_the_program_is_killed(machine):
    m = machine(1, **LINES | {"command": program(WRITES + READY + STOPS)})
    m.await_ready()
    assert m.folder.joinpath("tmp/0/1/file").exists()
    os.kill(m.status()["peers"]["0"]["pid"], signal.SIGKILL)
    assert m.wait() == 1
    assert not m.folder.joinpath("tmp").exists()


def test_a_program_that_does_not_read_holds_nobody_up(tmp_path: Path):
    peer = Peer(tmp_path, READY + "while True: time.sleep(60)")
    assert peer.fail(orders=200_000) == ["does not read its standard input"]
