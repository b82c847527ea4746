"""``trellis report RUN``: analyse a finished run and write its report."""

import argparse

from harness.stages.analysis import add_master_arguments
from metrics.storage import local_path, place


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dir", type=place, metavar="RUN", help="directory of a finished run, or its URI (s3://...)")
    parser.add_argument(
        "--baseline",
        type=local_path,
        metavar="RUN",
        help="show the numbers of this analysed run beside the report's (default: the last run of another protocol, in "
        "the folder of RUN, with the same experiment file, network, workload and testbed)",
    )
    add_master_arguments(parser)
    parser.add_argument("--all", action="store_true", help="print all headline numbers, not only ten")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Analyse the run and return the exit code of its verdict, as ``trellis run`` does."""
    from harness.commands.run import print_outcome
    from harness.stages.analysis import EXIT_CODES, analyse, executor_options, remark_on_java

    remark_on_java(arguments.master)
    summary = analyse(arguments.run_dir, arguments.master, executor_options(arguments), arguments.baseline)
    print_outcome(arguments.run_dir, summary, as_json=arguments.json, all_numbers=arguments.all)
    return EXIT_CODES[summary.verdict]
