"""What a hop costs a peer that has little to do, beside many others: processor time, and wake-ups.

    trellis bench hops [--against CHECKOUT] [--per-process N] [--rounds N] [--peers N] [--rate R] [--scrape-s S]

``peer`` measures one busy relay, whose code and data stay in the processor's caches. In a run of hundreds of peers each
gets a frame every few milliseconds, and other peers run in between. Here an agent starts ``--peers`` relays, which do
all that they do in a run. Every relay has links to eight bare sockets, which speak for its neighbours. They send it
copies of ``--rate`` messages per second, one neighbour after the other at even pauses, so that every copy wakes it. The
relay forwards the first copy of a message to the other neighbours. A *hop* is a copy that a relay received; a relay
sends seven copies for eight received ones.

``us_per_hop`` is the relays' processor time by their hops, with all else that they do: they write traces, and answer a
scraper of their metrics every ``--scrape-s`` seconds. The same relays are first measured without messages:
``idle_us_per_peer_s`` is what a relay takes per second then, and ``added_us_per_hop`` is ``us_per_hop`` without it.
``wake_ups_per_hop`` are voluntary context switches, ``pss_mib`` is the memory of a relay after the messages. With
``--against``, as many relays of another checkout are there at the same time, and get the same messages in between, so
that both meet the same load of the machine. With ``--per-process``, N of this checkout's relays share a process, and
they are compared with relays that have a process each (of the other checkout, if one is given). ``*_ratio`` is this
checkout's figure by that of the other, of each round.
Everything happens inside one sandbox. What counts is the relays' own processor time.
"""

import argparse
import json
import os
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks._waiting import wait_for
from harness.doctor.collisions import CHECKOUT
from harness.machine import sandbox
from peer.core.contract import message_id
from peer.core.frames import UNLIMITED_TTL, Data, Hello
from peer.files import AGENT_FILE, OVERLAY_FILE, SCHEDULE_FILE
from peer.instances.spec import AgentSpec, NodeSpec, OverlayDocument, PeerPlace
from peer.runtime.agent import SOCKET, call
from peer.runtime.agent_metrics import read_pss_bytes
from peer.wire import encode

PEERS = 100
NEIGHBOURS = 8
RATE_PER_S = 2.0
SCRAPE_S = 5.0
IDLE_S = 10.0
LOAD_S = 20.0
PAYLOAD_BYTES = 200
RUN = 1
HOST = "127.0.0.1"
PORT, METRICS_PORT = 10_000, 20_000
MOST_PEERS = 4000
"""Most relays of a checkout: their ports are apart."""

START_S = 2.0
WAIT_S = 60.0
"""The time within which peers must be ready, or have forwarded what they received (s)."""


