"""The dashboard over a quickstart's own Prometheus database: every panel has a value during the workload."""

import json
from pathlib import Path

import pytest

from harness.stages.prometheus import free_port, reopen_prometheus
from tests.e2e.run_experiment import IN_PROCESS, ROOT, Finished, finish, start

pytestmark = [pytest.mark.root, pytest.mark.long]

SCRAPES_OF_A_RATE = 4
"""Grafana's ``$__rate_interval`` is at least as long as four scrapes."""


def test_no_panel_is_empty_over_a_quickstart_with_gossipsub(tmp_path: Path) -> None:
    quickstart, run_dir = ROOT / "playbooks/experiments/quickstart.toml", tmp_path / "run"
    process = start("run", quickstart, "--set", "protocol=gossipsub", "--out", run_dir, "--json", *IN_PROCESS)
    run = Finished(run_dir, finish(process))
    plan = json.loads((run_dir / "plan.json").read_text())
    rate_s = SCRAPES_OF_A_RATE * plan["experiment"]["prometheus"]["scrape_interval_s"]
    dashboard = json.loads((ROOT / "playbooks/grafana/gossipsub.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(asked) > len(dashboard["panels"]) > 5
    [workload] = [phase for phase in run.manifest["phases"] if phase["name"] == "workload"]
    begin_s, end_s = ((workload[name] + run.manifest["epoch_offset_ns"]) / 1e9 for name in ("start_ns", "end_ns"))
    instants = [begin_s + (end_s - begin_s) * part / 10 for part in range(1, 11)]
    server = reopen_prometheus(run_dir, free_port())
    try:
        empty = [
            expression
            for expression in asked
            if not any(
                server.query(expression.replace("$__rate_interval", f"{rate_s:.0f}s"), instant) for instant in instants
            )
        ]
    finally:
        server.stop()
    assert empty == []
