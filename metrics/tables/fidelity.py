"""The ``fidelity`` table: what the emulation did second by second, by data plane, machine and probes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from metrics.rundata import RunDir

_SECOND_NS = 1_000_000_000
_CUMULATIVE = ("frames_in", "frames_out", "bytes_in", "bytes_out")
_PRESSURE = ("cpu_busy_ratio", "cpu_some_ratio", "steal_ratio")


def build_fidelity(
    run: RunDir, hop_seconds: list[dict[str, Any]], publish_seconds: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The table's rows, one a second of the running stage in which anything was recorded.

    Args:
        run: the run directory.
        hop_seconds: second, send_ms_p99, receive_ms_p99.
        publish_seconds: second, publish_lag_ms_max.
    """
    zero_ns = run.manifest.zero_ns
    rows: dict[int, dict[str, Any]] = {}

    def row(second: int) -> dict[str, Any]:
        return rows.setdefault(second, {"at_ns": zero_ns + second * _SECOND_NS})

    for at_ns, values in _plane(run.lines("dataplane.jsonl")):
        row((at_ns - zero_ns) // _SECOND_NS).update(values)
    for line in run.lines("pressure.jsonl"):
        row((line["at_ns"] - zero_ns) // _SECOND_NS).update({name: line.get(name) for name in _PRESSURE})
    for line in [*hop_seconds, *publish_seconds]:
        row(line["second"]).update({name: value for name, value in line.items() if name != "second"})
    for second, values in _probes(run).items():
        row(second).update(values)
    return [rows[second] for second in sorted(rows)]


def _plane(lines: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    """The data plane's lines with its cumulative counters turned into each second's share."""
    found = []
    before: dict[str, Any] = {}
    for line in lines:
        drops, earlier = line.get("drops", {}), before.get("drops", {})
        lost = {cause: count - earlier.get(cause, 0) for cause, count in drops.items()}
        values = {name: line[name] - before.get(name, 0) for name in _CUMULATIVE if name in line}
        values |= {f"lateness_{name}_ns": value for name, value in line.get("lateness_ns", {}).items()}
        values |= {"busy_ratio": line.get("busy_ratio"), "dropped": sum(lost.values()), "drops": json.dumps(lost)}
        found.append((line["at_ns"], values))
        before = line
    return found


def _probes(run: RunDir) -> dict[int, dict[str, Any]]:
    """Errors of the probes that returned, by the second in which they were sent."""
    path = run.path / "achieved.parquet"
    if not path.exists():
        return {}
    table = pq.read_table(path, columns=["at_ns", "asked_rtt_ms", "rtt_ms"]).drop_null()
    seconds = (table["at_ns"].to_numpy() - run.manifest.zero_ns) // _SECOND_NS
    error = np.abs(table["rtt_ms"].to_numpy() - table["asked_rtt_ms"].to_numpy())
    return {
        int(second): {
            "probes": int((seconds == second).sum()),
            "probe_error_ms_p99": float(np.quantile(error[seconds == second], 0.99)),
        }
        for second in np.unique(seconds)
    }
