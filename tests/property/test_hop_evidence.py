"""What the checks ask of the hops, against loops over dictionaries."""

import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics import changes
from metrics.checks.accounts import NODE_DELAY
from metrics.checks.evidence import FrameSets, Outcome, Spread
from metrics.checks.rule import Limit
from metrics.executors.in_process import InProcess
from metrics.recorded.stalls import Late, Stalls, merge
from metrics.rundir import Phase
from metrics.rundir.documents import Behaviour, NodeOutline
from metrics.tables import churn, hop_evidence
from metrics.tables.churn import Ending
from metrics.tables.columns import numbers
from metrics.tables.runs import SortedRuns, write_run
from metrics.tables.schemas import arrow_schema
from peer.core.frames import Data
from tests.examples import examples
from topologies.timeline import Change

Row = dict[str, Any]

NODES = range(4)
MACHINES = ("m0", "m0", "m1", "m2")
ERRORS_NS = {"m1": 2, "m2": 3}
JUDGED_NS = (10, 40)
PARTS = ("a", "bc")
"""The connections of each part of the table; a part has whole streams."""

ADVERSARY = 2
WORKLOAD_NS = (5, 30)

maybe_node = st.none() | st.sampled_from(NODES)
maybe_instant = st.none() | st.integers(0, 50)
hop = st.fixed_dictionaries(
    {
        "conn": st.sampled_from(["a", "b", "c"]),
        "direction": st.sampled_from(["orig", "resp"]),
        "incarnation": st.integers(0, 1),
        "kind": st.none() | st.sampled_from([1, Data.kind]),
        **dict.fromkeys(("src_node", "dst_node"), maybe_node),
        **dict.fromkeys(("log_send_ns", "tap_tx_ns", "tap_rx_ns", "log_recv_ns"), maybe_instant),
        "len_bytes": st.integers(1, 3),
        "asked": st.none() | st.integers(0, 30),
    }
)


def complete(row: Row) -> Row:
    """A hop with the columns that follow from others; delays are in nanoseconds like the instants here."""

    def between(since: str, to: str) -> int | None:
        return None if row[since] is None or row[to] is None else row[to] - row[since]

    delay = row["asked"] if row["src_node"] is not None else None
    known = {"d_sndbuf_ns": between("log_send_ns", "tap_tx_ns"), "d_rcv_ns": between("tap_rx_ns", "log_recv_ns")}
    known["d_wire_ns"] = between("tap_tx_ns", "tap_rx_ns")
    asked = {"asked_delay_ms": None if delay is None else delay / 1e6}
    return {name: value for name, value in row.items() if name != "asked"} | known | asked


rows_of_hops = st.lists(hop.map(complete), max_size=20)
Intervals = Sequence[Sequence[int]]
LIMIT_NS = 4
stalls = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).map(sorted), max_size=3)


def tally(samples: list[tuple[float, int]], host: Intervals) -> tuple[int, int]:
    """How many samples (due, came) are later than the limit, and how many stalls explain, ns by ns; slack of 1 ns."""

    def inside(due: float, came: int, slack: int) -> int:
        return sum(
            any(start - slack <= at and at + 1 <= end + slack for start, end in host) for at in range(int(due), came)
        )

    def covered(due: float, came: int) -> int:
        return min(inside(due, came, 0) + 2, inside(due, came, 1))

    late = [(due, came) for due, came in samples if came - due > LIMIT_NS]
    return len(late), sum(came - due - covered(due, came) <= LIMIT_NS for due, came in late)


@pytest.fixture(autouse=True, scope="module")
def limits_in_ns() -> Iterator[None]:
    """So that instants of a few nanoseconds are late."""
    with patch.object(hop_evidence, "RECEIVE_P99", Limit(LIMIT_NS / 1e6, "ms")):
        yield


