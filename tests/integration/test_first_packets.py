"""The certificate over real data planes: one that is sound, and two that make first packets late."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.root

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "first_packets.py"
LATE_MS = "50"
"""By so much that no load of this machine hides it."""

SWEEPS = 4


def sweep() -> dict[str, dict[str, int]]:
    """A sweep of each condition."""
    options = ["--hosts", "10", "--sweeps", "1", "--late-ms", LATE_MS, "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (BENCHMARK.parents[1], BENCHMARK.parent)))}
    command = [sys.executable, "-P", str(BENCHMARK), *options]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, timeout=600)
    return {row["condition"]: row for row in json.loads(done.stdout)}


def test_first_packets_are_found_late_where_they_are() -> None:
    """Stalls of the host may explain what is late in a sweep. They do not in every one."""
    missed = {"every pair": "by pairs", "every host": "by hosts"}
    for _ in range(SWEEPS):
        rows = sweep()
        assert rows["clean"]["found"] == rows["every host"]["by pairs"] == 0
        missed = {name: rule for name, rule in missed.items() if not (rows[name]["found"] and rows[name][rule])}
        if not missed:
            break
    assert missed == {}
