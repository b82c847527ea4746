"""A machine's capture becomes one of the emulated testbed's form: by host, with directions, on our clock."""

import socket
import struct
from pathlib import Path

import numpy as np
import pytest

from harness.deployment.answers import StepError
from harness.deployment.fleet import Deployment
from harness.errors import TestbedError
from harness.experiment.inventory import Machine
from harness.testbeds.remote.captures import MachineCaptures, capture_filter, find_obstacle
from harness.testbeds.remote.conversion import Source, convert_capture
from metrics.pcap.files import Capture, CaptureError
from metrics.pcap.tables import Reading, read_tables
from metrics.rundir import ClockOffset, Placement

IN, OUT = 0, 4
"""Kinds of packets in the header that Linux puts before packets of the device ``any``."""

HERE, THERE = "10.77.0.1", "10.77.1.1"
NEIGHBOUR = "10.77.0.2"
HOSTS = {int.from_bytes(socket.inet_aton(address)): host for host, address in ((0, HERE), (2, NEIGHBOUR))}
AHEAD_NS = 3_000_000_007


def packet(at_ns: int, kind: int, source: str, destination: str, payload: bytes = b"") -> bytes:
    """A record of a pcap file with nanoseconds: link layer, IPv4, TCP."""
    tcp = struct.pack(">HHIIBBHHH", 40_000, 9000, 7, 0, 5 << 4, 2, 1000, 0, 0) + payload
    ends = socket.inet_aton(source) + socket.inet_aton(destination)
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 1, 0, 64, 6, 0) + ends + tcp
    frame = struct.pack(">HHIHBB8s", 0x0800, 0, 1, 1, kind, 6, b"") + ip
    return struct.pack("<IIII", at_ns // 10**9, at_ns % 10**9, len(frame), len(frame)) + frame


def file_of(*records: bytes) -> bytes:
    return struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65_535, 276) + b"".join(records)


def convert(folder: Path, content: bytes, snaplen_bytes: int = 200, dropped: int = 0) -> tuple[int, Path]:
    raw, target = folder / "raw.pcap", folder / "alpha.pcapng"
    raw.write_bytes(content)
    return convert_capture(Source(raw, HOSTS, AHEAD_NS, snaplen_bytes, dropped), target), target


def rows_of(path: Path, table: str) -> list[dict[str, object]]:
    return [row for _, piece in read_tables(Capture(path, path.name), Reading((table,))) for row in piece.to_pylist()]


def test_packets_are_their_host_s_with_a_direction_and_on_our_clock(tmp_path: Path) -> None:
    left, came = packet(AHEAD_NS + 50, OUT, HERE, THERE, b"x" * 10), packet(AHEAD_NS + 70, IN, THERE, NEIGHBOUR)
    unread, target = convert(tmp_path, file_of(left, came))
    assert unread == 0
    found = [(row["host"], row["tap"], row["ts_ns"], row["wire_bytes"]) for row in rows_of(target, "packets")]
    assert found == [(0, "tx", 50, 50), (2, "rx", 70, 40)]


def test_a_packet_between_two_hosts_of_the_machine_leaves_one_and_arrives_at_the_other(tmp_path: Path) -> None:
    _, target = convert(tmp_path, file_of(packet(AHEAD_NS + 50, IN, NEIGHBOUR, HERE)))
    found = [(row["host"], row["tap"], row["ts_ns"]) for row in rows_of(target, "packets")]
    assert found == [(2, "tx", 50), (0, "rx", 50)]


def test_packets_of_others_are_left_out(tmp_path: Path) -> None:
    _, target = convert(tmp_path, file_of(packet(AHEAD_NS, OUT, "10.77.9.9", THERE), packet(AHEAD_NS, 3, HERE, THERE)))
    assert rows_of(target, "packets") == []


def test_long_packets_are_cut_and_keep_their_length(tmp_path: Path) -> None:
    _, target = convert(tmp_path, file_of(packet(AHEAD_NS, OUT, HERE, THERE, b"x" * 1000)), snaplen_bytes=64)
    [row] = rows_of(target, "packets")
    assert (row["cap_bytes"], row["wire_bytes"], row["payload_bytes"]) == (64, 1040, 1000)


def test_dropped_packets_are_in_the_statistics_once(tmp_path: Path) -> None:
    _, target = convert(tmp_path, file_of(packet(AHEAD_NS, OUT, HERE, THERE)), dropped=5)
    found = {(row["vantage_host"], row["dropped"]) for row in rows_of(target, "captures")}
    assert found == {(0, 5), (2, 0)}


def test_a_capture_that_ends_within_a_packet_says_so(tmp_path: Path) -> None:
    last = packet(AHEAD_NS + 9, OUT, HERE, THERE)
    unread, target = convert(tmp_path, file_of(packet(AHEAD_NS + 5, OUT, HERE, THERE), last[:-1]))
    assert unread == len(last) - 1
    assert len(rows_of(target, "packets")) == 1


def test_a_capture_without_packets_is_one(tmp_path: Path) -> None:
    unread, target = convert(tmp_path, file_of())
    assert (unread, rows_of(target, "packets")) == (0, [])


def test_packets_from_before_1970_are_left_out(tmp_path: Path) -> None:
    _, target = convert(tmp_path, file_of(packet(AHEAD_NS - 1, OUT, HERE, THERE), packet(AHEAD_NS, OUT, HERE, THERE)))
    assert [row["ts_ns"] for row in rows_of(target, "packets")] == [0]


