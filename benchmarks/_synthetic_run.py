"""A run directory of any size, made with NumPy: header-only captures, and the traces that match them.

A few hosts, a TCP connection between every two, a topic a host to which its ``FANOUT`` followers subscribe. A publisher
sends each message straight to its followers; a frame takes three segments and two acknowledgements, and one segment in
a hundred is lost and sent again. Everything is consistent: every frame is in the traces of both ends and at both taps.
"""

import json
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from harness.experiment.form import CaptureSpec, Experiment, ProbeSpec
from harness.experiment.sections.underlay import UnderlaySpec
from harness.experiment.sections.workload import WorkloadSpec
from metrics.rundir.files import ACHIEVED_FILE, DATAPLANE_FILE, MANIFEST_FILE, PLAN_FILE, PRESSURE_FILE, UNDERLAY_FILE
from peer.core.frames import Data
from peer.files import OVERLAY_FILE, SCHEDULE_FILE
from peer.wire import encode
from topologies.model import Host, Underlay

HOSTS, FANOUT = 64, 10
GROUP_HOSTS = 32  # hosts a capture file, as the data plane writes them
PORT, SNAPLEN = 9000, 96
SECOND = 10**9
ZERO_NS = 1_000 * SECOND
OFFSET_NS = 1_700_000_000 * SECOND
PACKETS_PER_FRAME = 10.1
_MESSAGE_GAP_NS = 200_000_000  # between a publisher's messages: longer than any retransmission takes
_PAYLOAD_BYTES, _SEGMENT_BYTES = 4000, 1448
_HEADER_BYTES = 52
_CHUNK_MESSAGES = 100  # of each publisher: some 650,000 packets
SYN, ACK = 2, 16

Ints = npt.NDArray[np.int64]

_BLOCK = np.dtype(
    [
        ("kind", "<u4"), ("length", "<u4"), ("interface", "<u4"), ("high", "<u4"), ("low", "<u4"), ("cap", "<u4"),
        ("wire", "<u4"),
        ("vihl", "u1"), ("tos", "u1"), ("ip_length", ">u2"), ("id", ">u4"), ("ttl", "u1"), ("proto", "u1"),
        ("sum", ">u2"), ("src", ">u4"), ("dst", ">u4"),
        ("sport", ">u2"), ("dport", ">u2"), ("seq", ">u4"), ("ack", ">u4"), ("offset", "u1"), ("flags", "u1"),
        ("window", ">u2"), ("options", "V12"),
    ]
)  # fmt: skip
"""A packet block as far as the end of the TCP header; payload and trailer follow."""


@dataclass
class Sent:
    """Frames that were sent, by column: times in ns of CLOCK_MONOTONIC, ``off`` the offset in their stream."""

    src: Ints
    dst: Ints
    number: Ints
    sent_ns: Ints
    off: Ints
    lost: npt.NDArray[np.bool_]
    delay_ns: Ints

    @property
    def read_ns(self) -> Ints:
        """When the receiver read it."""
        return self.sent_ns + 130_000 + self.delay_ns + np.where(self.lost, 3 * self.delay_ns, 0)


def write_run(folder: Path, packets: int, seed: int = 1) -> int:
    """Write a run directory of about ``packets`` captured packets, a bounded number of them at a time.

    Args:
        folder: where it is written.
        packets: how many there are to be.
        seed: of what is drawn.

    Returns:
        How many packets there are.
    """
    rng = np.random.default_rng(seed)
    delay_ns = rng.integers(2_000_000, 40_000_000, (HOSTS, HOSTS))
    np.fill_diagonal(delay_ns, 0)
    messages = max(1, round(packets / PACKETS_PER_FRAME / FANOUT / HOSTS))
    for name in ("capture", "trace"):
        (folder / name).mkdir(parents=True)
    captures, traces = _Captures(folder / "capture"), _Traces(folder / "trace")
    captures.add(_handshakes(delay_ns))
    for first in range(0, messages, _CHUNK_MESSAGES):
        numbers = np.arange(first, min(first + _CHUNK_MESSAGES, messages))
        frames = _frames(rng, numbers, delay_ns)
        next_ns = ZERO_NS + (first + _CHUNK_MESSAGES) * _MESSAGE_GAP_NS  # nothing that follows is earlier
        captures.add(_packets(rng, frames, delay_ns))
        captures.write(next_ns)
        traces.add(frames, numbers)
        traces.write(next_ns)
    count = captures.close()
    traces.close()
    _write_documents(folder, messages, delay_ns, {"records": count, "files": captures.names})
    return count


