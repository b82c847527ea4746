"""A machine of its own for a run that is to be ended: what an observer on it saw."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.e2e.run_experiment import ROOT


def observe(
    fault: str, moment: str, command: list[str], keep: Path, timeout_s: float = 900, survival_s: int = 300
) -> dict[str, Any]:
    """Run a command on a machine of its own, and do something to it at a moment.

    See ``tests.e2e.observer`` for the faults, the moments, the survival, and the account that it returns.
    """
    observer = [sys.executable, "-m", "tests.e2e.observer", fault, moment, str(survival_s), *command]
    program = (
        "import sys\nfrom pathlib import Path\nfrom harness.machine import sandbox\n"
        f"sys.exit(sandbox.run({observer!r}, keep=[Path({str(keep)!r})]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=timeout_s
    )
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen
