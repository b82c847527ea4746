"""Reads the output of machines with limits on time and bytes, since a machine may never stop."""

import contextlib
import time
from pathlib import Path

import paramiko  # type: ignore[import-untyped]

ANSWER_BYTES = 4 << 20
"""The longest answer to a command."""

WORDS_BYTES = 1 << 16
"""How much of standard error is read."""

LOG_BYTES = 16 << 20
"""How much of an agent's output is kept."""

GREETING_BYTES = 1 << 16
"""How much a login shell may print before it executes a command."""

WORDS_S = 5.0
CHUNK_BYTES = 1 << 16


class StepError(Exception):
    """A step failed on a machine."""


def read_answer(channel: paramiko.Channel, timeout_s: float) -> bytes:
    """Return the standard output of a channel's command, after its end.

    Raises:
        StepError: it did not end in time, or the output is longer than ``ANSWER_BYTES``.
    """
    deadline_s = time.monotonic() + timeout_s
    answer = bytearray()
    try:
        while piece := _receive(channel, deadline_s):
            answer += piece
            if len(answer) > ANSWER_BYTES:
                raise StepError(f"the output is longer than {ANSWER_BYTES >> 20} MiB")
    except TimeoutError:
        raise StepError(f"the output did not end within {timeout_s:g} s") from None
    if not channel.status_event.wait(max(0.0, deadline_s - time.monotonic())):
        raise StepError(f"the command did not end within {timeout_s:g} s")
    return bytes(answer)


def skip_greeting(channel: paramiko.Channel, marker: str, timeout_s: float) -> None:
    """Read what the user's login shell prints, up to the line with which the command itself begins.

    Raises:
        StepError: the line does not come.
    """
    deadline_s = time.monotonic() + timeout_s
    end, seen = f"\n{marker}\n".encode(), bytearray()
    try:
        while not seen.endswith(end):
            if len(seen) > GREETING_BYTES:
                raise StepError(f"the login shell prints more than {GREETING_BYTES >> 10} KiB before it runs a command")
            piece = _receive(channel, deadline_s, 1)
            if not piece:
                raise StepError(f"the login shell ran no command: {words_on(channel, _text(seen) or 'no output')}")
            seen += piece
    except TimeoutError:
        raise StepError(f"the login shell began no command within {timeout_s:g} s") from None
    channel.settimeout(None)


def _receive(channel: paramiko.Channel, deadline_s: float, most_bytes: int = CHUNK_BYTES) -> bytes:
    channel.settimeout(max(0.001, deadline_s - time.monotonic()))
    piece: bytes = channel.recv(most_bytes)
    return piece


def words_on(channel: paramiko.Channel, otherwise: str = "no output") -> str:
    """Return the standard error of a channel's ended command, at most ``WORDS_BYTES``."""
    words = b""
    if channel.status_event.wait(WORDS_S):
        channel.settimeout(WORDS_S)
        with contextlib.suppress(TimeoutError):
            while len(words) < WORDS_BYTES and (piece := channel.recv_stderr(WORDS_BYTES - len(words))):
                words += piece
    return _text(words) or otherwise


def _text(words: bytes | bytearray) -> str:
    return words.decode(errors="replace").strip()


def log_agent(channel: paramiko.Channel, path: Path) -> None:
    """Write an agent's output to a file until its end. Output beyond ``LOG_BYTES`` is read and discarded."""
    left, discarded = LOG_BYTES, 0
    with path.open("wb", buffering=0) as log:
        while data := channel.recv(CHUNK_BYTES):
            kept = data[:left]
            with contextlib.suppress(OSError):  # a full disk must not block the agent
                log.write(kept)
            left -= len(kept)
            discarded += len(data) - len(kept)
        if discarded:
            with contextlib.suppress(OSError):
                log.write(f"\n[{discarded} bytes beyond {LOG_BYTES >> 20} MiB were discarded]\n".encode())
