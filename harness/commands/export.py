"""``trellis export FORM RUN``: write a run's traces in the form of another program, or an experiment for Shadow."""

import argparse
from pathlib import Path

from harness.commands.check import add_experiment_arguments
from metrics.storage import place
from metrics.trace_forms import FORMS

SHADOW = "shadow"
"""The form of experiments."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    forms = parser.add_subparsers(dest="form", metavar="FORM", required=True)
    for form in (form for form in FORMS.values() if form.writes):
        named = forms.add_parser(form.name, help=f"write {form.help}")
        named.add_argument("run", type=place, metavar="RUN", help="directory of a finished run, or its URI (s3://...)")
        named.add_argument(
            "--out", type=Path, required=True, metavar="FOLDER", help="write the files to this new folder"
        )
    shadow = forms.add_parser(SHADOW, help="write an experiment as one of Shadow: shadow.yaml and graph.gml")
    add_experiment_arguments(shadow)
    shadow.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="write the files to this new folder")


def run(arguments: argparse.Namespace) -> int:
    """Write the files, and print what the form cannot hold.

    Raises:
        ExperimentError: the folder is there or cannot be written, or the run has too many events for the form.
        RunDirError: the run did not finish, or a document of it cannot be read.
    """
    from harness.errors import ExperimentError
    from harness.terminal import say
    from metrics.rundir import RunDir
    from metrics.storage import StoreError
    from metrics.trace_forms.events import TraceError
    from metrics.trace_forms.exporting import export_run

    if arguments.form == SHADOW:
        say(f"{arguments.out}: {SHADOW}", *_export_experiment(arguments))
        return 0
    try:
        left_out = export_run(RunDir(arguments.run), arguments.out, FORMS[arguments.form])
    except TraceError as error:
        raise ExperimentError(error.place, error.problem) from None
    except StoreError:
        raise
    except OSError as error:
        raise ExperimentError(str(error.filename or arguments.out), error.strerror or "cannot be written") from None
    say(f"{arguments.out}: {arguments.form}", *left_out)
    return 0


def _export_experiment(arguments: argparse.Namespace) -> list[str]:
    """Write the files of Shadow, and return what they cannot hold. The run need not fit into this machine."""
    from harness.experiment.loader import load_experiment
    from harness.planning import make_plan
    from harness.planning.shadow import write_shadow

    experiment = load_experiment(arguments.file, arguments.set, arguments.seed)
    return write_shadow(make_plan(experiment, arguments.file, arguments.set, here=False), arguments.out)
