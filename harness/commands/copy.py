"""``trellis copy RUN TARGET``: copy a run to an object store or from one."""

import argparse

from metrics.storage import place


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=place, metavar="RUN", help="directory of a run, or its URI (s3://bucket/run)")
    parser.add_argument("target", type=place, metavar="TARGET", help="where to copy it: a new directory or a URI")


def run(arguments: argparse.Namespace) -> int:
    """Copy the run with its results and print how many files it has."""
    from metrics.copying import copy_run

    count = copy_run(arguments.run, arguments.target)
    print(f"{arguments.target}: {count:,} files")
    return 0
