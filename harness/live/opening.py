"""Opens the live page of a run: its address, and the process that serves it."""

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from harness.errors import ExperimentError, UsageError
from harness.live.idle import start_idle
from harness.stages.prometheus import LOOPBACK
from harness.stages.serving import Gate
from harness.testbeds.registry import find_lack

END, STAY = "end", "stay"
"""What the server does when the run is over."""

CLOSE_S: Final = 15.0
"""How long the server may take to show the end of the run, and to end. It has to wait for the processor."""

_NEEDED: Final = ("starlette", "uvicorn")


def require_extra(option: str) -> None:
    """Check that what the page's server needs is installed.

    Raises:
        UsageError: it is not; the message says what to install.
    """
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        words = " and ".join(missing)
        raise UsageError(f"{option} needs {words}; try: pip install 'trellis-testbed[live]', in a checkout '.[live]'")


def require_processes(place: str, testbed: str) -> None:
    """Check that a testbed runs in real time, so that there is something to see before the end.

    Args:
        place: what messages call the place of the mistake.
        testbed: its name.

    Raises:
        ExperimentError: it does not.
    """
    if find_lack(testbed, "processes") is not None:
        raise ExperimentError(place, f'testbed = "{testbed}" shows nothing before the end of a run')


class LivePage:
    """A page that is served.

    Attributes:
        address: with the token.
        pid: of the server.
    """

    def __init__(self, address: str, process: subprocess.Popen[bytes]) -> None:
        self.address = address
        self.pid = process.pid
        self._process = process

    def wait(self) -> int:
        """Wait until the server ends, which it does when the run is over unless it stays; return its status."""
        return self._process.wait()


@contextlib.contextmanager
def live_page(run_dir: Path, port: int = 0, *, stays: bool, loads_first: bool = False) -> Iterator[LivePage]:
    """Serve the live page of a run in the context, at idle priority. The page shows the end of the run at its exit.

    Args:
        run_dir: the run.
        port: 0 = a free one.
        stays: whether the server stays when the run is over.
        loads_first: wait until the server has loaded all that it needs, for which it takes the caller's priority: a run
            that has not begun is not disturbed, and a busy one would leave no time for it.

    Raises:
        UsageError: a package is not installed.
        ExperimentError: the port is taken.
    """
    with _listen(port) as listening:
        descriptor, gate = listening.fileno(), Gate()
        words = [str(run_dir), str(descriptor), STAY if stays else END]
        reading, writing = os.pipe()
        process = start_idle(
            "harness.live.server",
            [*words, str(writing)] if loads_first else words,
            stdin=subprocess.PIPE,
            descriptors=[descriptor, writing],
            steps_back=loads_first,
        )
        os.close(writing)
        address = gate.sign(f"http://{LOOPBACK}:{listening.getsockname()[1]}/")
    assert process.stdin is not None
    try:
        with contextlib.suppress(BrokenPipeError):  # it has ended, and has said why
            process.stdin.write(f"{gate.token}\n".encode())
            process.stdin.flush()
        with open(reading, "rb") as loaded:  # noqa: PTH123 - a descriptor
            if loads_first:
                loaded.read()  # to its end: the server has closed it, or has ended
        yield LivePage(address, process)
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(CLOSE_S)
        process.kill()
        process.wait()


def _listen(port: int) -> socket.socket:
    """Return a socket that listens on loopback."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((LOOPBACK, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise ExperimentError(f"--port {port}", error.strerror or str(error)) from None
    return listening
