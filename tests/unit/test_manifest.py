"""The manifest's facts about the machine, and its clock."""

import time
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from harness.experiment.loader import load_experiment
from harness.live.following import is_locked
from harness.machine.pressure import PressureLog, PressureReading, count
from harness.planning import make_plan
from harness.planning.plan import Plan
from harness.stages import manifest
from harness.stages.execution import peer_states
from metrics.rundir import SCHEMA_VERSION, BegunPhase, ClockOffset, FinalState, Manifest, Phase, read_lines
from metrics.rundir.files import PHASES_FILE
from peer.runtime.agent_metrics import read_pss_bytes
from peer.runtime.clock import UNDILATED, Clock


def test_epoch_offset_turns_one_clock_into_the_other() -> None:
    offset_ns = manifest.epoch_offset_ns()
    before = time.time_ns()
    now = time.monotonic_ns() + offset_ns
    after = time.time_ns()
    assert before - 1_000_000 < now < after + 1_000_000


def test_versions_name_what_reaches_the_results() -> None:
    found = manifest.versions()
    assert {"python", "msgspec", "numpy"} <= set(found)
    assert all(found.values())


def test_phase_log_keeps_the_order_in_which_phases_ended(tmp_path: Path, capsys) -> None:
    log = manifest.PhaseLog(UNDILATED, tmp_path / PHASES_FILE)
    with log.phase("boot", "boot 3 hosts"):
        pass
    log.add("warmup", 5, 7)
    assert [phase.name for phase in log.phases] == ["boot", "warmup"]
    assert log.phases[0].start_ns <= log.phases[0].end_ns
    assert capsys.readouterr().err.startswith("boot 3 hosts: ")


def test_phase_log_says_which_phases_have_begun_or_are_planned(tmp_path: Path) -> None:
    log = manifest.PhaseLog(UNDILATED, tmp_path / PHASES_FILE)
    with log.phase("boot"):
        pass
    log.plan([Phase("warmup", 5, 7), Phase("workload", 7, 9)])
    boot, *planned = read_lines(tmp_path / PHASES_FILE, msgspec.json.Decoder(BegunPhase).decode)
    assert boot == BegunPhase("boot", log.phases[0].start_ns)
    assert planned == [BegunPhase("warmup", 5, 7), BegunPhase("workload", 7, 9)]


def test_phase_log_is_locked_as_long_as_it_lives(tmp_path: Path) -> None:
    log = manifest.PhaseLog(UNDILATED, tmp_path / PHASES_FILE)
    assert is_locked(tmp_path / PHASES_FILE)
    log.close()
    assert not is_locked(tmp_path / PHASES_FILE)


def test_a_full_disk_does_not_end_a_run_that_says_which_phase_begins() -> None:
    log = manifest.PhaseLog(UNDILATED, Path("/dev/full"))
    with log.phase("boot"):
        pass
    assert [phase.name for phase in log.phases] == ["boot"]


def test_a_dilated_phase_log_is_in_virtual_time(tmp_path: Path) -> None:
    clock = Clock(50)
    log = manifest.PhaseLog(clock, tmp_path / PHASES_FILE)
    before_ns = clock.now_ns()
    with log.phase("boot"):
        pass
    assert before_ns <= log.phases[0].start_ns <= log.phases[0].end_ns <= clock.now_ns()


def test_memory_of_a_process_that_is_gone_is_nothing() -> None:
    import os

    assert read_pss_bytes([os.getpid()]) > 1 << 20
    assert read_pss_bytes([2**22 + 1]) == 0


def test_manifest_is_written_whole(tmp_path: Path) -> None:
    written = Manifest("run", "emulated", 1, 2, (), (), {"frames_in": 3}, {}, {}, {})
    manifest.write(tmp_path, written)
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
    found = msgspec.json.decode((tmp_path / "manifest.json").read_bytes(), type=Manifest)
    assert found == replace(written, schema_version=SCHEMA_VERSION)


