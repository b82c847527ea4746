"""Programs of gossipsub-interop and the processes that start them, on loopback: their traces, and their faults."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.deployment.identities import find_peer_id
from peer.core import contract
from peer.core.directory import Directory
from peer.core.schedule import Publish, encode_schedule
from peer.instances.spec import AgentSpec, NodeSpec, OverlayDocument, PeerPlace
from peer.runtime.children import descendants
from peer.runtime.clock import UNDILATED, epoch_offset_ns
from peer.runtime.line_programs import Setting
from peer.runtime.piped_program import ProgramError
from peer.runtime.scripted import Part, Scripted
from peer.runtime.tracefile import TraceFile
from tests.event_loop import run
from tests.integration.test_agent import Machine, machine

__all__ = ["machine"]

IDS = (find_peer_id(0), find_peer_id(1))
OFFSET_NS = epoch_offset_ns()


def make_script(publisher: int) -> list[dict[str, Any]]:
    """The warm-up of ``Machine`` lasts 1 s, and its peers stop after 2 s."""
    publish = {"type": "publish", "messageID": 77, "messageSizeBytes": 64, "topicID": "0"}
    return [
        {"type": "initGossipSub", "gossipSubParams": {}},
        {"type": "subscribeToTopic", "topicID": "0", "partial": False},
        {"type": "waitUntil", "elapsedSeconds": 1},
        {"type": "ifNodeIDEquals", "nodeID": publisher, "instruction": publish},
        {"type": "waitUntil", "elapsedSeconds": 3},
    ]


PRELUDE = f"""
import json, os, sys, time
from datetime import datetime, timezone
began_s = time.monotonic()
node, ids = int(os.environ["TRELLIS_NODE"]), {IDS!r}
script = json.load(open(sys.argv[sys.argv.index("--params") + 1]))["script"]
def tell(msg, **values):
    now = datetime.now(timezone.utc).isoformat(timespec="microseconds")
    print(json.dumps({{"time": now, "msg": msg, **values}}), flush=True)
def wait(elapsed_s):
    time.sleep(max(0, began_s + elapsed_s - time.monotonic()))
def introduce():
    tell("PeerID", id=ids[node], node_id=str(node))
"""
OBEY = """
introduce()
print("not JSON", flush=True)
tell("Sent Message", id="77")
wait(1.5)
if node == 0:
    tell("Received Message", id="77", topic="0", **{"from": ids[1]})