class Run(tempfile.TemporaryDirectory[str]):
    """As much of a run directory as is asked for."""

    def __init__(self, rows: list[Row], *, clocks: bool = False, stalls: Intervals = ()) -> None:
        super().__init__()
        self._stalls = np.array(stalls, np.int64).reshape(-1, 2)
        self._rows = rows
        self._clocks = clocks

    def __enter__(self) -> Any:
        path = Path(self.name)
        (path / "tables" / "hops.parquet").mkdir(parents=True)
        for part, conns in enumerate(PARTS):
            hops = pa.Table.from_pylist([row for row in self._rows if row["conn"] in conns], arrow_schema("hops"))
            pq.write_table(hops, path / "tables" / "hops.parquet" / f"part-{part}.parquet")
        errors = {node: ERRORS_NS[machine] for node, machine in enumerate(MACHINES) if machine in ERRORS_NS}
        return SimpleNamespace(
            path=path,
            tables=path / "tables",
            overlay=tuple(
                NodeOutline(node, (), {"name": "flood"}, behaviour=Behaviour("asker") if node == ADVERSARY else None)
                for node in NODES
            ),
            plan=SimpleNamespace(
                placement=[SimpleNamespace(node=each, host=each, machine=MACHINES[each]) for each in reversed(NODES)]
            ),
            changes=(),
            clocks={node: SimpleNamespace(error_ns=each) for node, each in errors.items()} if self._clocks else {},
            judged_ns=JUDGED_NS,
            phase={"workload": Phase("workload", *WORKLOAD_NS)}.get,
            stalls=Stalls(merge(self._stalls), np.empty((0, 2), np.int64), slack_ns=1),
        )


def weigh(
    run: Any, incomplete: Sequence[int] = (), endings: Sequence[Ending] = (), pairs: Path | None = None
) -> hop_evidence.HopEvidence:
    with InProcess(1) as executor, tempfile.TemporaryDirectory() as folder:
        circumstances = hop_evidence.Circumstances.of(run, incomplete, endings, pairs)
        return hop_evidence.weigh_hops(executor, run, circumstances, Path(folder) / "weighed")


def unsure_ns(row: Row) -> int:
    ends = [row["src_node"], row["dst_node"]]
    if None in ends or MACHINES[ends[0]] == MACHINES[ends[1]]:
        return 0
    return sum(ERRORS_NS.get(MACHINES[end], 0) for end in ends)


@pytest.mark.parametrize("clocks", [False, True])
@settings(max_examples=examples(50), deadline=None)
@given(rows_of_hops)
def test_order_is_what_a_loop_says(clocks: bool, rows: list[Row]) -> None:
    with Run(rows, clocks=clocks) as run:
        found = weigh(run)
    steps = [("log_send_ns", "tap_tx_ns"), ("tap_tx_ns", "tap_rx_ns"), ("tap_rx_ns", "log_recv_ns")]
    early, unresolved = [], []
    for row in rows:
        unsure = unsure_ns(row) if clocks else 0
        for before, after in [*steps, ("log_send_ns", "log_recv_ns")]:
            if row[before] is not None and row[after] is not None:
                early.append(row[before] - row[after] - unsure)
        if unsure and row["log_send_ns"] is not None and row["log_recv_ns"] is not None:
            unresolved.append(row["log_recv_ns"] - row["log_send_ns"] <= unsure)
    assert (found.order, found.clocks) == (
        Outcome(tested=len(early), failed=sum(each > 0 for each in early), worst=max(0, *early, 0)),
        Outcome(
            tested=len(unresolved),
            failed=sum(unresolved),
            worst=max([unsure_ns(row) if clocks else 0 for row in rows], default=0),
        ),
    )


TOLD_NS, SILENCE_NS, BREAK_NS = 3, 9, 12
endings = st.builds(Ending, st.sampled_from(NODES), st.integers(0, 50), st.booleans(), st.just(False)) | st.builds(
    Ending, st.sampled_from(NODES), st.integers(0, 50), st.just(True), st.just(True)
)


@pytest.fixture(autouse=True, scope="module")
def bounds_in_ns() -> Iterator[None]:
    """So that a few nanoseconds decide whether a node's end explains a lost frame."""
    with (
        patch.object(churn, "TOLD", Limit(TOLD_NS / 1e6, "ms")),
        patch.object(churn, "SILENCE", Limit(SILENCE_NS / 1e6, "ms")),
        patch.object(churn, "BREAK_NS", BREAK_NS),
    ):
        yield


def stream_of(row: Row) -> tuple[Any, ...]:
    return row["conn"], row["direction"], row["incarnation"]


