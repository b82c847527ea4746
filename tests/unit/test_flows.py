"""Flows of captures of any hosts: against tshark, and whatever else of the same packets is recorded, or how.

``tests/golden/lossy-path`` has what tcpdump recorded at two Linux hosts, alice and bob (``-s 96``, ``eth0`` of each),
with a path between them that takes 20 ms each way and loses 3 % of the packets: four TCP connections and a UDP flow.
``tshark.tsv.gz`` has what tshark 4.0.17 says of each packet: ``tshark -T fields -E header=y``, and ``-e`` for each
column.
"""

import csv
import gzip
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import cli
from metrics.flows.reading import HostsError, list_all, plan_flow_tasks, read_hosts
from metrics.flows.tables import FLOWS
from metrics.flows.vantages import name_hosts
from metrics.pcap.listing import list_captures
from metrics.rundir.parquet import units_of
from tests.examples import examples
from tests.synthetic_capture import enhanced, interface, section

GOLDEN = Path(__file__).parents[1] / "golden" / "lossy-path"
ADDRESSES = {"10.9.0.1": "alice", "10.9.0.2": "bob"}
OTHER = {"alice": "bob", "bob": "alice"}
SECOND = 1_000_000_000

Row = dict[str, Any]
Packets = list[tuple[int, bytes]]
"""Instants in ns, and packets from the IP header on."""


def read_flows(*paths: Path, hosts: Mapping[str, str] | None = None, shares: int = 1) -> list[Row]:
    """All flows, sorted by protocol and port."""
    captures, _ = list_all(paths)
    tasks = plan_flow_tasks(captures, hosts or {}, 1)
    tasks = [type(tasks[0])(task.captures, task.hosts, share, shares) for task in tasks for share in range(shares)]
    rows = [row for task in tasks for row in task.read().to_pylist()]
    return sorted(rows, key=lambda row: (row["proto"], row["id_orig_p"]))


def read_packets(host: str) -> Packets:
    data, packets, at = gzip.decompress((GOLDEN / host / "eth0.pcap.gz").read_bytes()), [], 24
    while at < len(data):
        seconds, ns, kept, _ = struct.unpack_from("<IIII", data, at)
        packets.append((seconds * SECOND + ns, data[at + 16 : at + 16 + kept]))
        at += 16 + kept
    return packets


def write_packets(path: Path, packets: Iterable[tuple[int, bytes]]) -> Path:
    """A pcap of raw IP packets, as ``alice`` and ``bob`` have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    blocks = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, 101)]
    for ts_ns, packet in packets:
        length = int.from_bytes(packet[2:4]) if packet[0] >> 4 == 4 else len(packet)
        blocks.append(struct.pack("<IIII", *divmod(ts_ns, SECOND), len(packet), length) + packet)
    path.write_bytes(b"".join(blocks))
    return path


@pytest.fixture(scope="module")
def flows() -> list[Row]:
    return read_flows(GOLDEN)


def side_of(row: Row, side: str) -> Row:
    return {name.removeprefix(f"{side}_"): value for name, value in row.items() if name.startswith(f"{side}_")}


# ------------------------------------------------------------------------------------------------------- tshark


def tell(host: str) -> list[Row]:
    """What tshark says of the packets of TCP and UDP that a host recorded."""
    with gzip.open(GOLDEN / host / "tshark.tsv.gz", "rt") as file:
        rows = [dict(row) for row in csv.DictReader(file, delimiter="\t")]
    return [row for row in rows if row["tcp.srcport"] or row["udp.srcport"]]


def ports(row: Row) -> tuple[int, int]:
    return int(row["tcp.srcport"] or row["udp.srcport"]), int(row["tcp.dstport"] or row["udp.dstport"])


def name_packet(row: Row) -> tuple[Any, ...]:
    return row["ip.src"], ports(row), row["ip.id"], row["tcp.seq_raw"], row["ip.len"]


class Told:
    """What tshark says of one direction of a flow, at its sender."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.rtts_ns: list[int] = []
        self.initial_rtt_ns: int | None = None
        self.has_arrived: list[bool] = []

    @property
    def lost(self) -> int:
        """Those between the first and the last that arrived."""
        first, last = self.has_arrived.index(True), len(self.has_arrived) - self.has_arrived[::-1].index(True)
        return self.has_arrived[first:last].count(False)