def main(argv: list[str] | None = None) -> int:
    """Measure inside a sandbox and print the figures, and with ``--against`` those of each round and their medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peers", type=int, default=PEERS, choices=range(1, MOST_PEERS), metavar="N")
    parser.add_argument("--rate", type=float, default=RATE_PER_S, metavar="R", help="messages per second and relay")
    parser.add_argument("--scrape-s", type=float, default=SCRAPE_S, metavar="S", help="0 = no scrapes")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another checkout, beside this one")
    text = "relays that share a process, compared with a process each"
    parser.add_argument("--per-process", type=int, default=1, choices=range(1, MOST_PEERS), metavar="N", help=text)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="how often both are measured")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if not given.inside:
        inside = [sys.executable, "-P", __file__, "--inside", *(sys.argv[1:] if argv is None else argv)]
        return sandbox.run(inside, keep=[given.against.absolute()] if given.against else [])
    load = Load(given.peers, given.rate, given.scrape_s)
    other, this = Group((given.against or CHECKOUT).absolute(), 1), Group(CHECKOUT, given.per_process)
    if other == this:
        result: dict[str, object] = {**measure([this], load)[0]}
    else:
        result = compare(other, this, load, given.rounds)
    print(json.dumps(result) if given.json else "\n".join(f"{name:>28}  {value}" for name, value in result.items()))
    return 0


class Group(NamedTuple):
    """Relays: the checkout that has their code, and how many share a process."""

    checkout: Path
    per_process: int


@dataclass(frozen=True)
class Load:
    """What the relays get: their number, messages per second and relay, and seconds between scrapes (0 = none)."""

    relays: int
    rate_per_s: float
    scrape_s: float


def compare(other: Group, this: Group, load: Load, rounds: int) -> dict[str, object]:
    """Measure two groups at the same time; each second round begins with the second one.

    Returns:
        For each figure of ``measure`` its values for the first group, those for the second, and their ratios in rounds
        with the median.
    """
    found: dict[Group, list[dict[str, float]]] = {other: [], this: []}
    for number in range(rounds):
        order = [other, this][:: -1 if number % 2 else 1]
        for group, figures in zip(order, measure(order, load), strict=True):
            found[group].append(figures)
    result: dict[str, object] = {}
    for name in found[this][0]:
        before, after = ([each[name] for each in found[group]] for group in (other, this))
        result[name] = f"{[round(value, 2) for value in before]} -> {[round(value, 2) for value in after]}"
        if all(before):
            ratios = [new / old for old, new in zip(before, after, strict=True)]
            result[f"{name}_ratio"] = f"{statistics.median(ratios):.3f} of {[round(ratio, 3) for ratio in ratios]}"
    return result


def measure(relays: Sequence[Group], load: Load) -> list[dict[str, float]]:
    """Run several groups of relays at the same time.

    Returns:
        The figures of each: microseconds of processor time, wake-ups (voluntary context switches), MiB.
    """
    with ExitStack() as stack:
        groups = [stack.enter_context(_running(group, place, load)) for place, group in enumerate(relays)]
        time.sleep(2 * START_S)  # they begin
        ends = Ends(len(relays), load.relays)
        with _scraping(len(relays), load):
            time.sleep(START_S + load.scrape_s)  # first scrapes cost more
            before = [spent(pids) for pids in groups]
            ends.wait(IDLE_S)
            between = [spent(pids) for pids in groups]
            hops = ends.play(load.rate_per_s)
            after = [spent(pids) for pids in groups]
        memory_mib = [read_pss_bytes(pids) / 2**20 / load.relays for pids in groups]
    return [
        _figures(idle - begun, busy - idle, hops, load.relays, pss_mib)
        for begun, idle, busy, pss_mib in zip(before, between, after, memory_mib, strict=True)
    ]


def _figures(idle: "Spent", busy: "Spent", hops: int, relays: int, pss_mib: float) -> dict[str, float]:
    return {
        "us_per_hop": busy.cpu_s / hops * 1e6,
        "user_us_per_hop": busy.user_s / hops * 1e6,
        "system_us_per_hop": busy.system_s / hops * 1e6,
        "wake_ups_per_hop": busy.wake_ups / hops,
        "added_us_per_hop": (busy.cpu_s - idle.cpu_s * LOAD_S / IDLE_S) / hops * 1e6,
        "idle_us_per_peer_s": idle.cpu_s / relays / IDLE_S * 1e6,
        "idle_wake_ups_per_peer_s": idle.wake_ups / relays / IDLE_S,
        "pss_mib": pss_mib,
    }


# ---------------------------------------------------------------------------------------------------- the relays


@contextmanager
def _running(group: Group, place: int, load: Load) -> Iterator[list[int]]:
    """Start an agent and its relays, and yield the relays' processes. They begin soon.

    Args:
        group: what they are.
        place: the number of groups before, which have other ports.
        load: the number of relays.
    """
    with tempfile.TemporaryDirectory(prefix="bench-hops-") as folder:
        _write_documents(Path(folder), place, group.per_process, load)
        with _agent(group.checkout, Path(folder)):
            yield sorted({each["pid"] for each in call(Path(folder), ["status"])["peers"].values()})


@contextmanager
def _agent(checkout: Path, work: Path) -> Iterator[None]:
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-m", "peer.runtime.agent", str(work)]
    agent = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=checkout, env=environment)
    try:
        wait_for(lambda: (work / SOCKET).exists() and call(work, ["status"])["ready"], "the relays to be ready", WAIT_S)
        call(work, ["start", str(time.time_ns() + round(START_S * 1e9))])
        yield
    finally:
        assert agent.stdin is not None
        agent.stdin.close()
        agent.wait(WAIT_S)


def _write_documents(work: Path, place: int, per_process: int, load: Load) -> None:
    """Write the documents of relays 0 .. n-1. The nodes after them are the ends, which are on no machine."""
    shift = place * MOST_PEERS
    addresses = tuple((HOST, PORT + shift + node) for node in range(load.relays + NEIGHBOURS))
    starts = [*range(0, load.relays, per_process), load.relays]
    agent = AgentSpec(
        machine="bench",
        run=RUN,
        peers=tuple(PeerPlace(n, addresses[n], (HOST, METRICS_PORT + shift + n)) for n in range(load.relays)),
        addresses=addresses,
        warmup_ns=round(START_S / 2 * 1e9),
        stop_ns=round(3600e9),
        drain_ns=0,
        send_queue_bytes=1 << 20,
        lease_s=3600,
        shared=tuple(tuple(range(*each)) for each in pairwise(starts)) if per_process > 1 else (),
    )
    flood = {"name": "flood", "ttl": UNLIMITED_TTL}
    nodes = tuple(NodeSpec(node, 1, (0,), {"name": "complete"}, flood, ()) for node in range(len(addresses)))
    (work / AGENT_FILE).write_bytes(msgspec.json.encode(agent))
    (work / OVERLAY_FILE).write_bytes(msgspec.json.encode(OverlayDocument(RUN, "complete", nodes)))
    (work / SCHEDULE_FILE).write_bytes(b"")


@dataclass
class Spent:
    """What processes have used since their start: seconds, and voluntary context switches."""

    cpu_s: float = 0.0
    user_s: float = 0.0
    system_s: float = 0.0
    wake_ups: int = 0

    def __sub__(self, earlier: "Spent") -> "Spent":
        return Spent(
            self.cpu_s - earlier.cpu_s,
            self.user_s - earlier.user_s,
            self.system_s - earlier.system_s,
            self.wake_ups - earlier.wake_ups,
        )


def spent(pids: Sequence[int]) -> Spent:
    """Return what processes have used with all their threads that run now.

    The scheduler counts nanoseconds, but the division into user and system time counts whole ticks. So both are that
    division's shares of the nanoseconds.
    """
    found, ticks = Spent(), [0, 0]
    for pid in pids:
        process = Path(f"/proc/{pid}")
        fields = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        ticks = [ticks[0] + int(fields[11]), ticks[1] + int(fields[12])]
        for thread in (process / "task").iterdir():
            found.cpu_s += int((thread / "schedstat").read_text(encoding="ascii").split()[0]) / 1e9
            lines = (thread / "status").read_text(encoding="utf-8", errors="replace").splitlines()
            found.wake_ups += next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt"))
    share = ticks[0] / max(1, sum(ticks))
    found.user_s, found.system_s = found.cpu_s * share, found.cpu_s * (1 - share)
    return found


@contextmanager
def _scraping(checkouts: int, load: Load) -> Iterator[None]:
    """Read every relay's metrics once per period, one after the other at even pauses, in a thread."""
    over = threading.Event()
    ports = [METRICS_PORT + place * MOST_PEERS + relay for relay in range(load.relays) for place in range(checkouts)]

    def scrape() -> None:
        while True:
            for port in ports:
                if over.wait(load.scrape_s / len(ports)):
                    return
                urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=WAIT_S).read()

    thread = threading.Thread(target=scrape)
    if load.scrape_s:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if load.scrape_s:
            thread.join()