def followers(host: int) -> list[int]:
    """Who subscribes to the topic of ``host``."""
    return [(host + step) % HOSTS for step in range(1, FANOUT + 1)]


def frame_bytes() -> int:
    """The length of every frame."""
    return len(encode(Data(1, (1,), 1, 1, bytes(_PAYLOAD_BYTES))))


def _frames(rng: np.random.Generator, numbers: Ints, delay_ns: Ints) -> Sent:
    """Every publisher's messages of these numbers."""
    src = np.repeat(np.arange(HOSTS), len(numbers) * FANOUT)
    number = np.tile(np.repeat(numbers, FANOUT), HOSTS)
    place = np.tile(np.arange(FANOUT), HOSTS * len(numbers))
    dst = (src + 1 + place) % HOSTS
    sent_ns = ZERO_NS + number * _MESSAGE_GAP_NS + src * 3_000_000 + place * 20_000 + 60_000
    return Sent(src, dst, number, sent_ns, number * frame_bytes(), rng.random(len(src)) < 0.03, delay_ns[src, dst])


def _packets(rng: np.random.Generator, frames: Sent, delay_ns: Ints) -> dict[str, Ints]:
    """The captured packets of frames, as columns."""
    parts = []
    size = frame_bytes()
    lost_segment = np.where(frames.lost, rng.integers(0, 3, len(frames.src)), -1)
    for segment in range(3):
        start = segment * _SEGMENT_BYTES
        payload = min(_SEGMENT_BYTES, size - start)
        tx = frames.sent_ns + 50_000 + segment * 3_000
        for again in (False, True):
            chosen = lost_segment == segment if again else np.ones(len(tx), bool)
            arrives = chosen if again else lost_segment != segment
            at = tx + 3 * frames.delay_ns if again else tx
            columns = {"seq": frames.off + start, "payload": np.full(len(tx), payload)}
            parts.append(_seen(frames.src, frames.dst, at, 2, columns, chosen))
            parts.append(_seen(frames.src, frames.dst, at + frames.delay_ns, 1, columns, arrives))
            if (segment and not again) or again:  # every second segment is acknowledged, and every repeated one
                back_ns = delay_ns[frames.dst, frames.src]
                none = {"seq": np.zeros(len(tx), np.int64), "payload": np.zeros(len(tx), np.int64)}
                acked = at + frames.delay_ns + 1_000
                parts.append(_seen(frames.dst, frames.src, acked, 2, none, arrives))
                parts.append(_seen(frames.dst, frames.src, acked + back_ns, 1, none, arrives))
    return _join(parts)


def _join(parts: list[dict[str, Ints]]) -> dict[str, Ints]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _seen(
    src: Ints,
    dst: Ints,
    ts_ns: Ints,
    direction: int,
    columns: dict[str, Ints],
    rows: npt.NDArray[np.bool_],
) -> dict[str, Ints]:
    count = int(rows.sum())
    whole = {"src": src, "dst": dst, "ts_ns": ts_ns, **columns}
    fixed = {"direction": direction, "flags": ACK}
    return {name: column[rows] for name, column in whole.items()} | {
        name: np.full(count, value, np.int64) for name, value in fixed.items()
    }


def _handshakes(delay_ns: Ints) -> dict[str, Ints]:
    """Three packets at two taps for every pair of hosts; the one with the smaller number opens the connection."""
    low, high = np.triu_indices(HOSTS, 1)
    there, back = delay_ns[low, high], delay_ns[high, low]
    start = np.full(len(low), ZERO_NS - SECOND)
    parts = []
    for src, dst, at, taken, flags, seq in (
        (low, high, start, there, SYN, -1),
        (high, low, start + there, back, SYN | ACK, -1),
        (low, high, start + there + back, there, ACK, 0),
    ):
        for ts_ns, direction in ((at, 2), (at + taken, 1)):
            fixed = {"seq": seq, "payload": 0, "direction": direction, "flags": flags}
            part = {"src": src, "dst": dst, "ts_ns": ts_ns}
            parts.append(part | {name: np.full(len(low), value) for name, value in fixed.items()})
    return _join(parts)


