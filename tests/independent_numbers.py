"""A second computation of a run's numbers: tshark reads the captures, pandas does the rest, and none of our code runs.

It follows the documents (docs/results.md, docs/tables.md), not the code. It is simple, and slow, and for runs in which
all nodes stay up.
"""

import json
import subprocess
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd

DATA = 16
HEADER_FIELDS = {
    "host": "frame.interface_name",
    "way": "frame.packet_flags_direction",
    "at": "frame.time_epoch",
    "src": "ip.src",
    "sport": "tcp.srcport",
    "dst": "ip.dst",
    "dport": "tcp.dstport",
    "seq": "tcp.seq_raw",
    "payload": "tcp.len",
    "ip_bytes": "ip.len",
    "flags": "tcp.flags",
    "ip_id": "ip.id",
}
SYN, ACK = 0x02, 0x10
SECOND = 1_000_000_000


def compute(run: Path) -> dict[str, Any]:
    """Return every number by its name."""
    manifest, plan, underlay = (
        json.loads((run / f"{name}.json").read_bytes()) for name in ("manifest", "plan", "underlay")
    )
    events = read_events(run / "trace")
    packets = read_packets([run / name for name in manifest["capture_files"]], manifest["epoch_offset_ns"])
    nodes = len(plan["placement"])
    delay_ms = underlay["delay_ms"]
    start_ns, zero_ns, end_ns = (
        next(phase[key] for phase in manifest["phases"] if phase["name"] == name)
        for name, key in (("warmup", "start_ns"), ("workload", "start_ns"), ("workload", "end_ns"))
    )
    hops = locate(events, packets)
    deliveries = find_deliveries(events, hops, delay_ms)
    found = count_packets(packets)
    found |= count_deliveries(events, deliveries)
    found |= count_bytes(packets, hops, events)
    found["resent_by_side"] = {side: hops.attrs["resent"].get(side, 0) for side in found["packets_by_side"]}
    found |= count_copies(events)
    found |= measure_hops(hops, delay_ms)
    last_ns = next(phase["end_ns"] for phase in manifest["phases"] if phase["name"] == "cooldown")
    found |= measure_links(events, (start_ns, zero_ns, end_ns, last_ns))
    control = events[(events["event"] == "send") & (events["kind"] != DATA)]
    control = control[(control["ts_ns"] >= zero_ns) & (control["ts_ns"] < end_ns)]
    spent_s = nodes * (end_ns - zero_ns) / 1e9
    return found | {"control_bytes_per_peer_per_s": control["len_bytes"].sum() / spent_s}


# ---------------------------------------------------------------------------------------------------- reading


def read_events(folder: Path) -> pd.DataFrame:
    """The traces' events, of each node in their order."""
    lines = [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.open(encoding="utf-8")]
    return pd.DataFrame(lines)


def read_packets(files: list[Path], epoch_offset_ns: int) -> pd.DataFrame:
    """The captured packets, as tshark says; ``at_ns`` is on the run's clock."""
    options = [word for field in HEADER_FIELDS.values() for word in ("-e", field)]
    rows: list[list[str]] = []
    for file in files:
        said = subprocess.run(["tshark", "-n", "-r", file, "-T", "fields", *options], capture_output=True, check=True)
        rows += [line.split("\t") for line in said.stdout.decode().splitlines()]
    packets = pd.DataFrame(rows, columns=list(HEADER_FIELDS))
    seconds = packets["at"].str.partition(".")
    packets["at_ns"] = (
        seconds[0].astype("int64") * SECOND + seconds[2].str.ljust(9, "0").astype("int64") - epoch_offset_ns
    )
    packets["is_tx"] = packets["way"].map(lambda way: int(way, 16) & 3) == 2
    packets["is_tcp"] = packets["sport"] != ""
    for name in ("sport", "dport", "seq", "payload", "ip_bytes"):
        packets[name] = pd.to_numeric(packets[name]).fillna(0).astype("int64")
    packets["flags"] = packets["flags"].map(lambda flags: int(flags, 16) if flags else 0)
    return packets.drop(columns=["at", "way"])


def name_connections(packets: pd.DataFrame) -> pd.DataFrame:
    """The TCP packets with ``conn``, ``direction`` and the offset in the stream (``off``); no ports are used twice."""
    tcp = packets[packets["is_tcp"]].copy()
    opening = tcp[(tcp["flags"] & (SYN | ACK)) == SYN]
    opened = set(zip(opening["src"], opening["sport"], opening["dst"], opening["dport"], strict=True))
    four = list(zip(tcp["src"], tcp["sport"], tcp["dst"], tcp["dport"], strict=True))
    tcp["direction"] = ["orig" if each in opened else "resp" for each in four]
    tcp["conn"] = [
        f"{a}:{b}-{c}:{d}" if each in opened else f"{c}:{d}-{a}:{b}" for each in four for a, b, c, d in [each]
    ]
    first = tcp[tcp["flags"] & SYN > 0].groupby(["conn", "direction"])["seq"].first().rename("isn").reset_index()
    tcp = tcp.merge(first, on=["conn", "direction"])
    tcp["off"] = (tcp["seq"] - tcp["isn"] - 1) % (1 << 32)
    return tcp.sort_values("at_ns", kind="stable")


