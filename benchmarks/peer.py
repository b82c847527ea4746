"""Messages a second and core through one relay: Trellis peers, beside a bare relay in the same run.

Three processes in a row over loopback TCP: source, relay, sink. The peers are started by the agent and do all that they
do in a run: protocol, seen-cache, a trace line for every frame and copy, metrics. The bare relay, also on uvloop, cuts
the stream into length-prefixed frames and writes each on, nothing else. What counts is the relay's own CPU time, so
other load on the machine matters little. The bare source sends at the rate that the peers reached, since a relay that
reads more at a time spends less on each frame. Everything happens inside one sandbox.
"""

import argparse
import asyncio
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

# A script's own folder comes first on the path, and this very file would hide the package of its name.
sys.path.remove(str(Path(__file__).parent))

import msgspec
import uvloop

from benchmarks._waiting import wait_for
from harness.machine import sandbox
from peer.core.contract import message_id
from peer.core.frames import UNLIMITED_TTL, Data
from peer.core.schedule import Publish, encode_schedule
from peer.files import AGENT_FILE, OVERLAY_FILE, SCHEDULE_FILE
from peer.instances.spec import AgentSpec, NodeSpec, OverlayDocument, PeerPlace
from peer.runtime.agent import SOCKET, call
from peer.wire import encode

MESSAGES = 100_000
PAYLOAD_BYTES = 200
LIMIT_S = 30.0
SOURCE, RELAY, SINK = range(3)
HOST = "127.0.0.1"
PORT, METRICS_PORT, BARE_PORT = 9000, 9100, 9200
LENGTH = struct.Struct(">I")


def main(argv: list[str] | None = None) -> int:
    """Measure inside a sandbox and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--bare", choices=("source", "relay", "sink"), help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.bare:
        uvloop.run(_be_bare(given.bare, given.messages, given.rate))
        return 0
    if not given.inside:
        options = ["--json"] if given.json else []
        return sandbox.run([sys.executable, __file__, "--inside", f"--messages={given.messages}", *options])
    result = measure(given.messages)
    print(json.dumps(result) if given.json else "\n".join(f"{name:>36}  {value:.4g}" for name, value in result.items()))
    return 0


def measure(messages: int) -> dict[str, float]:
    """CPU time of both relays for the same messages, and their ratio."""
    peer_s, peer_wall_s = _time_peers(messages)
    bare_s, bare_wall_s = _time_bare(messages, messages / peer_wall_s)
    return {
        "messages": float(messages),
        "payload_bytes": float(PAYLOAD_BYTES),
        "peer_messages_per_core_s": messages / peer_s,
        "bare_messages_per_core_s": messages / bare_s,
        "peer_us_per_message": peer_s / messages * 1e6,
        "bare_us_per_message": bare_s / messages * 1e6,
        "peer_to_bare_ratio": bare_s / peer_s,
        "peer_wall_messages_per_s": messages / peer_wall_s,
        "bare_wall_messages_per_s": messages / bare_wall_s,
    }


# ------------------------------------------------------------------------------------------------------ peers


def _time_peers(messages: int) -> tuple[float, float]:
    """(CPU s of the relay, s from the first message to the last delivery)."""
    with tempfile.TemporaryDirectory(prefix="bench-peer-") as folder:
        work = Path(folder)
        _write_documents(work, messages)
        agent = subprocess.Popen([sys.executable, "-m", "peer.runtime.agent", folder], stdin=subprocess.PIPE)
        wait_for(lambda: (work / SOCKET).exists() and call(work, ["status"])["ready"], "the peers to be ready", LIMIT_S)
        relay = call(work, ["status"])["peers"][str(RELAY)]["pid"]
        zero_ns = int(call(work, ["start", str(time.time_ns() + 1_500_000_000)])["zero_ns"])
        wait_for(lambda: time.monotonic_ns() >= zero_ns, "the start", LIMIT_S)
        before_s = _cpu_s(relay)
        wait_for(lambda: _delivered() >= messages, "the last delivery", LIMIT_S)
        spent_s, wall_s = _cpu_s(relay) - before_s, (time.monotonic_ns() - zero_ns) / 1e9
        assert agent.stdin is not None
        agent.stdin.close()
        agent.wait(LIMIT_S)
    return spent_s, wall_s


def _write_documents(work: Path, messages: int) -> None:
    addresses = tuple((HOST, PORT + node) for node in range(3))
    agent = AgentSpec(
        machine="bench",
        run=1,
        peers=tuple(PeerPlace(n, addresses[n], (HOST, METRICS_PORT) if n == SINK else None) for n in range(3)),
        addresses=addresses,
        warmup_ns=1_000_000_000,
        stop_ns=int(LIMIT_S * 1e9),
        drain_ns=0,
        send_queue_bytes=1 << 30,
        lease_s=2 * LIMIT_S,
    )
    flood = {"name": "flood", "ttl": UNLIMITED_TTL}
    chain = {SOURCE: (RELAY,), RELAY: (SINK,), SINK: ()}
    nodes = tuple(
        NodeSpec(node, 1, (0,) if node == SINK else (), {"name": "complete"}, flood, bootstrap)
        for node, bootstrap in chain.items()
    )
    actions = (Publish(k, SOURCE, message_id(SOURCE, k), (0,), PAYLOAD_BYTES) for k in range(messages))
    (work / AGENT_FILE).write_bytes(msgspec.json.encode(agent))
    (work / OVERLAY_FILE).write_bytes(msgspec.json.encode(OverlayDocument(1, "complete", nodes)))
    (work / SCHEDULE_FILE).write_bytes(encode_schedule(actions))


def _delivered() -> float:
    with urllib.request.urlopen(f"http://{HOST}:{METRICS_PORT}/metrics", timeout=LIMIT_S) as page:
        lines = page.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("trellis_deliveries_total "))


def _cpu_s(pid: int) -> float:
    """User and system time of a process (s)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ------------------------------------------------------------------------------------------------- bare relay


