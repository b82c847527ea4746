"""Runs a script under two values of ``PYTHONHASHSEED``, which must not change what follows from a seed alone."""

import json
import os
import subprocess
import sys
from functools import cache

SEEDS = ("0", "4711")

_SERVE = """
import contextlib, io, json, sys

for line in sys.stdin:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(json.loads(line), {"__name__": "__main__"})
    print(json.dumps(said.getvalue()), flush=True)
"""


def outputs_under_hash_seeds(script: str) -> set[str]:
    """Return what a script prints under each of two hash seeds: one text if they make no difference.

    Args:
        script: Python code. It can import what the calling process can import.

    Raises:
        AssertionError: the script raised an exception, which is on the standard error output.
    """
    return {_output(_start(seed), script) for seed in SEEDS}


@cache
def _start(seed: str) -> "subprocess.Popen[str]":
    """Start a Python that runs one script after the other, so that they import their modules once. It ends with us."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _SERVE],
        env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _output(python: "subprocess.Popen[str]", script: str) -> str:
    assert python.stdin is not None and python.stdout is not None
    try:
        python.stdin.write(json.dumps(script) + "\n")
        python.stdin.flush()
        output: str = json.loads(python.stdout.readline())
    except (OSError, ValueError):
        _start.cache_clear()  # for the other scripts
        raise AssertionError("the script failed; its traceback is in the output") from None
    return output
