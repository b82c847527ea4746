"""``trellis new protocol NAME FOLDER``: make a package for a protocol of your own."""

import argparse
import shlex
from collections.abc import Iterator
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=["protocol"], help="what to make")
    parser.add_argument("name", metavar="NAME", help="the name of the protocol, such as push-gossip")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a folder that does not exist or is empty")


def run(arguments: argparse.Namespace) -> int:
    """Write the package, and print its files and the next commands.

    Raises:
        ExperimentError: the name cannot be used, or the folder has files.
    """
    from harness.scaffold import make_protocol

    for file in make_protocol(arguments.name, arguments.folder):
        print(arguments.folder / file)
    print("\nnext steps:", *_next_steps(arguments.folder), sep="\n  ")
    print("README.md compares it with another protocol; docs/protocol-contract.md of Trellis says how to write a part")
    return 0


def _next_steps(folder: Path) -> Iterator[str]:
    """Yield commands to copy, which name the launcher and the Python of this Trellis."""
    from harness.doctor.collisions import CHECKOUT
    from harness.interpreter import PYTHON
    from harness.scaffold import STUDY_FILE
    from metrics.rundir.files import EXPERIMENT_FILE

    launcher = CHECKOUT / "trellis"
    trellis = shlex.quote(str(launcher)) if launcher.is_file() else "trellis"
    yield f"cd {shlex.quote(str(folder))}"
    yield f"{shlex.quote(PYTHON)} -m pytest"
    yield f"{trellis} run {EXPERIMENT_FILE}"
    yield f"{trellis} sweep {STUDY_FILE}"
