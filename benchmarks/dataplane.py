"""The userspace data plane: frames a core, the delay it adds under load, and TCP beside VDE's wirefilter.

Two hosts, 20 ms apart in each direction. Everything happens inside one sandbox and ends within 90 seconds.

* Capacity: a sender floods; frames forwarded by CPU time used is the rate that one core would carry.
* Added delay: a paced sender at 10 %, 50 % and 90 % of that, and beside it echo requests whose RTT should be 40 ms.
* New pairs: what a pair's first frame costs the forwarding code, by what a later one does.
* TCP (iperf3) and idle echo requests, through the data plane and through wirefilter between two vde_switches, in turn.

A virtual machine's processors are kept awake throughout, for both, as in a run (docs/adr/0014).
"""

import argparse
import json
import multiprocessing
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from _namespaces import held_namespaces, inside, listen

from benchmarks._waiting import wait_for
from harness.machine import sandbox
from harness.machine.awake import kept_awake
from harness.machine.netns import entered
from harness.planes.plane import Port
from harness.planes.userspace.forwarder import Forwarder
from harness.planes.userspace.handle import UserspacePlane
from harness.planes.userspace.links import AccessLink
from harness.planes.userspace.links import EmulatedNetwork as PairNetwork
from harness.testbeds.emulated.echo import EchoSockets
from topologies.network import AskedOfPairs, uniform_network

ONE_WAY_MS = 20.0
RTT_MS = 2 * ONE_WAY_MS
ADDRESSES = ("10.0.0.1", "10.0.0.2")
FRAME_BYTES = 256
FLOOD_S = 2.0
LOAD_S = 3.0
TCP_S = 5
READY_S = 10.0
ROUNDS = 2
LOADS = (0.1, 0.5, 0.9)
SEGMENTS = 4
UDP_SEGMENT = 103
PAIR_HOSTS = 200
TARGETS = {"tcp_ratio": "target: at least 1.5", "rtt_mean_error_ratio": "target: at most 0.5"}
NEEDED = {"wirefilter": "vde2", "vde_switch": "vde2", "vde_plug2tap": "vde2", "iperf3": "iperf3"}


def main(argv: list[str] | None = None) -> int:
    """Measure inside a sandbox and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    missing = sorted({package for program, package in NEEDED.items() if shutil.which(program) is None})
    if missing:
        print(f"dataplane: not installed: {' '.join(missing)} (apt-get install {' '.join(missing)})", file=sys.stderr)
        return 2
    if not given.inside:
        return sandbox.run([sys.executable, "-P", __file__, "--inside", *(["--json"] if given.json else [])])
    result = measure()
    print(json.dumps(result) if given.json else _table(result))
    return 0


def _table(result: dict[str, float]) -> str:
    lines = [f"{name:>32}  {value:10.4g}  {TARGETS.get(name, '')}" for name, value in result.items()]
    for share in LOADS:
        name = f"load_{share * 100:.0f}"
        if result[f"{name}_frames_per_s"] < 0.95 * result[f"{name}_asked_frames_per_s"]:
            lines.append(f"{name}: the sender had not the CPU time for the asked rate; measure on an idle machine")
    return "\n".join(lines)


def measure() -> dict[str, float]:
    """Everything, by name; see ``_compare`` and ``_load`` for the units."""
    with kept_awake():
        with held_namespaces(len(ADDRESSES)) as netns:
            capacity = _measure_capacity(netns)
            result = {"frames_per_s_a_core": capacity, **_new_pairs()}
            for share in LOADS:
                result |= _load(netns, share, capacity)
        return result | _compare()


def _compare() -> dict[str, float]:
    """Throughput and mean delay error of both, medians over rounds in turn, and their ratios."""
    networks: dict[str, Network] = {"trellis": _trellis, "wirefilter": _wirefilter}
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in networks}
    for _ in range(ROUNDS):
        for name, network in networks.items():
            with held_namespaces(len(ADDRESSES)) as netns, network(netns):
                rounds[name].append((_tcp_mbit(netns), _mean_error_ms(netns)))
    ours, theirs = ([statistics.median(column) for column in zip(*rounds[name], strict=True)] for name in networks)
    return {
        "tcp_mbit": ours[0],
        "wirefilter_tcp_mbit": theirs[0],
        "tcp_ratio": ours[0] / theirs[0],
        "rtt_mean_error_ms": ours[1],
        "wirefilter_rtt_mean_error_ms": theirs[1],
        "rtt_mean_error_ratio": ours[1] / theirs[1],
    }


def _new_pairs() -> dict[str, float]:
    """Ratios of the time for a pair's first frame to that for its second, without and with jitter: Python alone."""
    result = {}
    for name, jitter_ms in (("new_pair_ratio", 0.0), ("new_jittered_pair_ratio", 1.0)):
        rounds = [_first_and_second_s(jitter_ms) for _ in range(5)]
        first_s, second_s = (min(times) for times in zip(*rounds, strict=True))
        result[name] = first_s / second_s
    return result


