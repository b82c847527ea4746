"""What the certificate probes again: only pairs whose errors stalls of the host explain, at most three times."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from harness.experiment.form import VerdictSpec
from harness.testbeds.emulated.certifier import AGAIN_MS, Certifier
from harness.testbeds.emulated.probes import SCHEMA, Prober
from metrics.asked import RoundTrips
from metrics.first_packets import judge, read, standing
from metrics.probing import last_attempts, measure_sweep, read_achieved, repeats
from metrics.rundir import Stall
from metrics.rundir.files import STALLS_FILE
from metrics.stalls import Stalls, merge
from topologies.generated import uniform_underlay
from topologies.network import Network, uniform_network

MS, SECOND = 1_000_000, 1_000_000_000
HOSTS, DELAY_MS = 5, 40.0
PAIRS = [(source, destination) for source in range(HOSTS) for destination in range(HOSTS) if source != destination]
LIMITS = msgspec.to_builtins(VerdictSpec())
NO_STALLS = Stalls(np.empty((0, 2), np.int64), np.empty((0, 2), np.int64))
Error = Callable[[int, int, int], float]


class Sweeper:
    """Stands in for the prober: a pair's error is a function of the attempt, the source and the destination."""

    def __init__(self, error_ms: Error) -> None:
        self._error_ms = error_ms
        self.sent: list[list[tuple[int, int]]] = []
        self.tables: list[pa.Table] = []

    def sweep(
        self, phase: str, packets: int, pace: Any, limit_ms: Any, pairs: Any = None, attempt: int = 1
    ) -> pa.Table:
        assert (
            limit_ms[0, 1] == AGAIN_MS < max(LIMITS["rtt_error_p50_ms"], LIMITS["rtt_error_p50_ratio"] * 2 * DELAY_MS)
        )
        asked = PAIRS if pairs is None else [tuple(pair) for pair in np.asarray(pairs).tolist()]
        self.sent.append(asked)
        rows = [self.row(phase, packets, attempt, *pair) for pair in asked]
        self.tables.append(pa.Table.from_pylist(rows, SCHEMA))
        return self.tables[-1]

    def row(self, phase: str, packets: int, attempt: int, src: int, dst: int) -> dict[str, Any]:
        row = {"src": src, "dst": dst, "phase": phase, "attempt": attempt, "at_ns": 0, "asked_jitter_ms": 0.0}
        row |= {"asked_there_ms": DELAY_MS, "asked_rtt_ms": 2 * DELAY_MS, "sent": packets, "received": packets}
        return row | {
            "rtt_ms": 2 * DELAY_MS + self._error_ms(attempt, src, dst),
            "rtt_at_ns": sent_ns(attempt, src),
        }


def sent_ns(attempt: int, src: int) -> int:
    return (10 * attempt + src) * SECOND


def stall(attempt: int, src: int, length_ms: float = 20, after_ms: float = DELAY_MS) -> Stall:
    """It begins before what is sent by that host in that attempt arrives at its destination."""
    start = sent_ns(attempt, src) + round((after_ms - 1) * MS)
    return Stall("host", start, start + round(length_ms * MS), 0)


def sweep(folder: Path, error_ms: Error, *stalls: Stall) -> tuple[Sweeper, pa.Table]:
    (folder / STALLS_FILE).write_bytes(b"".join(each.line() for each in stalls))
    sweeper = Sweeper(error_ms)
    certifier = Certifier(cast(Prober, sweeper), uniform_network(HOSTS, DELAY_MS), folder, 1)
    counting = certifier.sweep("before", 3, lambda: 1000.0, LIMITS)
    return sweeper, counting


def of(*sources: int) -> list[tuple[int, int]]:
    return [pair for pair in PAIRS if pair[0] in sources]


def test_nothing_is_repeated_where_no_limit_is_broken(tmp_path: Path) -> None:
    sweeper, counting = sweep(tmp_path, lambda attempt, src, dst: 0.2, stall(1, 0))
    assert sweeper.sent == [PAIRS]
    assert counting.num_rows == len(PAIRS)


