"""Which files our Data Sources read when a query chooses hosts or nodes. No JVM is started."""

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, GreaterThan, In, IsNotNull

from metrics.dataframes.traces import TraceReader
from metrics.pcap import listing
from metrics.pcap.listing import hosts_of, list_captures
from metrics.pcap.source import PcapReader
from metrics.pushdown import choose
from peer.trace import TraceEvent
from tests.synthetic_capture import ACK, OUTBOUND, Packet, pcap, pcapng

VALUES = st.integers(0, 5)
FILTERS = st.lists(
    st.one_of(
        st.builds(EqualTo, st.just(("host",)), VALUES),
        st.builds(In, st.just(("host",)), st.lists(VALUES, max_size=3).map(tuple)),
        st.builds(EqualTo, st.just(("seq",)), VALUES),
        st.just(IsNotNull(("host",))),
    ),
    max_size=4,
)


def packet(host: int) -> Packet:
    return Packet(5, host, OUTBOUND, f"10.0.0.{host + 1}", 40000, "10.0.0.9", 7000, 1, 2, ACK, b"abc")


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    """A classic capture of host 1, one in pcapng of hosts 2 and 3, and one whose host nobody knows."""
    (tmp_path / "host-1.pcap").write_bytes(pcap([(5, packet(1).ip_bytes())]))
    (tmp_path / "plane.pcapng").write_bytes(b"".join(pcapng([packet(2), packet(3)], (2, 3))))
    (tmp_path / "unknown.pcap").write_bytes(pcap([(5, packet(7).ip_bytes())]))
    return tmp_path


def hosts_read(reader: DataSourceReader, column: str) -> list[object]:
    batches = [batch for share in reader.partitions() for batch in reader.read(share)]
    return sorted(value for batch in batches for value in batch.column(column).to_pylist())


def files_read(reader: PcapReader) -> list[str]:
    return sorted(share.capture.name for partition in reader.partitions() for share in partition.task)


@given(FILTERS, st.lists(st.none() | VALUES))
def test_what_is_taken_selects_the_rows_that_the_filters_describe(filters: list[Filter], hosts: list[int | None]):
    chosen, left = choose(filters, ("host",))
    taken = [each for each in filters if not any(each is other for other in left)]
    assert all(isinstance(each, EqualTo | In) and each.attribute == ("host",) for each in taken)
    assert [each for each in left if each.attribute == ("host",)] == [IsNotNull(("host",))] * sum(
        isinstance(each, IsNotNull) for each in filters
    )
    allowed = [{each.value} if isinstance(each, EqualTo) else set(each.value) for each in taken]
    wanted = [host for host in hosts if all(host in values for values in allowed)]
    assert chosen.select(pa.table({"host": pa.array(hosts, pa.int32())}))["host"].to_pylist() == wanted
    assert all(chosen.may_have({host}) == all(host in values for values in allowed) for host in range(6))


@pytest.mark.parametrize(
    ("wanted", "files", "hosts"),
    [
        (EqualTo(("host",), 1), ["host-1.pcap"], [1]),
        (EqualTo(("host",), 3), ["plane.pcapng"], [3]),
        (In(("host",), (1, 2)), ["host-1.pcap", "plane.pcapng"], [1, 2]),
        (EqualTo(("host",), 9), [], []),
    ],
)
def test_only_the_captures_of_the_hosts_are_read(
    captures: Path, wanted: Filter, files: list[str], hosts: list[int]
) -> None:
    reader = PcapReader({"path": str(captures)})
    other = GreaterThan(("ts_ns",), 0)
    assert list(reader.pushFilters([wanted, other])) == [other]
    assert files_read(reader) == files
    assert hosts_read(reader, "host") == hosts


def test_without_a_filter_every_capture_is_read(captures: Path) -> None:
    assert files_read(PcapReader({"path": str(captures)})) == ["host-1.pcap", "plane.pcapng", "unknown.pcap"]


def test_a_capture_is_read_if_interfaces_may_follow_its_beginning(
    captures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {each.name: hosts_of(each) for each in list_captures(captures).captures}
    assert known == {"host-1.pcap": {1}, "plane.pcapng": {2, 3}, "unknown.pcap": frozenset()}
    monkeypatch.setattr(listing, "HEAD_BYTES", 50)
    known = {each.name: hosts_of(each) for each in list_captures(captures).captures}
    assert known == {"host-1.pcap": {1}, "plane.pcapng": None, "unknown.pcap": frozenset()}


def test_two_captures_that_claim_a_host_have_rows_of_no_known_host(captures: Path) -> None:
    (captures / "node1.pcap").write_bytes(pcap([(5, packet(1).ip_bytes())]))
    reader = PcapReader({"path": str(captures)})
    assert not list(reader.pushFilters([EqualTo(("host",), 1)]))
    assert files_read(reader) == []


@pytest.mark.parametrize(("nodes", "expected"), [((0,), [0, 0]), ((1, 2), [1, 1]), ((7,), [])])
def test_only_the_traces_of_the_nodes_are_read(tmp_path: Path, nodes: tuple[int, ...], expected: list[int]) -> None:
    for node in range(2):
        events = [TraceEvent(event="join", node=node, ts_ns=100 + number) for number in range(2)]
        lines = b"".join(msgspec.json.encode(event) + b"\n" for event in events)
        (tmp_path / f"{node}.jsonl").write_bytes(lines + b"no event\n")
    reader = TraceReader(tmp_path, {1: 30})
    assert hosts_read(reader, "ts_ns") == [70, 71, 100, 101]
    assert list(reader.pushFilters([In(("node",), nodes)])) == []
    named = [path.name for partition in reader.partitions() for path in partition.traces]
    assert sorted(named) == [f"{node}.jsonl" for node in nodes if node < 2]
    assert hosts_read(reader, "node") == expected
