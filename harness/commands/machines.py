"""``trellis machines N``: make machines to try the remote testbed on, until Ctrl-C."""

import argparse
import contextlib
from pathlib import Path

from harness.errors import ExperimentError
from harness.experiment.inventory import inventory_text
from harness.terminal import say
from harness.testbeds.trial.opening import MOST_MACHINES, opened


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("count", type=int, metavar="N", help=f"how many machines, at most {MOST_MACHINES}")
    parser.add_argument("--hosts", type=int, default=4, metavar="H", help="peers per machine, at most 100 (default 4)")
    parser.add_argument("--for", type=float, dest="seconds", metavar="SECONDS", help="end after this time")
    parser.add_argument("--inventory", type=Path, metavar="FILE", help="write the inventory there as well")


def run(arguments: argparse.Namespace) -> int:
    """Print the machines' inventory, and keep them until Ctrl-C or the end of the time.

    The output is an inventory file, in which everything else is a comment.
    """
    if not 1 <= arguments.count <= MOST_MACHINES:
        raise ExperimentError("N", f"expected 1 to {MOST_MACHINES} machines, got {arguments.count}")
    with contextlib.suppress(KeyboardInterrupt), opened(arguments.count, arguments.hosts) as trial:
        text = inventory_text(trial.inventory)
        if arguments.inventory:
            arguments.inventory.write_text(text, encoding="utf-8")
        say(text, "# Ctrl-C ends the machines.")
        trial.wait(arguments.seconds)
    return 0
