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


def test_first_packets_are_found_late_where_they_are() -> None:
    options = ["--hosts", "10", "--sweeps", "1", "--late-ms", LATE_MS, "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (BENCHMARK.parents[1], BENCHMARK.parent)))}
    command = [sys.executable, "-P", str(BENCHMARK), *options]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, timeout=600)
    rows = {row["condition"]: row for row in json.loads(done.stdout)}
    assert {name: row["found"] for name, row in rows.items()} == {"clean": 0, "every pair": 1, "every host": 1}
    assert rows["every host"]["by hosts"] == rows["every pair"]["by pairs"] == 1
