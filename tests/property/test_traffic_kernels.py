"""The kernels of connections, bytes, lost traces, epochs and the agreement of links against loops over dictionaries."""

from collections import Counter, defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.pcap.schemas import CONNS as CAPTURED
from metrics.pcap.schemas import SPANS, WIRE
from metrics.tables.agreement import ENDS, compare_physical
from metrics.tables.conns import build_conns
from metrics.tables.epochs import epoch_ends
from metrics.tables.links import PHYSICAL
from metrics.tables.logs import orphans
from metrics.tables.overhead import FRAME_CLASSES, build_control, build_overhead, frame_classes
from metrics.tables.schemas import arrow_schema, schema_of
from metrics.tables.timespans import SECOND_NS
from metrics.tables.traces import EVENTS, FRAMES
from peer.core.frames import Data

Row = dict[str, Any]

CONTROL_KIND = 1
ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.0.9")
NAMES = ("10.0.0.1:5-10.0.0.2:9", "10.0.0.2:5-10.0.0.9:9")
NODES = pa.table({"node": pa.array([0, 1], pa.int32()), "ip": ["10.0.0.1", "10.0.0.2"]})
STREAMS = schema_of("conn string, n_frames bigint")
CARRIED = schema_of("conn string, src_node int, dst_node int, topic bigint")
INTERESTS = schema_of("node int, topic bigint")
SENT = schema_of("""
    node int, kind smallint, useful boolean, second_ns bigint, frames bigint, framing_bytes bigint, body_bytes bigint
""")
SPLIT = schema_of("""
    conn string, direction string, off bigint, kind smallint, len_bytes bigint, node int, payload bigint, useful boolean
""")
FIGURES = ("bytes", "pkts", "ip_bytes", "retx_bytes")

counts = st.integers(0, 5)
nodes = st.integers(0, 1)
names = st.sampled_from(NAMES)
sides = st.sampled_from(["orig", "resp"])
taps = st.sampled_from(["tx", "rx"])
kinds = st.sampled_from([CONTROL_KIND, Data.kind])
seconds = st.integers(0, 2).map(lambda second: second * SECOND_NS)


