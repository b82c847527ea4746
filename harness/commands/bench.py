"""``trellis bench``: run the benchmarks. Each is a script that measures one subject."""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from harness.doctor.collisions import CHECKOUT
from harness.errors import ExperimentError
from harness.interpreter import python_command

BENCHMARKS = CHECKOUT / "benchmarks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help=f"one benchmark ({', '.join(discover())}; default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON, one document per benchmark")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="its options, such as --full of pipeline")


def discover() -> dict[str, Path]:
    """Return the benchmarks by name: the scripts that do not begin with ``_``. Each takes ``--json``."""
    return {path.stem: path for path in sorted(BENCHMARKS.glob("*.py")) if not path.name.startswith("_")}


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmarks one after the other, each in its own process, so that none warms up another.

    Returns:
        0 if every benchmark exited with 0, otherwise 1.

    Raises:
        ExperimentError: there is no benchmark of that name.
    """
    options = ["--json"] * arguments.json + arguments.options
    failed = [name for name, path in choose(discover(), arguments.name).items() if _measure(name, path, options) != 0]
    if failed:
        print(f"trellis bench: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def choose(benchmarks: Mapping[str, Path], name: str | None) -> Mapping[str, Path]:
    """Return the benchmark called ``name``, or all if ``name`` is None.

    Raises:
        ExperimentError: there is no benchmark of that name, or no benchmark.
    """
    if name is None and benchmarks:
        return benchmarks
    if name is not None and name in benchmarks:
        return {name: benchmarks[name]}
    raise ExperimentError("bench", f"no benchmark {name or 'found'}; there are: {', '.join(benchmarks) or 'none'}")


def _measure(name: str, path: Path, options: list[str]) -> int:
    print(f"== {name}", file=sys.stderr, flush=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(CHECKOUT), str(BENCHMARKS)))}
    return subprocess.run(python_command(str(path), *options), env=environment, check=False).returncode
