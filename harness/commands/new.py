"""``trellis new protocol NAME FOLDER``: make a package for a protocol of your own."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=["protocol"], help="what to make")
    parser.add_argument("name", metavar="NAME", help="the name of the protocol, such as push-gossip")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a folder that does not exist or is empty")


def run(arguments: argparse.Namespace) -> int:
    """Write the package, and print its files and the next command.

    Raises:
        ExperimentError: the name cannot be used, or the folder has files.
    """
    from harness.scaffold import make_protocol
    from metrics.rundir.files import EXPERIMENT_FILE

    for file in make_protocol(arguments.name, arguments.folder):
        print(arguments.folder / file)
    print(f"try: trellis run {arguments.folder / EXPERIMENT_FILE}")
    return 0