def _first_and_second_s(jitter_ms: float) -> tuple[float, float]:
    """Time to take in a frame of every pair of ``PAIR_HOSTS``, and another one."""
    asked = np.zeros((3, PAIR_HOSTS, PAIR_HOSTS))
    asked[1] = jitter_ms
    network = PairNetwork(uniform_network(PAIR_HOSTS, 0.0).with_pairs(AskedOfPairs(*asked)), 1)
    addresses = [f"10.0.0.{host}" for host in range(PAIR_HOSTS)]
    for host, address in enumerate(addresses):
        network.add(AccessLink(host, host), address)
    frames = [bytes([0x45]) + bytes(15) + socket.inet_aton(address) + bytes(64) for address in addresses]
    waiting: list[bytes] = []

    def read(_device: int, _size: int) -> bytes:
        if not waiting:
            raise BlockingIOError
        return waiting.pop()

    forwarder = Forwarder(network, time.monotonic_ns, read, lambda _device, frame: len(frame))
    times = []
    for _ in range(2):
        start = time.perf_counter()
        for link in network.links:
            waiting += frames
            while waiting:
                forwarder.take_in(link)
        times.append(time.perf_counter() - start)
    return times[0], times[1]


# ------------------------------------------------------------------------------------------ networks to measure

Network = Callable[[list[str]], Any]


@contextmanager
def _trellis(netns: list[str]) -> Iterator[UserspacePlane]:
    plane = UserspacePlane(uniform_network(2, ONE_WAY_MS), 1, Path(tempfile.mkdtemp()))
    try:
        plane.attach([Port(host, netns[host], address) for host, address in enumerate(ADDRESSES)])
        yield plane
    finally:
        plane.kill()


@contextmanager
def _wirefilter(netns: list[str]) -> Iterator[None]:
    """A TAP device a host, plugged into a switch each, and wirefilter as the wire between the switches."""
    folder = Path(tempfile.mkdtemp())
    switches = [folder / "left", folder / "right"]
    with ExitStack() as running:
        for switch in switches:
            running.enter_context(_running(["vde_switch", "-s", str(switch)]))
            wait_for((switch / "ctl").exists, "the switch to compare with", READY_S)
        wire = ["wirefilter", "-v", ":".join(map(str, switches)), "-d", f"{ONE_WAY_MS:g}"]
        running.enter_context(_running(wire))
        for path, switch, address in zip(netns, switches, ADDRESSES, strict=True):
            running.enter_context(_running([*inside(path), "vde_plug2tap", "-s", str(switch), "wan0"]))
            configure = f"ip address add {address}/16 dev wan0 && ip link set wan0 up"
            configured = partial(_succeeds, [*inside(path), "sh", "-c", configure])
            wait_for(configured, "the device of the network to compare with", READY_S)
        wait_for(lambda: not np.isnan(_ping(netns, 1, 100.0)).any(), "the network to compare with", READY_S)
        yield


