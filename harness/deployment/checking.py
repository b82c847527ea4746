"""Checks all that a run needs of machines, before there is a run: files in both directions, disk, and ports.

``Deployment.connect`` and ``check_versions`` come before: they check the login, the login shell, and Python.
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from harness.deployment.answers import StepError
from harness.deployment.script import Script
from harness.deployment.session import MachineSession

if TYPE_CHECKING:
    from harness.deployment.fleet import Deployment

Endpoint = tuple[str, int]

TRIAL = "trace/0.jsonl"
TRIAL_BYTES = 1 << 16

LEAST_FREE_MIB = 256.0
"""Free space below which a machine is refused: traces of a small run and the peer package fit into it."""

REACH_S = 5.0

_FACTS = """
import json, os, pwd, shutil, sys
account = pwd.getpwuid(os.getuid())
free_mib = shutil.disk_usage(sys.argv[1]).free / 2**20
print(json.dumps({"user": account.pw_name, "login_shell": account.pw_shell, "free_mib": round(free_mib, 1)}))
"""

_LISTEN = """
import socket, sys
held = []
for place in sys.argv[1:]:
    address, _, port = place.rpartition(":")
    try:
        kind = socket.getaddrinfo(address, int(port), type=socket.SOCK_STREAM)[0][0]
        held.append(socket.create_server((address, int(port)), family=kind))
    except OSError as error:
        sys.exit(f"cannot listen on {place}: {error.strerror or error}")
print("ready", flush=True)
sys.stdin.read()
"""

_REACH = f"""
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def reach(place):
    address, _, port = place.rpartition(":")
    try: socket.create_connection((address, int(port)), {REACH_S:g}).close()
    except OSError as error: return error.strerror or str(error)
with ThreadPoolExecutor(32) as pool: print(json.dumps(list(pool.map(reach, sys.argv[1:]))))
"""


class Facts(msgspec.Struct, frozen=True):
    """Of a machine: the user's name and login shell, and the free space of the work folder's disk."""

    user: str
    login_shell: str
    free_mib: float


def check_files(deployment: Deployment) -> dict[str, Facts]:
    """Write a file into every machine's ``trial_folders`` and fetch it again, as a run does.

    Raises:
        DeploymentError: the work folder cannot be used, a file differs, tar is missing, or the disk is nearly full.
    """
    return deployment.each("check files", _check_files)


def check_ports(deployment: Deployment, endpoints: Mapping[str, Collection[Endpoint]]) -> None:
    """Listen on the peers' endpoints on every machine, and connect to them from every other one.

    Args:
        deployment: the machines.
        endpoints: machine -> the endpoints of its peers.

    Raises:
        DeploymentError: a port is in use, an address is not the machine's, or another machine does not reach it.
    """
    places = {name: [f"{address}:{port}" for address, port in each] for name, each in endpoints.items()}

    def reach_others(session: MachineSession) -> None:
        others = [(name, place) for name, each in places.items() if name != session.machine.name for place in each]
        answer = session.run_python(_REACH, *(place for _, place in others))
        reasons = msgspec.json.decode(answer, type=list[str | None])
        failed = [f"{name} at {place} ({why})" for (name, place), why in zip(others, reasons, strict=True) if why]
        if failed:
            raise StepError(f"does not reach {', '.join(failed)}")

    with contextlib.ExitStack() as stack:
        scripts = deployment.each("listen on the peers' ports", lambda each: _listen(each, places[each.machine.name]))
        for script in scripts.values():
            stack.callback(script.close)
        deployment.each("reach the peers' ports", reach_others)


def _check_files(session: MachineSession) -> Facts:
    base = session.work.parent
    facts = msgspec.json.decode(session.run_python(_FACTS, str(base)), type=Facts)
    if facts.free_mib < LEAST_FREE_MIB:
        raise StepError(f"{base} has only {facts.free_mib:g} MiB of free space; {LEAST_FREE_MIB:g} MiB are needed")
    if "GNU tar" not in (said := session.run("tar --version")):
        raise StepError(f"its tar is not GNU tar: {said.strip() or 'no output'}")
    content = secrets.token_bytes(TRIAL_BYTES)
    with tempfile.TemporaryDirectory() as here:
        session.on_site("make", session.work / PurePosixPath(TRIAL).parent)
        session.put(session.work / TRIAL, content)
        session.fetch({TRIAL: "trial"}, Path(here), 4 * TRIAL_BYTES)
        fetched = Path(here, "trial")
        if not fetched.exists() or fetched.read_bytes() != content:
            raise StepError("a file that was written there did not come back as it was")
    return facts


@contextlib.contextmanager
def trial_folders(deployment: Deployment) -> Iterator[None]:
    """Make a folder on every machine for the time of the block, as a run does.

    Raises:
        DeploymentError: the work folder cannot be used.
    """
    deployment.each("make a folder", lambda session: session.make_folder(held=True))
    try:
        yield
    finally:
        deployment.each("remove the folder", MachineSession.remove_folder)


def _listen(session: MachineSession, places: Collection[str]) -> Script:
    """Start a process that listens on the places until it is closed, and wait until it does."""
    script = Script(session.open_channel(session.python_command("-c", _LISTEN, *places)))
    try:
        script.read_line()
    except BaseException:
        script.close()
        raise
    return script
