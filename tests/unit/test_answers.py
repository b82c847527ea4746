"""What a machine that is not trusted may say: bounded in time and bytes, and without control characters."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.deployment import answers, session
from harness.deployment.answers import StepError, log_agent, read_answer, words_on
from harness.deployment.clock import read_clock_offset
from harness.deployment.fleet import words_of
from harness.deployment.session import CommandError, MachineSession
from harness.errors import DeploymentError
from harness.experiment.inventory import Machine
from harness.terminal import printable


class FakeChannel:
    """A channel on which the test is the machine: ``far`` is its standard output."""

    def __init__(self, output: bytes = b"", status: int | None = 0, words: bytes = b"") -> None:
        self._near, self.far = socket.socketpair()
        self._words = words
        self.status_event = threading.Event()
        self._status = status
        if status is not None:
            self.status_event.set()
            threading.Thread(target=self._say, args=(output,), daemon=True).start()

    def _say(self, output: bytes) -> None:
        try:
            self.far.sendall(output)
        except OSError:
            return  # nobody listens any more
        self.far.shutdown(socket.SHUT_WR)

    def settimeout(self, timeout_s: float) -> None:
        self._near.settimeout(timeout_s)

    def recv(self, count: int) -> bytes:
        return self._near.recv(count)

    def recv_stderr(self, count: int) -> bytes:
        piece, self._words = self._words[:count], self._words[count:]
        return piece

    def recv_exit_status(self) -> int:
        assert self._status is not None, "this would wait for ever"
        return self._status

    def makefile(self, mode: str) -> Any:
        return self._near.makefile(mode)

    def sendall(self, data: bytes) -> None:
        self._near.sendall(data)

    def shutdown_write(self) -> None:
        self._near.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._near.close()
        self.far.close()


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "COMMAND_S", 0.2)
    monkeypatch.setattr("harness.deployment.clock.COMMAND_S", 0.2)
    monkeypatch.setattr(answers, "WORDS_S", 0.2)


@pytest.fixture
def silent() -> Iterator[FakeChannel]:
    channel = FakeChannel(status=None)
    yield channel
    channel.close()


def machine_that_answers(channel: FakeChannel) -> MachineSession:
    machine = Machine("m", "192.0.2.1", key="/none", known_hosts="/none", work="/tmp/work")
    found = MachineSession(machine, "r")
    found.base = Path("/tmp/work")  # type: ignore[assignment]
    found.open_channel = lambda *_, **__: channel  # type: ignore[method-assign,assignment]
    return found


@pytest.mark.timeout(20)
def test_a_machine_that_sends_nothing_is_given_up(silent: FakeChannel, tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        machine_that_answers(silent).fetch({"exits.jsonl": "exits-m.jsonl"}, tmp_path, 10_000)
    assert words_of(TimeoutError()) == "no answer in time"


@pytest.mark.timeout(20)
def test_a_clock_that_does_not_answer_is_given_up(silent: FakeChannel) -> None:
    with pytest.raises(TimeoutError):
        read_clock_offset(machine_that_answers(silent))


@pytest.mark.timeout(20)
def test_a_command_that_trickles_is_given_up(silent: FakeChannel) -> None:
    stop = threading.Event()

    def trickle() -> None:
        while not stop.wait(0.05):
            silent.far.send(b".")

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        with pytest.raises(StepError, match="the output did not end within 1 s"):
            read_answer(silent, 1.0)
    finally:
        stop.set()
        thread.join()


@pytest.mark.timeout(20)
def test_a_command_whose_status_never_comes_is_given_up(silent: FakeChannel) -> None:
    silent.far.shutdown(socket.SHUT_WR)
    with pytest.raises(StepError, match=r"did not end within 0\.2 s"):
        read_answer(silent, 0.2)


@pytest.mark.parametrize("extra", [0, 1])
def test_an_answer_has_a_limit(extra: int) -> None:
    channel = FakeChannel(b" " * (answers.ANSWER_BYTES + extra))
    if extra:
        with pytest.raises(StepError, match="longer than 4 MiB"):
            machine_that_answers(channel).run("true", 20)
    else:
        assert len(machine_that_answers(channel).run("true", 20)) == answers.ANSWER_BYTES


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(CommandError, match="exit status 3: no such luck"):
        machine_that_answers(FakeChannel(b"out", 3, b"no such luck\n")).run("false", 20)
    with pytest.raises(CommandError, match="exit status 3: out"):
        machine_that_answers(FakeChannel(b"out", 3)).run("false", 20)
    assert len(words_on(FakeChannel(words=b"x" * 10**6))) == answers.WORDS_BYTES


def test_the_log_of_an_agent_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LOG_BYTES", 1 << 20)
    log_agent(FakeChannel(b"x" * ((1 << 20) + 77)), tmp_path / "long.log")
    log_agent(FakeChannel(b"y" * (1 << 20)), tmp_path / "short.log")
    kept, end = (tmp_path / "long.log").read_text().split("\n", 1)
    assert kept == "x" * (1 << 20)
    assert end == "[77 bytes beyond 1 MiB were discarded]\n"
    assert (tmp_path / "short.log").read_text() == "y" * (1 << 20)


def test_control_characters_of_a_machine_reach_no_terminal() -> None:
    words = "a\x1b]0;title\x07b\x9b31m\r\u202ec\nd é"
    shown = "a\ufffd]0;title\ufffdb\ufffd31m\ufffd\ufffdc\nd é"
    assert printable(words) == shown
    error = DeploymentError("ship", {"m": words})
    assert str(error) == f"ship failed on m: {shown}"
    assert error.results_by_machine == {"m": shown}
