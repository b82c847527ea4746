"""The captures in hosts of a run against the data plane's: what is read of a run directory, and what is judged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from harness.planes.pcapng import PacketForms, interface, section_header, statistics
from metrics.checks.host_captures import RULES
from metrics.pcap.records import RX, TX
from metrics.recorded.host_captures import (
    KEY_BYTES,
    HostCaptures,
    HostCounts,
    Seen,
    Tally,
    Waits,
    choose_hosts,
    compare_captures,
    read_seen,
)
from metrics.recorded.stalls import Late, Stalls, is_the_hosts
from metrics.rundir import FAILED, NOT_JUDGED, PASSED, Check, RunDir, RunDirError
from metrics.rundir.files import HOST_CAPTURE_FILE
from tests.fabricate import OFFSET_NS, SECOND, SNAPLEN, ZERO_NS, Fabrication
from tests.sound_evidence import MS, NO_STALLS, SOUND

SAMPLED = 2
Row = tuple[int, int, int, bytes]
"""Instant, host, direction flag and bytes of a packet, as the fabrication has them."""

END_NS = ZERO_NS + 4 * SECOND


@pytest.fixture(scope="module")
def fabrication() -> Fabrication:
    return Fabrication(seed=3, nodes=5, topics=3, messages=20)


Make = Callable[..., RunDir]


@pytest.fixture
def make(fabrication: Fabrication, tmp_path: Path) -> Make:
    """Write a run whose hosts have captures of their own."""

    def make(change: Callable[[list[Row]], list[Row]] = lambda rows: rows, dropped: int = 0) -> RunDir:
        run = RunDir(fabrication.write(tmp_path / "run"))
        plan = json.loads((run.path / "plan.json").read_bytes())
        plan["experiment"]["capture"]["checked_hosts"] = SAMPLED
        (run.path / "plan.json").write_text(json.dumps(plan))
        path = run.path / HOST_CAPTURE_FILE
        path.parent.mkdir()
        path.write_bytes(capture(change(sampled_rows(fabrication)), dropped))
        return run

    return make


def sampled_rows(fabrication: Fabrication) -> list[Row]:
    hosts = choose_hosts(1, 5, SAMPLED)
    return sorted((row for row in fabrication.packets if row[1] in hosts), key=lambda row: row[:3])


def capture(rows: list[Row], dropped: int) -> bytes:
    """A capture file of the sampled hosts."""
    hosts, forms = choose_hosts(1, 5, SAMPLED), PacketForms(SNAPLEN)
    blocks = [section_header(), *(interface(str(host), SNAPLEN) for host in hosts)]
    blocks += [
        forms.packet(hosts.index(host), flag, at_ns + OFFSET_NS, data[:SNAPLEN], len(data))
        for at_ns, host, flag, data in rows
    ]
    blocks += [statistics(index, 0, 0, 1000, dropped * (index == 0)) for index in range(len(hosts))]
    return b"".join(blocks)


def judged(rows: list[Row]) -> list[Row]:
    return [row for row in rows if ZERO_NS <= row[0] < END_NS]


def captured(**counts: int) -> HostCaptures:
    """What the captures of one host have."""
    return HostCaptures(1, (HostCounts(4, **counts),))


def checks(found: HostCaptures) -> dict[str, Check]:
    evidence = structs.replace(SOUND, host_captures=found)
    made = [rule.check(evidence) for rule in RULES]
    return {check.name.removeprefix("host_capture_"): check for check in made}


# ---------------------------------------------------------------------------------------------- of a run directory


def test_equal_captures_agree_packet_by_packet(make: Make, fabrication: Fabrication) -> None:
    run = make()
    start_ns, end_ns = run.judged_ns
    rows = [row for row in sampled_rows(fabrication) if start_ns <= row[0] < end_ns]
    found = compare_captures(run.path)
    assert found is not None
    assert (found.asked, len(found.counts), found.total("pairs"), found.total("unmatched")) == (2, 2, len(rows), 0)
    assert found.outbound.samples == sum(flag == 2 for _, _, flag, _ in rows) > 0
    assert (found.outbound.max_ms, found.inbound.max_ms) == (0, 0)


def test_a_packet_that_one_capture_lacks_is_found_in_the_judged_span_only(make: Make) -> None:
    taken: list[Row] = []

    def take(rows: list[Row]) -> list[Row]:
        before, inside = ([row for row in rows if early is (row[0] < ZERO_NS)] for early in (True, False))
        taken.extend([before[0], inside[10], inside[11]])
        return [row for row in rows if row not in taken]

    found = compare_captures(make(take).path)
    assert found is not None and len(taken) == 3
    assert found.total("unmatched") == 2
    assert found.total("unsent") == sum(flag == 2 for _, _, flag, _ in taken[1:])
    assert found.total("undelivered") == sum(flag == 1 for _, _, flag, _ in taken[1:])


def test_packets_that_the_kernel_dropped_are_excused_by_their_number(make: Make) -> None:
    def take(rows: list[Row]) -> list[Row]:
        inside = judged(rows)
        return [row for row in rows if row not in inside[10:13]]

    found = compare_captures(make(take, dropped=2).path)
    assert found is not None
    assert (
        found.total("unsent") + found.total("undelivered"),
        found.total("kernel_dropped"),
        found.total("unmatched"),
    ) == (3, 2, 1)


def test_a_capture_is_read_the_same_in_small_windows(make: Make) -> None:
    run = make()
    files = [run.path / HOST_CAPTURE_FILE]
    host = choose_hosts(1, 5, SAMPLED)[1]
    whole = read_seen(files, host)
    pieces = read_seen(files, host, window_bytes=1000)
    assert whole is not None and pieces is not None and len(whole) > 50
    for name in ("tap", "at_ns", "wire_bytes", "keys"):
        assert np.array_equal(getattr(whole, name), getattr(pieces, name)), name


def test_a_key_ends_with_its_packet(tmp_path: Path) -> None:
    forms, path = PacketForms(SNAPLEN), tmp_path / "hosts.pcapng"
    data = bytes([0x45, *range(1, 40)])
    path.write_bytes(section_header() + interface("4", SNAPLEN) + forms.packet(0, 2, 5, data) * 2)
    seen = read_seen([path], 4)
    assert seen is not None
    assert [bytes(key) for key in seen.keys] == [data + bytes(KEY_BYTES - len(data))] * 2
    assert (seen.tap.tolist(), seen.at_ns.tolist(), seen.wire_bytes.tolist()) == ([TX, TX], [5, 5], [40, 40])
    assert read_seen([path], 5) is None


def test_a_host_that_sent_nothing_has_an_empty_capture(tmp_path: Path) -> None:
    path = tmp_path / "hosts.pcapng"
    path.write_bytes(section_header() + interface("4", SNAPLEN))
    seen = read_seen([path], 4)
    assert seen is not None and len(seen) == 0
    tally = Tally((0, 1), 1, NO_STALLS)
    tally.add(0, seen, seen)
    assert tally.result(1) == HostCaptures(1, (HostCounts(0),))


@pytest.mark.parametrize("broken", [b"", b"no capture", None])
def test_a_run_without_its_captures_in_hosts_tests_nothing(make: Make, broken: bytes | None) -> None:
    run = make()
    path = run.path / HOST_CAPTURE_FILE
    path.unlink() if broken is None else path.write_bytes(broken)
    found = compare_captures(run.path)
    assert found == HostCaptures(asked=2)
    assert [check.outcome for check in checks(found).values()] == [NOT_JUDGED] * 3


def test_a_run_that_samples_no_hosts_is_not_judged(fabrication: Fabrication, tmp_path: Path) -> None:
    assert compare_captures(fabrication.write(tmp_path / "run")) is None


@pytest.mark.parametrize(
    "changed", [{"capture": {"enabled": False, "checked_hosts": 2}}, {"capture": {"enabled": True}}, {"capture": {}}]
)
def test_a_run_that_captured_nothing_or_is_older_is_not_judged(make: Make, changed: dict[str, Any]) -> None:
    run = make()
    plan = json.loads((run.path / "plan.json").read_bytes())
    plan["experiment"] |= changed
    (run.path / "plan.json").write_text(json.dumps(plan))
    assert compare_captures(run.path) is None


@pytest.mark.parametrize("count", [-1, 65, 1.5, "3"])
def test_a_plan_with_no_number_of_hosts_is_damaged(make: Make, count: Any) -> None:
    run = make()
    plan = json.loads((run.path / "plan.json").read_bytes())
    plan["experiment"]["capture"]["checked_hosts"] = count
    (run.path / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(RunDirError, match="checked_hosts"):
        compare_captures(run.path)


def test_the_seed_chooses_the_hosts() -> None:
    assert choose_hosts(1, 20, 3) == choose_hosts(1, 20, 3) == sorted(set(choose_hosts(1, 20, 3)))
    assert len({tuple(choose_hosts(seed, 20, 3)) for seed in range(20)}) > 10
    assert choose_hosts(1, 4, 9) == [0, 1, 2, 3]
    assert choose_hosts(1, 4, 0) == []


# ---------------------------------------------------------------------------------------------- what is judged


def waits_of(due_ns: list[int], came_ns: list[int], stalls: Stalls = NO_STALLS, tap: int = TX) -> HostCaptures:
    """Different packets of a host with these timestamps: the kernel's first if they are outbound."""
    keys = np.zeros((len(due_ns), KEY_BYTES), np.uint8)
    keys[:, :8] = np.arange(len(due_ns), dtype=">i8").view(np.uint8).reshape(-1, 8)
    taps, size = np.full(len(due_ns), tap, np.int8), np.full(len(due_ns), 60)
    first, second = (Seen(taps, np.array(at_ns, np.int64), size, keys) for at_ns in (due_ns, came_ns))
    tally = Tally((0, SECOND), MS // 2, stalls)
    tally.add(0, *((first, second) if tap == TX else (second, first)))
    return tally.result(1)


@pytest.mark.parametrize(("tap", "name"), [(TX, "outbound"), (RX, "inbound")])
@pytest.mark.parametrize(("late", "fails"), [(2, False), (3, True)])
def test_more_than_one_packet_in_a_hundred_must_not_be_late(tap: int, name: str, late: int, fails: bool) -> None:
    due_ns = [number * MS for number in range(200)]
    came_ns = [at_ns + (MS // 2 + 1 if number < late else MS // 2) for number, at_ns in enumerate(due_ns)]
    found = waits_of(due_ns, came_ns, tap=tap)
    check = checks(found)[name]
    assert (check.tested, bool(check.failed), check.late, check.allowed) == (200, fails, late, 2)
    assert check.worst == (0.500001 if fails else 0.5)
    others = {each for each, made in checks(found).items() if made.failed}
    assert others == ({name} if fails else set())


def test_a_record_that_is_earlier_than_the_packet_is_late_and_no_stall_explains_it() -> None:
    at_ns = [number * MS for number in range(100, 300)]
    early_ns = [instant_ns - 20 * MS for instant_ns in at_ns]
    stalls = Stalls(np.array([[0, SECOND]]), np.empty((0, 2), np.int64))
    late, early = waits_of(early_ns, at_ns, stalls), waits_of(at_ns, early_ns, stalls)
    assert (late.outbound.late, late.outbound.reversed) == (Late(200, 200), 0)
    assert (early.outbound.late, early.outbound.reversed) == (Late(200, 0), 200)
    assert is_the_hosts(checks(late)["outbound"])
    assert not is_the_hosts(checks(early)["outbound"])
    assert checks(early)["outbound"].failed
    assert "200 of the late ones came before the record says" in checks(early)["outbound"].detail


def test_each_way_to_differ_is_said_and_fails() -> None:
    ways = {
        "unread": "7 left a host and were not read by the data plane",
        "unsent": "7 were read by the data plane and left no host",
        "undelivered": "7 were written by the data plane and reached no host",
        "unwritten": "7 reached a host and were not written by the data plane",
    }
    for name, said in ways.items():
        check = checks(captured(pairs=1000, **{name: 7}))["packets"]
        assert (check.tested, check.failed, check.severity) == (1007, 7, "invalid")
        assert said in check.detail


def test_too_few_packets_pass_nothing_but_a_difference_still_fails() -> None:
    few = Waits(samples=19, p99_ms=9.0, late=Late(19, 0))
    found = structs.replace(captured(pairs=19), outbound=few, inbound=few)
    assert [check.outcome for check in checks(found).values()] == [NOT_JUDGED] * 3
    enough = structs.replace(few, samples=20)
    judged = checks(structs.replace(captured(pairs=20), outbound=enough, inbound=enough))
    assert [check.outcome for check in judged.values()] == [PASSED, FAILED, FAILED]
    assert checks(captured(pairs=9, unread=3))["packets"].failed == 3
    assert checks(structs.replace(captured(unread=3), asked=2))["packets"].failed == 3


@pytest.mark.parametrize(("late", "outcome"), [(1, PASSED), (2, FAILED)])
def test_one_of_few_packets_may_be_late(late: int, outcome: str) -> None:
    due_ns = [number * MS for number in range(50)]
    found = waits_of(due_ns, [at_ns + 9 * MS * (number < late) for number, at_ns in enumerate(due_ns)])
    assert (found.outbound.max_ms, found.outbound.p99_ms > 0.5) == (9.0, late > 1)
    assert checks(found)["outbound"].outcome == outcome


def test_hosts_without_a_capture_pass_nothing() -> None:
    assert checks(structs.replace(captured(pairs=1000), asked=2))["packets"].outcome == NOT_JUDGED


def test_drops_excuse_the_other_capture_only() -> None:
    found = HostCounts(1, pairs=1000, unread=5, unsent=2, kernel_dropped=100)
    assert (found.excused, found.unmatched, found.tested) == (2, 5, 1005)
    assert structs.replace(found, plane_dropped=4).unmatched == 1
    for pairs, outcome in ((99_000, PASSED), (98_999, NOT_JUDGED)):
        check = checks(captured(pairs=pairs, undelivered=1000, kernel_dropped=1000))["packets"]
        assert check.outcome == outcome
        assert ("drops excuse too much of host 4" in check.detail) == (outcome == NOT_JUDGED)
        assert "the captures dropped 1,000 of host 4" in check.detail
        if outcome == PASSED:
            assert (check.tested, check.material) == (pairs, pairs + 1000)


def test_the_drops_of_a_host_excuse_nothing_of_another() -> None:
    dropping, other = HostCounts(1, pairs=99_000, kernel_dropped=500), HostCounts(2, pairs=1000, unsent=1)
    check = checks(HostCaptures(2, (dropping, other)))["packets"]
    assert (check.failed, check.tested) == (1, 100_001)
    assert checks(HostCaptures(2, (dropping, structs.replace(other, kernel_dropped=1))))["packets"].outcome == PASSED


def test_one_host_of_many_that_drops_excuse_is_not_judged_and_the_others_are() -> None:
    """Of all packets of the run the drops excuse less than 1 %, of the one host more."""
    sound = [HostCounts(number, pairs=100_000) for number in range(2, 9)]
    blurred = HostCounts(1, pairs=1000, unsent=20, kernel_dropped=20)
    check = checks(HostCaptures(8, (blurred, *sound)))["packets"]
    assert (check.outcome, check.severity) == (NOT_JUDGED, "invalid")
    assert "drops excuse too much of host 1" in check.detail
    found = checks(HostCaptures(8, (blurred, structs.replace(sound[0], unread=1), *sound[1:])))["packets"]
    assert (found.outcome, found.failed) == (FAILED, 1)
