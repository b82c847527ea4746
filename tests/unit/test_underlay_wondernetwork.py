"""The importer of WonderNetwork's pings: its three forms, its holes, its faults; and the real data."""

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from harness.cli import main
from tests.matrices import read_matrix
from topologies.importers.wondernetwork import build_underlay, fill_holes
from topologies.importers.wondernetwork_files import Measurements, Server, read_measurements
from topologies.reading import InputError

SERVERS = "id,name,title,location,state,country,state_abbv,continent,latitude,longitude\n" + "".join(
    f"{number},S{number},City {number},,,Land,,{number % 3 + 1},{number},{number * 2}\n" for number in (4, 7, 9)
)
GROUPED = "source,destination,min,avg,max,mdev\n"
HOURLY = '"source","destination","timestamp","min","avg","max","mdev"\n'
ROWS = "4,7,10,12,20,2\n7,4,10,14,20,3\n4,9,10,30,40,1\n9,4,10,31,40,1\n7,9,10,50,60,4\n9,7,1,52,60,4\n"


def write(folder: Path, pings: str, name: str = "pings-grouped.csv", servers: str = SERVERS) -> Path:
    (folder / "servers-original-order.csv").write_text(servers)
    (folder / name).write_text(pings)
    return folder / name


def servers(count: int) -> tuple[Server, ...]:
    return tuple(Server(str(number), f"City {number}", "Land", "1", 0.0, 0.0) for number in range(count))


def test_directions_stay_and_halves_add_up(tmp_path: Path) -> None:
    write(tmp_path, GROUPED + "4,4,0,0.02,0.1,0\n" + ROWS)
    underlay = build_underlay(read_measurements(tmp_path))
    assert [host.name for host in underlay.hosts] == ["City 4", "City 7", "City 9"]
    assert underlay.delay_ms.tolist() == [[0, 6, 15], [7, 0, 25], [15.5, 26, 0]]
    assert underlay.rtt_ms[0, 1] == (12 + 14) / 2
    legs = np.hypot(underlay.jitter_ms[0, 1], underlay.jitter_ms[1, 0])
    assert legs == pytest.approx(np.sqrt((2**2 + 3**2) / 2))
    assert not underlay.filled.any()


def test_triangle_violations_stay(tmp_path: Path) -> None:
    rows = "4,7,1,500,1,1\n7,4,1,500,1,1\n4,9,1,2,1,1\n9,4,1,2,1,1\n7,9,1,2,1,1\n9,7,1,2,1,1\n"
    write(tmp_path, GROUPED + rows)
    assert build_underlay(read_measurements(tmp_path)).rtt_ms[0, 1] == 500


def test_hourly_pings_give_the_medians(tmp_path: Path) -> None:
    samples = {("4", "7"): [(11, 1), (13, 3), (90, 30)], ("7", "4"): [(11, 1), (13, 3)]}
    rows = [
        f'"{source}","{destination}","2020-07-19 {hour:02}:00:00","1","{avg}","99","{mdev}"\n'
        for (source, destination), pings in samples.items()
        for hour, (avg, mdev) in enumerate(pings)
    ]
    (tmp_path / "servers-2020-07-19.csv").write_text(SERVERS)
    with gzip.open(tmp_path / "pings-2020-07-19.csv.gz", "wt") as file:
        file.write(HOURLY + "".join(rows))
    measurements = read_measurements(tmp_path)
    assert len(measurements.servers) == 2
    assert (measurements.rtt_ms[0, 1], measurements.mdev_ms[0, 1]) == (13, 3)
    assert (measurements.rtt_ms[1, 0], measurements.mdev_ms[1, 0]) == (12, 2)


def test_holes_are_filled_visibly_and_nothing_else_changes() -> None:
    nan = np.nan
    rtt_ms = np.array([[nan, 10, nan, 70], [11, nan, 20, nan], [31, 21, nan, 5], [nan, nan, 5, nan]])
    mdev_ms = np.where(np.isnan(rtt_ms), nan, rtt_ms / 10)
    filled_rtt_ms, filled_mdev_ms, filled = fill_holes(Measurements(servers(4), rtt_ms, mdev_ms))
    assert filled.tolist() == [[0, 0, 1, 0], [0, 0, 0, 2], [0, 0, 0, 0], [1, 2, 0, 0]]
    assert filled_rtt_ms[0, 2] == 31
    assert filled_rtt_ms[1, 3] == 20 + 5  # over 2; over 0 it would take 11 + 70
    assert filled_rtt_ms[3, 1] == 5 + 21
    assert filled_mdev_ms[1, 3] == pytest.approx(np.hypot(2, 0.5))
    measured = ~np.isnan(rtt_ms)
    assert np.array_equal(filled_rtt_ms[measured], rtt_ms[measured])