@pytest.mark.parametrize("clock", [UNDILATED, Clock(50)], ids=["undilated", "dilated"])
def test_pressure_log_writes_shares_of_the_time_since_the_line_before(tmp_path: Path, clock: Clock) -> None:
    log = PressureLog(tmp_path / "pressure.jsonl", clock)
    begun_ns = clock.now_ns()
    log.start()
    busy_until = time.process_time() + 0.05  # the last line needs a tick of the kernel's clock
    while time.process_time() < busy_until:
        pass
    log.stop()
    readings = msgspec.json.Decoder(PressureReading).decode_lines((tmp_path / "pressure.jsonl").read_bytes())
    assert readings
    for reading in readings:
        assert begun_ns <= reading.at_ns <= clock.now_ns()
        assert 0 <= reading.cpu_busy_ratio <= 1
        assert 0 <= reading.steal_ratio <= 1
        assert reading.cpu_some_ratio is None or 0 <= reading.cpu_some_ratio <= 1


def test_a_pressure_log_that_cannot_be_written_is_lost() -> None:
    log = PressureLog(Path("/dev/full"), UNDILATED)
    assert log.lost() == {}
    log.start()
    deadline_s = time.monotonic() + 300
    while not log.lost() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert "No space left" in log.lost()["the pressure log"]
    log.stop()


def test_what_is_nice_to_others_is_time_but_not_busy() -> None:
    """user, nice, system, idle, iowait, irq, softirq, steal, and guests, which are in user and nice already."""
    totals = count("cpu  100 2000 30 400 50 6 7 80 9 9\ncpu0 1 2 3 4 5 6 7 8 9 9\n", None)
    assert (totals.busy, totals.steal, totals.ticks) == (143, 80, 2673)


def test_ends_of_peers_are_told_by_our_clock(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text('name = "x"\nprotocol = "complete"\n[underlay]\nhosts = 3\n')
    for machine, node in (("m0", 0), ("m1", 1)):
        state = FinalState(f"peer-{node}", "exited", "signalled", 9, 1_000_000)
        (tmp_path / f"exits-{machine}.jsonl").write_bytes(msgspec.json.encode(state) + b"\n")
    (tmp_path / "clocks.json").write_bytes(msgspec.json.encode({"m1": ClockOffset(0, 400_000, 1)}))
    states = peer_states(planned_on(file, "m0", "m1", "m1"), tmp_path)
    assert [(state.state, state.at_ns) for state in states] == [
        ("signalled", 1_000_000),
        ("signalled", 600_000),
        ("missing", None),
    ]


def test_words_of_agents_have_no_control_characters(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text('name = "x"\nprotocol = "complete"\n[underlay]\nhosts = 2\n')
    state = FinalState("peer-0", "exited", "\x1b[2J", 9, 5, "\x1b[31mred")
    (tmp_path / "exits-m0.jsonl").write_bytes(msgspec.json.encode(state) + b"\n")
    found = peer_states(planned_on(file, "m0", "m0"), tmp_path)[0]
    assert (found.state, found.detail) == ("\ufffd[2J", "\ufffd[31mred")


def planned_on(file: Path, *machines: str) -> Plan:
    """The plan of an experiment, its nodes placed on these machines."""
    plan = make_plan(load_experiment(file), file).plan
    placement = zip(plan.placement, machines, strict=True)
    return replace(plan, placement=tuple(replace(place, machine=machine) for place, machine in placement))


def test_a_machine_speaks_of_its_own_peers_only_and_nonsense_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text('name = "x"\nprotocol = "complete"\n[underlay]\nhosts = 3\n')
    lies = [FinalState(f"peer-{node}", "signalled", "exited", 0, 5) for node in (0, 2)]
    (tmp_path / "exits-m0.jsonl").write_bytes(b"".join(msgspec.json.encode(lie) + b"\n" for lie in lies))
    whole = msgspec.json.encode(FinalState("peer-1", "exited", "signalled", 9, 5))
    (tmp_path / "exits-m1.jsonl").write_bytes(whole + b"\n" + b'{"process": "peer-1", "expe')
    (tmp_path / "exits-m2.jsonl").write_bytes(b'\xff{"process": 3}\n')
    states = peer_states(planned_on(file, "m0", "m1", "m2"), tmp_path)
    assert [(state.expected, state.state) for state in states] == [
        ("exited", "exited"), ("exited", "signalled"), ("exited", "missing")
    ]  # fmt: skip
