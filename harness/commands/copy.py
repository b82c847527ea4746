"""``trellis copy RUN TARGET``: copy a run to an object store or from one."""

import argparse

from harness.errors import TrellisError
from harness.terminal import say
from metrics.storage import StoreError, place


class CopyError(TrellisError):
    """The run cannot be read, or its copy cannot be written."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=place, metavar="RUN", help="directory of a run, or its URI (s3://bucket/run)")
    parser.add_argument("target", type=place, metavar="TARGET", help="where to copy it: a new directory or a URI")


def run(arguments: argparse.Namespace) -> int:
    """Copy the run with its results and print how many files it has.

    Raises:
        CopyError: the disk is full, say. What was copied is no finished run.
    """
    from metrics.copying import copy_run

    try:
        count = copy_run(arguments.run, arguments.target)
    except StoreError:
        raise
    except OSError as error:
        raise CopyError(f"{error.filename or arguments.target}: {error.strerror or error}") from None
    say(f"{arguments.target}: {count:,} files")
    return 0