def test_only_what_a_stall_explains_is_repeated(tmp_path: Path) -> None:
    """Hosts 1 and 2 are late, only what host 1 sent met a stall."""
    sweeper, counting = sweep(tmp_path, lambda attempt, src, dst: 15.0 if src in (1, 2) else 0.1, stall(1, 1))
    assert sweeper.sent == [PAIRS, of(1)]
    assert counting.num_rows == len(PAIRS)
    attempts = {(row["src"], row["attempt"]) for row in counting.to_pylist()}
    assert attempts == {(0, 1), (1, 2), (2, 1), (3, 1), (4, 1)}


def test_pairs_are_probed_three_times_at_most(tmp_path: Path) -> None:
    stalls = [stall(attempt, 1) for attempt in (1, 2, 3)]
    sweeper, counting = sweep(tmp_path, lambda attempt, src, dst: 15.0 if src == 1 else 0.1, *stalls)
    assert sweeper.sent == [PAIRS, of(1), of(1)]
    assert max(row["rtt_ms"] for row in counting.to_pylist()) == 95.0


def test_a_second_attempt_that_is_in_time_is_what_counts_and_all_are_kept(tmp_path: Path) -> None:
    sweeper, counting = sweep(
        tmp_path, lambda attempt, src, dst: 15.0 if attempt == 1 and src == 1 else 0.1, stall(1, 1)
    )
    assert sweeper.sent == [PAIRS, of(1)]
    assert max(row["rtt_ms"] for row in counting.to_pylist()) == pytest.approx(80.1)
    every = pa.concat_tables(sweeper.tables)
    assert every.num_rows == len(PAIRS) + len(of(1))
    assert repeats(every) == ["attempt 2 probed 4 pairs again whose errors stalls of the host explained"]
    assert (
        last_attempts(every)
        .sort_by([("src", "ascending"), ("dst", "ascending")])
        .equals(counting.sort_by([("src", "ascending"), ("dst", "ascending")]))
    )


@pytest.mark.parametrize(
    "stalls",
    [
        [],
        [stall(1, 1, length_ms=5)],  # too short for an error of 15 ms
        [stall(1, 1, after_ms=20, length_ms=15)],  # while nothing of the probe was due
        [Stall("plane", stall(1, 1).start_ns, stall(1, 1).end_ns)],  # the data plane's own
        [stall(1, 3)],  # another probe's
    ],
)
def test_what_no_stall_of_the_host_explains_is_not_repeated(tmp_path: Path, stalls: list[Stall]) -> None:
    sweeper, _ = sweep(tmp_path, lambda attempt, src, dst: 15.0 if src == 1 else 0.1, *stalls)
    assert sweeper.sent == [PAIRS]


def test_probes_that_are_early_are_no_ones_stall(tmp_path: Path) -> None:
    sweeper, _ = sweep(tmp_path, lambda attempt, src, dst: -15.0 if src == 1 else 0.1, stall(1, 1))
    assert sweeper.sent == [PAIRS]


