"""``trellis report RUN``: analyse a finished run and write its report."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dir", type=Path, metavar="RUN", help="directory of a finished run")
    parser.add_argument("--master", help="a Spark master (default: all cores of this machine)")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Analyse the run and return the exit code of its verdict, as ``trellis run`` does."""
    from harness.commands.run import print_outcome
    from harness.stages.analysis import EXIT_CODES, analyse

    summary = analyse(arguments.run_dir, arguments.master)
    print_outcome(arguments.run_dir, summary, as_json=arguments.json)
    return EXIT_CODES[summary.verdict]