tell("Received Message", id="77")
wait(script[-1]["elapsedSeconds"])
"""


def scripted(machine: Any, text: str, nodes: int = 2) -> Machine:
    """Start such programs, the last of which publishes a message."""
    publisher = nodes - 1
    documents = {
        "params.json": json.dumps({"script": make_script(publisher)}),
        "schedule.jsonl": encode_schedule([Publish(0, publisher, publisher << 32 | 5, (0,), 64)]).decode(),
    }
    m: Machine = machine(
        nodes,
        documents=documents,
        command=(sys.executable, "-c", PRELUDE + text),
        events="gossipsub-interop",
        says=("duplicate",),
        peer_ids=IDS[:nodes],
    )
    m.await_ready()
    return m


def test_the_lines_of_programs_become_traces(machine: Any) -> None:
    m = scripted(machine, OBEY)
    zero_ns = m.start()
    assert m.wait() == 0
    assert {(exit["state"], exit["status"], exit["detail"]) for exit in m.exits().values()} == {("exited", 0, "")}
    message = 1 << 32 | 5
    told = [[(event.event, event.message_id, event.peer) for event in m.trace(node)[1:-1]] for node in (0, 1)]
    assert told[0] == [("deliver", message, 1), ("duplicate", message, None)]
    assert sorted(told[1]) == [("duplicate", message, None), ("publish", message, None)]
    (published,) = (event for event in m.trace(1) if event.event == "publish")
    assert (published.topics, published.len_bytes) == ((0,), 64)
    assert published.ts_ns >= zero_ns
    lines = (m.folder / "output/0.ndjson").read_text().splitlines()
    assert [line if line == "not JSON" else json.loads(line)["msg"] for line in lines] == [
        "PeerID",
        "not JSON",
        "Sent Message",
        "Received Message",
        "Received Message",
    ]
    delivered = m.trace(0)[1]
    assert delivered.ts_ns - published.ts_ns > 100_000_000


FAULTS = {
    "another node": ('tell("PeerID", id=ids[0], node_id=3)', "printed that it is node 3 with the peer ID 12D3"),
    "another key": ('tell("PeerID", id=ids[0] + "x", node_id=0)', "expected node 0 with 12D3"),
    "unknown": ('tell("Received Message", id="78")', "received message 78, which its script does not have"),
    "malformed": ('tell("Received Message", id="x")', "expected a number in 'id'"),
    "of another time": (
        'print(json.dumps({"time": "1999-12-31T16:08:12.4-08:00", "msg": "Received Message", "id": "77"}), flush=True)',
        "not between its start and now on this machine",
    ),
    "endless": ('print("x" * 5_000_000, flush=True)', "a line has at most 4,194,304 bytes"),
    "refused": ("introduce(); sys.exit(2)", "exited with status 2"),
    "ends early": ("introduce(); sys.exit(0)", "after its start, but its script has 3 s"),
    "anonymous": ("wait(3)", "printed no line with the msg PeerID"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_program_is_the_reason_of_its_peers_end(machine: Any, fault: str) -> None:
    text, reason = FAULTS[fault]
    m = scripted(machine, f"{text}\nwait(60 if {fault != 'anonymous'} else 0)", nodes=1)
    m.start()
    assert m.wait() == 1
    assert reason in m.exits()["peer-0"]["detail"]
    assert reason in (m.folder / "logs/0.log").read_text()


def test_a_script_that_does_not_fit_is_refused_before_the_start(tmp_path: Path) -> None:
    documents = {"params.json": json.dumps({"script": make_script(0)[:-2]})}
    m = Machine(tmp_path, 1, documents, command=("true",), events="gossipsub-interop", peer_ids=IDS[:1])
    _, said = m.process.communicate(timeout=300)
    assert m.process.returncode == 2
    assert b"params.json: its publications are not those of the schedule" in said


def slot(folder: Path, text: str, failed: Any, last_s: float = 30.0, trace: TraceFile | None = None) -> Scripted:
    """The slot of node 0, without an agent."""
    (folder / "output").mkdir()
    (folder / "params.json").write_text(json.dumps({"script": make_script(0)}))
    place = PeerPlace(0, ("127.0.0.1", 9000), None)
    program = {"command": (sys.executable, "-c", PRELUDE + text), "events": "gossipsub-interop", "says": ("duplicate",)}
    agent = AgentSpec("m", 1, (place,), (place.listen,), 0, 0, 0, 0, 9.0, peer_ids=IDS[:1], **program)
    overlay = OverlayDocument(1, "random", (NodeSpec(0, 1, (0,), {}, {}),))
    trace = trace or TraceFile(folder / "trace.jsonl", 0, (0,), 0)
    setting = Setting(0, agent, overlay, {5: (0,)}, UNDILATED, folder.absolute() / "tmp")
    return Scripted(setting, Part((0,), {77: 5}, {5: 0}), folder, trace, failed, last_s)


def test_a_publication_has_its_instant_after_the_start_of_its_own_program(tmp_path: Path) -> None:
    """The schedule has the instant for programs that start with the warm-up; the lag is how much later this one did."""
    failed: list[ProgramError] = []
    around_ns = []
    trace = TraceFile(tmp_path / "own.jsonl", 0, (0,), 0)

    async def publish() -> None:
        made = slot(tmp_path, "introduce(); wait(60)", failed.append, trace=trace)
        await made.listen()
        around_ns.append(UNDILATED.now_ns())
        await made.begin(Directory([]))
        around_ns.append(UNDILATED.now_ns())
        await asyncio.sleep(0.01)
        made.feed(contract.Publish((0,), 5, bytes(64)))
        await made.close()

    run(publish)
    trace.close(0)
    assert failed == []
    _, published, _ = map(json.loads, (tmp_path / "own.jsonl").read_text().splitlines())
    assert published["event"] == "publish"
    assert around_ns[0] <= published["ts_ns"] <= around_ns[1]


def test_a_program_that_does_not_exit_is_killed(tmp_path: Path) -> None:
    failed: list[ProgramError] = []

    async def wait() -> None:
        made = slot(tmp_path, "introduce(); wait(60)", failed.append, last_s=0.3)
        await made.listen()
        await made.begin(Directory([]))
        await made.await_end()
        await made.close()

    run(wait)
    assert [str(error) for error in failed] == ["did not exit within 0.3 s after the end of its script"]


def test_a_clock_that_was_set_makes_its_times_meaningless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[ProgramError] = []

    async def wait() -> None:
        made = slot(tmp_path, "introduce()", failed.append)
        offsets = iter([OFFSET_NS, OFFSET_NS + 2_000_000])
        monkeypatch.setattr("peer.runtime.scripted.epoch_offset_ns", lambda: next(offsets))
        await made.listen()
        await made.begin(Directory([]))
        await made.await_end()
        await made.close()

    run(wait)
    assert [str(error) for error in failed] == ["printed times of a clock that was set by +0.002 s during the run"]


def test_a_peer_that_is_stopped_kills_its_program_without_a_fault(tmp_path: Path) -> None:
    failed: list[ProgramError] = []

    async def wait() -> None:
        made = slot(tmp_path, "introduce(); wait(60)", failed.append)
        before = descendants(os.getpid()).keys()
        await made.listen()
        await made.begin(Directory([]))
        (program,) = descendants(os.getpid()).keys() - before
        await made.close()
        assert not Path(f"/proc/{program}").exists()

    run(wait)
    assert failed == []
