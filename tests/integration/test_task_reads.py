"""What a task of the tables reads does not grow with the run, nor what is held outside tasks."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks._synthetic_run import write_run
from benchmarks._task_reads import TaskUse, measure_driver, measure_tasks
from metrics import tables
from metrics.rundir import RunDir
from metrics.tables import buckets, shares, staged, traces
from metrics.tables.schemas import TABLES
from metrics.totals import read_totals
from tests.fabricate import Fabrication

FEW_ROWS = 2_000
"""So many rows any task may read."""


def read_by_tasks(folder: Path, packets: int, share_rows: int) -> dict[str, TaskUse]:
    """What tasks read if a share has so many rows in place of its 2 million, so that small runs are large ones."""
    write_run(folder, packets)
    found = measure_tasks(RunDir(folder), 2, share_rows, memory=False)
    shutil.rmtree(folder)
    return found


@pytest.mark.parametrize(
    ("packets", "times", "share_rows"), [(5_000, 5, 2_000), pytest.param(10_000, 10, 1_000, marks=pytest.mark.long)]
)
def test_rows_that_a_task_reads_do_not_grow_with_the_run(
    tmp_path: Path, packets: int, times: int, share_rows: int
) -> None:
    small, large = (read_by_tasks(tmp_path / str(count), count, share_rows) for count in (packets, times * packets))
    assert large["build_and_condense"].tasks >= times / 2 * small["build_and_condense"].tasks
    of_seconds = {"build_share", "host_delays"}  # here there are more shares than seconds, which are not divided
    bounded = {"_find_in_span"}  # all packets, of which there are at most ``earliest.MOST_PACKETS``
    for name in small.keys() - of_seconds - bounded:
        assert large[name].rows <= max(2 * small[name].rows, FEW_ROWS), name
    for name in ("build_published", "build_and_condense", "build_deliveries", "_weigh_part", "_weigh", *of_seconds):
        assert large[name].all_rows <= 1.25 * times * small[name].all_rows, f"{name}: tasks read what others read"


@pytest.mark.parametrize(
    ("packets", "most_rows"), [(300_000, 25_000), pytest.param(1_200_000, 100_000, marks=pytest.mark.long)]
)
def test_what_is_held_outside_tasks_is_not_of_packets_frames_or_deliveries(
    tmp_path: Path, packets: int, most_rows: int
) -> None:
    """No step reads or is given as many rows as these tables have; the most are the probes of 64 hosts, 2,016."""
    write_run(tmp_path, packets)
    held = measure_driver(RunDir(tmp_path), 2)
    for name in ("packets", "frames", "hops", "deliveries"):
        assert len(pq.read_table(tmp_path / "tables" / f"{name}.parquet", columns=[])) > most_rows, name
    assert {name: rows for name, rows in held.items() if rows > 10_000} == {}
    assert held["metrics.rundir.parquet.read_recorded"] == 64 * 63 // 2, "what is read is counted"
    assert held["results of _weigh"] > 100, "and so are results"


def test_tables_of_pieces_and_of_files_that_are_closed_early_are_those_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = Fabrication(seed=5, nodes=6, topics=3, messages=40).write(tmp_path / "run")
    shutil.copytree(run_dir, tmp_path / "whole")
    limits = ((shares, "MOST_ROWS", 400), (shares, "PIECE_ROWS", 100), (traces, "COPIES_BYTES", 4_000))
    limits += ((buckets, "MOST_OPEN", 2), (buckets, "MOST_WAITING", 50), (staged, "MOST_GROUPS", 2))
    limits += ((staged, "GROUP_ROWS", 20), (staged, "FEWEST_ROWS", 5), (traces, "BLOCK_BYTES", 3_000))
    with monkeypatch.context() as patched:
        for module, name, value in limits:
            patched.setattr(module, name, value)
        tables.build(run_dir, "here")
    with monkeypatch.context() as patched:
        patched.setattr(shares, "MOST_ROWS", 10**9)
        patched.setattr(shares, "LEAST_ROWS", 10**9)
        patched.setattr(shares, "PIECE_ROWS", 10**9)
        tables.build(tmp_path / "whole", "here")
    for name in TABLES:
        made, expected = (
            sorted(map(str, pq.read_table(each / "tables" / f"{name}.parquet").to_pylist()))
            for each in (run_dir, tmp_path / "whole")
        )
        assert made == expected, name
    found = [read_totals(RunDir(each)) for each in (run_dir, tmp_path / "whole")]
    assert found[0].messages.standouts == found[1].messages.standouts is not None
    assert found[1].buckets == 1 < (found[0].buckets or 0)
    for name in ("hops", "messages", "copies"):
        assert list((run_dir / "tables" / f"{name}.parquet").glob("part-*.1.parquet")), "there are pieces"
        assert len(list((tmp_path / "whole" / "tables" / f"{name}.parquet").glob("*.parquet"))) == 1