def test_a_file_that_is_no_capture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError):
        convert(tmp_path, b"<html>")


def place(node: int, address: str, machine: str = "alpha") -> Placement:
    return Placement(node, node, machine, address, "")


@pytest.mark.parametrize(
    ("addresses", "reason"),
    [
        ((HERE, NEIGHBOUR, THERE), ""),
        ((HERE, THERE, HERE), "nodes 0 and 2 share 10.77.0.1"),
        (("2001:db8::1", HERE), "2001:db8::1, which is not an IPv4 address"),
        (("alpha.example", HERE), "alpha.example, which is not an IPv4 address"),
    ],
)
def test_packets_cannot_be_attributed_without_addresses_of_the_peers_own(
    addresses: tuple[str, ...], reason: str
) -> None:
    found = find_obstacle([place(node, address) for node, address in enumerate(addresses)])
    assert reason in found
    assert bool(found) == bool(reason)


def test_the_filter_has_the_peers_ports_and_addresses() -> None:
    wanted = capture_filter([place(0, HERE), place(1, THERE)], (9000, 9003))
    assert wanted == "tcp portrange 9000-9003 and (host 10.77.0.1 or host 10.77.1.1)"


def test_instants_of_large_files_are_exact(tmp_path: Path) -> None:
    """Nanoseconds since the epoch do not fit into a float."""
    at_ns = 1_764_320_000_123_456_789
    _, target = convert(tmp_path, file_of(packet(at_ns + AHEAD_NS, OUT, HERE, THERE)))
    assert rows_of(target, "packets")[0]["ts_ns"] == np.int64(at_ns)


# ------------------------------------------------------------------------------------------- on several machines


class Script:
    """A recorder that says some lines; None = it ends."""

    def __init__(self, *lines: bytes | None) -> None:
        self._lines = list(lines)
        self.closed = self.ended = False
        self.has_ended = False

    def read_line(self, *_: object) -> bytes:
        line = self._lines.pop(0)
        if line is None:
            raise StepError("tcpdump: You don't have permission")
        return line

    def end_input(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.closed = True


class Session:
    """A machine whose recorder has captured some packets."""

    def __init__(self, name: str, script: Script, capture: bytes = b"") -> None:
        self.machine = Machine(name, "192.0.2.1", "k", "h")
        self.script, self._capture = script, capture

    def start_script(self, source: bytes, *words: str) -> Script:
        assert words == ("capture.pcap", "84", capture_filter(PLACES, (9000, 9000)))
        return self.script

    def fetch(self, wanted: dict[str, str], destination: Path, _: int) -> None:
        [path] = (destination / wanted["capture.pcap"],)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(self._capture)


PLACES = [place(0, HERE), place(1, THERE, "beta")]


def captures_by(folder: Path, *sessions: Session) -> MachineCaptures:
    deployment = Deployment([], "token", folder)
    deployment.sessions = {each.machine.name: each for each in sessions}  # type: ignore[misc]
    return MachineCaptures(deployment, PLACES, folder)


def test_if_one_machine_cannot_capture_none_does(tmp_path: Path) -> None:
    able, unable = Script(b"tcpdump\n"), Script(None)
    captures = captures_by(tmp_path, Session("alpha", able), Session("beta", unable))
    assert captures.start(64, (9000, 9000)) == "beta cannot capture: tcpdump: You don't have permission"
    assert able.closed
    assert captures.lost() == {}
    captures.stop()
    assert captures.convert({}) == ()


def test_what_all_machines_have_captured_is_fetched_and_converted(tmp_path: Path) -> None:
    said = b"tcpdump\n", b'{"program": "tcpdump", "dropped": 2}\n'
    files = file_of(packet(AHEAD_NS + 50, OUT, HERE, THERE)), file_of(packet(70, IN, HERE, THERE))
    sessions = [Session(name, Script(*said), file) for name, file in zip(("alpha", "beta"), files, strict=True)]
    captures = captures_by(tmp_path, *sessions)
    assert captures.start(64, (9000, 9000)) == ""
    sessions[1].script.has_ended = True
    assert captures.lost() == {"the capture on beta": "ended"}
    captures.stop()
    assert all(each.script.ended for each in sessions)
    assert captures.dropped == 4
    assert captures.convert({"alpha": ClockOffset(AHEAD_NS, 0, 0)}) == ("capture/alpha.pcapng", "capture/beta.pcapng")
    found = [rows_of(tmp_path / f"capture/{name}.pcapng", "packets")[0] for name in ("alpha", "beta")]
    assert [(row["host"], row["tap"], row["ts_ns"]) for row in found] == [(0, "tx", 50), (1, "rx", 70)]
    assert [path.name for path in tmp_path.iterdir()] == ["capture"]


@pytest.mark.parametrize(
    ("content", "problem"), [(b"<html>", "pcap or pcapng"), (file_of(b"1234"), "its last 4 bytes are no packet")]
)
def test_a_damaged_capture_names_its_machine(content: bytes, problem: str, tmp_path: Path) -> None:
    said = b"tcpdump\n", b'{"program": "tcpdump", "dropped": 0}\n'
    captures = captures_by(tmp_path, Session("alpha", Script(*said), content))
    captures.start(64, (9000, 9000))
    captures.stop()
    with pytest.raises(TestbedError, match=f"read the capture of alpha: .*{problem}"):
        captures.convert({})
