"""``trellis check``: validate an experiment or a study, including the data that it names. Starts nothing."""

import argparse
from pathlib import Path

from harness.errors import ExperimentError
from harness.testbeds.registry import TESTBEDS


def add_experiment_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that name an experiment and override its keys."""
    parser.add_argument("file", type=Path, help="the experiment (TOML, or a shadow.yaml)")
    parser.add_argument("--seed", type=int, help="override the file's seed")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of the file")


def add_testbed_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the argument that overrides the testbed of an experiment."""
    parser.add_argument("--testbed", choices=tuple(TESTBEDS), help="override the file's testbed")


def overrides_of(arguments: argparse.Namespace) -> list[str]:
    """Return the overrides of ``--set`` and ``--testbed``."""
    return [*arguments.set, *([f"testbed={arguments.testbed}"] if arguments.testbed else [])]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_experiment_arguments(parser)
    add_testbed_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print one line that describes the experiment or the study, and the remarks on an experiment.

    Raises:
        ExperimentError: the file is invalid, or its run needs more than this machine has.
    """
    from harness.experiment.loader import is_study
    from harness.experiment.shadow import read_document

    studied = is_study(read_document(arguments.file))
    if studied and arguments.seed is not None:
        raise ExperimentError(
            "--seed", f"{arguments.file} is a study with its own seeds; try: --set seeds=[{arguments.seed}]"
        )
    if studied and arguments.testbed:
        raise ExperimentError("--testbed", f"{arguments.file} is a study, whose file names its testbeds")
    found = _study(arguments) if studied else _experiment(arguments)
    description, remarks = found
    print(f"{arguments.file}: valid: {description}")
    for remark in remarks:
        print(f"{arguments.file}: remark: {remark}")
    return 0


def _experiment(arguments: argparse.Namespace) -> tuple[str, list[str]]:
    from harness.experiment.loader import load_experiment
    from harness.planning import make_plan, remarks_on

    overrides = overrides_of(arguments)
    experiment = load_experiment(arguments.file, overrides, arguments.seed)
    planned = make_plan(experiment, arguments.file, overrides)
    kind = planned.plan.experiment.underlay.kind
    description = f"{planned.plan.name}, {planned.underlay.size} hosts on {kind}, {len(planned.schedule)} messages"
    return description, list(remarks_on(planned))


def _study(arguments: argparse.Namespace) -> tuple[str, list[str]]:
    from harness.studies.loader import load_study
    from harness.studies.points import describe_runs

    study = load_study(arguments.file, arguments.set)
    return f"{study.name}, a study of {describe_runs(study)}", []
