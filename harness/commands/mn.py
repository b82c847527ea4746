"""``trellis mn``: open Mininet's command line on the network of an experiment or of a Mininet topology."""

import argparse
import os
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec

from harness.experiment.loader import load_experiment
from harness.interpreter import python_command
from harness.machine import sandbox
from harness.planning import make_plan, write_plan
from topologies.importers import TopoReference


def add_arguments(parser: argparse.ArgumentParser) -> None:
    help_text = "an experiment (TOML), or a Mininet topology: [FILE.py:]TOPO[,ARGUMENT...]"
    parser.add_argument("file", metavar="FILE", help=help_text)
    parser.add_argument("--seed", type=int, help="override the file's seed")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of the file")


def run(arguments: argparse.Namespace) -> int:
    """Plan the experiment, and open the command line in a sandbox without a route out. No peer starts.

    Raises:
        ExperimentError: the experiment or the topology is invalid.
    """
    with tempfile.TemporaryDirectory(prefix="trellis-mn-") as folder:
        run_dir = Path(folder) / "run"
        is_experiment = arguments.file.endswith(".toml")
        file = Path(arguments.file) if is_experiment else _write_experiment(Path(folder), arguments.file)
        overrides = [*arguments.set, "testbed=emulated"]
        write_plan(make_plan(load_experiment(file, overrides, arguments.seed), file, overrides), run_dir)
        return _open(run_dir)


def _write_experiment(folder: Path, topo: str) -> Path:
    """Write an experiment on a Mininet topology, and return its file."""
    reference = TopoReference.parse(topo)
    if reference.file is not None:
        topo = f"{Path(reference.file).resolve()}:{reference.call}"
    path = folder / "topology.toml"
    quoted = msgspec.json.encode(topo).decode()
    text = f'name = "topology"\nprotocol = "complete"\nunderlay = {{ kind = "mininet", topo = {quoted} }}\n'
    path.write_text(text, encoding="utf-8")
    return path


def _open(run_dir: Path) -> int:
    """Open the command line; Ctrl-C reaches the command that runs in it."""
    terminal = os.dup(0)
    try:
        argv = python_command("-m", "harness.stages.console", str(run_dir), str(terminal))
        process = sandbox.enter(argv, keep=[run_dir], descriptors=[terminal])
        try:
            while True:
                try:
                    return process.wait()
                except KeyboardInterrupt:
                    for inside in sandbox.first_processes(process):
                        with suppress(ProcessLookupError):
                            os.kill(inside, signal.SIGINT)
        finally:
            sandbox.end(process)
    finally:
        os.close(terminal)