@pytest.fixture(scope="module")
def told() -> dict[tuple[str, int], Told]:
    """By the sending host and the port of alice."""
    found: dict[tuple[str, int], Told] = defaultdict(Told)
    for host, other in OTHER.items():
        arrived = Counter(map(name_packet, tell(other)))
        for row in tell(host):
            sent = ADDRESSES[row["ip.src"]] == host
            of = found[host, ports(row)[0 if (row["ip.src"] == "10.9.0.1") else 1]]
            if rtt := row["tcp.analysis.initial_rtt"]:
                of.initial_rtt_ns = round(float(rtt) * 1e9)
            if sent:
                again = bool(row["tcp.analysis.retransmission"] or row["tcp.analysis.out_of_order"])
                payload = int(row["tcp.len"] or int(row["udp.length"] or 8) - 8)
                of.counts.update(packets=1, ip_bytes=int(row["ip.len"]), sent_bytes=payload)
                of.counts.update(retx_packets=again, retx_bytes=again * payload)
                of.has_arrived.append(arrived[name_packet(row)] > 0)
            elif rtt := row["tcp.analysis.ack_rtt"]:
                of.rtts_ns.append(round(float(rtt) * 1e9))
    return found


def test_counts_are_those_of_tshark_at_the_sender(flows: list[Row], told: dict[tuple[str, int], Told]) -> None:
    """A segment that repeats bytes is "out of order" for tshark if it comes within 3 ms of another one."""
    assert len(flows) == 5 and {row["proto"] for row in flows} == {"tcp", "udp"}
    resent = 0
    for row in flows:
        for side, host in (("orig", "alice"), ("resp", "bob")):
            found, expected = side_of(row, side), told[host, row["id_orig_p"]]
            counts = expected.counts
            assert (found["host"], found["capture"], found["tap"]) == (host, f"{host}/eth0.pcap.gz", "tx")
            assert (found["packets"], found["ip_bytes"]) == (counts["packets"], counts["ip_bytes"])
            assert found["payload_bytes"] + (found["retx_bytes"] or 0) == counts["sent_bytes"]
            assert found["lost_packets"] == expected.lost and found["unsent_packets"] == 0
            if row["proto"] == "tcp":
                assert (found["retx_packets"], found["retx_bytes"]) == (counts["retx_packets"], counts["retx_bytes"])
                resent += found["retx_packets"]
            else:
                assert found["retx_packets"] is None and found["rtt_samples"] is None
    assert resent == 9 and sum(side_of(row, side)["lost_packets"] for row in flows for side in ("orig", "resp")) == 24


def test_round_trips_are_those_of_tshark(flows: list[Row], told: dict[tuple[str, int], Told]) -> None:
    """tshark also times SYN, FIN and segments that were sent twice."""
    for row in flows:
        if row["proto"] == "udp":
            assert row["handshake_rtt_ns"] is None and row["conn_state"] is None
            continue
        assert row["handshake_rtt_ns"] == told["alice", row["id_orig_p"]].initial_rtt_ns
        for side, host in (("orig", "alice"), ("resp", "bob")):
            found, rtts_ns = side_of(row, side), told[host, row["id_orig_p"]].rtts_ns
            assert len(rtts_ns) * 0.75 < found["rtt_samples"] < len(rtts_ns)
            assert {found["rtt_min_ns"], found["rtt_p50_ns"], found["rtt_max_ns"]} <= set(rtts_ns)
            assert 40 * 10**6 < found["rtt_min_ns"] <= found["rtt_p50_ns"] <= found["rtt_max_ns"]
        assert row["conn_state"] == "SF"


# ------------------------------------------------------------------------------- the same, recorded differently


@pytest.mark.parametrize("shares", [2, 7])
def test_shares_have_all_flows_once(flows: list[Row], shares: int) -> None:
    assert read_flows(GOLDEN, shares=shares) == flows


@settings(max_examples=examples(20), deadline=None)
@given(ahead_ns=st.integers(-(10**15), 10**15))
def test_the_clocks_of_the_hosts_do_not_matter(
    tmp_path_factory: pytest.TempPathFactory, flows: list[Row], ahead_ns: int
) -> None:
    folder = tmp_path_factory.mktemp("ahead")
    write_packets(folder / "alice" / "eth0.pcap", read_packets("alice"))
    write_packets(folder / "bob" / "eth0.pcap", ((ts_ns + ahead_ns, packet) for ts_ns, packet in read_packets("bob")))
    assert read_flows(folder) == [
        row | {f"{side}_capture": f"{host}/eth0.pcap" for side, host in (("orig", "alice"), ("resp", "bob"))}
        for row in flows
    ]