def first_bytes(stream: pd.DataFrame) -> tuple[list[tuple[int, int, int]], int]:
    """Of a stream at one tap, the pieces seen for the first time as (from, to, instant), and the bytes seen again."""
    known: list[tuple[int, int, int]] = []
    again = 0
    for off, payload, at_ns in zip(stream["off"], stream["payload"], stream["at_ns"], strict=True):
        holes = [(off, off + payload)]
        for begin, end, _ in known:
            holes = [
                piece
                for low, high in holes
                for piece in ((low, min(high, begin)), (max(low, end), high))
                if piece[0] < piece[1]
            ]
        fresh = sum(high - low for low, high in holes)
        again += payload - fresh
        known += [(low, high, at_ns) for low, high in holes]
    return sorted(known), again


def locate(events: pd.DataFrame, packets: pd.DataFrame) -> pd.DataFrame:
    """Every traced sending of a frame with the instants at the taps, its reading, and bytes by second (``spent``)."""
    tcp = name_connections(packets)
    tcp = tcp[tcp["payload"] > 0]
    sides = {}
    for (conn, direction, is_tx), stream in tcp.groupby(["conn", "direction", "is_tx"]):
        sides[conn, direction, is_tx] = first_bytes(stream)
    frames = events[events["event"] == "send"]
    key = ["conn", "direction", "off"]
    read = events[events["event"] == "receive"]
    frames = frames.merge(read[[*key, "ts_ns", "node"]], on=key, how="left", suffixes=("", "_read"))
    rows = []
    for frame in frames.to_dict("records"):
        begin, end = int(frame["off"]), int(frame["off"] + frame["len_bytes"])
        sent = _covering(sides.get((frame["conn"], frame["direction"], True), ([], 0))[0], begin, end)
        came, _ = sides.get((frame["conn"], frame["direction"], False), ([], 0))
        before = [(low, high, at_ns) for low, high, at_ns in came if low < end]
        whole = sum(min(high, end) - low for low, high, _ in before) == end
        rows.append(
            {
                **{name: frame[name] for name in (*key, "node", "peer", "kind", "len_bytes", "message_id")},
                "log_send_ns": frame["ts_ns"],
                "log_recv_ns": frame["ts_ns_read"],
                "tap_tx_ns": min((at_ns for *_, at_ns in sent), default=None),
                "tap_rx_ns": max(at_ns for *_, at_ns in before) if whole else None,
            }
        )
    hops = pd.DataFrame(rows)
    hops.attrs["resent"] = {side[:2]: again for side, (_, again) in sides.items() if side[2]}
    return hops


def _covering(pieces: list[tuple[int, int, int]], begin: int, end: int) -> list[tuple[int, int, int]]:
    return [piece for piece in pieces if piece[0] < end and piece[1] > begin]


# --------------------------------------------------------------------------------------------------- counting


def count_packets(packets: pd.DataFrame) -> dict[str, Any]:
    tcp = name_connections(packets)
    sent = tcp[tcp["is_tx"]]
    by_side = sent.groupby(["conn", "direction"])
    return {
        "connections": sorted(tcp["conn"].unique()),
        "packets_by_side": by_side.size().to_dict(),
        "ip_bytes_by_side": by_side["ip_bytes"].sum().to_dict(),
        "stream_bytes_by_side": {
            side: int((part["off"] + part["payload"])[part["payload"] > 0].max()) if (part["payload"] > 0).any() else 0
            for side, part in by_side
        },
        "packets_sent": int(packets["is_tx"].sum()),
        "packets_arrived": int((~packets["is_tx"]).sum()),
    }


