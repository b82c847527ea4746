"""``trellis tables RUN``: compute the tables of a finished run."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="directory of a finished run")
    parser.add_argument(
        "--master", help="a Spark master, such as spark://host:7077 (default: all cores of this machine)"
    )
    parser.add_argument("--packets", action="store_true", help="also write the packets table, one row per packet")


def run(arguments: argparse.Namespace) -> int:
    """Compute the tables and the summary, and print the verdict. Return 0 whatever the verdict is."""
    from harness.stages.analysis import exclusive
    from metrics import summary, tables
    from metrics.rundir import RunDir

    run_dir: Path = arguments.run
    run = RunDir(run_dir)
    _ = run.manifest, run.plan
    with exclusive(run_dir):
        tables.build(run_dir, arguments.master, packets=arguments.packets)
        written = summary.write(run_dir)
    print(f"{run.tables}: {len(tables.TABLES) + arguments.packets} tables; verdict {written.verdict}")
    for reason in written.reasons:
        print(f"  {reason}")
    return 0