class _Captures:
    """A file for each group of hosts, to which packets are written in time order."""

    def __init__(self, folder: Path) -> None:
        firsts = range(0, HOSTS, GROUP_HOSTS)
        paths = [folder / f"hosts-{first // GROUP_HOSTS}.pcapng" for first in firsts]
        self.names = [f"{folder.name}/{path.name}" for path in paths]
        self._files = [path.open("wb") for path in paths]
        for first, file in zip(firsts, self._files, strict=True):
            file.write(_head(first))
        self._waiting: list[dict[str, Ints]] = []
        self._count = 0

    def add(self, packets: dict[str, Ints]) -> None:
        self._waiting.append(packets)

    def write(self, until_ns: int) -> None:
        """Write those before an instant."""
        packets = _join(self._waiting)
        order = np.argsort(packets["ts_ns"], kind="stable")
        split = int(np.searchsorted(packets["ts_ns"][order], until_ns))
        self._waiting = [{name: column[order[split:]] for name, column in packets.items()}]
        packets = {name: column[order[:split]] for name, column in packets.items()}
        host = np.where(packets["direction"] == 2, packets["src"], packets["dst"])
        for group, file in enumerate(self._files):
            rows = np.flatnonzero(host // GROUP_HOSTS == group)
            chosen = {name: column[rows] for name, column in packets.items()}
            file.write(_blocks(chosen, host[rows] - group * GROUP_HOSTS))
        self._count += split

    def close(self) -> int:
        """Write the rest; how many packets there are in all."""
        self.write(np.iinfo(np.int64).max)
        for file in self._files:
            file.close()
        return self._count


def _head(first_host: int) -> bytes:
    hosts = range(first_host, min(first_host + GROUP_HOSTS, HOSTS))

    def block(kind: int, body: bytes) -> bytes:
        length = np.uint32(12 + len(body)).tobytes()
        return np.uint32(kind).tobytes() + length + body + length

    def option(code: int, value: bytes) -> bytes:
        return np.array([code, len(value)], "<u2").tobytes() + value + bytes(-len(value) % 4)

    section = np.array([0x1A2B3C4D, 1], "<u4").tobytes() + b"\xff" * 8
    interface = np.array([101, SNAPLEN], "<u4").tobytes()
    blocks = [block(1, interface + option(2, str(host).encode()) + option(9, b"\x09") + bytes(4)) for host in hosts]
    return block(0x0A0D0D0A, section) + b"".join(blocks)


def _blocks(packets: dict[str, Ints], interface: Ints) -> npt.NDArray[np.uint8]:
    """The packet blocks of consecutive packets: two sizes, laid into one buffer through overlapping views."""
    src, dst, payload = packets["src"], packets["dst"], packets["payload"]
    cap = np.minimum(_HEADER_BYTES + payload, SNAPLEN)
    length = 28 + cap + 12 + 4
    at = np.cumsum(length) - length
    out = np.zeros(int(length.sum()) + 256, np.uint8)
    head = np.zeros(len(src), _BLOCK)
    opener = src < dst
    stamp = (packets["ts_ns"] + OFFSET_NS).astype(np.uint64)
    wire = _HEADER_BYTES + payload
    initial = src * 1_000_003 * 64 + dst * 7_919 * 4096 & 0xFFFFFFFF
    values = {
        "kind": 6, "length": length, "interface": interface,
        "high": stamp >> np.uint64(32), "low": stamp & np.uint64(0xFFFFFFFF), "cap": cap, "wire": wire,
        "vihl": 0x45, "ip_length": wire, "ttl": 64, "proto": 6, "src": _address(src), "dst": _address(dst),
        "sport": np.where(opener, 40_000 + dst, PORT), "dport": np.where(opener, PORT, 40_000 + src),
        "seq": initial + 1 + packets["seq"] & 0xFFFFFFFF, "offset": 0x80, "flags": packets["flags"], "window": 65535,
    }  # fmt: skip
    peer_initial = dst * 1_000_003 * 64 + src * 7_919 * 4096 & 0xFFFFFFFF
    values["ack"] = np.where(packets["flags"] & ACK, peer_initial + 1, 0) & 0xFFFFFFFF
    for name, value in values.items():
        head[name] = value
    np.lib.stride_tricks.sliding_window_view(out, _BLOCK.itemsize, writeable=True)[at] = head.view(
        (np.uint8, _BLOCK.itemsize)
    )
    tail = np.zeros((len(src), 16), np.uint8)
    tail[:, 0], tail[:, 2], tail[:, 4] = 2, 4, packets["direction"]
    tail[:, 12:] = length.astype("<u4").view(np.uint8).reshape(-1, 4)
    np.lib.stride_tricks.sliding_window_view(out, 16, writeable=True)[at + length - 16] = tail
    return out[:-256]


def _address(host: Ints) -> Ints:
    return (10 << 24) + host + 1


class _Traces:
    """Every node's file, to which its lines are written in time order."""

    def __init__(self, folder: Path) -> None:
        self._files = [(folder / f"{node}.jsonl").open("w", encoding="utf-8") for node in range(HOSTS)]
        start = (ZERO_NS - 2 * SECOND, '"event":"start","version":1')
        self._waiting: list[list[tuple[int, str]]] = [[start] for _ in range(HOSTS)]
        self._counts = [0] * HOSTS
        self._last_ns = [0] * HOSTS

    def add(self, frames: Sent, numbers: Ints) -> None:
        size = frame_bytes()
        for node, lines in enumerate(self._waiting):
            for number in numbers.tolist():
                at = ZERO_NS + number * _MESSAGE_GAP_NS + node * 3_000_000 + 50_000
                lines.append(
                    (at, f'"event":"publish","message_id":{node << 32 | number},"topics":[{node}],"len_bytes":4000')
                )
            for event, mine in (("send", frames.src == node), ("receive", frames.dst == node)):
                lines += _frame_lines(node, event, frames, np.flatnonzero(mine), size)

    def write(self, until_ns: int) -> None:
        """Write those before an instant."""
        for node, (file, lines) in enumerate(zip(self._files, self._waiting, strict=True)):
            lines.sort()
            split = bisect_left(lines, (until_ns, ""))
            file.writelines(f'{{"ts_ns":{at},"node":{node},{rest}}}\n' for at, rest in lines[:split])
            self._counts[node] += split
            self._last_ns[node] = lines[split - 1][0] if split else self._last_ns[node]
            del lines[:split]

    def close(self) -> None:
        """Write the rest, and the end of each trace."""
        self.write(np.iinfo(np.int64).max)
        for lines, last_ns, count in zip(self._waiting, self._last_ns, self._counts, strict=True):
            lines.append((last_ns + 1, f'"event":"stop","records":{count}'))
        self.write(np.iinfo(np.int64).max)
        for file in self._files:
            file.close()


def _frame_lines(node: int, event: str, frames: Sent, rows: Ints, size: int) -> list[tuple[int, str]]:
    at = (frames.sent_ns if event == "send" else frames.read_ns)[rows].tolist()
    columns = (
        frames.src[rows].tolist(),
        frames.dst[rows].tolist(),
        frames.number[rows].tolist(),
        frames.off[rows].tolist(),
    )
    lines = []
    for ts_ns, src, dst, number, off in zip(at, *columns, strict=True):
        low, high = min(src, dst), max(src, dst)
        common = f'"peer":{dst if event == "send" else src},"message_id":{src << 32 | number},"topics":[{src}]'
        conn = f"10.0.0.{low + 1}:{40_000 + high}-10.0.0.{high + 1}:{PORT}"
        side = "orig" if src == low else "resp"
        place = f'"kind":16,"conn":"{conn}","direction":"{side}","off":{off},"len_bytes":{size},"hops":1,"ttl":1'
        lines.append((ts_ns, f'"event":"{event}",{common},{place}'))
        if event == "receive":
            lines.append((ts_ns + 5_000, f'"event":"deliver",{common},"hops":1'))
    return lines


def _write_documents(folder: Path, messages: int, delay_ns: Ints, captured: dict[str, Any]) -> None:
    duration_s = messages * _MESSAGE_GAP_NS / SECOND
    for name, document in _documents(duration_s, delay_ns, captured).items():
        (folder / name).write_text(json.dumps(document), encoding="utf-8")
    with (folder / SCHEDULE_FILE).open("w", encoding="utf-8") as file:
        for number in range(messages):
            for node in range(HOSTS):
                at_ns = number * _MESSAGE_GAP_NS + node * 3_000_000
                action = {"at_ns": at_ns, "node": node, "action": "publish", "message_id": node << 32 | number}
                file.write(json.dumps(action | {"topics": [node], "payload_bytes": _PAYLOAD_BYTES}) + "\n")
    src, dst = np.triu_indices(HOSTS, 1)
    rtt = (delay_ns + delay_ns.T)[src, dst] / 1e6
    columns: dict[str, Any] = {
        "src": src,
        "dst": dst,
        "phase": ["before"] * len(src),
        "at_ns": np.full(len(src), ZERO_NS),
    }
    columns |= {"asked_rtt_ms": rtt, "asked_jitter_ms": rtt * 0, "first_rtt_ms": rtt, "rtt_ms": rtt}
    columns |= {"sent": np.full(len(src), 2), "received": np.full(len(src), 2)}
    pq.write_table(pa.table(columns), folder / ACHIEVED_FILE)
    for name in (DATAPLANE_FILE, PRESSURE_FILE):
        (folder / name).write_text("", encoding="utf-8")


def _documents(duration_s: float, delay_ns: Ints, captured: dict[str, Any]) -> dict[str, Any]:
    square = np.zeros((HOSTS, HOSTS))
    underlay = Underlay(
        kind="matrix", hosts=tuple(Host(f"h{host}", f"site{host}") for host in range(HOSTS)), delay_ms=delay_ns / 1e6,
        jitter_ms=square, loss_ratio=square, rate_mbit=square[:2], queue_ms=square[:2] + 100,
        filled=square.astype(np.int8),
    )  # fmt: skip
    end_ns = ZERO_NS + int(duration_s * SECOND)
    phases = [
        ("warmup", ZERO_NS - 2 * SECOND, ZERO_NS),
        ("workload", ZERO_NS, end_ns),
        ("cooldown", end_ns, end_ns + 2 * SECOND),
    ]
    topics = {node: [other for other in range(HOSTS) if node in followers(other)] for node in range(HOSTS)}
    experiment = Experiment(
        name="synthetic",
        underlay=UnderlaySpec(kind="matrix"),
        workload=WorkloadSpec(topics=HOSTS, duration_s=duration_s, warmup_s=2.0, cooldown_s=2.0),
        capture=CaptureSpec(snaplen_bytes=SNAPLEN, checked_hosts=0),
        probes=ProbeSpec(packets_per_pair=2),
    )
    return {
        UNDERLAY_FILE: json.loads(b"".join(underlay.to_json())),
        OVERLAY_FILE: {
            "run": 1, "protocol": "random",
            "nodes": [
                {"node": node, "topics": mine, "dissemination": {"name": "flood", "ttl": 0}}
                for node, mine in topics.items()
            ],
        },
        PLAN_FILE: {
            "name": "synthetic", "seed": 1, "hashes": {},
            "experiment": msgspec.to_builtins(experiment),
            "placement": [
                {"node": node, "host": node, "machine": "sandbox", "wan_ip": f"10.0.0.{node + 1}", "ctl_ip": ""}
                for node in range(HOSTS)
            ],
        },
        MANIFEST_FILE: {
            "run_id": "synthetic", "testbed": "emulated", "epoch_offset_ns": OFFSET_NS, "zero_ns": ZERO_NS,
            "phases": [{"name": name, "start_ns": start, "end_ns": stop} for name, start, stop in phases],
            "final_states": [], "counters": {"records_written": captured["records"], "records_dropped": 0},
            "versions": {}, "kernel": {}, "hashes": {}, "capture_files": captured["files"],
        },
    }  # fmt: skip
