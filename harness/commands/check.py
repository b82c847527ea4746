"""``trellis check``: is this experiment file right? Reads its data too, starts nothing."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_experiment_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that name an experiment: the file and what overrides it."""
    parser.add_argument("file", type=Path, help="the experiment (TOML)")
    parser.add_argument("--seed", type=int, help="in place of the file's seed")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a field")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what ``check`` takes."""
    add_experiment_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Say in one line what the experiment is.

    Raises:
        ExperimentError: it is wrong, or cannot fit this machine.
    """
    from harness.loading import load_experiment
    from harness.planning import make_plan

    planned = make_plan(load_experiment(arguments.file, arguments.set, arguments.seed), arguments.file)
    kind = planned.plan.experiment.underlay.kind
    messages = len(planned.schedule)
    print(f"{arguments.file}: {planned.plan.name}, {planned.underlay.size} hosts on {kind}, {messages} messages: good")
    return 0
