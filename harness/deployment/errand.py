"""A run of a sandboxed testbed on another machine: Trellis and the plan go there, the run's files come back."""

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from harness.deployment.answers import StepError
from harness.deployment.fleet import Deployment, make_token
from harness.deployment.package import STAGE_DEPENDENCIES, pack_folder, pack_trellis
from harness.deployment.session import MachineSession
from harness.experiment.inventory import Machine
from harness.progress import step
from harness.terminal import printable
from peer.files import LOGS_FOLDER

RUN = "run"
"""The run directory in the run's folder on the machine."""

SOURCE = "trellis"
"""The folder with the shipped packages, likewise."""

STAGE = "harness.commands.stage"
"""The module that performs the running stage there."""

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*")

MOST_FILES = 100_000

_LIST = """
import json, os, sys
found = [os.path.join(at, name) for at, _, names in os.walk(sys.argv[1]) for name in names]
print(json.dumps([os.path.relpath(path, sys.argv[1]) for path in found]))
"""


def run_there(machine: Machine, run_dir: Path, show: Callable[[str], None]) -> int:
    """Perform a planned run on a machine, and fetch what it has written.

    Nothing is left there, however this ends: the machine removes the run's folder and ends its processes when the
    connection ends.

    Args:
        machine: has Python with Trellis' dependencies, and what ``trellis doctor`` asks for.
        run_dir: has the plan; gets the files.
        show: is called with each line that the running stage prints.

    Returns:
        The exit status of the running stage.

    Raises:
        DeploymentError: a step failed there, or the connection was lost.
    """
    try:
        with Deployment([machine], make_token(), run_dir / LOGS_FOLDER, held=True) as deployment:
            with step(f"ship to {machine.name}"):
                deployment.connect()
                deployment.check_versions(STAGE_DEPENDENCIES)
                deployment.each("ship Trellis", lambda session: _ship(session, run_dir))
            [status] = deployment.each("run", lambda session: _perform(session, show)).values()
            with step(f"fetch from {machine.name}"):
                deployment.each("fetch the run", lambda session: fetch_run(session, run_dir))
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(f"the run on {machine.name} has been ended")
        raise
    return status


def _ship(session: MachineSession, run_dir: Path) -> None:
    session.make_folder(held=True)
    for folder, archive in ((SOURCE, pack_trellis()), (RUN, pack_folder(run_dir))):
        path = shlex.quote(str(session.work / folder))
        session.run(f"umask 077 && mkdir {path} && tar --no-same-owner -xzf - -C {path}", given=archive)


def _perform(session: MachineSession, show: Callable[[str], None]) -> int:
    """Run the stage, and pass on what it prints; return its exit status."""
    script = session.start_module(STAGE, str(session.work / RUN), path=session.work / SOURCE)
    for line in script.lines():
        show(printable(line))
    status = script.wait()
    if status < 0 and session.is_connected:
        raise StepError("the running stage was killed")
    if status < 0:
        raise StepError("the connection was lost; the machine ends the run and removes its folder by itself")
    return status


def fetch_run(session: MachineSession, run_dir: Path) -> None:
    """Fetch the files that this side does not have.

    Raises:
        StepError: the machine has a file with a name that no run has.
    """
    listed = msgspec.json.decode(session.run_python(_LIST, str(session.work / RUN)), type=list[str])
    strange = [name for name in listed if not _PLAIN.fullmatch(name)]
    if strange or len(listed) > MOST_FILES:
        raise StepError(f"the run has {len(listed):,} files, and {strange[:1]} among them")
    wanted = {f"{RUN}/{name}": name for name in listed if not (run_dir / name).exists()}
    session.fetch(wanted, run_dir, shutil.disk_usage(run_dir).free // 2)
