"""The steps of a deployment as Fabric tasks: ``fab -r playbooks --list``, ``fab -r playbooks check --inventory FILE``.

Each task calls ``harness.deployment``, which works on all machines of the inventory at the same time; Fabric's own
``-H`` is not used. ``trellis run`` starts a run, and its connections keep the agents alive. These tasks inspect
machines before a run, and a run in progress from another terminal.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from fabric import task
from invoke.context import Context
from invoke.exceptions import Exit

from harness.deployment.agents import nodes_by_machine
from harness.deployment.checking import check_files, check_ports, trial_folders
from harness.deployment.fleet import Deployment, make_token
from harness.deployment.package import build_package
from harness.errors import ExperimentError, TrellisError
from harness.experiment.inventory import Machine, load_inventory
from harness.planning import read_plan
from harness.testbeds.registry import find_lack
from harness.testbeds.remote.rehearsal import rehearse
from harness.testbeds.remote.testbed import RemoteTestbed
from metrics.rundir import Record, RunDirError, read_document
from metrics.rundir.files import DEPLOYMENT_FILE


@task(help={"inventory": "the machines (TOML)"})
def check(context: Context, inventory: str) -> None:
    """Check all that a run needs of every machine: login, shell, Python, files, disk, ports, captures."""
    with _connected_to_inventory(Path(inventory)) as deployment:
        known = load_inventory(Path(inventory))
        versions = deployment.check_versions()
        with trial_folders(deployment):
            facts = check_files(deployment)
            check_ports(deployment, known.endpoints())
            obstacle = rehearse(deployment, known)
        found = {name: msgspec.to_builtins(each) for name, each in versions.items()}
        machines = {name: {**found[name], **msgspec.to_builtins(each)} for name, each in facts.items()}
        _show(machines | {"captures": obstacle or "every machine captures"})


@task(help={"inventory": "the machines (TOML)"})
def ship(context: Context, inventory: str) -> None:
    """Ship the peer package of this checkout to every machine."""
    with _connected_to_inventory(Path(inventory)) as deployment:
        package = build_package()
        sent = deployment.ship(package)
        _show({name: f"{'sent' if new else 'had'} {package.sha256[:16]}" for name, new in sent.items()})


@task(help={"inventory": "the machines (TOML)"})
def clocks(context: Context, inventory: str) -> None:
    """Estimate the offset of every machine's clocks from ours."""
    with _connected_to_inventory(Path(inventory)) as deployment:
        _show(deployment.read_clocks())


@task(help={"run": "the directory of a remote run in progress"})
def status(context: Context, run: str) -> None:
    """Show the status of every agent of a run in progress."""
    with _connected_to_run(Path(run)) as deployment:
        _show(deployment.status())


@task(help={"run": "the directory of a remote run in progress"})
def stop(context: Context, run: str) -> None:
    """Tell every agent of a run in progress to end its peers now."""
    with _connected_to_run(Path(run)) as deployment:
        deployment.stop()


@task(help={"run": "the directory of a remote run in progress", "into": "a folder for the files that exist so far"})
def collect(context: Context, run: str, into: str) -> None:
    """Copy the traces and logs that a run in progress has written so far."""
    with _connected_to_run(Path(run)) as deployment:
        deployment.fetch(Path(into), nodes_by_machine(_remote_testbed(Path(run)).sites()))


@task(help={"inventory": "the machines (TOML)"})
def clean(context: Context, inventory: str) -> None:
    """Remove the folders and end the processes that runs have left on the machines, an hour after they ended."""
    with _connected_to_inventory(Path(inventory)) as deployment:
        _show(deployment.clean())


@contextmanager
def _connected_to_inventory(path: Path) -> Iterator[Deployment]:
    with _one_line_errors(), _connected(load_inventory(path).machines, make_token()) as deployment:
        yield deployment


@contextmanager
def _connected_to_run(run_dir: Path) -> Iterator[Deployment]:
    with _one_line_errors():
        machines = _remote_testbed(run_dir).machines()
        record = read_document(run_dir / DEPLOYMENT_FILE, msgspec.json.Decoder(Record).decode)
        with _connected(machines, record.folder) as deployment:
            deployment.ship()  # where the agent's commands are; the run has shipped the same package
            yield deployment


def _remote_testbed(run_dir: Path) -> RemoteTestbed:
    """Where a run is. Not a ``Run``, which sets space aside in its directory."""
    plan = read_plan(run_dir).plan
    if find_lack(plan.experiment.testbed, "inventory") is not None:
        raise ExperimentError(str(run_dir), f"not a remote run: its testbed is {plan.experiment.testbed}")
    return RemoteTestbed(plan, run_dir)


@contextmanager
def _connected(machines: Sequence[Machine], token: str) -> Iterator[Deployment]:
    with tempfile.TemporaryDirectory() as logs, Deployment(machines, token, Path(logs)) as deployment:
        deployment.connect()
        yield deployment


@contextmanager
def _one_line_errors() -> Iterator[None]:
    try:
        yield
    except (TrellisError, RunDirError) as error:
        raise Exit(str(error), code=error.exit_code) from None


def _show(results: object) -> None:
    print(json.dumps(msgspec.to_builtins(results), indent=1))
