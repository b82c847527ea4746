"""The ``fidelity`` table: the state of the emulation second by second, from data plane, machine and probes."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from metrics.measures.measure import quantile
from metrics.pcap.walk import Ints
from metrics.recorded.dataplane import last_counters, second_values, spans
from metrics.recorded.probing import read_achieved, rtt_errors_ms
from metrics.rundir import DamagedError, RunDir
from metrics.rundir.files import DATAPLANE_FILE, PRESSURE_FILE
from metrics.storage import Place
from metrics.tables.buckets import read_bucket
from metrics.tables.columns import exact_quantile, numbers
from metrics.tables.condensed import HOST_DELAYS
from metrics.tables.shares import Share
from metrics.tables.timespans import SECOND_NS

BySecond: TypeAlias = dict[int, dict[str, Any]]
"""Columns of the table, by the second since zero."""

_PRESSURE = ("cpu_busy_ratio", "cpu_some_ratio", "steal_ratio")


def build_fidelity(run: RunDir, delays: BySecond, lags_ms: Mapping[int, float]) -> list[dict[str, Any]]:
    """Return the table's rows, one per second of the running stage in which anything was recorded.

    What the data plane counted in each second adds up to its last line.

    Args:
        run: the run.
        delays: ``host_delays`` of all seconds.
        lags_ms: ``MessageTotals.lag_ms_max``.
    """
    zero_ns = run.manifest.zero_ns
    rows: BySecond = {}

    def row(second: int) -> dict[str, Any]:
        return rows.setdefault(second, {"at_ns": zero_ns + second * SECOND_NS})

    for line in run.lines(PRESSURE_FILE):
        row((line["at_ns"] - zero_ns) // SECOND_NS).update({name: line.get(name) for name in _PRESSURE})
    lags = {second: {"publish_lag_ms_max": lag_ms} for second, lag_ms in lags_ms.items()}
    for found in (_plane(run), delays, lags, _probes(run)):
        for second, values in found.items():
            row(second).update(values)
    return [rows[second] for second in sorted(rows)]


def _plane(run: RunDir) -> BySecond:
    """Return what the data plane counted, by the second in which it wrote its lines."""
    lines = run.lines(DATAPLANE_FILE)
    found = second_values(spans(lines), run.manifest.zero_ns)
    for name, last in last_counters(lines).items():
        counted = sum(values.get(name, 0) for values in found.values())
        if counted != last:
            problem = f"its seconds have {counted} {name}, its last line says {last}"
            raise DamagedError(run.path / DATAPLANE_FILE, ValueError(problem))
    return found


def host_delays(folder: Place, zero_ns: int, share: Share) -> BySecond:
    """Return how long frames stayed inside hosts, by the second in which they were sent.

    Args:
        folder: ``condensed.HOST_DELAYS``, in buckets of seconds.
        zero_ns: the instant from which the seconds are counted.
        share: a share of the seconds.
    """
    columns = {"send_ms_p99": "d_sndbuf_ns", "receive_ms_p99": "d_rcv_ns"}
    rows = read_bucket(folder, HOST_DELAYS, share)
    found: BySecond = {}
    for second, those in _by_second(numbers(rows["log_send_ns"]), zero_ns):
        some = rows.take(pa.array(those))
        found[second] = {
            name: exact_quantile(some[column].drop_null().to_numpy() / 1e6, 0.99) for name, column in columns.items()
        }
    return found


def _by_second(instants_ns: Ints, zero_ns: int) -> Iterator[tuple[int, Ints]]:
    """Yield every second since zero that has an instant, and the indices of its instants."""
    seconds = (instants_ns - zero_ns) // SECOND_NS
    order = np.argsort(seconds, kind="stable")
    named, first = np.unique(seconds[order], return_index=True)
    return zip(named.tolist(), np.split(order, first[1:]), strict=False)  # no instants: no second, but one part


def _probes(run: RunDir) -> BySecond:
    """Return errors of the probes that returned, by the second in which they were sent."""
    achieved = read_achieved(run.path)
    if achieved is None:
        return {}
    table = achieved.select(["at_ns", "asked_rtt_ms", "rtt_ms"]).drop_null()
    error = rtt_errors_ms(table)
    return {
        second: {"probes": len(those), "probe_error_ms_p99": quantile(error[those], 0.99)}
        for second, those in _by_second(numbers(table["at_ns"]), run.manifest.zero_ns)
    }