# -------------------------------------------------------------------------------------------------- the other ends


class Ends:
    """The bare sockets: ``NEIGHBOURS`` nodes with a link to each relay. They say hello and read whatever comes."""

    def __init__(self, checkouts: int, relays: int) -> None:
        self._publisher = relays
        self._poll = select.epoll()
        self._by_descriptor: dict[int, socket.socket] = {}
        self._received_bytes = 0
        ports = [PORT + place * MOST_PEERS + relay for relay in range(relays) for place in range(checkouts)]
        self._links = [[self._connect(port, relays + end) for end in range(NEIGHBOURS)] for port in ports]
        self._checkouts = checkouts

    def _connect(self, port: int, node: int) -> socket.socket:
        link = socket.create_connection((HOST, port))
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.sendall(encode(Hello(node, RUN)))
        self._by_descriptor[link.fileno()] = link
        self._poll.register(link, select.EPOLLIN)
        return link

    def wait(self, duration_s: float) -> None:
        """Read for some time (s)."""
        until = time.monotonic() + duration_s
        while (left_s := until - time.monotonic()) > 0:
            for descriptor, _ in self._poll.poll(left_s):
                self._received_bytes += len(self._by_descriptor[descriptor].recv(1 << 16))

    def play(self, rate_per_s: float) -> int:
        """Send messages for ``LOAD_S`` to each relay, and return how many copies those of a checkout received.

        Raises:
            RuntimeError: the relays did not forward the first copy of each.
        """
        messages = round(rate_per_s * LOAD_S)
        relays = len(self._links)
        contents = [
            encode(Data(message_id(self._publisher, number), (0,), 1, UNLIMITED_TTL, bytes(PAYLOAD_BYTES)))
            for number in range(messages)
        ]
        copies = sorted(
            ((number + relay / relays + place / NEIGHBOURS) / rate_per_s, relay, number, place)
            for number in range(messages)
            for relay in range(relays)
            for place in range(NEIGHBOURS)
        )
        received_bytes = self._received_bytes
        start = time.monotonic()
        for at_s, relay, number, place in copies:
            self.wait(start + at_s - time.monotonic())
            self._links[relay][(number + place) % NEIGHBOURS].sendall(contents[number])
        self.wait(start + LOAD_S - time.monotonic())
        expected_bytes = sum(map(len, contents)) * relays * (NEIGHBOURS - 1)
        deadline = time.monotonic() + WAIT_S
        while self._received_bytes - received_bytes < expected_bytes and time.monotonic() < deadline:
            self.wait(0.01)
        if self._received_bytes - received_bytes != expected_bytes:
            got = self._received_bytes - received_bytes
            raise RuntimeError(f"expected {expected_bytes} forwarded bytes, got {got}")
        return len(copies) // self._checkouts


if __name__ == "__main__":
    sys.exit(main())