def test_a_pair_without_any_way_is_refused() -> None:
    rtt_ms = np.full((3, 3), np.nan)
    rtt_ms[0, 1] = 4
    with pytest.raises(InputError, match="City 0 -> City 2: measured in neither direction, nor over any relay"):
        fill_holes(Measurements(servers(3), rtt_ms, rtt_ms))


def test_rows_of_unlisted_servers_are_left_out_and_counted(tmp_path: Path) -> None:
    write(tmp_path, GROUPED + ROWS + "4,999,1,1,1,1\n999,4,1,1,1,1\n")
    assert read_measurements(tmp_path).unknown_rows == 2


FAULTS = {
    "no_columns": ("a,b\n1,2\n", ":1: no column 'source'"),
    "empty": ("", ":1: no column 'source'"),
    "no_rows": (GROUPED, ": no measurement between two known servers"),
    "word": (GROUPED + "4,7,1,fast,1,1\n", ":2:4: expected a number > 0, got 'fast'"),
    "blank": (GROUPED + ROWS + "4,7,1,,1,1\n", ":8:4: expected a number > 0, got ''"),
    "zero": (GROUPED + "4,7,1,0,1,1\n", ":2:4: expected a number > 0, got '0'"),
    "negative": (GROUPED + "4,7,1,-3,1,1\n", ":2:4: expected a number > 0, got '-3'"),
    "nan": (GROUPED + "4,7,1,nan,1,1\n", ":2:4: expected a number > 0, got 'nan'"),
    "mdev": (GROUPED + "4,7,1,3,1,-1\n", ":2:6: expected a number >= 0, got '-1'"),
    "underscore": (GROUPED + "4,7,1,1_0,1,1\n", ":2:4: expected a number > 0, got '1_0'"),
    "decimal_comma": (
        GROUPED + '4,7,1,"12,5",1,1\n',
        ":2:4: expected a number > 0, got '12,5'; write numbers with a decimal point",
    ),
    "microseconds": (GROUPED + "4,7,1,130000,1,1\n", ":2:4: expected a time in ms, at most 120000, got 130000"),
    "short": (GROUPED + "4,7,1\n", ":2: expected more than 3 columns"),
    "twice": (GROUPED + ROWS + "7,9,1,3,1,1\n", ": more than one row for the pair City 7 -> City 9"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_malformed_pings_are_refused(case: str, tmp_path: Path) -> None:
    text, problem = FAULTS[case]
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_measurements(tmp_path)
    assert str(caught.value).startswith(f"{path}{problem}")


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "")
    whole = gzip.compress((GROUPED + ROWS * 50).encode())
    for content, problem in (
        (whole[:-30], "cannot be unpacked: Compressed file ended before"),
        (b"source", "cannot be unpacked: Not a gzipped file"),
        (gzip.compress(b"\xff\xfe"), "not UTF-8 text"),
        (gzip.compress(GROUPED.encode() + b"9" * 200_000), "field larger than field limit"),
    ):
        (tmp_path / "damaged.csv.gz").write_bytes(content)
        with pytest.raises(InputError, match=rf"damaged\.csv\.gz(:\d+)?: {problem}"):
            read_measurements(tmp_path / "damaged.csv.gz")


@pytest.mark.parametrize(
    ("listed", "problem"),
    [
        ("id,name\n4,x\n", ":1: no column 'title'"),
        (SERVERS.replace("4,8\n", "north,8\n"), ":2: expected a latitude and a longitude"),
        (SERVERS + SERVERS.splitlines()[1], ": two servers have the same id"),
    ],
)
def test_malformed_server_lists_are_refused(listed: str, problem: str, tmp_path: Path) -> None:
    write(tmp_path, GROUPED + ROWS, servers=listed)
    with pytest.raises(InputError, match=problem):
        read_measurements(tmp_path)


def test_processed_pairs_may_not_name_unknown_servers(tmp_path: Path) -> None:
    (tmp_path / "wn-servers.csv").write_text("index,id,title,country,continent,latitude,longitude\n0,4,A,L,1,0,0\n")
    (tmp_path / "wn-pairs-2.csv").write_text("src,dst,rtt_min_ms,rtt_avg_ms,rtt_max_ms,mdev_ms,fill\n0,1,1,2,3,1,0\n")
    with pytest.raises(InputError, match="1 rows have servers"):
        read_measurements(tmp_path)


def test_the_import_verb_writes_a_matrix_and_says_what_it_filled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, GROUPED + ROWS.replace("9,7,1,52,60,4\n", "") + "4,999,1,1,1,1\n")
    out = tmp_path / "m.csv"
    assert main(["import", "wondernetwork", str(tmp_path), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "1 pairs taken from the reverse direction, 0 estimated over a relay, 1 rows of unlisted servers" in said
    names, delay_ms = read_matrix(out)
    assert names == ["City 4", "City 7", "City 9"]
    assert delay_ms.tolist() == [[0, 6, 15], [7, 0, 25], [15.5, 25, 0]]


def test_servers_with_one_title_get_different_names(tmp_path: Path) -> None:
    twins = SERVERS.replace("City 7", "City 4")
    write(tmp_path, GROUPED + ROWS, servers=twins)
    out = tmp_path / "m.csv"
    assert main(["import", "wondernetwork", str(tmp_path), "--out", str(out)]) == 0
    assert read_matrix(out)[0] == ["City 4 (4)", "City 4 (7)", "City 9"]
    write(tmp_path, GROUPED + ROWS, servers=twins.replace("City 9", "City 4 (7)"))
    with pytest.raises(InputError, match="two servers have this name"):
        build_underlay(read_measurements(tmp_path))


def test_the_import_verb_names_the_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, GROUPED + "4,7,1,fast,1,1\n")
    out = tmp_path / "m.csv"
    assert main(["import", "wondernetwork", str(path), "--out", str(out)]) == 2
    assert capsys.readouterr().err == f"trellis import: {path}:2:4: expected a number > 0, got 'fast'\n"
    assert not out.exists()


@pytest.mark.data
def test_the_originals_reproduce_the_published_pairs(data_folder: Path) -> None:
    folder = data_folder / "wondernetwork-2020"
    underlay = build_underlay(read_measurements(folder / "pings-grouped.csv"))
    with gzip.open(folder / "wn-pairs-246.csv.gz", "rt", newline="") as lines:
        rows = list(csv.DictReader(lines))
    source, destination, fill = (np.array([int(row[name]) for row in rows]) for name in ("src", "dst", "fill"))
    rtt_ms = np.array([float(row["rtt_avg_ms"]) for row in rows])
    assert len(rows) == 246 * 245
    assert np.array_equal(underlay.filled[source, destination], fill)
    # The published values have three decimals; an estimate is the sum of two.
    assert np.abs(2 * underlay.delay_ms[source, destination] - rtt_ms).max() <= 0.0011
    measured = fill < 2
    mdev_ms = np.array([float(row["mdev_ms"] or "nan") for row in rows])
    assert np.abs(np.sqrt(2) * underlay.jitter_ms[source, destination] - mdev_ms)[measured].max() <= 0.00051


@pytest.mark.data
def test_both_published_forms_give_the_same_planet(data_folder: Path) -> None:
    folder = data_folder / "wondernetwork-2020"
    processed = build_underlay(read_measurements(folder))
    original = build_underlay(read_measurements(folder / "pings-grouped.csv"))
    assert processed.hosts == original.hosts
    assert np.array_equal(processed.filled, original.filled)
    assert np.abs(processed.delay_ms - original.delay_ms).max() < 0.001
    assert np.abs(processed.jitter_ms - original.jitter_ms).max() < 0.001


@pytest.mark.data
def test_the_planet_keeps_its_detours(data_folder: Path) -> None:
    delay_ms = build_underlay(read_measurements(data_folder / "wondernetwork-2020")).delay_ms.copy()
    apart = ~np.eye(len(delay_ms), dtype=bool)
    np.fill_diagonal(delay_ms, np.inf)
    detour_ms = np.min([delay_ms[:, [relay]] + delay_ms[relay] for relay in range(len(delay_ms))], axis=0)
    assert 0.7 < (detour_ms < delay_ms)[apart].mean() < 0.85
