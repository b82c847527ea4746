"""Publications and deliveries that stalls of the host explain, by rows counted by hand, and what the checks say."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec import structs

from metrics.checks import RULES
from metrics.checks.evidence import Publications, Spread, Timed
from metrics.recorded.stalls import Late, Stalls, is_the_hosts, merge
from metrics.rundir import Check
from metrics.tables.message_evidence import compare_delays, publication_lags
from tests.sound_evidence import SOUND

MS = 1_000_000
AT = 5_000 * MS


def stalled(*host_ms: tuple[int, int]) -> Stalls:
    """The host stalled so many ms after ``AT``."""
    host = np.array(host_ms, np.int64).reshape(-1, 2) * MS + AT
    return Stalls(merge(host), np.empty((0, 2), np.int64))


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
    found = [publication_lags(stalled(*host), rows) for host in ((), ((2, 21),), ((-50, -1),), ((42, 95),))]
    assert [late for _, _, late in found] == [(4, 0), (4, 3), (4, 0), (4, 0)]
    assert [(lag_ns // MS).tolist() for _, lag_ns, _ in found] == [[0, 20, 21, 40, 41, 90]] * 4
    assert publication_lags(stalled((2, 21), (40, 95)), rows)[2].explained == 4


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
    rows = deliveries((0, 130, 100), (0, 109, 100), (900, 130, 105))
    _, _, late = compare_delays(stalled(*host), rows, np.zeros(len(rows)))
    assert late == (2, explained)


@pytest.mark.parametrize(("host", "explained"), [([(-1, 40)], 0), ([(49, 65)], 1), ([(50, 130)], 1)])
def test_the_time_before_the_first_request_is_in_no_host(host: list[tuple[int, int]], explained: int) -> None:
    rows = deliveries((0, 130, 65), (0, 130, 75), (0, 130, 81))
    order, inside_ms, late = compare_delays(stalled(*host), rows, np.array([50.0] * 3 + [0.0]))
    assert (order.tested, order.failed, order.worst) == (3, 1, 1.0)
    assert (len(inside_ms), max(inside_ms), late) == (3, 15.0, (1, explained))


def check(name: str, **evidence: Any) -> Check:
    """The check of that name, over the parts of the evidence that it needs."""
    [rule] = [rule for rule in RULES if rule.name == name]
    found = rule.check(SimpleNamespace(**evidence))
    assert found is not None
    return found


def checked() -> list[Check]:
    """The checks over a thousand samples each, of which 40 are late and 35 explained."""
    late = Spread(samples=1000, p50=2.0, p99=50.0, max=60.0, late=Late(40, 35))
    publications = Publications(scheduled=1000, messages=1000, with_schedule=1000, subscribers=1000, lag=late)
    timed = Timed(1000, late)
    transits = structs.replace(SOUND.transits, steady=timed, jittered=timed, rated=timed, overtaken=timed)
    return [
        check("publish_lag", publications=publications),
        check("receive_delay", receive=late),
        check("delay_agreement", inside=late),
        check("wire_delay", transits=transits),
        check("wire_delay_jittered", transits=transits),
        check("wire_delay_overtaken", transits=transits),
        check("access_rate", transits=transits),
    ]


def test_each_check_says_how_many_of_its_samples_are_explained() -> None:
    for found in checked():
        assert found.failed
        assert (found.late, found.explained, found.allowed) == (40, 35, 10), found.name
        assert "stalls of the host explain 35 of 40 late" in found.detail
        assert is_the_hosts(found)


@pytest.mark.parametrize(("tested", "allowed"), [(1, 0), (2, 1), (99, 1), (100, 1), (250, 2)])
def test_of_a_few_packets_one_may_be_late(tested: int, allowed: int) -> None:
    transits = structs.replace(SOUND.transits, steady=Timed(tested, Spread(samples=tested)))
    assert check("wire_delay", transits=transits).allowed == allowed
