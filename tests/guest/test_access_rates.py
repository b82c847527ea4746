"""What the kernel does with the rate of a link, and why the kernel plane has no rates: docs/kernel-plane.md."""

import json
import re
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks._namespaces import held_namespaces, inside
from harness.machine.netns import entered
from harness.planes.kernel.offloads import switch_off

RATE_MBIT = 10
FRAME_BYTES, HEADERS_BYTES = 1500, 14 + 20 + 8
SENDING_MS = FRAME_BYTES * 8 / RATE_MBIT / 1e3
LIMIT_MS = 0.5
"""The error that ``verdict.wire_error_p99_ms`` allows by default."""

ADDRESSES = ("10.0.0.1", "10.0.0.2")
PORT = (ADDRESSES[1], 9)
HTB = (
    f"qdisc add dev x0 root handle 1: htb default 1;class add dev x0 parent 1: classid 1:1 htb rate {RATE_MBIT}mbit"
    " burst 1500 cburst 1500;qdisc add dev x0 parent 1:1 handle 2: bfifo limit 62500"
).split(";")
NETEM = [f"qdisc add dev x0 root handle 1: netem rate {RATE_MBIT}mbit limit 41"]
_SO_TIMESTAMPNS = 35


@pytest.fixture
def ends() -> Iterator[list[str]]:
    """Two namespaces, joined by a pair of devices called x0 and x1."""
    with held_namespaces(2) as paths:
        command = f"link add x0 netns {paths[0]} type veth peer name x1 netns {paths[1]}"
        subprocess.run(["ip", *command.split()], check=True)
        for number, (path, address) in enumerate(zip(paths, ADDRESSES, strict=True)):
            for words in (f"address add {address}/24 dev x{number}", f"link set x{number} up"):
                subprocess.run([*inside(path), "ip", *words.split()], check=True)
            switch_off(f"x{number}", path)
        yield paths


def shape(netns: str, commands: list[str]) -> None:
    for words in commands:
        subprocess.run([*inside(netns), "tc", *words.split()], check=True)


def round_trip_ms(netns: str) -> float:
    """The median round trip of echo requests of this size, which meet no other packet."""
    words = ["ping", "-c", "11", "-i", "0.2", "-s", str(FRAME_BYTES - HEADERS_BYTES), ADDRESSES[1]]
    said = subprocess.run([*inside(netns), *words], capture_output=True, text=True, check=True).stdout
    return float(np.median([float(found) for found in re.findall(r"time=([\d.]+) ms", said)]))


def test_htb_does_not_take_the_time_to_send_a_packet_to_an_idle_link_and_netem_does(ends: list[str]) -> None:
    added_ms = {}
    idle_ms = round_trip_ms(ends[0])
    for name, commands in {"htb": HTB, "netem": NETEM}.items():
        shape(ends[0], commands)
        added_ms[name] = round_trip_ms(ends[0]) - idle_ms
        shape(ends[0], ["qdisc del dev x0 root"])
    print(json.dumps({"sending_ms": SENDING_MS, **added_ms}))
    # only requests pass the queue: replies come from the other end
    assert added_ms["netem"] == pytest.approx(SENDING_MS, abs=0.1)
    assert SENDING_MS - added_ms["htb"] > LIMIT_MS


def test_a_capture_at_the_sender_is_behind_the_queue_of_its_device(ends: list[str]) -> None:
    shape(ends[0], HTB)
    packets = 20
    with Path(ends[0]).open("rb") as namespace, entered(namespace.fileno()):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        watcher = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        watcher.bind(("x0", 3))
    with sender, watcher:
        watcher.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        watcher.settimeout(5)
        sender.sendto(b"x", PORT)  # its address is known after this
        time.sleep(1)
        watcher.setblocking(False)
        while _seen_ns(watcher):
            pass
        watcher.settimeout(5)
        began_ns = time.time_ns()
        for _ in range(packets):
            sender.sendto(b"x" * (FRAME_BYTES - HEADERS_BYTES), PORT)
        sent_ns = time.time_ns()
        seen_ns = [_seen_ns(watcher) for _ in range(packets)]
    apart_ms = np.diff(seen_ns) / 1e6
    assert (sent_ns - began_ns) / 1e6 < packets * SENDING_MS / 2
    assert apart_ms[1:] == pytest.approx(SENDING_MS, abs=0.2)


def _seen_ns(watcher: socket.socket) -> int:
    """When the next packet was captured; 0 = there is none yet."""
    while True:
        try:
            _, ancillary, _, sender = watcher.recvmsg(64, 64)
        except BlockingIOError:
            return 0
        if sender[2] == socket.PACKET_OUTGOING:
            seconds, nanoseconds = struct.unpack("@qq", ancillary[0][2])
            return int(seconds * 1_000_000_000 + nanoseconds)


def test_netems_queue_counts_packets_and_not_bytes(ends: list[str]) -> None:
    shape(ends[0], NETEM)
    small_bytes, packets = 100, 200
    with Path(ends[0]).open("rb") as namespace, entered(namespace.fileno()):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender:
        sender.sendto(b"x", PORT)
        time.sleep(1)
        for _ in range(packets):
            sender.sendto(b"x" * (small_bytes - HEADERS_BYTES), PORT)
    waiting_ms = packets * small_bytes * 8 / RATE_MBIT / 1e3
    assert waiting_ms < 50, "all of them would have room in 50 ms of the rate"
    shown = subprocess.run([*inside(ends[0]), "tc", "-s", "-j", "qdisc"], capture_output=True, text=True, check=True)
    (dropped,) = [each["drops"] for each in json.loads(shown.stdout) if each["kind"] == "netem"]
    assert dropped > packets / 2
