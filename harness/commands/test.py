"""``trellis test``: run this checkout's tests."""

import argparse
import os
import subprocess

from harness.doctor.collisions import CHECKOUT
from harness.interpreter import python_command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.prefix_chars = ""  # every option goes to pytest
    parser.add_argument(
        "pytest_arguments",
        nargs="*",
        metavar="ARGS",
        help="arguments of pytest, such as -k codec or tests/unit (default: every test, with the reason of each skip)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run pytest in the checkout.

    Returns:
        The exit status of pytest. With CI=true in the environment a skip makes it 1, unless data is missing
        (tests/conftest.py).
    """
    # The checkout comes first on Python's path, also outside the launcher's .venv.
    path = os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH"))))
    argv = python_command("-m", "pytest", *arguments.pytest_arguments)
    return subprocess.run(argv, cwd=CHECKOUT, env={**os.environ, "PYTHONPATH": path}, check=False).returncode
