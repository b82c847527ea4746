"""A study whose points are simulated and emulated: the numbers of real peers stand beside those of the simulation."""

import csv
import json
from pathlib import Path

import pytest

from tests.e2e.run_experiment import speaks_of_load, start

pytestmark = [pytest.mark.root, pytest.mark.long]

STUDY = """
name = "both"
measures = ["degree_mean", "delivery_ratio", "hops_mean"]
seeds = [7]
[experiment]
time_dilation = 4
[experiment.underlay]
kind = "uniform"
delay_ms = 5
hosts = 5
[experiment.workload]
publish_rate_per_s = 10
warmup_s = 1
duration_s = 2
cooldown_s = 1
[grid]
random.degree = [2]
testbed = ["simulated", "emulated"]
[[table]]
name = "both"
title = "Both testbeds"
rows = ["measure"]
columns = "testbed"
where = { "random.degree" = 2 }
measures = ["degree_mean", "delivery_ratio", "hops_mean"]
"""


def test_numbers_of_real_peers_stand_beside_those_of_the_simulation(tmp_path: Path) -> None:
    (tmp_path / "both.toml").write_text(STUDY)
    process = start("sweep", tmp_path / "both.toml", "--master", "here", "--out", tmp_path / "out")
    _, said = process.communicate()
    runs = [*(tmp_path / "out" / "processes").iterdir()]
    verdicts = {path: json.loads((path / "summary.json").read_text()) for path in runs}
    assert verdicts
    for path, summary in verdicts.items():
        assert [reason for reason in summary["reasons"] if not speaks_of_load(reason)] == [], path
    valid = [summary for summary in verdicts.values() if summary["verdict"] == "valid"]
    assert process.returncode == (0 if valid else 1), said
    if valid:  # else this machine was too busy just now
        with (tmp_path / "out" / "both.csv").open() as file:
            rows = {(row["measure"], row["testbed"]): float(row["mean"]) for row in csv.DictReader(file)}
        for name in ("degree_mean", "delivery_ratio", "hops_mean"):
            assert rows[name, "emulated"] == valid[-1]["headline"][name]
        assert rows["delivery_ratio", "simulated"] == rows["delivery_ratio", "emulated"] == 1
        assert rows["degree_mean", "simulated"] == rows["degree_mean", "emulated"], "the same plan"
