"""Fabricates a small run directory from a seeded toy simulation whose truth is known: the analysis's test input.

The toy network has one TCP connection a link, floods messages over topic-induced links, splits some frames over two
segments and loses the first transmission of some packets. Traces, header-only captures and documents are consistent to
the nanosecond, and ``Truth`` says what the tables must contain.
"""

import heapq
import itertools
import json
import random
import struct
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.experiment.form import CaptureSpec, Experiment, ProbeSpec
from harness.experiment.sections.underlay import UnderlaySpec
from harness.experiment.sections.workload import WorkloadSpec
from metrics.first_packets import SCHEMA
from metrics.rundir import Stall
from metrics.rundir.files import FIRST_PACKETS_FILE, STALLS_FILE
from peer.core.contract import message_id
from peer.core.frames import Bye, Data, Frame, Hello, Subscriptions
from peer.trace import TraceEvent
from peer.wire import encode
from topologies.model import Host, Underlay, between

SECOND = 1_000_000_000
ZERO_NS = 1_000 * SECOND
OFFSET_NS = 1_700_000_000 * SECOND
PORT = 9000
SNAPLEN = 96
TX = 2
"""The direction flag of a packet that left its host."""

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16


@dataclass
class Stream:
    """One direction of a connection."""

    sender: int
    receiver: int
    conn: str
    direction: str
    isn: int
    offset: int = 0
    last_tx_ns: int = 0
    last_rx_ns: int = 0


@dataclass
class Truth:
    """What the tables must say. Times in ns of CLOCK_MONOTONIC."""

    hops: list[dict[str, Any]] = field(default_factory=list)
    published: dict[int, dict[str, Any]] = field(default_factory=dict)
    delivered: dict[tuple[int, int], int] = field(default_factory=dict)
    copies: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    subscriptions: dict[int, set[int]] = field(default_factory=dict)
    edges: list[tuple[int, int]] = field(default_factory=list)
    packets: int = 0
    wire_bytes: int = 0
    retransmitted_bytes: int = 0

    def expected(self) -> set[tuple[int, int]]:
        """Every (message, subscriber) pair that the deliveries table must have."""
        return {
            (identifier, node)
            for identifier, message in self.published.items()
            for node, topics in self.subscriptions.items()
            if node != message["publisher"] and topics & set(message["topics"])
        }


