"""Opens machines to try on, from the experimenter's side, and closes them without a trace."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.errors import TestbedError, describe_status
from harness.experiment.inventory import Inventory, Machine
from harness.interpreter import python_command
from harness.machine import sandbox
from harness.testbeds.trial import fleet

MOST_MACHINES = len(fleet.NAMES)

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Trial:
    """The open machines."""

    inventory: Inventory
    sandbox: subprocess.Popen[bytes]

    def wait(self, timeout_s: float | None) -> None:
        """Wait until the time has passed; None = until an interrupt.

        Raises:
            TestbedError: the machines ended earlier.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self.sandbox.wait(timeout_s)
            raise TestbedError("keep the machines", f"their sandbox {describe_status(status)}")


@contextlib.contextmanager
def opened(count: int, hosts: int) -> Iterator[Trial]:
    """Make machines, and at the end of the context end them and remove their folder.

    The machines reach each other and nothing else. SSH reaches them at ports of this computer's loopback.

    Args:
        count: the number of machines, at most ``MOST_MACHINES``.
        hosts: the peers that each of them carries.

    Raises:
        TestbedError: they could not be made.
    """
    folder = Path(tempfile.mkdtemp(prefix="trellis-machines-"))
    listeners = [socket.create_server((LOOPBACK, 0)) for _ in range(count)]
    answers, said = os.pipe()
    descriptors = [listener.fileno() for listener in listeners]
    words = [str(folder), str(hosts), str(said), *map(str, descriptors)]
    try:
        process = sandbox.enter(
            python_command("-m", fleet.__name__, *words), keep=[folder], descriptors=[said, *descriptors]
        )
        os.close(said)
        for listener in listeners:
            listener.close()
        try:
            yield Trial(_read_inventory(answers), process)
        finally:
            sandbox.end(process)
    finally:
        shutil.rmtree(folder)


def _read_inventory(answers: int) -> Inventory:
    with open(answers, "rb") as answer:
        said = answer.readline()  # the end of the pipe is that of the sandbox
    if not said:
        raise TestbedError("make machines", "their sandbox ended early")
    return Inventory(msgspec.json.decode(said, type=tuple[Machine, ...]))