def test_a_capture_alone_says_which_way_packets_go_if_it_is_known_whose_it_is(flows: list[Row]) -> None:
    path = GOLDEN / "alice" / "eth0.pcap.gz"
    for row, both in zip(read_flows(path), flows, strict=True):
        assert (row["orig_tap"], row["resp_tap"], row["orig_host"], row["orig_lost_packets"]) == (
            "mid",
            "mid",
            None,
            None,
        )
        assert row["uid"] == both["uid"] and row["orig_packets"] == both["orig_packets"]
    hosts = {"10.9.0.1": "eth0", "10.9.0.2": "somebody"}
    for row, both in zip(read_flows(path, hosts=hosts), flows, strict=True):
        assert (row["orig_tap"], row["resp_tap"]) == ("tx", "rx")
        assert (row["orig_host"], row["resp_host"]) == ("eth0", "somebody")
        assert row["resp_packets"] == both["resp_packets"] - side_lost(row, both)


def side_lost(row: Row, both: Row) -> int:
    """How many packets did not arrive; those before the first and after the last arrival are not among the lost."""
    return max(both["resp_lost_packets"], both["resp_packets"] - row["resp_packets"])


def test_of_three_captures_the_outer_two_are_at_the_ends(tmp_path: Path, flows: list[Row]) -> None:
    sent = [each for host in OTHER for each in read_packets(host) if ADDRESSES.get(sender(each[1])) == host]
    for host in OTHER:
        write_packets(tmp_path / host / "eth0.pcap.gz", read_packets(host))
    write_packets(tmp_path / "router" / "eth0.pcap.gz", sorted((ts_ns + 10**7, packet) for ts_ns, packet in sent))
    assert read_flows(tmp_path) == flows


def sender(packet: bytes) -> str:
    return ".".join(map(str, packet[12:16]))


def test_a_capture_that_says_its_directions_tells_those_of_another(tmp_path: Path, flows: list[Row]) -> None:
    """Alice's capture has a third address, so the one that is in every packet is alice's. Bob's has not."""
    packets = read_packets("alice")
    end_ns, first = next(packet for packet in packets if sender(packet[1]) == "10.9.0.1")
    other = first[:19] + b"\x03" + first[20:]
    write_packets(tmp_path / "alice" / "eth0.pcap.gz", [*packets, (end_ns + 10**10, other)])
    write_packets(tmp_path / "bob" / "eth0.pcap.gz", read_packets("bob"))
    *_, other_flow = sorted(read_flows(tmp_path), key=lambda row: row["id_resp_h"])
    assert (other_flow["id_resp_h"], other_flow["orig_host"], other_flow["resp_host"]) == ("10.9.0.3", "alice", None)
    assert [row for row in read_flows(tmp_path) if row["id_resp_h"] != "10.9.0.3"] == flows


def test_what_two_interfaces_of_a_host_recorded_counts_once(tmp_path: Path) -> None:
    """The copies without an IP identification are known by their interface; what is sent again has another one."""
    packets = read_packets("alice")
    once = read_flows(write_packets(tmp_path / "once.pcap", packets))
    copies = sorted(
        (ts_ns + delay, number, packet) for number, delay in ((0, 0), (1, 900)) for ts_ns, packet in packets
    )
    blocks = [section(), interface("eth0"), interface("br0")]
    blocks += [_block(number, ts_ns, packet) for ts_ns, number, packet in copies]
    (tmp_path / "twice.pcapng").write_bytes(b"".join(blocks))
    twice = read_flows(tmp_path / "twice.pcapng")
    changes = {f"{side}_capture": "twice.pcapng" for side in ("orig", "resp")}
    assert twice == [row | changes for row in once]


def _block(number: int, ts_ns: int, packet: bytes) -> bytes:
    whole = packet.ljust(int.from_bytes(packet[2:4]), b"\0") if packet[0] >> 4 == 4 else packet
    return enhanced(number, ts_ns, whole, snaplen=len(packet))


def test_a_capture_that_began_late_makes_no_other_flow(tmp_path: Path, flows: list[Row]) -> None:
    late = read_packets("bob")[20:]
    write_packets(tmp_path / "alice.pcap", read_packets("alice"))
    write_packets(tmp_path / "bob.pcap", late)
    found = read_flows(tmp_path)
    assert [row["uid"] for row in found] == [row["uid"] for row in flows]
    assert [side_of(row, "orig")["packets"] for row in found] == [side_of(row, "orig")["packets"] for row in flows]
    first = next(row for row in found if row["id_orig_p"] == 45456)
    assert first["orig_unsent_packets"] == 0 and first["orig_lost_packets"] <= 1


