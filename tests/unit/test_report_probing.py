"""The report's tables of probing: every attempt is there."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from metrics import first_packets
from metrics.probing import read_achieved
from metrics.report.probing import first_packet_rows, round_trip_rows, sweep_rows
from metrics.round_trips import SCHEMA
from metrics.rundir import RunDir, Stall
from metrics.rundir.files import FIRST_PACKETS_FILE, ROUND_TRIPS_FILE, STALLS_FILE
from tests.fabricate import Fabrication


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(Fabrication(seed=3, nodes=5, topics=3, messages=20).write(tmp_path / "run"))


def test_sound_first_packets_have_one_attempt(run: RunDir) -> None:
    rows = [(row["of"], row["attempt"], row["compared"], row["outcome"]) for row in first_packet_rows(run)]
    assert rows == [("pairs", 1, 20, "not late"), ("hosts", 1, 5, "too few to tell")]


def test_every_attempt_at_first_packets_is_shown_and_whose_fault_it_was(run: RunDir) -> None:
    slots = first_packets.read(run.path)
    assert slots is not None
    late = pc.add(slots["rtt_ms"], 5.0)
    faulty = slots.set_column(slots.schema.get_field_index("rtt_ms"), "rtt_ms", late)
    second = slots.set_column(0, "attempt", pa.array([2] * slots.num_rows, pa.int32()))
    pq.write_table(pa.concat_tables([faulty, second]), run.path / FIRST_PACKETS_FILE)
    rows = first_packet_rows(run)
    shown = [(row["of"], row["attempt"], row["first_only"], row["outcome"]) for row in rows]
    assert shown[0] == ("pairs", 1, 20, "late")
    assert shown[2] == ("pairs", 2, 0, "not late")
    stalls = [Stall("host", at, at + 1_000_000, 0).line() for at in slots["at_ns"].to_pylist()]
    (run.path / STALLS_FILE).write_bytes(b"".join(stalls))
    assert first_packet_rows(run)[0]["outcome"] == "late, by stalls of the host"


def test_every_sweep_and_attempt_is_shown(run: RunDir) -> None:
    achieved = read_achieved(run.path)
    assert achieved is not None
    again = achieved.filter(pc.and_(pc.equal(achieved["phase"], "after"), pc.equal(achieved["src"], 0)))
    again = again.set_column(again.schema.get_field_index("attempt"), "attempt", pa.array([2] * 4, pa.int32()))
    pq.write_table(pa.concat_tables([achieved, again.cast(achieved.schema)]), run.path / "achieved.parquet")
    rows = [(row["phase"], row["attempt"], row["pairs"]) for row in sweep_rows(run)]
    assert rows == [("before", 1, 10), ("after", 1, 10), ("after", 2, 4)]
    assert all(0 < row["p50_ms"] <= row["p99_ms"] < 0.3 for row in sweep_rows(run))


def test_without_files_there_is_nothing_to_show(run: RunDir) -> None:
    (run.path / "achieved.parquet").unlink()
    (run.path / FIRST_PACKETS_FILE).unlink()
    assert first_packet_rows(run) == sweep_rows(run) == round_trip_rows(run) == []


def test_round_trips_that_machines_measured_are_shown_by_phase(run: RunDir) -> None:
    trips_ms = {"after": [None, None], "before": [10.0, 20.0, None, 12.0]}
    rows = [
        {"src_ip": "a", "dst_ip": "bc"[number % 2], "phase": phase, "at_ns": number, "rtt_ms": rtt_ms}
        for phase, found_ms in trips_ms.items()
        for number, rtt_ms in enumerate(found_ms)
    ]
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), run.path / ROUND_TRIPS_FILE)
    before, after = round_trip_rows(run)
    assert before == {
        "phase": "before", "pairs": 2, "sent": 4, "unanswered": 1, "p50_ms": 12.0, "p99_ms": pytest.approx(19.84),
    }  # fmt: skip
    assert (after["phase"], after["unanswered"], after["p50_ms"]) == ("after", 2, None), "not 0: nothing is known"
