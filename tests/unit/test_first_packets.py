"""The judgement over slots: hand-made first packets and controls, late or not."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.checks.evidence import Emulation
from metrics.checks.network import RULES
from metrics.recorded.first_packets import SCHEMA, another_due, judge, read, sign_test, standing
from metrics.recorded.stalls import Stalls, is_the_hosts, read_stalls
from metrics.rundir import NOT_APPLICABLE, NOT_JUDGED, PASSED, Check, Stall
from metrics.rundir.files import FIRST_PACKETS_FILE, STALLS_FILE

MS = 1_000_000
RTT_MS, USUAL_MS = 80.0, 0.2
NO_STALLS = Stalls(np.empty((0, 2), np.int64), np.empty((0, 2), np.int64))


def slots(count: int, attempt: int = 1, **changes: Any) -> list[dict[str, Any]]:
    """Slots a second apart in which nothing is late, but for ``changes`` to all of them."""
    rows = []
    for number in range(count):
        probe = {"src": 1, "dst": 2, "asked_there_ms": 40.0, "asked_rtt_ms": RTT_MS, "rtt_ms": RTT_MS + USUAL_MS}
        probe["at_ns"] = (1000 * attempt + number) * 1000 * MS
        control = {f"control_{name}": value for name, value in probe.items()}
        rows.append({"attempt": attempt, "host_first": False} | probe | control | changes)
    return rows


def late(count: int, who: str = "", by_ms: float = 1.1, **changes: Any) -> list[dict[str, Any]]:
    return slots(count, **{f"{who}rtt_ms": RTT_MS + USUAL_MS + by_ms}, **changes)


def table(*rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([row for part in rows for row in part], SCHEMA)


def found(*rows: list[dict[str, Any]], name: str = "pairs") -> bool:
    attempts = judge(table(*rows), NO_STALLS)
    return next(contrast.found for contrast in attempts[0].contrasts if contrast.name == name)


@given(first_only=st.integers(0, 60), control_only=st.integers(0, 60))
def test_sign_test_is_a_binomial_tail(first_only: int, control_only: int) -> None:
    trials = first_only + control_only
    ways = sum(math.comb(trials, successes) for successes in range(first_only, trials + 1))
    assert sign_test(first_only, control_only) == ways / 2**trials


def test_sign_test_of_thousands_is_exact_and_fast() -> None:
    assert sign_test(3000, 3000) == pytest.approx(0.5, abs=0.01)
    assert sign_test(6000, 0) == 0.0


@pytest.mark.parametrize(
    ("first_only", "control_only", "others", "expected"),
    [
        (9, 0, 100, False),  # p = 1/512
        (10, 0, 100, True),  # p = 1/1024
        (12, 2, 100, False),  # p = 0.0065
        (20, 2, 100, True),
        (20, 0, 1980, False),  # 1 % of the slots compared, not more
        (21, 0, 1979, True),
        (0, 40, 100, False),
        (40, 40, 0, False),
    ],
)
def test_pairs_are_found_by_share_and_by_chance(
    first_only: int, control_only: int, others: int, expected: bool
) -> None:
    assert found(late(first_only), late(control_only, who="control_"), slots(others)) is expected


@pytest.mark.parametrize(
    ("first_only", "others", "expected"), [(6, 0, False), (7, 0, True), (7, 20, True), (7, 21, False)]
)
def test_hosts_are_found_by_share_and_by_chance(first_only: int, others: int, expected: bool) -> None:
    rows = late(first_only, host_first=True), slots(others, host_first=True), slots(100)
    assert found(*rows, name="hosts") is expected


def test_late_is_a_millisecond_above_the_usual_error_of_controls() -> None:
    assert not found(late(30, by_ms=0.99), slots(100))
    assert found(late(30, by_ms=1.01), slots(100))
    slow = slots(100, rtt_ms=RTT_MS + 5, control_rtt_ms=RTT_MS + 5)  # an error of all probes is not the first packets'
    assert not found(slow)


def test_slots_in_which_both_are_late_are_no_evidence() -> None:
    assert not found(slots(200, rtt_ms=RTT_MS + 30, control_rtt_ms=RTT_MS + 4), slots(300))


@pytest.mark.parametrize(
    "lacking",
    [
        {"rtt_ms": None},
        {"control_rtt_ms": None},
        {"control_src": None, "control_dst": None, "control_at_ns": None, "control_rtt_ms": None}
        | {"control_asked_there_ms": None, "control_asked_rtt_ms": None},
        {"control_asked_there_ms": 31.9},
        {"control_asked_there_ms": 48.1, "control_asked_rtt_ms": RTT_MS + 8.1},
        {"control_asked_rtt_ms": RTT_MS + 8.1, "control_rtt_ms": RTT_MS + 8.1},
    ],
)
def test_slots_without_a_matched_control_or_a_reply_are_not_compared(lacking: dict[str, Any]) -> None:
    rows = [row | lacking for row in late(50)]
    (attempt,) = judge(table(rows, slots(20)), NO_STALLS)
    assert (attempt.contrasts[0].slots, attempt.contrasts[0].tally.compared) == (70, 20)
    assert not attempt.contrasts[0].found


def test_hosts_controls_may_be_further_apart() -> None:
    far = {"control_asked_there_ms": 99.0, "control_asked_rtt_ms": RTT_MS + 59, "control_rtt_ms": RTT_MS + 59.2}
    (attempt,) = judge(table(late(8, host_first=True, **far), slots(100)), NO_STALLS)
    pairs, hosts = attempt.contrasts
    assert (pairs.tally.compared, hosts.tally.compared, hosts.found) == (100, 8, True)


# ------------------------------------------------------------------------------------------------ attempts


FAULTY, SOUND, FEW = (late(30), slots(30)), (slots(60),), (slots(9),)
LOW = (late(6), slots(54))
"""Suspicious, p = 1/64, and no more."""


def renumbered(parts: tuple[list[dict[str, Any]], ...], attempt: int) -> list[dict[str, Any]]:
    return [row | {"attempt": attempt} for part in parts for row in part]


@pytest.mark.parametrize(
    ("parts", "fails", "another"),
    [
        ([SOUND], False, False),
        ([FAULTY], True, True),
        ([FAULTY, SOUND], False, False),
        ([FAULTY, FAULTY], True, False),
        ([FAULTY, FEW], True, False),  # what cannot find a fault does not acquit
        ([FEW], False, False),
        ([LOW], False, True),
        ([LOW, SOUND], False, False),
        ([LOW, LOW], True, False),  # 12 of 120 together
        ([(late(5), slots(55)), (late(5), slots(55))], False, True),  # 10 together, p = 1/1024, judged twice
        ([(late(5), slots(55)), (late(4), slots(56))], False, True),
        ([(late(5), slots(55)), (late(4), slots(56)), (late(4), slots(56))], True, False),
        ([(late(5), slots(55)), (late(4), slots(56)), (late(3), slots(57))], False, False),
        ([(late(3), slots(57))], False, False),  # p = 1/8 is no suspicion
        ([(late(5), slots(500))], False, False),  # nor is 1 %
    ],
)
def test_a_fault_counts_when_no_later_attempt_that_could_find_it_does_not(
    tmp_path: Path, parts: list[Any], fails: bool, another: bool
) -> None:
    rows = table(*(renumbered(part, number + 1) for number, part in enumerate(parts)))
    assert another_due(judge(rows, NO_STALLS)) is another
    assert bool(checks(tmp_path, rows)["first_packet"].failed) is fails


def checks(folder: Path, rows: pa.Table, *stalls: Stall) -> dict[str, Check]:
    pq.write_table(rows, folder / FIRST_PACKETS_FILE)
    (folder / STALLS_FILE).write_bytes(b"".join(stall.line() for stall in stalls))
    return checked(folder)


def checked(folder: Path) -> dict[str, Check]:
    rows = read(folder)
    attempts = None if rows is None else tuple(judge(rows, read_stalls(folder)))
    recorded = Emulation(
        hosts=9,
        sweeps={},
        asked_sweeps=(),
        first_packets=attempts,
        spans=(),
        pressure=(),
        judged_ns=(0, 0),
        workload=None,
        stalls=NO_STALLS,
        lateness_p99_ms=0.5,
    )
    evidence = SimpleNamespace(emulation=recorded)
    found = [rule.check(evidence) for rule in RULES if rule.name.startswith("first_packet")]
    return {check.name: check for check in found if check is not None}


def test_checks_show_every_attempt_and_what_had_no_control(tmp_path: Path) -> None:
    rows = table(late(30), slots(28), slots(2, rtt_ms=None), slots(60, attempt=2))
    check = checks(tmp_path, rows)["first_packet"]
    assert (check.tested, check.failed, check.worst, check.severity) == (60, 0, 0, "suspect")
    assert "attempt 1: of 58 first packets" in check.detail and "attempt 2: of 60 first packets" in check.detail
    assert "30 times" in check.detail and "2 without a control or lost" in check.detail


def test_checks_say_when_too_few_hosts_were_compared(tmp_path: Path) -> None:
    found = checks(tmp_path, table(slots(9), late(3, host_first=True)))
    assert [(check.tested, check.outcome) for check in found.values()] == [(12, PASSED), (0, NOT_APPLICABLE)]
    assert "fewer than 7" in found["first_packet_hosts"].detail


@pytest.mark.parametrize(("lost", "outcome"), [(11, NOT_APPLICABLE), (12, NOT_JUDGED)])
def test_checks_of_many_first_packets_that_gave_no_comparison_are_not_judged(
    tmp_path: Path, lost: int, outcome: str
) -> None:
    found = checks(tmp_path, table(slots(2, host_first=True), slots(lost, host_first=True, rtt_ms=None)))
    assert found["first_packet_hosts"].outcome == outcome


def test_checks_miss_the_file(tmp_path: Path) -> None:
    found = checked(tmp_path)
    assert found["first_packet"].failed and "missing" in found["first_packet"].detail
    assert found["first_packet_hosts"].outcome == NOT_JUDGED


@pytest.mark.parametrize(
    ("after_ms", "by_stalls"),
    [(0, True), (40, True), (80, True), (20, False), (60, False), (-20, False), (100, False)],
)
def test_a_fault_that_is_found_only_with_slots_that_met_a_stall_is_the_hosts(
    tmp_path: Path, after_ms: int, by_stalls: bool
) -> None:
    """At the sending, at the arrival or at the reply's; in between nothing of a probe is due."""
    rows = table(late(12), slots(100))
    stalls = [
        Stall("host", at - MS, at + MS, 0)
        for at in (row["at_ns"] + after_ms * MS for row in rows.slice(0, 12).to_pylist())
    ]
    check = checks(tmp_path, rows, *stalls)["first_packet"]
    assert check.failed == 12
    assert is_the_hosts(check) is by_stalls
    plane = [Stall("plane", stall.start_ns, stall.end_ns) for stall in stalls]
    assert not is_the_hosts(checks(tmp_path, rows, *plane)["first_packet"])