def _time_bare(messages: int, rate_per_s: float) -> tuple[float, float]:
    """The same for the bare relay at this rate."""
    processes = {role: _start_bare(role, messages, rate_per_s) for role in ("sink", "relay")}
    before_s, start = _cpu_s(processes["relay"].pid), time.monotonic()
    processes["source"] = _start_bare("source", messages, rate_per_s)
    processes["sink"].wait(LIMIT_S)
    wall_s, spent_s = time.monotonic() - start, _cpu_s(processes["relay"].pid) - before_s
    for process in processes.values():
        process.kill()
        process.wait()
    return spent_s, wall_s


def _start_bare(role: str, messages: int, rate_per_s: float) -> subprocess.Popen[bytes]:
    """Start a process of the row; it has said that it is ready."""
    command = [sys.executable, __file__, f"--bare={role}", f"--messages={messages}", f"--rate={rate_per_s}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


class BareEnd(asyncio.Protocol):
    """Cuts a stream into length-prefixed frames; passes each on (relay) or counts it (sink)."""

    def __init__(self, expected: int, onward: asyncio.Transport | None, done: asyncio.Event) -> None:
        self._missing = expected
        self._onward = onward
        self._done = done
        self._buffer = bytearray()

    def data_received(self, data: bytes) -> None:
        """Take every whole frame."""
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= LENGTH.size:
            end = start + LENGTH.size + LENGTH.unpack_from(buffer, start)[0]
            if end > len(buffer):
                break
            if self._onward is not None:
                self._onward.write(bytes(buffer[start:end]))
            self._missing -= 1
            start = end
        del buffer[:start]
        if self._missing == 0 and self._onward is None:
            self._done.set()


async def _be_bare(role: str, messages: int, rate_per_s: float) -> None:
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    if role == "source":
        print("ready", flush=True)
        await _pour(messages, rate_per_s)
        return
    onward = None
    if role == "relay":
        onward, _ = await loop.create_connection(asyncio.Protocol, HOST, BARE_PORT + 1)
    port = BARE_PORT + (role == "sink")
    await loop.create_server(lambda: BareEnd(messages, onward, done), HOST, port)
    print("ready", flush=True)
    await done.wait()


async def _pour(messages: int, rate_per_s: float) -> None:
    """Write the frames, one by one and at this rate as a publisher would; as long as those of the peers."""
    _, writer = await asyncio.open_connection(HOST, BARE_PORT)
    content = encode(Data(0, (0,), 1, UNLIMITED_TTL, bytes(PAYLOAD_BYTES)))
    frame = LENGTH.pack(len(content) - LENGTH.size) + content[LENGTH.size :]
    start = time.monotonic()
    for number in range(messages):
        writer.write(frame)
        await asyncio.sleep(0)
        while (time.monotonic() - start) * rate_per_s < number:
            await asyncio.sleep(0)
    await writer.drain()
    await asyncio.sleep(LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
