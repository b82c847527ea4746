"""The common sandbox of the machines to try on: it has the bridge that joins them, and no way out.

    python -m harness.testbeds.trial.fleet FOLDER ANSWER DESCRIPTOR...

Each DESCRIPTOR is the listening socket of one machine. When all machines serve, their endpoints are written to the
descriptor ANSWER as JSON. The sandbox ends with its standard input.
"""

import argparse
import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec

from harness.errors import TestbedError, TrellisError
from harness.experiment.inventory import Machine
from harness.interpreter import python_command
from harness.machine import sandbox
from harness.testbeds.emulated import enclosure
from harness.testbeds.emulated.sshd import prepare_server, server_command
from harness.testbeds.trial import machine as inside

BRIDGE = "lan"
WORK = "/tmp/trellis"
NAMES = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu")


def address_of(number: int) -> str:
    """Return the address of a machine on the bridge."""
    return f"10.77.0.{number + 1}"


def start_machine(number: int, descriptor: int, folder: Path) -> tuple[Machine, subprocess.Popen[bytes]]:
    """Make one machine's keys and namespaces, join it to the bridge, and wait until it serves.

    Returns:
        Its endpoint, and the process that holds its namespaces.

    Raises:
        TestbedError: it did not start; it has said why on standard error.
    """
    listener = socket.socket(fileno=os.dup(descriptor))
    with listener:
        host, port = listener.getsockname()
    home = folder / NAMES[number]
    endpoint = prepare_server(home, host, port, NAMES[number])
    words = [f"{address_of(number)}/24", str(descriptor), str(home / "sshd.log"), "--", *server_command(home), "-i"]
    view = [str(home), f"--writable={home}", "--", *python_command("-m", inside.__name__, *words)]
    answers, output = os.pipe()
    with open(output, "wb") as said:  # noqa: PTH123 - a descriptor
        process = sandbox.enter(
            python_command("-m", enclosure.__name__, *view), keep=[home], output=said, descriptors=[descriptor]
        )
    assert process.stdin is not None
    with open(answers, "rb") as answer:  # noqa: PTH123 - a descriptor
        _await(answer.readline(), number)
        [first] = sandbox.first_processes(process)
        for command in (
            f"link add m{number} type veth peer name {inside.DEVICE} netns {first}",
            f"link set m{number} master {BRIDGE} up",
        ):
            subprocess.run(["ip", *command.split()], check=True)
        process.stdin.write(b"\n")
        process.stdin.flush()
        _await(answer.readline(), number)
    return msgspec.structs.replace(endpoint, address=address_of(number), work=WORK), process


def _await(line: bytes, number: int) -> None:
    if line.strip():
        raise TestbedError(f"start machine {NAMES[number]}", line.decode(errors="replace").strip())
    if not line:
        raise TestbedError(f"start machine {NAMES[number]}", "it ended")


def main() -> int:
    """Make the machines, say where they are, and wait for the end of standard input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("answer", type=int)
    parser.add_argument("descriptors", type=int, nargs="+")
    given = parser.parse_args()
    try:
        for command in (f"link add {BRIDGE} type bridge", f"link set {BRIDGE} up"):
            subprocess.run(["ip", *command.split()], check=True)
        started = [start_machine(number, each, given.folder) for number, each in enumerate(given.descriptors)]
    except TrellisError as error:
        print(f"trellis machines: {error}", file=sys.stderr)
        return error.exit_code
    for descriptor in given.descriptors:
        os.close(descriptor)
    with open(given.answer, "wb") as answer:  # noqa: PTH123 - a descriptor
        answer.write(msgspec.json.encode([endpoint for endpoint, _ in started]) + b"\n")
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