def find_deliveries(events: pd.DataFrame, hops: pd.DataFrame, delay_ms: list[list[float]]) -> pd.DataFrame:
    """A row per message and subscriber other than its publisher."""
    topics = {row["node"]: set(row["topics"]) for row in events[events["event"] == "start"].to_dict("records")}
    delivered = {}
    for row in events[events["event"] == "deliver"].to_dict("records"):
        delivered.setdefault((row["message_id"], row["node"]), row)
    copies = hops[hops["kind"] == DATA]
    left = copies[copies["message_id"].map(int) // (1 << 32) == copies["node"]].groupby("message_id")["tap_tx_ns"].min()
    came = copies.groupby(["message_id", "peer"])["tap_rx_ns"].min()
    rows = []
    for sent in events[events["event"] == "publish"].to_dict("records"):
        for node, own in topics.items():
            if node == sent["node"] or not own & set(sent["topics"]):
                continue
            got = delivered.get((sent["message_id"], node))
            latency = None if got is None else (got["ts_ns"] - sent["ts_ns"]) / 1e6
            direct = delay_ms[sent["node"]][node]
            wire = (
                came.get((sent["message_id"], node), float("nan")) - left.get(sent["message_id"], float("nan"))
            ) / 1e6
            rows.append((latency, None if got is None else got["hops"], latency and latency / direct, wire))
    return pd.DataFrame(rows, columns=["latency_ms", "hops", "stretch", "wire_latency_ms"])


def count_deliveries(events: pd.DataFrame, deliveries: pd.DataFrame) -> dict[str, Any]:
    latency, hops = deliveries["latency_ms"].dropna(), deliveries["hops"].dropna()
    found = {
        "messages_published": int((events["event"] == "publish").sum()),
        "deliveries_expected": len(deliveries),
        "delivery_ratio": len(latency) / len(deliveries),
        "propagation_delay_ms_mean": latency.mean(),
        "propagation_delay_ms_max": latency.max(),
        "hops_mean": hops.mean(),
        "hops_max": hops.max(),
        "stretch_p50": deliveries["stretch"].median(),
        "wire_latency_ms_mean": deliveries["wire_latency_ms"].mean(),
        "wire_latency_ms_max": deliveries["wire_latency_ms"].max(),
    }
    found |= {f"propagation_delay_ms_p{q}": latency.quantile(q / 100) for q in (50, 90, 99)}
    return found | {f"hops_p{q}": hops.quantile(q / 100) for q in (50, 99)}


def count_copies(events: pd.DataFrame) -> dict[str, Any]:
    counts = events[events["peer"].notna()]["event"].value_counts()  # a publisher's own deliveries come from no peer
    topics = {row["node"]: set(row["topics"]) for row in events[events["event"] == "start"].to_dict("records")}
    deliver, relay, duplicate = (int(counts.get(name, 0)) for name in ("deliver", "relay", "duplicate"))
    copies = events[events["event"].isin(["deliver", "relay", "duplicate"]) & events["peer"].notna()]
    unwanted = sum(not topics[row["node"]] & set(row["topics"]) for row in copies.to_dict("records"))
    everything = deliver + relay + duplicate
    return {
        "duplicates_per_delivery": duplicate / deliver,
        "relay_ratio": relay / everything,
        "traffic_overhead_ratio": unwanted / everything,
    }


def count_bytes(packets: pd.DataFrame, hops: pd.DataFrame, events: pd.DataFrame) -> dict[str, int]:
    """The bytes on the wire by class, each packet at its sender's tap."""
    sent = packets[packets["is_tx"]]
    tcp = sent[sent["is_tcp"]]
    empty = tcp[tcp["payload"] == 0]
    full = tcp[tcp["payload"] > 0]
    resent = sum(hops.attrs["resent"].values())
    lengths = events[events["event"] == "publish"].set_index("message_id")["len_bytes"].to_dict()
    copies = hops[hops["kind"] == DATA]
    firsts = {
        (row["node"], row["message_id"]): row["peer"]
        for row in events[events["event"] == "deliver"].to_dict("records")[::-1]
    }
    payload = copies["message_id"].map(lengths)
    is_first = (
        pd.Series(
            [firsts.get((row["peer"], row["message_id"])) == row["node"] for row in copies.to_dict("records")],
            copies.index,
        )
        & copies["log_recv_ns"].notna()
    )
    is_first &= ~copies[is_first].sort_values("log_recv_ns").duplicated(["message_id", "node", "peer"]).reindex(
        copies.index, fill_value=False
    )
    return {
        "wire_bytes": int(sent["ip_bytes"].sum()),
        "ack_bytes": int(empty["ip_bytes"].sum()),
        "header_bytes": int((full["ip_bytes"] - full["payload"]).sum()),
        "retransmitted_bytes": resent,
        "first_payload_bytes": int(payload[is_first].sum()),
        "duplicate_payload_bytes": int(payload[~is_first].sum()),
        "framing_bytes": int((copies["len_bytes"] - payload).sum()),
        "control_bytes": int(hops[hops["kind"] != DATA]["len_bytes"].sum()),
    }


def measure_hops(hops: pd.DataFrame, delay_ms: list[list[float]]) -> dict[str, Any]:
    wire_ms = (hops["tap_rx_ns"] - hops["tap_tx_ns"]) / 1e6
    return {
        "hops": len(hops),
        "hops_read": int(hops["log_recv_ns"].notna().sum()),
        "send_ns_total": int((hops["tap_tx_ns"] - hops["log_send_ns"]).dropna().sum()),
        "wire_ns_total": int((hops["tap_rx_ns"] - hops["tap_tx_ns"]).dropna().sum()),
        "receive_ns_total": int((hops["log_recv_ns"] - hops["tap_rx_ns"]).dropna().sum()),
        "wire_ms_p50": wire_ms.median(),
        "wire_ms_p99": wire_ms.quantile(0.99),
        "wire_ms_max": wire_ms.max(),
    }


def measure_links(events: pd.DataFrame, instants: tuple[int, int, int, int]) -> dict[str, Any]:
    """Views and degrees at every full second of the workload, degrees in its middle, and the graph at its end."""
    _, zero_ns, end_ns, _ = instants
    topics = {row["node"]: set(row["topics"]) for row in events[events["event"] == "start"].to_dict("records")}
    seconds = range(zero_ns, end_ns, SECOND)
    views = {at_ns: views_at(events, at_ns) for at_ns in (*seconds, end_ns)}
    totals = [len(views[at][0][node]) for at in seconds for node in topics]
    uniques = [len({peer for peer, _ in views[at][0][node]}) for at in seconds for node in topics]
    degrees = [len(views[at][1][node]) for at in seconds for node in topics]
    middle = list(seconds)[len(seconds) // 2]
    then = pd.Series([len(views[middle][1][node]) for node in topics])
    edges = {frozenset((node, peer)) for node, peers in views[end_ns][1].items() for peer in peers}
    lengths = {start: distances(start, edges) for start in topics}
    apart = [length for start in topics for node, length in lengths[start].items() if node != start]
    parts = {
        topic: components({node for node in topics if topic in topics[node]}, edges)
        for topic in set.union(*topics.values())
    }
    return {
        "view_size_total_mean": sum(totals) / len(totals),
        "view_size_unique_mean": sum(uniques) / len(uniques),
        "link_sharing_ratio": sum(totals) / sum(uniques),
        "logical_per_physical_link": sum(totals) / sum(degrees),
        "degree_mean": then.mean(),
        "degree_max": then.max(),
        **{f"degree_p{q}": then.quantile(q / 100) for q in (50, 90, 99)},
        "diameter": max(apart),
        "path_length_mean": sum(apart) / len(apart),
        "clustering": sum(clustering(node, edges) for node in topics) / len(topics),
        "topics": len(parts),
        "topic_components": sum(parts.values()),
        "topic_components_max": max(parts.values()),
        "topics_partitioned": sum(count > 1 for count in parts.values()),
    }


def views_at(events: pd.DataFrame, at_ns: int) -> tuple[dict[int, set[tuple[int, int]]], dict[int, set[int]]]:
    """Each node's logical links (neighbour, topic) and its neighbours, just after an instant."""
    logical: dict[int, set[tuple[int, int]]] = defaultdict(set)
    conns: dict[int, dict[str, int]] = defaultdict(dict)
    told = events[(events["ts_ns"] <= at_ns) & events["event"].isin(["graft", "prune", "add_peer", "remove_peer"])]
    for row in told.sort_values("ts_ns", kind="stable").to_dict("records"):
        node, peer = int(row["node"]), int(row["peer"])
        match row["event"]:
            case "add_peer":
                conns[node][row["conn"]] = peer
            case "remove_peer":
                conns[node].pop(row["conn"], None)
                if peer not in conns[node].values():
                    logical[node] = {link for link in logical[node] if link[0] != peer}
            case "graft":
                logical[node] |= {(peer, topic) for topic in row["topics"]}
            case "prune":
                logical[node] -= {(peer, topic) for topic in row["topics"]}
    return logical, defaultdict(set, {node: set(own.values()) for node, own in conns.items()})


def distances(start: int, edges: set[frozenset[int]]) -> dict[int, int]:
    found, border = {start: 0}, [start]
    while border:
        following = [
            other for node in border for edge in edges if node in edge for other in edge - {node} if other not in found
        ]
        found |= dict.fromkeys(following, found[border[0]] + 1)
        border = list(dict.fromkeys(following))
    return found


def clustering(node: int, edges: set[frozenset[int]]) -> float:
    others = sorted({other for edge in edges if node in edge for other in edge - {node}})
    pairs = list(combinations(others, 2))
    return sum(frozenset(pair) in edges for pair in pairs) / len(pairs) if pairs else 0.0


def components(nodes: set[int], edges: set[frozenset[int]]) -> int:
    inside = {edge for edge in edges if edge <= nodes}
    left, count = set(nodes), 0
    while left:
        left -= distances(next(iter(left)), inside).keys()
        count += 1
    return count