def test_stalls_that_met_some_slots_do_not_excuse_the_others(tmp_path: Path) -> None:
    rows = table(late(22), slots(100))
    stalls = [Stall("host", row["at_ns"], row["at_ns"] + MS, 0) for row in rows.slice(0, 12).to_pylist()]
    check = checks(tmp_path, rows, *stalls)["first_packet"]
    assert (check.failed, check.late, check.explained) == (22, 22, 12)
    assert not is_the_hosts(check)


def test_a_third_attempt_needs_a_stall_and_fresh_pairs() -> None:
    rows = table(renumbered(FAULTY, 1), renumbered(FAULTY, 2))
    starts = [row["at_ns"] for row in rows.slice(0, 30).to_pylist()]
    stalls = Stalls(np.array([[at, at + MS] for at in starts]), NO_STALLS.plane)
    assert not another_due(judge(rows, NO_STALLS))
    assert another_due(judge(rows, stalls))
    assert not another_due(judge(pa.concat_tables([rows, table(renumbered(FAULTY, 3))]), stalls))


def test_what_stands_is_the_last_attempt_that_could_tell() -> None:
    attempts = judge(table(renumbered(FAULTY, 1), renumbered(FEW, 2)), NO_STALLS)
    contrast = standing(attempts, "pairs")
    assert contrast is not None and contrast.tally.compared == 60
    assert standing(attempts, "hosts") is None


@pytest.mark.parametrize(("second", "cleared"), [(100, True), (99, False)])
def test_a_much_smaller_attempt_clears_nothing(second: int, cleared: bool) -> None:
    """A fifth of the first packets late, and again, but too few for a second attempt to say so by itself."""
    rows = table(late(40), slots(160), late(2, attempt=2), slots(second - 2, attempt=2))
    contrast = standing(judge(rows, NO_STALLS), "pairs")
    assert contrast is not None
    assert contrast.found is not cleared
