"""Publications and deliveries that stalls of the host explain, by rows counted by hand, and what the checks say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec import structs

from metrics.checks import evidence as parts
from metrics.checks.delays import delay_agreement, wire_delay, wire_delay_jittered
from metrics.checks.documents import VerdictLimits
from metrics.checks.machine import publish_lag, receive_delay
from metrics.rundata import Check
from metrics.stalls import Late, Stalls, is_the_hosts, merge
from metrics.tables.evidence import _agreement, _publications

MS = 1_000_000
AT = 5_000 * MS
LIMITS = VerdictLimits(lateness_p99_ms=0.5, wire_error_p99_ms=0.5)


def run(*host_ms: tuple[int, int]) -> Any:
    """A run whose host stalled so many ms after ``AT``."""
    host = np.array(host_ms, np.int64).reshape(-1, 2) * MS + AT
    return SimpleNamespace(stalls=Stalls(merge(host), np.empty((0, 2), np.int64)))


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
    found = [_publications(run(*host), rows) for host in ((), ((2, 21),), ((-50, -1),), ((42, 95),))]
    assert [each.late for each in found] == [(4, 0), (4, 3), (4, 0), (4, 0)]
    assert _publications(run((2, 21), (40, 95)), rows).late.explained == 4


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
    found = _agreement(run(*host), deliveries((0, 130, 100), (0, 109, 100), (900, 130, 105)))
    assert found.late == (2, explained)


def checked() -> list[Check]:
    """The checks over a thousand samples each, of which 40 are late and 35 explained."""
    late = Late(40, 35)
    hops = parts.HopErrors(tested=1000, ms_p50=2.0, ms_p99=2.0, ms_max=2.0, late=late)
    evidence: Any = SimpleNamespace(
        publications=parts.Publications(1000, 1000, 1000, lag_ms_p99=50.0, lag_ms_max=60.0, late=late),
        frames=parts.FrameCounts(sent=1200, unread=0),
        hosts=parts.HostDelays(0.1, 0.1, receive_ms_p50=0.1, receive_ms_p99=50.0, received=1000, late=late),
        agreement=parts.DelayAgreement(1000, 0, 0.0, 0, difference_ms_p50=0.1, difference_ms_p99=50.0, late=late),
        wire=parts.WireErrors(hops, hops, jitter_sigmas_std=1.0),
        limits=LIMITS,
    )
    rules = (publish_lag, receive_delay, delay_agreement, wire_delay, wire_delay_jittered)
    found = [rule.check(evidence) for rule in rules]
    return [check for check in found if check is not None]


def test_each_check_says_how_many_of_its_samples_are_explained() -> None:
    for check in checked():
        assert check.failed
        assert (check.late, check.explained, check.allowed) == (40, 35, 10), check.name
        assert "stalls of the host explain 35 of 40 late" in check.detail
        assert is_the_hosts(check)
    assert len(checked()) == 5


@pytest.mark.parametrize(("tested", "allowed"), [(1, 0), (2, 1), (99, 1), (100, 1), (250, 2)])
def test_of_a_few_hops_one_may_be_late(tested: int, allowed: int) -> None:
    none = parts.HopErrors(0, 0.0, 0.0, 0.0, Late(0, 0))
    found = wire_delay.judge(parts.WireErrors(structs.replace(none, tested=tested), none, None), LIMITS)
    assert found.allowed == allowed