@contextmanager
def _running(command: list[str]) -> Iterator[None]:
    """A program that runs as long as its standard input is open, or until it is killed."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


# ------------------------------------------------------------------------------------------------- measurements


def _ping(netns: list[str], count: int, rate_per_s: float) -> npt.NDArray[np.float64]:
    """RTTs in ms from the first host to the second; NaN = lost."""
    echo = EchoSockets(netns, ADDRESSES)
    due_ns = (np.arange(count) * (1e9 / rate_per_s)).astype(np.int64)
    sent, received = echo.exchange([(0, 1)] * count, due_ns, 500_000_000)
    return np.where(received > 0, (received - sent) / 1e6, np.nan)


def _mean_error_ms(netns: list[str]) -> float:
    """Mean of the idle RTT's distance from what was asked."""
    return float(np.nanmean(np.abs(_ping(netns, 400, 200.0) - RTT_MS)))


def _tcp_mbit(netns: list[str]) -> float:
    """What iperf3 receives, over the whole time and so with slow start."""
    server = listen(netns[1])
    sending = [*inside(netns[0]), "iperf3", "--client", ADDRESSES[1], "--time", str(TCP_S), "--json"]
    report = json.loads(subprocess.run(sending, capture_output=True, text=True, check=True).stdout)
    server.communicate()
    return float(report["end"]["sum_received"]["bits_per_second"]) / 1e6


def _measure_capacity(netns: list[str]) -> float:
    """Frames that a core forwards in a second, from the CPU time of a forwarding process under flood."""
    with _trellis(netns) as plane, _listening(netns[1]):
        before_s, before = _cpu_s(plane.pid), plane.counters().frames_out
        with _sending(netns[0], 1e9):
            time.sleep(FLOOD_S)
            used_s, forwarded = _cpu_s(plane.pid) - before_s, plane.counters().frames_out - before
    return forwarded / used_s


def _load(netns: list[str], share: float, capacity: float) -> dict[str, float]:
    """At a share of the capacity: frames/s carried, and by how much echo replies come too late, in ms."""
    with _trellis(netns) as plane, _listening(netns[1]):
        before = plane.counters().frames_out
        with _sending(netns[0], share * capacity):
            started_s = time.monotonic()
            error_ms = _ping(netns, int(LOAD_S * 200), 200.0) - RTT_MS
            carried = (plane.counters().frames_out - before) / (time.monotonic() - started_s)
        lateness_ns = plane.close().lateness_ns
    name = f"load_{share * 100:.0f}"
    return {
        f"{name}_asked_frames_per_s": share * capacity,
        f"{name}_frames_per_s": carried,
        f"{name}_added_rtt_ms_p50": float(np.nanpercentile(error_ms, 50)),
        f"{name}_added_rtt_ms_p99": float(np.nanpercentile(error_ms, 99)),
        f"{name}_lateness_ms_p50": lateness_ns["p50"] / 1e6,
        f"{name}_lateness_ms_p99": lateness_ns["p99"] / 1e6,
    }


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _listening(netns: str) -> Iterator[None]:
    """A UDP socket that nobody reads: the kernel drops what does not fit, after it was delivered."""
    descriptor = os.open(netns, os.O_RDONLY)
    with entered(descriptor):
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    os.close(descriptor)
    with receiver:
        receiver.bind((ADDRESSES[1], 9))
        yield


@contextmanager
def _sending(netns: str, rate_per_s: float) -> Iterator[None]:
    """A process that sends datagrams from the namespace, SEGMENTS at a time: one system call each takes too long."""
    sender = multiprocessing.get_context("fork").Process(target=_send, args=(netns, rate_per_s), daemon=True)
    sender.start()
    try:
        yield
    finally:
        sender.kill()
        sender.join()


def _send(netns: str, rate_per_s: float) -> None:
    signal.alarm(30)
    descriptor = os.open(netns, os.O_RDONLY)
    with entered(descriptor):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect((ADDRESSES[1], 9))
    sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, FRAME_BYTES - 28)
    payload, send, clock = bytes(SEGMENTS * (FRAME_BYTES - 28)), sender.send, time.monotonic_ns
    due_ns, step_ns = float(clock()), SEGMENTS * 1e9 / rate_per_s
    while True:
        while clock() < due_ns:
            pass
        send(payload)
        due_ns += step_ns


if __name__ == "__main__":
    sys.exit(main())
