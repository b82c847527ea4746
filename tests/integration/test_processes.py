"""The processes of programs that know nothing of Trellis: real ones, in this process's loop and below an agent."""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peer.core.directory import Directory
from peer.instances.spec import AgentSpec, PeerPlace, ProcessSpec
from peer.runtime.clock import UNDILATED
from peer.runtime.foreign_processes import Processes
from peer.runtime.piped_program import ProgramError
from tests.event_loop import run
from tests.integration.test_agent import machine

__all__ = ["machine"]

FOREVER = ("sleep", "1000")
SOON_NS = 50_000_000
NEVER_NS = 10**15


def script(name: str, text: str, **changes: Any) -> ProcessSpec:
    return ProcessSpec(0, name, ("sh", "-c", text), **changes)


class Host:
    """The host ``lone``, with processes whose node starts them now."""

    def __init__(self, folder: Path, *processes: ProcessSpec) -> None:
        address = ("127.0.0.1", 9000)
        agent = AgentSpec(
            "m", 1, (PeerPlace(0, address, None),), (address,), 0, 0, 0, 0, 9.0,
            command=("sh",), events="none", processes=processes, names=("lone",),
        )  # fmt: skip
        self.folder = folder / "hosts/lone"
        self.processes = Processes(0, agent, folder, UNDILATED, time.monotonic_ns)
        self.fault = ""

    def live(self, until: Callable[[list[str]], bool]) -> dict[str, dict[str, Any]]:
        """Run the processes until their states are as wanted, stop them, and return how each ended."""
        run(lambda: self._live(until))
        return {line["process"]: line for line in map(json.loads, self.read("processes.jsonl").splitlines())}

    async def _live(self, until: Callable[[list[str]], bool]) -> None:
        await self.processes.listen()
        await self.processes.begin(Directory())
        while not until(self.processes.states):
            await asyncio.sleep(0.01)
        self.processes.quiesce()
        try:
            await self.processes.close()
        except ProgramError as error:
            self.fault = str(error)

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()


def none_left(states: list[str]) -> bool:
    return not {"running", "not started"} & set(states)


def test_a_process_has_its_words_its_variables_its_folder_and_its_files(tmp_path: Path) -> None:
    text = 'echo "$0 $WORD"; pwd; echo oops >&2; cat'
    host = Host(tmp_path, ProcessSpec(0, "sh.1000", ("sh", "-c", text, "zero"), ("WORD=a=b c",)))
    ends = host.live(none_left)
    assert host.fault == ""
    assert host.read("sh.1000.stdout") == f"zero a=b c\n{host.folder}\n"
    assert host.read("sh.1000.stderr") == "oops\n"
    end = ends["sh.1000"]
    assert (end["found"], end["expected"]) == ("exited 0", "exited 0")
    assert end["started_ns"] <= end["ended_ns"]


def test_the_signal_of_the_plan_ends_a_process(tmp_path: Path) -> None:
    asked = {"shutdown_ns": SOON_NS, "expected": "signalled SIGINT", "shutdown_signal": "SIGINT"}
    host = Host(
        tmp_path,
        ProcessSpec(0, "sleep.1000", FOREVER, **asked),
        script("sh.1001", "exit 0", shutdown_ns=NEVER_NS),
    )
    ends = host.live(none_left)
    assert host.fault == ""
    assert [end["found"] for end in ends.values()] == ["signalled SIGINT", "exited 0"]


def test_what_runs_at_the_stop_counts_as_running_and_is_killed(tmp_path: Path) -> None:
    host = Host(tmp_path, ProcessSpec(0, "sleep.1000", FOREVER, expected="running"))
    ends = host.live(lambda states: states == ["running"])
    assert host.fault == ""
    assert (ends["sleep.1000"]["found"], ends["sleep.1000"]["ended_ns"]) == ("running", None)


def test_a_process_that_has_left_its_group_is_killed(tmp_path: Path) -> None:
    text = "import os, time; os.setpgid(0, os.getpgid(os.getppid())); print('left', flush=True); time.sleep(1000)"
    host = Host(tmp_path, ProcessSpec(0, "p", (sys.executable, "-c", text), expected="running"))
    host.live(lambda states: states == ["running"] and host.read("p.stdout") == "left\n")
    assert host.fault == ""


WRONG = {
    "another status": (script("p", "exit 3"), "p was to be 'exited 0', but was 'exited 3'"),
    "a signal": (script("p", "kill -9 $$"), "p was to be 'exited 0', but was 'signalled SIGKILL'"),
    "an end": (script("p", "exit 0", expected="running"), "p was to be 'running', but was 'exited 0'"),
    "another signal": (
        script("p", "kill -15 $$", expected="signalled SIGINT"),
        "p was to be 'signalled SIGINT', but was 'signalled SIGTERM'",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_another_state_than_expected_is_a_fault(tmp_path: Path, case: str) -> None:
    process, problem = WRONG[case]
    host = Host(tmp_path, process, script("q", "exit 0"))
    host.live(none_left)
    assert host.fault == problem


def test_a_process_that_should_have_ended_is_a_fault(tmp_path: Path) -> None:
    host = Host(tmp_path, ProcessSpec(0, "p", FOREVER), ProcessSpec(0, "q", FOREVER))
    host.live(lambda states: states == ["running"] * 2)
    assert host.fault == "p was to be 'exited 0', but was 'running'; and 1 more"


def test_a_program_that_is_not_there_is_a_fault_with_its_reason(tmp_path: Path) -> None:
    host = Host(tmp_path, ProcessSpec(0, "p", ("/nothing/here",), expected="running"), script("q", "exit 0"))
    host.live(lambda states: states[1] == "exited 0")
    assert "p was to be 'running', but was 'not started'" in host.fault
    assert "No such file or directory" in host.fault


def test_the_agent_reports_the_fault_of_a_host(machine) -> None:
    """On loopback, where hosts have no names of their own."""
    processes = (
        ProcessSpec(0, "sleep.1000", (sys.executable, "-c", "import time; time.sleep(1000)"), expected="running"),
        ProcessSpec(1, "true.1000", ("true",), start_ns=NEVER_NS),
    )
    m = machine(2, command=("sleep",), events="none", processes=processes)
    m.await_ready()
    m.start()
    assert m.wait() == 1
    exits = m.exits()
    assert (exits["peer-0"]["state"], exits["peer-0"]["status"], exits["peer-0"]["detail"]) == ("exited", 0, "")
    assert exits["peer-1"]["status"] == 1
    assert exits["peer-1"]["detail"] == "the program true.1000 was to be 'exited 0', but was 'not started'"
    [line] = m.folder.joinpath("hosts/node0/processes.jsonl").read_text().splitlines()
    assert json.loads(line)["found"] == "running"
    assert [event.event for event in m.trace(0)] == ["start", "stop"]
