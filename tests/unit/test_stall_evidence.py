"""Publications and deliveries that stalls of the host explain, by rows counted by hand, and what the checks say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from metrics.certificate import publish_lag, receive_delay
from metrics.checks import Evidence, delay_agreement, wire_delay
from metrics.rundir import Check
from metrics.stalls import Stalls, is_the_hosts, merge
from metrics.tables.evidence import count_agreement, count_publications

MS = 1_000_000
AT = 5_000 * MS


def run(*host_ms: tuple[int, int]) -> Any:
    """A run whose host stalled so many ms after ``AT``."""
    host = np.array(host_ms, np.int64).reshape(-1, 2) * MS + AT
    return SimpleNamespace(
        stalls=Stalls(merge(host), np.empty((0, 2), np.int64)),
        experiment={"verdict": {"wire_error_p99_ms": 0.5}},
    )


def publications(*lags_ms: int | None) -> pa.Table:
    """Messages that were scheduled at ``AT`` and published so much later, or never."""
    return pa.table(
        {
            "scheduled_ns": pa.array([AT] * len(lags_ms), pa.int64()),
            "publish_ns": pa.array([None if lag is None else AT + lag * MS for lag in lags_ms], pa.int64()),
            "n_subscribers": pa.array([1] * len(lags_ms), pa.int64()),
        }
    )


def test_publications_are_explained_by_stalls_between_schedule_and_publication() -> None:
    rows = publications(0, 20, 21, 40, 41, 90, None)
    found = [count_publications(run(*host), rows) for host in ((), ((2, 21),), ((-50, -1),), ((42, 95),))]
    assert [(each["lag_late"], each["lag_explained"]) for each in found] == [(4, 0), (4, 3), (4, 0), (4, 0)]
    assert count_publications(run((2, 21), (40, 95)), rows)["lag_explained"] == 4


def deliveries(*rows: tuple[int, int, int]) -> pa.Table:
    """Published at ``AT`` + the first, with latencies by the traces and by the wire, ms; and one that never came."""
    published, latency, wire = zip(*rows, strict=True)
    return pa.table(
        {
            "publish_ns": pa.array([AT + at * MS for at in published] + [AT], pa.int64()),
            "delivered_ns": pa.array([AT + (at + all_) * MS for at, all_, _ in rows] + [None], pa.int64()),
            "latency_ms": pa.array([*map(float, latency), None], pa.float64()),
            "wire_latency_ms": pa.array([*map(float, wire), None], pa.float64()),
        }
    )


@pytest.mark.parametrize(
    ("host", "explained"),
    [
        ([], 0),
        ([(-1, 20)], 1),  # the first host's: the publication at 0 had to wait for 30 ms
        ([(101, 130)], 1),  # the last host's: the delivery at 130
        ([(40, 90)], 0),  # meanwhile the message was on the wire
        ([(-1, 8), (120, 130)], 1),  # something of both
    ],
)
def test_deliveries_are_explained_by_stalls_near_either_end(host: list[tuple[int, int]], explained: int) -> None:
    found = count_agreement(run(*host), deliveries((0, 130, 100), (0, 109, 100), (900, 130, 105)))
    assert (found["difference_late"], found["difference_explained"]) == (2, explained)


def evidence(**parts: dict[str, Any]) -> Evidence:
    names = ("coverage", "captures", "overhead", "conns", "hops", "wire", "deliveries", "messages")
    empty: dict[str, dict[str, Any]] = {name: {} for name in names}
    return Evidence(traces={}, incomplete=[], captured=True, **(empty | parts))


def checked() -> list[Check]:
    """The checks over a thousand samples each, of which 40 are late and 35 explained."""
    lag = {"lag_ms_p99": 50.0, "lag_ms_max": 60.0, "with_schedule": 1000, "lag_late": 40, "lag_explained": 35}
    hops = {"receive_ms_p50": 0.1, "receive_ms_p99": 50.0, "frames_sent": 1200}
    hops |= {"received": 1000, "receive_late": 40, "receive_explained": 35}
    agreed = {"difference_ms_p50": 0.1, "difference_ms_p99": 50.0, "both": 1000}
    agreed |= {"difference_late": 40, "difference_explained": 35}
    wire: dict[str, Any] = {"jitter_sigmas_std": 1.0}
    for name in ("steady", "jittered"):
        wire |= {f"{name}_tested": 1000, f"{name}_late": 40, f"{name}_explained": 35}
        wire |= {f"{name}_ms_{figure}": 2.0 for figure in ("p50", "p99", "max")}
    found = evidence(hops=hops, messages=lag, deliveries=agreed, wire=wire)
    return [publish_lag(found), receive_delay(found), delay_agreement(found), *wire_delay(run(), found)]


def test_each_check_says_how_many_of_its_samples_are_explained() -> None:
    for check in checked():
        assert check.failed
        assert (check.late, check.explained, check.allowed) == (40, 35, 10), check.name
        assert "stalls of the host explain 35 of 40 late" in check.detail
        assert is_the_hosts(check)
    assert len(checked()) == 5


@pytest.mark.parametrize(("tested", "allowed"), [(1, 0), (2, 1), (99, 1), (100, 1), (250, 2)])
def test_of_a_few_hops_one_may_be_late(tested: int, allowed: int) -> None:
    names = ("steady_ms_p50", "steady_ms_p99", "steady_ms_max", "steady_late", "steady_explained")
    wire: dict[str, Any] = dict.fromkeys(names, 0) | {
        "steady_tested": tested,
        "jittered_tested": 0,
        "jittered_ms_p99": None,
    }
    [check] = wire_delay(run(), evidence(wire=wire))
    assert check.allowed == allowed
