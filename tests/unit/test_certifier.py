"""What the certificate probes again: only pairs whose errors stalls of the host explain, at most three times."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.experiment.form import VerdictSpec
from harness.testbeds.emulated.certifier import Certifier
from harness.testbeds.emulated.probes import SCHEMA, Prober
from metrics.first_packets import judge, read, standing
from metrics.probing import last_attempts, measure_sweep, read_achieved, repeats
from metrics.rundir import Stall
from metrics.rundir.files import STALLS_FILE
from metrics.stalls import Stalls
from topologies.generated import uniform_underlay

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

    def sweep(self, phase: str, packets: int, pace: Any, pairs: Any = None, attempt: int = 1) -> pa.Table:
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
    certifier = Certifier(cast(Prober, sweeper), uniform_underlay(HOSTS, DELAY_MS), folder, 1)
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


def test_runs_of_earlier_versions_are_read(tmp_path: Path) -> None:
    row = Sweeper(lambda attempt, src, dst: 0.1).row("before", 3, 1, 0, 1)
    old = {name: value for name, value in row.items() if name not in ("attempt", "rtt_at_ns", "asked_there_ms")}
    pq.write_table(pa.Table.from_pylist([old]), tmp_path / "achieved.parquet")
    rows = read_achieved(tmp_path)
    assert rows is not None
    assert rows["attempt"].to_pylist() == [1]
    assert read_achieved(tmp_path / "none") is None


def test_without_pairs_there_are_no_first_packets(tmp_path: Path) -> None:
    certifier = Certifier(cast(Prober, None), uniform_underlay(1, DELAY_MS), tmp_path, 1)
    assert certifier.introduce(1000.0).num_rows == 0
    slots = read(tmp_path)
    assert slots is not None
    attempts = judge(slots, NO_STALLS)
    assert (standing(attempts, "pairs"), standing(attempts, "hosts")) == (None, None)


def test_without_pairs_nothing_is_swept_again(tmp_path: Path) -> None:
    sweeper = Sweeper(lambda attempt, src, dst: 0.1)
    certifier = Certifier(cast(Prober, sweeper), uniform_underlay(1, DELAY_MS), tmp_path, 1)
    sweeper.sweep = lambda *args, **kwargs: SCHEMA.empty_table()
    assert certifier.sweep("before", 3, lambda: 1000.0, LIMITS).num_rows == 0
