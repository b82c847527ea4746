"""Which files a path means, what they are called, what is left out, and hosts that two files claim."""

import gzip
import os
from pathlib import Path

import pytest

from metrics.pcap.files import CaptureError
from metrics.pcap.listing import list_captures
from metrics.pcap.schemas import SCHEMAS, union_schema
from metrics.pcap.tables import Reading
from metrics.pcap.tasks import plan_tasks, read_task
from tests.synthetic_capture import ACK, INBOUND, OUTBOUND, Packet, pcap, pcapng

PACKET = Packet(5, 3, OUTBOUND, "10.0.0.1", 40000, "10.0.0.2", 7000, 1, 2, ACK, b"abc")
CONTENT = pcap([(PACKET.ts_ns, PACKET.ip_bytes())])
TABLES = ("packets", "conns", "wire", "captures")


def write(folder: Path, *names: str, content: bytes = CONTENT) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def names_of(path: Path | str) -> list[str]:
    return [each.name for each in list_captures(path).captures]


def hosts_of(path: Path) -> dict[str, dict[str, set[int | None]]]:
    """The hosts of each file, by table."""
    found: dict[str, dict[str, set[int | None]]] = {}
    for capture in list_captures(path).captures:
        (task,) = plan_tasks([capture], Reading(TABLES), 1)
        for table, rows in read_task(task, Reading(TABLES)):
            column = rows["host" if table == "packets" else "vantage_host"].to_pylist()
            found.setdefault(capture.name, {}).setdefault(table, set()).update(column)
    return found


def test_names_of_a_folder_are_read_whatever_their_case_number_or_compression(tmp_path: Path) -> None:
    write(tmp_path, "a.pcap", "B.PCAP", "c.pcap1", "e.pcapng", "f.cap", "g.pcap.2", "deep/er/h.pcap")
    write(tmp_path, "d.pcap.gz", content=gzip.compress(CONTENT))
    assert names_of(tmp_path) == sorted(["B.PCAP", "a.pcap", "c.pcap1", "d.pcap.gz", "deep/er/h.pcap", "e.pcapng",
                                         "f.cap", "g.pcap.2"])  # fmt: skip
    assert not list_captures(tmp_path).left_out
    assert list_captures(tmp_path).describe_left_out() is None


def test_what_is_left_out_of_a_folder_is_counted_and_named(tmp_path: Path) -> None:
    write(tmp_path, "a.pcap", "notes.txt", "x.pcap/inner.pcap", "y.trace", "z.pcapx")
    os.mkfifo(tmp_path / "pipe.pcap")
    listing = list_captures(tmp_path)
    assert [each.name for each in listing.captures] == ["a.pcap", "x.pcap/inner.pcap"]
    assert listing.left_out == ["notes.txt", "pipe.pcap", "x.pcap", "y.trace", "z.pcapx"]
    said = listing.describe_left_out()
    assert said and said.startswith("5 left out (") and said.endswith("notes.txt, pipe.pcap, x.pcap and 2 more")


def test_a_file_that_is_given_may_have_any_name(tmp_path: Path) -> None:
    write(tmp_path, "trace[1].bin", "b/*.x")
    assert names_of(tmp_path / "trace[1].bin") == ["trace[1].bin"]
    assert names_of(f"file:{tmp_path}/b/*.x") == ["*.x"]


def test_matches_of_a_pattern_are_named_from_its_last_plain_folder(tmp_path: Path) -> None:
    write(tmp_path, "hosts/alice/eth0.pcap", "hosts/bob/eth0.pcap", "hosts/bob/eth1.dump")
    assert names_of(f"{tmp_path}/hosts/*/eth0.pcap") == ["alice/eth0.pcap", "bob/eth0.pcap"]
    assert names_of(f"{tmp_path}/hosts/b*/*") == ["bob/eth0.pcap", "bob/eth1.dump"]
    listing = list_captures(f"{tmp_path}/hosts/**")
    assert [each.name for each in listing.captures] == ["alice/eth0.pcap", "bob/eth0.pcap", "bob/eth1.dump"]
    assert "alice" in listing.left_out


@pytest.mark.parametrize("path", ["", "{}/none.pcap", "{}/*.pcap", "{}"])
def test_nothing_is_an_error(tmp_path: Path, path: str) -> None:
    write(tmp_path, "notes.txt")
    with pytest.raises(FileNotFoundError, match="option path"):
        list_captures(path.format(tmp_path))


