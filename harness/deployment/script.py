"""A program on a machine that answers in lines, and ends with its standard input."""

import contextlib
from collections.abc import Iterator

import paramiko  # type: ignore[import-untyped]

from harness.deployment.answers import StepError, words_on

COMMAND_S = 60.0
"""How long a machine may take to answer."""

LINE_BYTES = 1 << 12
"""The longest line that is read as an answer."""


class Script:
    """The program. Its standard input is its lifeline: at its end, and so with the connection, the program ends."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel
        self._answers = channel.makefile("rb")

    @property
    def has_ended(self) -> bool:
        return bool(self._channel.exit_status_ready())

    def read_line(self, timeout_s: float = COMMAND_S, most_bytes: int = LINE_BYTES) -> bytes:
        """Return the next line that the program prints.

        Raises:
            StepError: there is none; the message is what the program said on standard error.
            TimeoutError: it did not come in time.
        """
        self._channel.settimeout(timeout_s)
        line: bytes = self._answers.readline(most_bytes)
        if not line.endswith(b"\n"):
            raise StepError("an answer is too long" if line else words_on(self._channel))
        return line

    def lines(self) -> Iterator[str]:
        """Yield what the program prints, line by line as it comes, until its end or that of the connection."""
        self._channel.settimeout(None)
        while line := self._answers.readline(LINE_BYTES):
            yield line.decode(errors="replace").rstrip("\n")

    def wait(self) -> int:
        """Wait for the end of the program and return its exit status; below 0 = killed, or the connection was lost."""
        return int(self._channel.recv_exit_status())

    def tell(self, line: bytes) -> None:
        """Write a line to the program's standard input."""
        self._channel.settimeout(COMMAND_S)
        self._channel.sendall(line + b"\n")

    def end_input(self) -> None:
        """End the program's standard input. It may still answer."""
        with contextlib.suppress(OSError):  # it has ended, or the connection has
            self._channel.shutdown_write()

    def close(self) -> None:
        self._channel.close()