class Fabrication:
    """The toy simulation; ``write`` puts the run directory down."""

    def __init__(
        self,
        seed: int = 1,
        nodes: int = 6,
        topics: int = 4,
        messages: int = 40,
        duration_s: float = 4.0,
        retransmit_ratio: float = 0.03,
        split_ratio: float = 0.1,
        payload_bytes: int = 200,
        relays: bool = False,
    ) -> None:
        """Choose and simulate everything; ``relays``: nodes pass messages on to neighbours without the topic, too."""
        self.random = random.Random(seed)
        self.nodes, self.topics, self.duration_s = nodes, topics, duration_s
        self.retransmit_ratio, self.split_ratio, self.payload_bytes = retransmit_ratio, split_ratio, payload_bytes
        self.relays = relays
        self.truth = Truth()
        self.traces: dict[int, list[TraceEvent]] = defaultdict(list)
        self.packets: list[tuple[int, int, int, bytes]] = []  # (ts, interface, inbound/outbound flag, packet)
        self.schedule: list[dict[str, Any]] = []
        self.streams: dict[tuple[int, int], Stream] = {}
        self._heap: list[tuple[int, int, Any]] = []
        self._order = itertools.count()
        self._seen: set[tuple[int, int]] = set()
        self.delay_ns = self._delays()
        self._choose(messages)
        self._simulate()

    def _delays(self) -> np.ndarray:
        delay = np.array(
            [[self.random.randrange(5, 80) * 1_000_000 for _ in range(self.nodes)] for _ in range(self.nodes)]
        )
        np.fill_diagonal(delay, 0)
        return delay

    def _choose(self, messages: int) -> None:
        pick = self.random
        for node in range(self.nodes):
            self.truth.subscriptions[node] = {t for t in range(self.topics) if pick.random() < 0.6} or {0}
        ring = {(node, (node + 1) % self.nodes) for node in range(self.nodes)}
        chords = {tuple(pick.sample(range(self.nodes), 2)) for _ in range(self.nodes)}
        known: set[frozenset[int]] = set()
        for edge in [*sorted(ring), *sorted(chords)]:
            if frozenset(edge) not in known:
                known.add(frozenset(edge))
                self.truth.edges.append((edge[0], edge[1]))
        instants = sorted(pick.randrange(int(self.duration_s * SECOND)) for _ in range(messages))
        sequence: dict[int, int] = defaultdict(int)
        for at_ns in instants:
            node = pick.randrange(self.nodes)
            topics = sorted(pick.sample(sorted(self.truth.subscriptions[node]), 1))
            identifier = message_id(node, sequence[node])
            sequence[node] += 1
            self.schedule.append(
                {
                    "at_ns": at_ns,
                    "node": node,
                    "action": "publish",
                    "message_id": identifier,
                    "topics": topics,
                    "payload_bytes": self.payload_bytes,
                }
            )

    # ------------------------------------------------------------------------------------------ the simulation

    def _at(self, ts_ns: int, action: Any, *arguments: Any) -> None:
        heapq.heappush(self._heap, (ts_ns, next(self._order), (action, arguments)))

    def _simulate(self) -> None:
        start = ZERO_NS - 2 * SECOND
        for node in range(self.nodes):
            topics = tuple(sorted(self.truth.subscriptions[node]))
            self._trace(TraceEvent("start", start, node, version=1, topics=topics))
        for number, (a, b) in enumerate(self.truth.edges):
            self._at(start + (number + 1) * 1_000_000, self._connect, a, b, 40_000 + number)
        for action in self.schedule:
            self._at(ZERO_NS + action["at_ns"] + 50_000, self._publish, action)
        self._at(ZERO_NS + int((self.duration_s + 1.5) * SECOND), self._close)
        while self._heap:
            ts_ns, _, (action, arguments) = heapq.heappop(self._heap)
            action(ts_ns, *arguments)
        for node, events in self.traces.items():
            events.sort(key=lambda event: event.ts_ns)
            events.append(TraceEvent("stop", events[-1].ts_ns + 1000, node, records=len(events)))

    def _trace(self, event: TraceEvent) -> None:
        self.traces[event.node].append(event)

    def _connect(self, now: int, a: int, b: int, port: int) -> None:
        conn = f"{address(a)}:{port}-{address(b)}:{PORT}"
        isn_a, isn_b = self.random.getrandbits(32), 2**32 - 500 if port % 2 else self.random.getrandbits(32)
        forward = self.streams[a, b] = Stream(a, b, conn, "orig", isn_a)
        backward = self.streams[b, a] = Stream(b, a, conn, "resp", isn_b)
        there, back = int(self.delay_ns[a, b]), int(self.delay_ns[b, a])
        self._packet(forward, now, now + there, SYN, -1, b"", -1)
        self._packet(backward, now + there, now + there + back, SYN | ACK, -1, b"", 0)
        up = now + there + back
        self._packet(forward, up, up + there, ACK, 0, b"", 0)
        for stream, ts_ns in ((forward, up), (backward, up + there)):
            stream.last_tx_ns = stream.last_rx_ns = ts_ns
            self._trace(
                TraceEvent(
                    "add_peer", ts_ns + 1000, stream.sender, stream.receiver, conn=conn, direction=stream.direction
                )
            )
            self._at(ts_ns + 2000, self._send, stream, Hello(stream.sender, 7))
            topics = tuple(sorted(self.truth.subscriptions[stream.sender]))
            self._at(ts_ns + 3000, self._send, stream, Subscriptions(topics))
            shared = tuple(sorted(self.truth.subscriptions[a] & self.truth.subscriptions[b]))
            if shared:
                self._at(ts_ns + 4000, self._graft, stream, shared)

    def _graft(self, now: int, stream: Stream, topics: tuple[int, ...]) -> None:
        self._trace(TraceEvent("graft", now, stream.sender, stream.receiver, topics=topics))

    def _publish(self, now: int, action: dict[str, Any]) -> None:
        node, identifier, topics = action["node"], action["message_id"], tuple(action["topics"])
        self._trace(
            TraceEvent("publish", now, node, message_id=identifier, topics=topics, len_bytes=self.payload_bytes)
        )
        self._trace(TraceEvent("deliver", now, node, message_id=identifier, topics=topics, hops=0))
        self.truth.published[identifier] = {"publisher": node, "publish_ns": now, "topics": topics}
        self._seen.add((identifier, node))
        self._forward(now + 5_000, node, None, Data(identifier, topics, 1, 1, bytes(self.payload_bytes)))

    def _forward(self, now: int, node: int, source: int | None, frame: Data) -> None:
        neighbours = sorted(to for (sender, to) in self.streams if sender == node and to != source)
        for place, peer in enumerate(neighbours):
            if self.relays or self.truth.subscriptions[peer] & set(frame.topics):
                self._at(now + 10_000 * place, self._send, self.streams[node, peer], frame)

    def _send(self, now: int, stream: Stream, frame: Frame) -> None:
        pick = self.random
        content = encode(frame)
        off, stream.offset = stream.offset, stream.offset + len(content)
        delay = int(self.delay_ns[stream.sender, stream.receiver])
        first_tx = max(now + pick.randrange(10_000, 60_000), stream.last_tx_ns + 1000)
        cut = pick.randrange(1, len(content)) if pick.random() < self.split_ratio else len(content)
        pieces = [(off, content[:cut]), (off + cut, content[cut:])] if cut < len(content) else [(off, content)]
        tx, rx, n_retx = first_tx, stream.last_rx_ns, 0
        for at, piece in pieces:
            lost = pick.random() < self.retransmit_ratio
            last_tx = tx + 30_000_000 if lost else tx
            if lost:
                self._packet(stream, tx, None, ACK | PSH, at, piece, 0)
                self.truth.retransmitted_bytes += len(piece)
                n_retx += 1
            rx = max(rx + 1, last_tx + delay)
            self._packet(stream, last_tx, rx if lost is False else last_tx + delay, ACK | PSH, at, piece, 0)
            rx = max(rx, last_tx + delay)
            self._packet(
                self.streams[stream.receiver, stream.sender],
                rx + 1000,
                rx + 1000 + int(self.delay_ns[stream.receiver, stream.sender]),
                ACK,
                None,
                b"",
                0,
            )
            tx = last_tx + 2000
        stream.last_tx_ns, stream.last_rx_ns = tx, rx
        read = rx + pick.randrange(20_000, 120_000)
        self._log(now, read, stream, frame, off, len(content))
        self.truth.hops.append(
            {
                "conn": stream.conn,
                "direction": stream.direction,
                "off": off,
                "len_bytes": len(content),
                "kind": frame.kind,
                "src_node": stream.sender,
                "dst_node": stream.receiver,
                "log_send_ns": now,
                "tap_tx_ns": first_tx,
                "tap_rx_ns": rx,
                "log_recv_ns": read,
                "n_retx": n_retx,
                "message_id": frame.message_id if isinstance(frame, Data) else None,
            }
        )
        if isinstance(frame, Data):
            self._at(read, self._arrive, stream, frame)

    def _log(self, sent: int, read: int, stream: Stream, frame: Frame, off: int, length: int) -> None:
        fields: dict[str, Any] = {
            "kind": frame.kind,
            "conn": stream.conn,
            "direction": stream.direction,
            "off": off,
            "len_bytes": length,
        }
        if isinstance(frame, Data):
            fields |= {"message_id": frame.message_id, "topics": frame.topics, "hops": frame.hops, "ttl": frame.ttl}
        self._trace(TraceEvent("send", sent, stream.sender, stream.receiver, **fields))
        self._trace(TraceEvent("receive", read, stream.receiver, stream.sender, **fields))

    def _arrive(self, now: int, stream: Stream, frame: Data) -> None:
        node, key = stream.receiver, (frame.message_id, stream.receiver)
        first = key not in self._seen
        if not first and node == frame.message_id >> 32:
            first = False
        self.truth.copies[key] += 1
        self._seen.add(key)
        wanted = bool(self.truth.subscriptions[node] & set(frame.topics))
        event = ("deliver" if wanted else "relay") if first else "duplicate"
        self._trace(TraceEvent(event, now + 3000, node, stream.sender, frame.message_id, frame.topics, hops=frame.hops))
        if first:
            if wanted:
                self.truth.delivered[key] = now + 3000
            onward = Data(frame.message_id, frame.topics, frame.hops + 1, frame.ttl, frame.payload)
            self._forward(now + 8_000, node, stream.sender, onward)

    def _close(self, now: int) -> None:
        for stream in list(self.streams.values()):
            self._send(now, stream, Bye("stop"))
            done = stream.last_rx_ns + 1000
            delay = int(self.delay_ns[stream.sender, stream.receiver])
            self._packet(stream, done, done + delay, FIN | ACK, stream.offset, b"", 0)
            for node, peer in ((stream.sender, stream.receiver),):
                self._trace(
                    TraceEvent("remove_peer", now + 200 * 1_000_000, node, peer, conn=stream.conn, reason="stop")
                )

    def _packet(
        self, stream: Stream, tx: int, rx: int | None, flags: int, off: int | None, data: bytes, ack: int
    ) -> None:
        """Record a packet at its sender's tap, and at its receiver's unless it is lost (``rx`` None).

        ``off`` -1 = the SYN, None = at the stream's present end.
        """
        position = stream.offset if off is None else off
        orig, resp = (endpoint(text) for text in stream.conn.split("-"))
        source, destination = (orig, resp) if stream.direction == "orig" else (resp, orig)
        header = struct.pack(
            ">HHIIBBHHH",
            source[1],
            destination[1],
            (stream.isn + 1 + position) % 2**32,
            ack % 2**32,
            5 << 4,
            flags,
            65535,
            0,
            0,
        )
        total = 40 + len(data)
        number = self.truth.packets % 2**16
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, total, number, 0, 64, 6, 0, source[0], destination[0])
        packet = ip + header + data
        self.packets.append((tx, stream.sender, TX, packet))
        self.truth.packets += 1
        self.truth.wire_bytes += total
        if rx is not None:
            self.packets.append((rx, stream.receiver, 1, packet))
            self.truth.packets += 1

    # ------------------------------------------------------------------------------------------ the run directory

    def write(self, run_dir: Path, **manifest: Any) -> Path:
        """Write everything that a running stage leaves; ``manifest`` overrides fields of the manifest."""
        import msgspec

        (run_dir / "trace").mkdir(parents=True)
        (run_dir / "capture").mkdir()
        for node, events in self.traces.items():
            lines = b"".join(msgspec.json.encode(event) + b"\n" for event in events)
            (run_dir / "trace" / f"{node}.jsonl").write_bytes(lines)
        (run_dir / "capture" / "plane.pcapng").write_bytes(self._pcapng())
        (run_dir / "schedule.jsonl").write_text("".join(json.dumps(action) + "\n" for action in self.schedule))
        for name, document in self._documents(manifest).items():
            (run_dir / name).write_text(json.dumps(document))
        self._write_certificate(run_dir)
        return run_dir

    def _pcapng(self) -> bytes:
        blocks = [block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))]
        for node in range(self.nodes):
            name = str(node).encode()
            options = option(2, name) + option(9, b"\x09") + option(0, b"")
            blocks.append(block(1, struct.pack("<HHI", 101, 0, SNAPLEN) + options))
        for ts_ns, interface, flag, packet in sorted(self.packets, key=lambda row: row[:3]):
            kept = packet[:SNAPLEN]
            stamp = ts_ns + OFFSET_NS
            body = struct.pack("<IIIII", interface, stamp >> 32, stamp & 0xFFFFFFFF, len(kept), len(packet))
            body += kept + bytes(-len(kept) % 4) + option(2, struct.pack("<I", flag)) + option(0, b"")
            blocks.append(block(6, body))
        return b"".join(blocks)

    @property
    def _lost_ratio(self) -> float:
        """The share of packets that were lost, which is asked for."""
        left = sum(1 for _, _, tap, _ in self.packets if tap == TX)
        return (2 * left - len(self.packets)) / left

    def _documents(self, manifest: dict[str, Any]) -> dict[str, Any]:
        shape = (self.nodes, self.nodes)
        underlay = Underlay(
            kind="matrix",
            hosts=tuple(Host(f"h{node}", f"site{node}") for node in range(self.nodes)),
            delay_ms=self.delay_ns / 1e6,
            jitter_ms=np.zeros(shape),
            loss_ratio=between(self.nodes, self._lost_ratio),
            rate_mbit=np.zeros((2, self.nodes)),
            queue_ms=np.full((2, self.nodes), 100.0),
            filled=np.zeros(shape, dtype=np.int8),
        )
        experiment = Experiment(
            name="fabricated",
            underlay=UnderlaySpec(kind="matrix"),
            workload=WorkloadSpec(topics=self.topics, duration_s=self.duration_s, warmup_s=2.0, cooldown_s=3.0),
            capture=CaptureSpec(snaplen_bytes=SNAPLEN, checked_hosts=0),
            probes=ProbeSpec(packets_per_pair=2),
        )
        end = ZERO_NS + int((self.duration_s + 3) * SECOND)
        zero, stop = ZERO_NS, ZERO_NS + int(self.duration_s * SECOND)
        phases = [("warmup", zero - 2 * SECOND, zero), ("workload", zero, stop), ("cooldown", stop, end)]
        return {
            "underlay.json": json.loads(b"".join(underlay.to_json())),
            "overlay.json": {
                "run": 7,
                "protocol": "random",
                "nodes": [
                    {
                        "node": node,
                        "seed": node,
                        "topics": sorted(topics),
                        "overlay": {"name": "random"},
                        "dissemination": {"name": "flood"},
                    }
                    for node, topics in self.truth.subscriptions.items()
                ],
            },
            "plan.json": {
                "name": "fabricated",
                "seed": 1,
                "experiment": msgspec.to_builtins(experiment),
                "placement": [
                    {"node": node, "host": node, "machine": "sandbox", "wan_ip": address(node), "ctl_ip": ""}
                    for node in range(self.nodes)
                ],
                "hashes": {},
            },
            "manifest.json": {
                "run_id": "fabricated",
                "testbed": "emulated",
                "epoch_offset_ns": OFFSET_NS,
                "zero_ns": ZERO_NS,
                "phases": [{"name": name, "start_ns": start, "end_ns": end} for name, start, end in phases],
                "final_states": [
                    {"process": f"peer {node}", "expected": "exited", "state": "exited", "status": 0}
                    for node in range(self.nodes)
                ],
                "counters": {
                    "frames_in": sum(1 for _, _, flag, _ in self.packets if flag == 2),
                    "frames_out": sum(1 for _, _, flag, _ in self.packets if flag == 1),
                    "records_written": len(self.packets),
                    "records_dropped": 0,
                },
                "versions": {},
                "kernel": {},
                "hashes": {},
                "capture_files": ["capture/plane.pcapng"],
            }
            | manifest,
        }

    def _write_certificate(self, run_dir: Path) -> None:
        rows = []
        for phase, at_ns in (
            ("before", ZERO_NS - 3 * SECOND),
            ("during", ZERO_NS + SECOND),
            ("after", ZERO_NS + int((self.duration_s + 3) * SECOND)),
        ):
            for src, dst in itertools.combinations(range(self.nodes), 2):
                asked = float(self.delay_ns[src, dst] + self.delay_ns[dst, src]) / 1e6
                error = self.random.random() * 0.2
                rows.append(
                    {
                        "src": src,
                        "dst": dst,
                        "phase": phase,
                        "attempt": 1,
                        "at_ns": at_ns,
                        "asked_there_ms": float(self.delay_ns[src, dst]) / 1e6,
                        "asked_rtt_ms": asked,
                        "asked_jitter_ms": 0.0,
                        "first_rtt_ms": asked + error + (0.1 if phase != "during" else 0.0),
                        "rtt_ms": asked + error,
                        "rtt_at_ns": at_ns,
                        "sent": 2,
                        "received": 2,
                    }
                )
        pq.write_table(pa.Table.from_pylist(rows), run_dir / "achieved.parquet")
        self._write_first_packets(run_dir)
        with (run_dir / "pressure.jsonl").open("w") as pressure:
            for second in range(-3, int(self.duration_s) + 4):
                line = {
                    "at_ns": ZERO_NS + second * SECOND,
                    "cpu_busy_ratio": 0.3,
                    "steal_ratio": 0.0,
                    "cpu_some_ratio": 0.05,
                }
                pressure.write(json.dumps(line) + "\n")
        stalls = [Stall("host", ZERO_NS + SECOND, ZERO_NS + SECOND + 700_000, 1), Stall("plane", ZERO_NS, ZERO_NS + 9)]
        (run_dir / STALLS_FILE).write_bytes(b"".join(stall.line() for stall in stalls))
        (run_dir / "dataplane.jsonl").write_text("".join(json.dumps(line) + "\n" for line in self._plane_lines()))

    def _write_first_packets(self, run_dir: Path) -> None:
        """A slot per directed pair, every 10 ms, whose control asks for the very same."""
        slots = []
        for number, (src, dst) in enumerate(itertools.permutations(range(self.nodes), 2)):
            there_ms, back_ms = (float(self.delay_ns[way]) / 1e6 for way in ((src, dst), (dst, src)))
            probe = {
                "src": src,
                "dst": dst,
                "at_ns": ZERO_NS - 9 * SECOND + number * 10_000_000,
                "asked_there_ms": there_ms,
                "asked_rtt_ms": there_ms + back_ms,
                "rtt_ms": there_ms + back_ms + 0.1,
            }
            control = {f"control_{name}": value for name, value in probe.items()}
            slots.append({"attempt": 1, "host_first": src == 0 or (src, dst) == (1, 0)} | probe | control)
        pq.write_table(pa.Table.from_pylist(slots, SCHEMA), run_dir / FIRST_PACKETS_FILE)

    def _plane_lines(self) -> list[dict[str, Any]]:
        """One line per second, and a second one in the workload's third second, as after a pause of the machine."""
        usual = [(20_000, 50), (40_000, 40), (90_000, 9), (200_000, 1)], 0.1
        written = {ZERO_NS + second * SECOND: usual for second in range(-3, int(self.duration_s) + 4)}
        written[ZERO_NS + 2 * SECOND + SECOND // 4] = [(30_000, 10)], 0.5
        lines = []
        for at_ns, (counts, busy_ratio) in sorted(written.items()):
            frames, out = (sum(1 for ts, _, flag, _ in self.packets if flag == tap and ts <= at_ns) for tap in (2, 1))
            waits = [(10_000, sum(count for _, count in counts))]
            every = [late_ns for late_ns, count in counts for _ in range(count)]
            line = {
                "at_ns": at_ns,
                "frames_in": frames,
                "frames_out": out,
                "bytes_in": 0,
                "bytes_out": 0,
                "drops": {"loss": frames - out},
                "records_written": frames + out,
                "records_dropped": 0,
                "lateness_ns": {f"p{share}": every[len(every) * share // 100 - 1] for share in (50, 90, 99)},
                "lateness_counts": counts,
                "frames_late": 0,
                "intake_ns": dict.fromkeys(("p50", "p90", "p99", "max"), 10_000),
                "intake_counts": waits,
                "frames_waited": 0,
                "late": [],
                "waits": [],
                "busy_ratio": busy_ratio,
            }
            line["lateness_ns"]["max"] = every[-1]
            lines.append(line)
        return lines


def address(node: int) -> str:
    """The host's address on the emulated network."""
    return f"10.0.{node // 256}.{node % 256 + 1}"


def endpoint(text: str) -> tuple[bytes, int]:
    """Address bytes and port of ``ip:port``."""
    ip, port = text.split(":")
    return bytes(map(int, ip.split("."))), int(port)


def block(kind: int, body: bytes) -> bytes:
    """A pcapng block."""
    body += bytes(-len(body) % 4)
    length = struct.pack("<I", 12 + len(body))
    return struct.pack("<I", kind) + length + body + length


def option(code: int, value: bytes) -> bytes:
    """A pcapng option."""
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)