@pytest.mark.parametrize("content", [b"no capture", gzip.compress(b"no capture", mtime=0), b"\x1f\x8b\x08 no gzip"])
def test_a_file_that_is_no_capture_is_an_error_also_beside_others(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, "a.pcap")
    write(tmp_path, "b.pcap", content=content)
    with pytest.raises(CaptureError, match=r"b\.pcap: not a capture: expected a pcap or pcapng file"):
        list_captures(tmp_path)


def test_a_pipe_that_is_given_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CaptureError, match="expected a regular file, found a named pipe"):
        list_captures(tmp_path / "pipe")


def test_empty_and_cut_files_are_captures_beside_others(tmp_path: Path) -> None:
    write(tmp_path, "a.pcap")
    write(tmp_path, "b.pcap", content=b"")
    write(tmp_path, "c.pcap", content=CONTENT[:9])
    assert names_of(tmp_path) == ["a.pcap", "b.pcap", "c.pcap"]


def test_files_without_numbers_are_told_apart_by_their_names(tmp_path: Path) -> None:
    write(tmp_path, "alice/eth0.pcap", "bob/eth0.pcap")
    nothing: dict[str, set[int | None]] = {table: {None} for table in TABLES}
    assert hosts_of(tmp_path) == {"alice/eth0.pcap": nothing, "bob/eth0.pcap": nothing}


def test_a_host_that_two_files_claim_is_the_host_of_neither(tmp_path: Path) -> None:
    write(tmp_path, "a/host1.pcap", "b/host1.pcap", "host2.pcap")
    packets = [PACKET, Packet(6, 4, OUTBOUND, "10.0.0.3", 1, "10.0.0.4", 2, 1, 2, ACK)]
    write(tmp_path, "both.pcapng", content=b"".join(pcapng(packets, (3, 4))))
    write(tmp_path, "again.pcapng", content=b"".join(pcapng(packets[:1], (3,))))
    hosts = {name: tables["packets"] for name, tables in hosts_of(tmp_path).items()}
    assert hosts == {
        "a/host1.pcap": {None},
        "b/host1.pcap": {None},
        "host2.pcap": {2},
        "both.pcapng": {None, 4},
        "again.pcapng": {None},
    }


def test_contested_hosts_of_one_file_are_not_taken_for_one(tmp_path: Path) -> None:
    """What one sends is not a second copy of what the other receives."""
    packets = [PACKET, Packet(6, 4, INBOUND, "10.0.0.1", 40000, "10.0.0.2", 7000, 1, 2, ACK, b"abc")]
    write(tmp_path, "a.pcapng", "b.pcapng", content=b"".join(pcapng(packets, (3, 4))))
    for capture in list_captures(tmp_path).captures:
        assert capture.contested == {3, 4}
        (task,) = plan_tasks([capture], Reading(TABLES), 1)
        tables = dict(read_task(task, Reading(TABLES)))
        assert {row["orig_tap"]: (row["vantage_host"], row["orig_bytes"], row["orig_retx_bytes"])
                for row in tables["conns"].to_pylist()} == {"tx": (None, 3, 0), "rx": (None, 3, 0)}  # fmt: skip


def test_every_row_that_is_read_from_several_files_names_its_file() -> None:
    for table, schema in SCHEMAS.items():
        assert set(union_schema((table,)).names) == {*schema.names, "pcap_file"}
    assert union_schema(TABLES).names[0] == "table"
    assert union_schema(TABLES).names.count("pcap_file") == 1


def test_a_compressed_file_is_read_by_one_task(tmp_path: Path) -> None:
    many = pcap([(number, PACKET.ip_bytes()) for number in range(2000)])
    write(tmp_path, "a.pcap", content=many)
    write(tmp_path, "b.pcap", content=gzip.compress(many, 0))
    for name, tasks in (("a.pcap", 4), ("b.pcap", 1)):
        captures = list_captures(tmp_path / name).captures
        planned = plan_tasks(captures, Reading(("packets",)), 4, 1000)
        assert len(planned) == tasks
        assert sum(len(rows) for task in planned for _, rows in read_task(task, Reading(("packets",)))) == 2000
