"""``trellis bench``: run the benchmarks, each a script that measures one subject and prints its ratios."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from harness.doctor.collisions import CHECKOUT
from harness.errors import ExperimentError

BENCHMARKS = CHECKOUT / "benchmarks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("name", nargs="?", help=f"one subject ({', '.join(discover())}); default: all in turn")
    parser.add_argument("--json", action="store_true", help="let the benchmarks print JSON, one document each")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="options of that subject, such as --full of pipeline")


def discover() -> dict[str, Path]:
    """The benchmarks by name. A script has ``main(argv) -> int`` and takes ``--json``; ``_`` in front hides a file."""
    return {path.stem: path for path in sorted(BENCHMARKS.glob("*.py")) if not path.name.startswith("_")}


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmarks one after the other, each in a process of its own, so that none warms up another.

    Returns:
        0 when every benchmark exited with 0, otherwise 1.

    Raises:
        ExperimentError: there is no benchmark of that name.
    """
    options = ["--json"] * arguments.json + arguments.options
    failed = [name for name, path in choose(discover(), arguments.name).items() if _measure(name, path, options) != 0]
    if failed:
        print(f"trellis bench: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def choose(benchmarks: Mapping[str, Path], name: str | None) -> Mapping[str, Path]:
    """The benchmark called ``name``, or all.

    Raises:
        ExperimentError: there is none of that name, or none at all.
    """
    if name is None and benchmarks:
        return benchmarks
    if name is not None and name in benchmarks:
        return {name: benchmarks[name]}
    raise ExperimentError("bench", f"no benchmark {name or 'at all'}; there are: {', '.join(benchmarks) or 'none'}")


def _measure(name: str, path: Path, options: list[str]) -> int:
    print(f"== {name}", file=sys.stderr, flush=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(CHECKOUT), str(BENCHMARKS)))}
    return subprocess.run([sys.executable, "-P", str(path), *options], env=environment, check=False).returncode
