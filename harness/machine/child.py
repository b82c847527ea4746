"""A process that runs a module until its standard input ends, and files in memory that it shares with this one."""

import os
import select
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.errors import describe_status, last_line
from harness.interpreter import python_command

END_S = 60.0
"""How long a process may take to answer, and to end."""

_ROOT = Path(__file__).parents[2]


class Child:
    """The process, from its start to its end. Its standard error is a log."""

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Sequence[str],
        log: Path,
        descriptors: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        *,
        answers: bool = False,
    ) -> None:
        """Start it.

        Args:
            name: what messages call it.
            module: what it runs, as ``python -m``.
            arguments: the words that the module gets.
            log: the file for its standard error.
            descriptors: those that it inherits.
            environment: variables that it has besides this process's.
            answers: whether its standard output can be read, instead of being this process's.
        """
        self.name = name
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                python_command("-m", module, *arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if answers else None,
                stderr=errors,
                pass_fds=descriptors,
                cwd=_ROOT,
                env={**os.environ, **(environment or {})},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def last_words(self) -> str:
        """The last line of its log."""
        return last_line(self._log)

    def tell(self, line: bytes) -> None:
        """Write a line to its standard input.

        Raises:
            BrokenPipeError: it has ended.
        """
        assert self._process.stdin
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def read_line(self) -> str:
        """Wait for a line of its standard output; empty = it has ended, or says nothing within ``END_S``."""
        assert self._process.stdout
        came, _, _ = select.select([self._process.stdout], [], [], END_S)
        return self._process.stdout.readline().decode(errors="replace") if came else ""

    def lost(self) -> dict[str, str]:
        """Return its name, how it ended and the last line of its log, if it has ended."""
        status = self._process.poll()
        return {} if status is None else {self.name: self._describe(status)}

    def end(self) -> list[str]:
        """End its standard input and wait for it. Return a sentence if it does not end as expected."""
        assert self._process.stdin
        self._process.stdin.close()
        try:
            status = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            return [f"{self.name} still runs after {END_S:g} s"]
        return [f"{self.name} {self._describe(status)}"] if status else []

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _describe(self, status: int) -> str:
        return f"{describe_status(status)}; {self.last_words}"


def wrap(content: bytes | memoryview) -> int:
    """Write what is too long for a message into a file in memory, and return its descriptor."""
    descriptor = os.memfd_create("attached")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    return descriptor


def unwrap(descriptor: int) -> bytes:
    """Read what ``wrap`` has written, and close the file."""
    with open(descriptor, "rb") as file:
        file.seek(0)
        return file.read()
