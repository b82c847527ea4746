"""The common sandbox of the machines to try on: it has the bridge that joins them, and no way out.

    python -m harness.testbeds.trial.fleet FOLDER HOSTS ANSWER DESCRIPTOR...

HOSTS is the number of peers per machine. Each DESCRIPTOR is the listening socket of one machine. When all machines
serve, their endpoints are written to the descriptor ANSWER as JSON. The sandbox ends with its standard input.
"""

import argparse
import os
import socket
import subprocess
import sys
from collections.abc import Iterable
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


def addresses_of(number: int, hosts: int) -> tuple[str, ...]:
    """Return the addresses of a machine's peers on the bridge."""
    return tuple(f"10.77.{number}.{host + 1}" for host in range(hosts))


def start_machine(number: int, descriptor: int, folder: Path, hosts: int) -> tuple[Machine, subprocess.Popen[bytes]]:
    """Make one machine's keys and namespaces, join it to the bridge, and wait until it serves.

    Returns:
        Its endpoint, and the process that holds its namespaces.

    Raises:
        TestbedError: it did not start; it has said why on standard error.
    """
    with socket.socket(fileno=os.dup(descriptor)) as listener:
        host, port = listener.getsockname()
    home, addresses = folder / NAMES[number], addresses_of(number, hosts)
    endpoint = prepare_server(home, host, port, NAMES[number])
    answers, output = os.pipe()
    with open(output, "wb") as said:  # noqa: PTH123 - a descriptor
        command = _command(home, addresses, descriptor)
        process = sandbox.enter(command, keep=[home], output=said, descriptors=[descriptor])
    assert process.stdin is not None
    with open(answers, "rb") as answer:  # noqa: PTH123 - a descriptor
        _await(answer.readline(), number)
        _join(number, process)
        process.stdin.write(b"\n")
        process.stdin.flush()
        _await(answer.readline(), number)
    return msgspec.structs.replace(endpoint, addresses=addresses, work=WORK), process


def _command(home: Path, addresses: Iterable[str], descriptor: int) -> list[str]:
    """Return the command of a machine's first process, in its view of the file system."""
    devices = ",".join(f"{each}/16" for each in addresses)
    words = [devices, str(descriptor), str(home / "sshd.log"), "--", *server_command(home), "-i"]
    view = [str(home), f"--writable={home}", "--", *python_command("-m", inside.__name__, *words)]
    return python_command("-m", enclosure.__name__, *view)


def _join(number: int, process: subprocess.Popen[bytes]) -> None:
    """Join a machine to the bridge."""
    [first] = sandbox.first_processes(process)
    link = f"link add m{number} type veth peer name {inside.DEVICE} netns {first}"
    for command in (link, f"link set m{number} master {BRIDGE} up"):
        subprocess.run(["ip", *command.split()], check=True)


def _await(line: bytes, number: int) -> None:
    if line.strip():
        raise TestbedError(f"start machine {NAMES[number]}", line.decode(errors="replace").strip())
    if not line:
        raise TestbedError(f"start machine {NAMES[number]}", "it ended")


def main() -> int:
    """Make the machines, say where they are, and wait for the end of standard input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("hosts", type=int)
    parser.add_argument("answer", type=int)
    parser.add_argument("descriptors", type=int, nargs="+")
    given = parser.parse_args()
    try:
        for command in (f"link add {BRIDGE} type bridge", f"link set {BRIDGE} up"):
            subprocess.run(["ip", *command.split()], check=True)
        started = [
            start_machine(number, each, given.folder, given.hosts) for number, each in enumerate(given.descriptors)
        ]
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