def is_lost(row: Row, rows: list[Row], ends: list[Ending]) -> bool:
    """Whether the end of a node explains that a frame was not read; asked delays count both ways."""
    sent_ns = row["log_send_ns"]
    if sent_ns is None or row["log_recv_ns"] is not None:
        return False
    read = [each for each in rows if stream_of(each) == stream_of(row) and each["log_recv_ns"] is not None]
    if any(other["off"] > row["off"] for other in read):
        return False
    moving_ns = max(sent_ns, *(other["log_recv_ns"] for other in read), 0)
    bound_ns = TOLD_NS + int(2 * (row["asked_delay_ms"] or 0) * 1e6)
    came_ns = row["tap_rx_ns"]
    for end in ends:
        since = moving_ns >= end.at_ns - bound_ns
        if came_ns is None and row["tap_tx_ns"] is not None:
            since |= sent_ns >= end.at_ns - BREAK_NS
        came = came_ns is not None and came_ns >= end.at_ns - bound_ns
        in_time = sent_ns <= end.at_ns + max(bound_ns, SILENCE_NS * end.silent)
        if row["dst_node"] == end.node and (since or came) and in_time:
            return True
        if row["src_node"] == end.node and end.crashed and since and sent_ns <= end.at_ns:
            return True
    return False


@settings(max_examples=examples(100), deadline=None)
@given(
    rows_of_hops,
    st.lists(st.sampled_from(NODES), unique=True),
    st.lists(endings, max_size=3),
)
def test_completeness_is_what_a_loop_says(rows: list[Row], incomplete: list[int], ends: list[Ending]) -> None:
    rows = [row | {"off": place} for place, row in enumerate(rows)]
    with Run(rows) as run:
        found = weigh(run, incomplete, ends)
    theirs = {*incomplete, None} if incomplete else set()
    lost = [row for row in rows if is_lost(row, rows, ends)]
    tested = [
        [row[name] is not None for name in ("log_send_ns", "tap_tx_ns", "tap_rx_ns", "log_recv_ns")]
        for row in rows
        if row not in lost and not theirs & {row["src_node"], row["dst_node"]}
    ]
    cut: dict[tuple[Any, ...], int] = {}
    for row in lost:
        cut.setdefault(stream_of(row), row["off"])
    assert {stream_of(row): row["off"] for row in found.cut.to_pylist()} == cut
    assert (found.frames, found.frame_sets) == (
        Outcome(
            tested=sum(sent for sent, _, _, _ in tested), failed=sum(sent and not read for sent, _, _, read in tested)
        ),
        FrameSets(
            len(tested),
            {
                "sent by a trace but not on the wire": sum(sent and not left for sent, left, _, _ in tested),
                "read by a trace but not on the wire": sum(read and not came for _, _, came, read in tested),
                "arrived on the wire but read by no trace": sum(came and not read for _, _, came, read in tested),
                "on the wire but sent by no trace": sum(left and not sent for sent, left, _, _ in tested),
                "read but never sent": sum(read and not sent for sent, _, _, read in tested),
            },
        ),
    )


def nearest_rank(values: list[float], share: float) -> float:
    """The least value that so large a share of all does not exceed; 0 where there are none."""
    return sorted(values)[max(math.ceil(len(values) * share) - 1, 0)] if values else 0.0


def spread_of(values: list[float], late: tuple[int, int]) -> Spread:
    p50, p99, largest = (nearest_rank(values, share) for share in (0.5, 0.99, 1.0))
    return Spread(len(values), p50, p99, largest, Late(*late))


def within(instant: int | None) -> bool:
    return instant is not None and JUDGED_NS[0] <= instant <= JUDGED_NS[1]


@settings(max_examples=examples(50), deadline=None)
@given(rows_of_hops, stalls)
def test_host_delays_are_what_a_loop_says(rows: list[Row], host: Intervals) -> None:
    with Run(rows, stalls=host) as run:
        found = weigh(run)
    judged = [row for row in rows if within(row["log_send_ns"])]
    read = [(row["tap_rx_ns"], row["log_recv_ns"]) for row in judged if row["d_rcv_ns"] is not None]
    send, receive = (
        [row[column] / 1e6 for row in judged if row[column] is not None] for column in ("d_sndbuf_ns", "d_rcv_ns")
    )
    assert (found.send, found.receive) == (spread_of(send, (0, 0)), spread_of(receive, tally(read, host)))


@settings(max_examples=examples(25), deadline=None)
@given(rows_of_hops)
def test_the_shortest_delays_on_the_wire_are_what_a_loop_says(rows: list[Row]) -> None:
    least: dict[tuple[int, int], int] = {}
    for row in rows:
        if None not in (row["src_node"], row["dst_node"], row["d_wire_ns"]):
            ends = row["src_node"], row["dst_node"]
            least[ends] = min(row["d_wire_ns"], least.get(ends, row["d_wire_ns"]))
    with Run(rows) as run, InProcess(1) as executor:
        assert hop_evidence.find_least_wire(executor, run.tables / "hops.parquet") == least


