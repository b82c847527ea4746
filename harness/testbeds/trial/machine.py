"""The first process of a machine to try on: it brings up the network and starts an sshd for every connection.

    python -m harness.testbeds.trial.machine ADDRESSES DESCRIPTOR LOG -- SSHD...

ADDRESSES are separated by commas. DESCRIPTOR is a listening socket of the experimenter's network, so SSH needs no way
into the machine's own. The machine ends with its standard input.
"""

import argparse
import os
import select
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.testbeds.emulated.sshd import PRIVILEGE_SEPARATION

DEVICE = "eth0"
"""The device that the fleet gives to the machine."""

REAP_S = 0.5
"""Pause between two looks for ended processes, of which the first process of a PID namespace inherits many."""


def bring_up(addresses: Sequence[str]) -> None:
    """Give the device its addresses.

    Raises:
        subprocess.CalledProcessError: the kernel refused.
    """
    given = (f"address add {address} dev {DEVICE}" for address in addresses)
    for command in (*given, f"link set {DEVICE} up", "link set lo up"):
        subprocess.run(["ip", *command.split()], check=True)


def serve(listener: socket.socket, command: Sequence[str], log: Path) -> None:
    """Start the command for each connection, which is its standard input and output, until our standard input ends."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(0, select.POLLIN)
    while 0 not in (ready := dict(poll.poll(REAP_S * 1e3))):
        if ready:
            _start(listener, command, log)
        _reap()


def _start(listener: socket.socket, command: Sequence[str], log: Path) -> None:
    connection, _ = listener.accept()
    with connection, log.open("ab") as errors:
        pairs = ((connection.fileno(), 0), (connection.fileno(), 1), (errors.fileno(), 2))
        actions = [(os.POSIX_SPAWN_DUP2, given, wanted) for given, wanted in pairs]
        os.posix_spawn(command[0], list(command), os.environ, file_actions=actions, setsid=True)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return  # there is none


def main() -> None:
    """Say that the namespaces exist, wait for the network device, and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("addresses", type=lambda text: text.split(","))
    parser.add_argument("descriptor", type=int)
    parser.add_argument("log", type=Path)
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    os.set_inheritable(given.descriptor, False)
    PRIVILEGE_SEPARATION.mkdir(mode=0o755)
    print(flush=True)
    if sys.stdin.readline():
        bring_up(given.addresses)
        print(flush=True)
        serve(socket.socket(fileno=given.descriptor), given.command, given.log)


if __name__ == "__main__":
    main()
