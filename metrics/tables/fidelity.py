"""The ``fidelity`` table: what the emulation did second by second, by data plane, machine and probes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metrics.dataplane import last_counters, second_values, spans
from metrics.measures.measure import quantile
from metrics.pcap.walk import Ints
from metrics.probing import rtt_errors_ms
from metrics.rundir import RunDir
from metrics.rundir.files import ACHIEVED_FILE, DATAPLANE_FILE, PRESSURE_FILE
from metrics.tables.columns import exact_quantile, numbers, read_columns

_SECOND_NS = 1_000_000_000
_PRESSURE = ("cpu_busy_ratio", "cpu_some_ratio", "steal_ratio")


def build_fidelity(run: RunDir) -> list[dict[str, Any]]:
    """The table's rows, one per second of the running stage in which anything was recorded.

    The run's ``hops`` and ``messages`` must be there. What the data plane counted adds up to its last line.
    """
    zero_ns = run.manifest.zero_ns
    rows: dict[int, dict[str, Any]] = {}

    def row(second: int) -> dict[str, Any]:
        return rows.setdefault(second, {"at_ns": zero_ns + second * _SECOND_NS})

    for line in run.lines(PRESSURE_FILE):
        row((line["at_ns"] - zero_ns) // _SECOND_NS).update({name: line.get(name) for name in _PRESSURE})
    for found in (_plane(run), _hops(run), _publications(run), _probes(run)):
        for second, values in found.items():
            row(second).update(values)
    return [rows[second] for second in sorted(rows)]


def _plane(run: RunDir) -> dict[int, dict[str, Any]]:
    """What the data plane counted, by the second in which it wrote its lines."""
    lines = run.lines(DATAPLANE_FILE)
    found = second_values(spans(lines), run.manifest.zero_ns)
    for name, last in last_counters(lines).items():
        counted = sum(values.get(name, 0) for values in found.values())
        assert counted == last, f"the seconds of the data plane have {counted} {name}, its last line says {last}"
    return found


def _hops(run: RunDir) -> dict[int, dict[str, Any]]:
    """How long frames stayed inside hosts, by the second in which they were sent."""
    columns = {"send_ms_p99": "d_sndbuf_ns", "receive_ms_p99": "d_rcv_ns"}
    rows = read_columns(run, "hops", "log_send_ns", *columns.values())
    rows = rows.filter(pc.is_valid(rows["log_send_ns"]))
    found: dict[int, dict[str, Any]] = {}
    for second, those in _by_second(numbers(rows["log_send_ns"]), run.manifest.zero_ns):
        some = rows.take(pa.array(those))
        found[second] = {
            name: exact_quantile(some[column].drop_null().to_numpy() / 1e6, 0.99) for name, column in columns.items()
        }
    return found


def _publications(run: RunDir) -> dict[int, dict[str, Any]]:
    """How late messages were published, by the second for which they were scheduled."""
    rows = read_columns(run, "messages", "scheduled_ns", "publish_ns").drop_null()
    scheduled_ns = numbers(rows["scheduled_ns"])
    lag_ms = (numbers(rows["publish_ns"]) - scheduled_ns) / 1e6
    by_second = _by_second(scheduled_ns, run.manifest.zero_ns)
    return {second: {"publish_lag_ms_max": float(lag_ms[those].max())} for second, those in by_second}


def _by_second(instants_ns: Ints, zero_ns: int) -> Iterator[tuple[int, Ints]]:
    """Every second since zero with an instant in it, and which those are."""
    seconds = (instants_ns - zero_ns) // _SECOND_NS
    order = np.argsort(seconds, kind="stable")
    named, first = np.unique(seconds[order], return_index=True)
    return zip(named.tolist(), np.split(order, first[1:]), strict=False)  # nothing has no second, but splits into one


def _probes(run: RunDir) -> dict[int, dict[str, Any]]:
    """Errors of the probes that returned, by the second in which they were sent."""
    path = run.path / ACHIEVED_FILE
    if not path.exists():
        return {}
    table = pq.read_table(path, columns=["at_ns", "asked_rtt_ms", "rtt_ms"]).drop_null()
    error = rtt_errors_ms(table)
    return {
        second: {"probes": len(those), "probe_error_ms_p99": quantile(error[those], 0.99)}
        for second, those in _by_second(numbers(table["at_ns"]), run.manifest.zero_ns)
    }