def test_frames_that_tcp_held_back_say_nothing_of_the_sending_host() -> None:
    """Five of eight frames were late at node 0, and TCP held two of these back."""
    late_ns = round(2 * NODE_DELAY.value * 1e6)
    rows = [
        {"conn": "a", "off": number, "src_node": 0, "dst_node": 1, "log_send_ns": 20, "n_retx": int(number < 2)}
        | {"tap_tx_ns": 20 + late_ns * (number < 5), "tap_rx_ns": 20 + late_ns, "log_recv_ns": 20 + late_ns}
        for number in range(8)
    ]
    with Run(rows) as run, patch.object(hop_evidence, "tcp_waits", lambda rows, _: numbers(rows["n_retx"])):
        found = [weigh(run, pairs=pairs) for pairs in (None, run.path)]
    assert [each.node_sends[0] for each in found] == [(8, 5, 0), (6, 3, 0)]
    assert found[0].node_receives == found[1].node_receives == {1: (8, 0, 0)}


@settings(max_examples=examples(50), deadline=None)
@given(rows_of_hops)
def test_totals_are_what_loops_say(rows: list[Row]) -> None:
    with Run(rows) as run:
        found = weigh(run).totals
    columns = {"send_ms": "d_sndbuf_ns", "wire_ms": "d_wire_ns", "receive_ms": "d_rcv_ns"}
    judged = [row for row in rows if within(row["log_send_ns"])]
    for name, column in columns.items():
        assert list(getattr(found, name).values) == sorted(row[column] / 1e6 for row in rows if row[column] is not None)
        if name != "wire_ms":
            values = (row[column] / 1e6 for row in judged if row[column] is not None)
            assert list(getattr(found, f"judged_{name}").values) == sorted(values)
    asked = [row["asked_delay_ms"] for row in rows if row["asked_delay_ms"] is not None]
    assert list(found.asked_ms.values) == sorted(asked)
    sent: dict[int, list[int]] = {}
    for row in rows:
        at_ns = row["log_send_ns"]
        if at_ns is not None and WORKLOAD_NS[0] <= at_ns < WORKLOAD_NS[1] and row["src_node"] != ADVERSARY:
            sent.setdefault(-1 if row["kind"] is None else row["kind"], []).append(row["len_bytes"])
    assert found.sent == {kind: (len(each), sum(each)) for kind, each in sent.items()}


@given(
    st.lists(st.lists(st.integers(-(10**18), 10**18) | st.integers(-2, 2), max_size=8), max_size=4),
    st.sampled_from([0.0, 0.01, 0.5, 0.9, 0.99, 1.0]),
)
def test_quantiles_over_sorted_runs_are_exact(runs: list[list[int]], share: float) -> None:
    """Of integers, and of floats."""
    with tempfile.TemporaryDirectory() as folder:
        for kind in (np.int64, np.float64):
            values = [np.array(run, kind) if kind is np.int64 else np.array(run, kind) / 3 for run in runs]
            written = [write_run(Path(folder) / f"{number}.npy", run) for number, run in enumerate(values)]
            found = SortedRuns(written)
            everything = np.sort(np.concatenate([np.empty(0, kind), *values]))
            assert found.count == len(everything)
            assert found.quantile(share) == nearest_rank(everything.tolist(), share)
            assert [found.at_rank(rank) for rank in range(found.count)] == everything.tolist()


PAUSES = st.lists(st.tuples(st.sampled_from(NODES), st.integers(0, 50), st.integers(0, 20)), max_size=2)


@settings(max_examples=50, deadline=None)
@given(rows_of_hops, PAUSES)
def test_what_paused_peers_wrote_and_read_is_left_out(rows: list[Row], pauses: list[tuple[int, int, int]]) -> None:
    faults = tuple(Change(since, 0, since + length, paused=(node,)) for node, since, length in pauses)
    with Run(rows) as run, patch.object(changes, "GRACE_NS", 3):
        run.changes, run.manifest, run.lines = faults, SimpleNamespace(zero_ns=0), lambda name: []
        found = weigh(run)

    def samples(node: str, since: str, until: str) -> int:
        judged = [row for row in rows if within(row["log_send_ns"])]
        spans = [(row[node], row[since], row[until]) for row in judged if None not in (row[since], row[until])]
        return sum(
            not any(own == paused and begun < at + length + 3 and ended >= at for paused, at, length in pauses)
            for own, begun, ended in spans
        )

    assert found.send.samples == samples("src_node", "log_send_ns", "tap_tx_ns")
    assert found.receive.samples == samples("dst_node", "tap_rx_ns", "log_recv_ns")
