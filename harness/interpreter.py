"""The Python of the processes that Trellis starts.

A user works in folders that others have made: a downloaded run, a repository of experiments. Without ``-P``, Python
looks for modules in the working directory first, so a file ``argparse.py`` there would run as the user. The environment
variable covers the processes that other programs start, such as Spark.
"""

import sys

PYTHON = sys.executable

SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""The environment in which no Python imports from the working directory. Python 3.10 ignores it."""


def python_command(*words: str) -> list[str]:
    """Return the command that gives these words to this Python, such as ``-m MODULE``."""
    return [PYTHON, "-P", *words]