def table(rows: list[Row], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(rows, schema)


def rows_of(found: pa.Table) -> list[str]:
    return sorted(map(str, found.to_pylist()))


captured = st.fixed_dictionaries(
    {
        "uid": st.sampled_from(["C0", "C1"]),
        "conn": names,
        "orig_tap": taps,
        "id_orig_h": st.sampled_from(ADDRESSES),
        "id_resp_h": st.sampled_from(ADDRESSES),
        "id_orig_p": counts,
        "id_resp_p": counts,
        "conn_state": st.sampled_from(["S0", "SF"]),
        "history": st.none() | st.sampled_from(["ShA", "Sh"]),
        **dict.fromkeys(("ts_ns", "duration_ns", "missed_bytes"), counts),
        **{f"{side}_{figure}": counts for side in ("orig", "resp") for figure in FIGURES},
    }
)
streamed = st.fixed_dictionaries({"conn": names, "n_frames": counts})
carriage = st.fixed_dictionaries({"conn": names, "src_node": nodes, "dst_node": nodes, "topic": nodes})
subscribed = st.fixed_dictionaries({"node": nodes, "topic": nodes})


@given(*(st.lists(each, max_size=6) for each in (captured, streamed, carriage, subscribed)))
@settings(deadline=None)
def test_connections(seen: list[Row], streams: list[Row], carried: list[Row], interests: list[Row]) -> None:
    expected = []
    for uid in {row["uid"] for row in seen}:
        rows = [row for row in seen if row["uid"] == uid]

        def word(name: str, tap: str, rows: list[Row] = rows) -> Any:
            own = [row[name] for row in rows if row["orig_tap"] == tap and row[name] is not None]
            return max(own or [row[name] for row in rows if row[name] is not None], default=None)

        begun = min(row["ts_ns"] for row in rows)
        found = {"uid": uid, "ts_ns": begun, "missed_bytes": sum(row["missed_bytes"] for row in rows)}
        found["duration_ns"] = max(row["ts_ns"] + row["duration_ns"] for row in rows) - begun
        for name in ("conn", "id_orig_h", "id_orig_p", "id_resp_h", "id_resp_p", "conn_state", "history"):
            found[name] = word(name, "tx")
        for side, tap in (("orig", "tx"), ("resp", "rx")):
            found |= {f"{side}_{figure}": word(f"{side}_{figure}", tap) for figure in FIGURES}
            found[f"{side}_node"] = dict(zip(ADDRESSES, (0, 1, None), strict=True))[found[f"id_{side}_h"]]
        n_frames = sum(row["n_frames"] for row in streams if row["conn"] == found["conn"])
        mine = [row for row in carried if row["conn"] == found["conn"]]
        wants = {(row["node"], row["topic"]) for row in interests}
        both = {r["topic"] for r in mine if {(r["src_node"], r["topic"]), (r["dst_node"], r["topic"])} <= wants}
        found["n_frames"] = n_frames
        found["n_topics"] = len({row["topic"] for row in mine}) if n_frames else 0
        found["n_logical_links"] = len(both) if n_frames else 0
        expected.append(found)
    given_rows = table(streams, STREAMS), table(carried, CARRIED), table(interests, INTERESTS)
    made = build_conns(table(seen, CAPTURED), NODES, *given_rows)
    assert rows_of(made) == rows_of(table(expected, arrow_schema("conns")))


sent = st.fixed_dictionaries(
    {
        "node": nodes,
        "kind": kinds,
        "useful": st.booleans(),
        "second_ns": seconds,
        **dict.fromkeys(("frames", "framing_bytes", "body_bytes"), counts),
    }
)
wire = st.fixed_dictionaries(
    {
        "vantage_host": st.integers(0, 1),
        "tap": taps,
        "at_ns": seconds,
        **dict.fromkeys([name for name in WIRE.names if name.endswith("_bytes")], counts),
    }
)


@st.composite
def split_frames(draw: st.DrawFn) -> tuple[list[Row], list[Row]]:
    """Frames whose bytes left in several seconds, and how many in each."""
    frames, spans = [], []
    for off in draw(st.lists(counts, max_size=4, unique=True)):
        sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
        place = {"conn": draw(names), "direction": draw(sides), "off": off}
        payload = draw(st.integers(0, sum(sizes)))
        said = {"kind": draw(kinds), "node": draw(nodes), "useful": draw(st.booleans())}
        frames.append(place | said | {"len_bytes": sum(sizes), "payload": payload})
        pieces = [
            place | {"uid": "C0", "tap": "tx", "at_ns": number * SECOND_NS, "span_bytes": size}
            for number, size in enumerate(sizes)
        ]
        spans += draw(st.permutations(pieces)) + [piece | {"tap": "rx"} for piece in pieces]
    return frames, spans


@given(st.lists(sent, max_size=6), split_frames(), st.lists(wire, max_size=6))
@settings(deadline=None)
def test_every_byte_is_in_one_class(sent: list[Row], split: tuple[list[Row], list[Row]], wire: list[Row]) -> None:
    pieces = list(sent)
    for frame in split[0]:
        left = frame["len_bytes"] - frame["payload"]
        own = [row for row in split[1] if row["tap"] == "tx" and row["off"] == frame["off"]]
        for number, span in enumerate(sorted(own, key=lambda row: row["at_ns"])):
            framing = min(left, span["span_bytes"])
            left -= framing
            piece = {name: frame[name] for name in ("node", "kind", "useful")}
            piece |= {"second_ns": span["at_ns"], "frames": int(number == 0), "framing_bytes": framing}
            pieces.append(piece | {"body_bytes": span["span_bytes"] - framing})
    classes = frame_classes(table(sent, SENT), table(split[0], SPLIT), table(split[1], SPANS))
    assert rows_of(classes) == rows_of(table(pieces, SENT))

    sums: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    control: dict[tuple[int, int, int], Counter[str]] = defaultdict(Counter)
    for row in pieces:
        own, framing, body = sums[row["node"], row["second_ns"]], row["framing_bytes"], row["body_bytes"]
        if row["kind"] == Data.kind:
            own["framing_bytes"] += framing
            own["first_payload_bytes" if row["useful"] else "duplicate_payload_bytes"] += body
        else:
            own["control_bytes"] += framing + body
            found = control[row["node"], row["second_ns"], row["kind"]]
            found.update(frames=row["frames"], frame_bytes=framing + body)
    words = {"retx_bytes": "retransmitted_bytes", "pure_ack_bytes": "ack_bytes"}
    for row in wire:
        if row["tap"] == "tx":
            own = sums[7 - row["vantage_host"], row["at_ns"]]  # host 0 has node 7, host 1 node 6
            for name in ("wire_bytes", "header_bytes", "retx_bytes", "pure_ack_bytes"):
                own[words.get(name, name)] += row[name]
            own["other_bytes"] += row["other_bytes"]
            own["opaque_bytes"] += row["datagram_bytes"] + row["payload_bytes"]
    expected = []
    for (node, second_ns), own in sums.items():
        own["opaque_bytes"] -= sum(own[name] for name in FRAME_CLASSES)
        columns = {name: own[name] for name in arrow_schema("overhead").names[2:]}
        expected.append({"node": node, "second_ns": second_ns, **columns})
    made = build_overhead(classes, table(wire, WIRE), [7, 6])
    assert rows_of(made) == rows_of(table(expected, arrow_schema("overhead")))
    rows = [
        {"node": node, "second_ns": second_ns, "kind": kind, "frames": own["frames"], "frame_bytes": own["frame_bytes"]}
        for (node, second_ns, kind), own in control.items()
    ]
    assert rows_of(build_control(classes)) == rows_of(table(rows, arrow_schema("control")))


def test_packets_of_a_host_without_a_node_have_no_node() -> None:
    row = {"vantage_host": 5, "tap": "tx", "at_ns": 0} | {n: 1 for n in WIRE.names if n.endswith("_bytes")}
    [found] = build_overhead(table([], SENT), table([row], WIRE), [7]).to_pylist()
    assert found["node"] is None
    assert found["wire_bytes"] == 1


framed = st.fixed_dictionaries(
    {
        "event": st.sampled_from(["send", "receive"]),
        "node": nodes,
        "peer": nodes,
        "conn": names,
        "direction": sides,
        "off": counts,
        "len_bytes": st.just(1),
    }
)


@given(st.lists(framed, max_size=10), st.lists(nodes, max_size=2, unique=True))
@settings(deadline=None)
def test_frames_that_only_their_receivers_tell_of(frames: list[Row], incomplete: list[int]) -> None:
    key = ("conn", "direction", "off")
    told = {tuple(row[name] for name in key) for row in frames if row["event"] == "send"}
    expected = [
        row
        for row in frames
        if row["event"] == "receive"
        and row["peer"] in incomplete
        and tuple(row[name] for name in key) not in told
    ]  # fmt: skip
    assert rows_of(orphans(table(frames, FRAMES), incomplete)) == rows_of(table(expected, FRAMES))


ended = st.fixed_dictionaries(
    {"node": st.integers(0, 4), "ts_ns": counts, "epoch": st.integers(0, 2), "score": st.none() | st.floats(0, 1)}
)


@given(st.lists(ended, max_size=12), st.frozensets(st.integers(0, 4), max_size=2))
@settings(deadline=None)
def test_ends_of_epochs(events: list[Row], adversaries: frozenset[int]) -> None:
    found = epoch_ends(table(events, EVENTS), adversaries)
    honest = [row for row in events if row["node"] not in adversaries]
    assert [row["epoch"] for row in found] == sorted({row["epoch"] for row in honest})
    for row in found:
        own = [each for each in honest if each["epoch"] == row["epoch"]]
        instants = sorted(each["ts_ns"] for each in own)
        scores = [each["score"] for each in own if each["score"] is not None]
        assert row["end_ns"] == instants[(len(instants) - 1) // 2]
        assert row["nodes"] == len({each["node"] for each in own})
        assert row["score_mean"] == (pytest.approx(sum(scores) / len(scores)) if scores else None)


quarters = st.integers(0, 30).map(lambda count: count * SECOND_NS // 4)
spans = st.tuples(quarters, quarters).map(sorted)
known = st.builds(
    lambda node, peer, at: {"node": node, "peer": peer, "from_ns": at[0], "to_ns": at[1]}, nodes, nodes, spans
)
seen = st.builds(
    lambda node, peer, sure, maybe: {
        "node": node, "peer": peer, "from_ns": maybe[0], "maybe_to_ns": maybe[1],
        "sure_from_ns": sure[0], "sure_to_ns": sure[1],
    },
    nodes, nodes, spans, spans,
)  # fmt: skip


@given(st.lists(seen, max_size=6), st.lists(known, max_size=6), st.lists(nodes, max_size=1))
@settings(deadline=None)
def test_physical_links_at_every_second(ends: list[Row], physical: list[Row], incomplete: list[int]) -> None:
    grid = (SECOND_NS, -1, 5)
    counted: Counter[str] = Counter(tested=0, only_on_wire=0, only_traced=0, changing=0)
    for k in range(grid[1], grid[2] + 1):
        at_ns = grid[0] + k * SECOND_NS
        for pair in ((node, peer) for node in range(2) for peer in range(2) if node not in incomplete):

            def says(rows: list[Row], since: str, until: str, pair: Any = pair, at_ns: int = at_ns) -> bool:
                mine = [row for row in rows if (row["node"], row["peer"]) == pair]
                return any(row[since] <= at_ns < row[until] for row in mine)

            traced = says(physical, "from_ns", "to_ns")
            sure, maybe = says(ends, "sure_from_ns", "sure_to_ns"), says(ends, "from_ns", "maybe_to_ns")
            counted["tested"] += traced or sure
            counted["only_on_wire"] += sure and not traced
            counted["only_traced"] += traced and not maybe
            counted["changing"] += traced and maybe and not sure
    found = compare_physical(table(ends, ENDS), table(physical, PHYSICAL), incomplete, grid)
    assert {name: getattr(found, name) for name in counted} == counted