def test_random_pairs_of_the_workload_are_all_kept() -> None:
    row = Sweeper(lambda attempt, src, dst: 0.1).row("during", 1, 1, 0, 1)
    rows = pa.Table.from_pylist([row, row, row | {"attempt": 2, "phase": "after"}, row | {"phase": "after"}], SCHEMA)
    assert [(each["phase"], each["attempt"]) for each in last_attempts(rows).to_pylist()] == [
        ("during", 1), ("during", 1), ("after", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(("error_ms", "of_p50", "late"), [(3.4, 0.8, 0), (-3.4, 0.8, 0), (3.6, 1.2, 1), (-3.6, 1.2, 1)])
def test_errors_under_jitter_count_beyond_three_standard_deviations(error_ms: float, of_p50: float, late: int) -> None:
    """The limits of an RTT of 80 ms are 0.5 ms and 1.5 ms."""
    row = Sweeper(lambda attempt, src, dst: error_ms).row("during", 1, 1, 0, 1) | {"asked_jitter_ms": 1.0}
    rows = pa.Table.from_pylist([row], SCHEMA)
    found = measure_sweep(rows, LIMITS, NO_STALLS)
    assert found.jittered
    assert found.errors["p50"].of_limit == pytest.approx(of_p50)
    assert found.errors["p50"].late == (late, 0)
    assert found.errors["p99"].late == (0, 0)
    at_ns = sent_ns(1, 0)
    stalled = measure_sweep(rows, LIMITS, Stalls(np.array([[at_ns, at_ns + MS]]), NO_STALLS.plane))
    assert stalled.errors["p50"].late == (late, int(error_ms > 0 and late)), "no stall makes a probe early"


def probes(phase: str = "before", *errors_ms: float, **changes: Any) -> pa.Table:
    """Probes of host 0 with hosts 1, 2 ..., one each a second, with RTTs of 80 ms asked for."""
    made = Sweeper(lambda attempt, src, dst: errors_ms[dst - 1])
    rows = [made.row(phase, 1, 1, 0, place) | {"rtt_at_ns": place * SECOND} for place in range(1, len(errors_ms) + 1)]
    return pa.Table.from_pylist([row | changes for row in rows], SCHEMA)


@pytest.mark.parametrize(
    ("errors_ms", "stalled", "late"),
    [
        ((0.6, 0.6, 0.1), (), (1, 0)),
        ((0.6, 0.1, 0.1), (), (0, 0)),
        ((9.0, 9.0, 0.1), (1,), (1, 1)),
        ((9.0, 9.0, 9.0), (1,), (1, 0)),
        ((9.0, 9.0, 9.0), (1, 2), (1, 1)),
        ((-9.0, -9.0, -9.0), (1, 2, 3), (1, 0)),
    ],
)
def test_stalls_explain_a_host_whose_other_pairs_would_be_in_time(
    errors_ms: tuple[float, ...], stalled: tuple[int, ...], late: tuple[int, int]
) -> None:
    """The median of host 0's pairs is judged by a limit of 0.5 ms. The other hosts' own pairs are in time."""
    others = Sweeper(lambda attempt, src, dst: 0.1)
    between = [others.row("before", 1, 1, one, other) for one, other in ((1, 2), (1, 3), (2, 3))]
    rows = pa.concat_tables([probes("before", *errors_ms), pa.Table.from_pylist(between, SCHEMA)])
    intervals = [
        [row["rtt_at_ns"], row["rtt_at_ns"] + 20 * MS] for row in rows.to_pylist()[:3] if row["dst"] in stalled
    ]
    stalls = Stalls(merge(np.array(intervals, np.int64).reshape(-1, 2)), NO_STALLS.plane)
    found = measure_sweep(rows, LIMITS, stalls)
    assert found.worst_host.late == late


QUEUES_MS = np.array([[99.0, 7.0, 99.0, 99.0], [20.0, 3.0, 99.0, 99.0]])
"""Up and down; most of them at links without a rate."""


def asked(**changes: Any) -> RoundTrips:
    return RoundTrips.of(Network.of(structs.replace(uniform_underlay(4, DELAY_MS), **changes)), idle=False)


def test_a_probe_may_take_longer_by_the_queues_that_it_passes() -> None:
    """Host 0 has a rate down, host 1 both; a probe passes the queues of both ends on its way and back."""
    queues = asked(rate_mbit=np.array([[0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]]), queue_ms=QUEUES_MS)
    assert queues.queue_ms[0].tolist() == [40.0, 30.0, 20.0, 20.0]
    assert queues.queue_ms[2, 3] == 0
    for errors_ms, late in (((30.0, 20.0, 0.0), 0), ((31.6, 21.6, 0.0), 2), ((-1.6, 0.0, 0.0), 1)):
        found = measure_sweep(probes("during", *errors_ms), LIMITS, NO_STALLS, queues)
        assert found.errors["p99"].late.samples == late
        assert found.queued
    idle = RoundTrips.of(Network(4, lambda a, b: DELAY_MS, rate_mbit=[1.0] * 8), idle=True)
    assert measure_sweep(probes("before", 30.0), LIMITS, NO_STALLS, idle).errors["p99"].late.samples == 1


def test_a_stall_explains_what_queues_do_not() -> None:
    queues = asked(rate_mbit=np.ones((2, 4)), queue_ms=np.full((2, 4), 5.0))
    rows = probes("during", 29.0)
    [at_ns] = rows["rtt_at_ns"].to_pylist()
    for length_ms, explained in ((8, 1), (1, 0)):
        stalls = Stalls(np.array([[at_ns, at_ns + length_ms * MS]]), NO_STALLS.plane)
        assert measure_sweep(rows, LIMITS, stalls, queues).errors["p99"].late == (1, explained)


@pytest.mark.parametrize("rate_mbit", [0.0, 1.0])
def test_lost_probes_are_counted_of_pairs_that_lose_none(rate_mbit: float) -> None:
    """Of the round trips of host 0 those with host 1 lose packets, on the way back; host 2 may have a queue."""
    loss_ratio = np.zeros((4, 4))
    loss_ratio[1, 0] = 0.1
    given = asked(loss_ratio=loss_ratio, rate_mbit=np.array([[0, 0, rate_mbit, 0]] * 2), queue_ms=np.ones((2, 4)))
    rows = probes("during", 0.0, 0.0, 0.0, sent=10, received=9)
    found = measure_sweep(rows, LIMITS, NO_STALLS, given)
    exposed = 2 if rate_mbit else 1
    assert (found.sent, found.received) == (10 * (3 - exposed), 9 * (3 - exposed))
    assert (found.exposed, found.exposed_lost) == (10 * exposed, exposed)
    assert found.asked_loss_ratio == pytest.approx(0.1)


def test_a_host_that_only_stalls_made_late_is_swept_again(tmp_path: Path) -> None:
    """The median of all pairs is in time, and so is their 99th percentile; the median of host 1 is not."""
    sweeper, _ = sweep(tmp_path, lambda attempt, src, _: 1.0 if attempt == 1 and src == 1 else 0.1, stall(1, 1))
    assert sweeper.sent == [PAIRS, of(1)]


def test_runs_of_earlier_versions_are_read(tmp_path: Path) -> None:
    row = Sweeper(lambda attempt, src, dst: 0.1).row("before", 3, 1, 0, 1)
    old = {name: value for name, value in row.items() if name not in ("attempt", "rtt_at_ns", "asked_there_ms")}
    pq.write_table(pa.Table.from_pylist([old]), tmp_path / "achieved.parquet")
    rows = read_achieved(tmp_path)
    assert rows is not None
    assert rows["attempt"].to_pylist() == [1]
    assert read_achieved(tmp_path / "none") is None


def test_without_pairs_there_are_no_first_packets(tmp_path: Path) -> None:
    certifier = Certifier(cast(Prober, None), uniform_network(1, DELAY_MS), tmp_path, 1)
    assert certifier.introduce(1000.0).num_rows == 0
    slots = read(tmp_path)
    assert slots is not None
    attempts = judge(slots, NO_STALLS)
    assert (standing(attempts, "pairs"), standing(attempts, "hosts")) == (None, None)


def test_without_pairs_nothing_is_swept_again(tmp_path: Path) -> None:
    sweeper = Sweeper(lambda attempt, src, dst: 0.1)
    certifier = Certifier(cast(Prober, sweeper), uniform_network(1, DELAY_MS), tmp_path, 1)
    sweeper.sweep = lambda *args, **kwargs: SCHEMA.empty_table()
    assert certifier.sweep("before", 3, lambda: 1000.0, LIMITS).num_rows == 0
