"""``trellis test``: run this checkout's tests."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from harness.doctor.collisions import CHECKOUT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.prefix_chars = ""  # no option is ours: -k, -m and the like go to pytest as they are
    parser.add_argument(
        "pytest_arguments",
        nargs="*",
        metavar="ARGS",
        help="for pytest, such as -k codec or tests/unit; default: every test, with the reason of each skip",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run pytest in the checkout.

    Returns:
        pytest's exit status. With CI=true in the environment a skip makes it 1, except one for want of data
        (tests/conftest.py).
    """
    argv = [sys.executable, "-P", "-m", "pytest", *arguments.pytest_arguments]
    return subprocess.run(argv, cwd=CHECKOUT, env=_environment(), check=False).returncode


def _environment() -> dict[str, str]:
    """This environment, in which the checkout comes first on Python's path also outside the launcher's .venv."""
    path = os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}
