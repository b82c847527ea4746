"""Runs a script under two PYTHONHASHSEEDs: what follows from a seed alone comes out the same under both."""

import os
import subprocess
import sys


def outputs_under_hash_seeds(script: str) -> set[str]:
    """What the script prints, under each of two hash seeds."""
    return {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "4711")
    }