def test_an_empty_capture_has_no_flow(tmp_path: Path) -> None:
    assert read_flows(write_packets(tmp_path / "empty.pcap", [])) == []


# ------------------------------------------------------------------------------------------------- names, files


@pytest.mark.parametrize(
    ("files", "hosts"),
    [
        (["alice/eth0.pcap", "bob/eth0.pcap", "bob/lo.pcap"], ["alice", "bob", "bob"]),
        (["alice.pcap", "day2/bob.pcapng.gz"], ["alice", "bob"]),
        (["a.pcap", "x/a.pcap"], ["a", "x"]),
    ],
)
def test_a_host_is_called_by_its_file_or_by_its_folder(files: list[str], hosts: list[str]) -> None:
    assert list(name_hosts(files).values()) == hosts


def test_hosts_are_read_with_any_notation_of_an_address(tmp_path: Path) -> None:
    (tmp_path / "hosts.csv").write_text("host,address\nalice, 10.0.0.1\nalice,2001:DB8::0:1\n\nbob,10.0.0.2\n")
    assert read_hosts(tmp_path / "hosts.csv") == {"10.0.0.1": "alice", "2001:db8::1": "alice", "10.0.0.2": "bob"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ip,name\n", "expected the columns address and host in the first line"),
        ("address,host\n10.0.0.1,a\n10.0.0,b\n", "line 3: '10.0.0' does not appear to be an IPv4 or IPv6 address"),
        ("address,host\n10.0.0.1,\n", "line 2: 10.0.0.1 has no host"),
        ("address,host\n10.0.0.1,a\n10.0.0.1,b\n", "line 3: 10.0.0.1 is of a and of b"),
        ("address,host\n10.0.0.1\n", "line 2: 10.0.0.1 has no host"),
    ],
)
def test_other_files_of_hosts_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "hosts.csv").write_text(text)
    with pytest.raises(HostsError, match=problem):
        read_hosts(tmp_path / "hosts.csv")


# ------------------------------------------------------------------------------------------------- the command


def test_the_command_writes_tables_and_says_what_they_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hosts.csv").write_text("address,host\n10.9.0.1,client\n10.9.0.2,server\n")
    folder = tmp_path / "tables"
    argv = ["tables", str(GOLDEN / "alice"), str(GOLDEN / "bob" / "eth0.pcap.gz"), "--master=here", "--to", str(folder)]
    assert cli.main([*argv, "--hosts", str(tmp_path / "hosts.csv")]) == 0
    said = capsys.readouterr().out
    for line in (
        "2 captures, 1,254 recorded packets",
        "5 flows (4 of TCP, 1 of UDP); hosts: client, server",
        "638 packets, each once, with 346,255 bytes of payload",
        "sent again: 9 of 439 packets (2.05%) of TCP, 12,760 bytes",
        "lost where both ends recorded: 24 of 638 packets (3.76%)",
        "round trips of handshakes: median 40.3 ms",
        "tcp client:42630 to server:5000: 63,000 bytes there, 20,000 back",
    ):
        assert line in said
    table = pq.read_table(folder / "flows.parquet")
    assert table.schema.names == FLOWS.names and table.num_rows == 5
    units = units_of(table.schema)
    assert units["orig_rtt_p50_ns"] == "ns" and units["resp_lost_packets"] == "packets"
    assert pq.read_table(folder / "captures.parquet")["packets"].to_pylist() == [627, 627]


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        (["CAPTURES"], 2, "--to FOLDER is missing"),
        (["--to", "OUT", "--packets"], 2, "--packets and --csv are for runs"),
        (["--to", "FULL"], 2, "expected a new or an empty folder"),
        (["--to", "OUT", "--hosts", "NOWHERE"], 2, "NOWHERE"),
    ],
)
def test_what_cannot_be_done_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: list[str], code: int,
    problem: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FULL").mkdir()
    (tmp_path / "FULL" / "mine").touch()
    assert cli.main(["tables", str(GOLDEN), *options]) == code
    assert problem in capsys.readouterr().err
    assert [each.name for each in (tmp_path / "FULL").iterdir()] == ["mine"]


def test_captures_are_named_as_they_are_given(tmp_path: Path) -> None:
    one, several = list_all([GOLDEN])[0], list_all([GOLDEN / "alice", GOLDEN / "bob", GOLDEN / "alice"])[0]
    assert [each.name for each in one] == ["alice/eth0.pcap.gz", "bob/eth0.pcap.gz"]
    assert [each.name for each in several] == [str(GOLDEN / each.name) for each in one]
    assert len(list_captures(GOLDEN).captures) == 2
