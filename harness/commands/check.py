"""``trellis check``: is this experiment or study right? Reads its data too, starts nothing."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.errors import ExperimentError


def add_experiment_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that name an experiment: the file and what overrides it."""
    parser.add_argument("file", type=Path, help="the experiment (TOML)")
    parser.add_argument("--seed", type=int, help="in place of the file's seed")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a field")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what ``check`` takes."""
    add_experiment_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Say in one line what the experiment or the study is.

    Raises:
        ExperimentError: it is wrong, or cannot fit this machine.
    """
    from harness.loading import is_study, read_document

    studied = is_study(read_document(arguments.file))
    if studied and arguments.seed is not None:
        raise ExperimentError(
            "--seed", f"{arguments.file} is a study, which has its own: --set seeds=[{arguments.seed}]"
        )
    found = _study(arguments) if studied else _experiment(arguments)
    print(f"{arguments.file}: {found}: good")
    return 0


def _experiment(arguments: argparse.Namespace) -> str:
    from harness.loading import load_experiment
    from harness.planning import make_plan

    planned = make_plan(load_experiment(arguments.file, arguments.set, arguments.seed), arguments.file)
    kind = planned.plan.experiment.underlay.kind
    return f"{planned.plan.name}, {planned.underlay.size} hosts on {kind}, {len(planned.schedule)} messages"


def _study(arguments: argparse.Namespace) -> str:
    from harness.studies.points import points_of, seeds_of
    from harness.studies.reading import load_study

    study = load_study(arguments.file, arguments.set)
    points, seeds = len(points_of(study)), len(seeds_of(study))
    return f"{study.name}, a study of {points * seeds} runs (points: {points}, seeds: {seeds})"
