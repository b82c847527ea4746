"""The forwarding code on a simulated clock: order, conservation, delays and queues, frame by frame."""

from collections import defaultdict, deque
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.planes.userspace.forwarder import Forwarder
from harness.planes.userspace.links import AccessLink, EmulatedNetwork
from topologies.bottlenecks import NO_BOTTLENECKS, Bottlenecks
from topologies.network import AskedOfPairs, Link, Network, uniform_network

HOSTS = 3
MS_NS = 1_000_000


def address(host: int) -> str:
    return f"10.0.0.{host + 1}"


def ip_frame(source: int, destination: int, size: int, number: int) -> bytes:
    head = bytes([0x45]) + bytes(11) + bytes([10, 0, 0, source + 1, 10, 0, 0, destination + 1])
    return head + number.to_bytes(4, "big") + bytes(size - 24)


@dataclass
class Bench:
    """A forwarder between fake devices; ``written`` holds (instant, destination, source, number)."""

    delay_ms: float = 10.0
    jitter_ms: float = 0.0
    loss_ratio: float = 0.0
    rate_mbit: float = 0.0
    queue_ms: float = 0.0
    down_mbit: float | None = None
    down_queue_ms: float | None = None
    bottlenecks: Bottlenecks = NO_BOTTLENECKS
    seed: int = 1
    now_ns: int = 0
    refusing: bool = False
    waiting: dict[int, deque[bytes]] = field(default_factory=lambda: defaultdict(deque))
    written: list[tuple[int, int, int, int]] = field(default_factory=list)
    sent: int = 0

    def __post_init__(self) -> None:
        network = EmulatedNetwork(self.asked, self.seed)
        for host in range(HOSTS):
            network.add(AccessLink(host, host), address(host))
        self.forwarder = Forwarder(network, lambda: self.now_ns, self._read, self._write)

    @property
    def asked(self) -> Network:
        """All pairs and all access links are alike; access links down as those up if nothing else is given."""
        down_mbit = self.rate_mbit if self.down_mbit is None else self.down_mbit
        down_queue_ms = self.queue_ms if self.down_queue_ms is None else self.down_queue_ms
        values = (self.delay_ms, self.jitter_ms, self.loss_ratio)
        return Network.of_pairs(
            AskedOfPairs(*(np.full((HOSTS, HOSTS), value) for value in values)),
            rate_mbit=[self.rate_mbit] * HOSTS + [down_mbit] * HOSTS,
            queue_ms=[self.queue_ms] * HOSTS + [down_queue_ms] * HOSTS,
            bottlenecks=self.bottlenecks,
        )

    @property
    def access(self) -> tuple[Link, ...]:
        """The access link of every host, up and down."""
        return tuple(self.asked.link(number) for number in self.asked.access(0))

    def _read(self, device: int, _: int) -> bytes:
        if not self.waiting[device]:
            raise BlockingIOError
        return self.waiting[device].popleft()

    def _write(self, device: int, frame: bytes) -> int:
        if self.refusing:
            raise OSError
        self.written.append((self.now_ns, device, frame[15] - 1, int.from_bytes(frame[20:24], "big")))
        return len(frame)

    def send(self, source: int, destination: int, size: int = 100) -> int:
        number = self.sent
        self.give(source, ip_frame(source, destination, size, number))
        return number

    def give(self, source: int, frame: bytes) -> None:
        self.sent += 1
        self.waiting[source].append(frame)
        self.forwarder.take_in(self.forwarder.network.links[source])
        self.check()

    def advance(self, until_ns: int) -> None:
        """Let everything out that is due until then, each frame exactly when it is."""
        while (due_ns := self.forwarder.next_due_ns) is not None and due_ns <= until_ns:
            self.now_ns = max(due_ns, self.now_ns)
            self.forwarder.let_out()
            self.check()
        self.now_ns = until_ns

    def drain(self) -> None:
        self.advance(self.now_ns + 3_600_000 * MS_NS)

    def check(self) -> None:
        counters = self.forwarder.counters()
        assert counters.unaccounted == 0
        assert counters.frames_in == self.sent
        assert counters.frames_out == len(self.written)

    @property
    def drops(self) -> dict[str, int]:
        return {cause: count for cause, count in self.forwarder.drops.items() if count}


hosts = st.integers(0, HOSTS - 1)
sends = st.tuples(st.just("send"), hosts, hosts, st.integers(24, 1500))
waits = st.tuples(st.just("wait"), st.integers(0, 20 * MS_NS))
changes = st.one_of(
    st.tuples(st.just("pair"), hosts, hosts, st.floats(0, 30), st.floats(0, 5), st.sampled_from([0.0, 0.3])),
    st.tuples(st.just("rate"), hosts, st.sampled_from([0.0, 0.5, 10.0]), st.floats(0, 20)),
    st.tuples(st.just("refuse"), st.booleans()),
)


def act(bench: Bench, action: tuple) -> None:
    forwarder = bench.forwarder
    match action:
        case ("send", source, destination, size):
            bench.send(source, destination, size)
        case ("wait", duration_ns):
            bench.advance(bench.now_ns + duration_ns)
        case ("pair", source, destination, *values):
            forwarder.network.set_pair(source, destination, Link(*values))
        case ("rate", host, rate_mbit, queue_ms):
            forwarder.network.set_access(host, *[Link(rate_mbit=rate_mbit, queue_ms=queue_ms)] * 2)
        case ("refuse", refusing):
            bench.refusing = refusing


@given(st.lists(st.one_of(sends, sends, sends, waits, changes), max_size=80), st.integers(0, 99))
def test_keeps_order_within_pairs_and_accounts_for_every_frame(actions: list[tuple], seed: int) -> None:
    bench = Bench(jitter_ms=4.0, seed=seed)
    for action in actions:
        act(bench, action)
    bench.drain()
    assert bench.forwarder.counters().in_flight == 0
    pairs = defaultdict(list)
    for _, destination, source, number in bench.written:
        pairs[source, destination].append(number)
    assert all(numbers == sorted(numbers) for numbers in pairs.values())


@given(st.lists(st.tuples(hosts, hosts, st.integers(0, 5 * MS_NS)), min_size=1, max_size=40), st.floats(0, 300))
def test_without_jitter_or_rate_every_frame_takes_the_delay_exactly(
    frames: list[tuple[int, int, int]], delay_ms: float
) -> None:
    bench = Bench(delay_ms=delay_ms)
    due = {}
    for source, destination, pause_ns in frames:
        bench.advance(bench.now_ns + pause_ns)
        due[bench.send(source, destination)] = bench.now_ns + round(delay_ms * MS_NS)
    bench.drain()
    assert {number: at_ns for at_ns, _, _, number in bench.written} == due
    assert bench.forwarder.lateness_max_ns == 0


@given(
    st.lists(st.tuples(st.integers(0, 3 * MS_NS), st.integers(24, 1500)), min_size=1, max_size=60),
    st.sampled_from([1.0, 2.5, 8.0]),
    st.integers(0, 12),
)
def test_access_link_is_a_drop_tail_queue(frames: list[tuple[int, int]], rate_mbit: float, queue_ms: int) -> None:
    """Against a reference: a frame is dropped when more than queue_ms of work is before it."""
    bench = Bench(delay_ms=5.0, rate_mbit=rate_mbit, queue_ms=queue_ms, down_mbit=1e9, down_queue_ms=1e9)
    free_ns, expected, dropped = 0, [], 0
    for pause_ns, size in frames:
        bench.advance(bench.now_ns + pause_ns)
        bench.send(0, 1, size)
        if free_ns - bench.now_ns > queue_ms * MS_NS:
            dropped += 1
            continue
        free_ns = max(free_ns, bench.now_ns) + int(size * 8000 / rate_mbit)
        expected.append(free_ns + 5 * MS_NS)
    bench.drain()
    assert [at_ns for at_ns, *_ in bench.written] == expected
    assert bench.drops.get("queue", 0) == dropped


def test_flows_that_meet_at_a_destination_share_its_rate() -> None:
    bench = Bench(delay_ms=5.0)
    bench.forwarder.network.set_access(2, Link(), Link(rate_mbit=8.0, queue_ms=1000))
    for number in range(20):
        bench.send(number % 2, 2, 1000)
    bench.drain()
    assert [at_ns for at_ns, *_ in bench.written] == [(5 + position) * MS_NS for position in range(1, 21)]


def fates(bench: Bench, source: int, destination: int) -> list[int]:
    return [at_ns for at_ns, to, of, _ in bench.written if (of, to) == (source, destination)]


@given(st.lists(hosts, max_size=60), st.integers(0, 2**32))
def test_a_pairs_fate_depends_on_the_seed_and_not_on_other_pairs(others: list[int], seed: int) -> None:
    alone = Bench(jitter_ms=2.0, loss_ratio=0.4, seed=seed)
    among = Bench(jitter_ms=2.0, loss_ratio=0.4, seed=seed)
    for number in range(30):
        alone.send(0, 1)
        among.send(0, 1)
        if number < len(others):
            among.send(others[number], 2)
    alone.drain()
    among.drain()
    assert fates(alone, 0, 1) == fates(among, 0, 1)


def test_loses_the_asked_share() -> None:
    bench = Bench(loss_ratio=0.2)
    for _ in range(5000):
        bench.send(0, 1, 24)
    assert abs(bench.drops["loss"] / 5000 - 0.2) < 4 * (0.2 * 0.8 / 5000) ** 0.5


@pytest.mark.parametrize("apart_ms", [1, 200])
def test_jitter_has_the_asked_mean_and_deviation_however_dense_the_frames(apart_ms: int) -> None:
    """Over 300 correlation times: frames closer to each other have nearly the same delay."""
    bench = Bench(delay_ms=50.0, jitter_ms=3.0)
    sent_ns = []
    for _ in range(30_000 // apart_ms):
        sent_ns.append(bench.now_ns)
        bench.send(0, 1)
        bench.advance(bench.now_ns + apart_ms * MS_NS)
    bench.drain()
    delays_ms = (np.array([at_ns for at_ns, *_ in bench.written]) - sent_ns) / MS_NS
    knots = min(300, len(sent_ns))
    assert abs(delays_ms.mean() - 50) < 4 * 3 / knots**0.5
    assert abs(delays_ms.std() - 3) < 4 * 3 / (2 * knots) ** 0.5


def test_names_the_cause_of_every_drop() -> None:
    bench = Bench()
    bench.send(0, 9)
    bench.give(0, bytes([0x60]) + bytes(59))
    bench.give(0, bytes([0x45]))
    bench.send(0, 1)
    bench.refusing = True
    bench.drain()
    assert bench.drops == {"unknown_destination": 2, "not_ip": 1, "device_full": 1}
    assert not bench.written


def test_holds_no_more_than_it_may(monkeypatch) -> None:
    monkeypatch.setattr("harness.planes.userspace.forwarder.MAX_IN_FLIGHT", 5)
    bench = Bench()
    for _ in range(8):
        bench.send(0, 1)
    assert bench.drops == {"overload": 3}


def test_change_of_all_pairs_keeps_order_with_what_is_in_flight() -> None:
    bench = Bench(delay_ms=100.0)
    bench.send(0, 1)
    bench.forwarder.network.set_pairs(uniform_network(HOSTS, 0.0))
    bench.send(0, 1)
    bench.drain()
    assert [(at_ns, number) for at_ns, _, _, number in bench.written] == [(100 * MS_NS, 0), (100 * MS_NS, 1)]


def test_lateness_is_what_the_clock_says() -> None:
    bench = Bench(delay_ms=1.0)
    bench.send(0, 1)
    bench.now_ns = 3 * MS_NS
    bench.forwarder.let_out()
    assert bench.forwarder.lateness_max_ns == 2 * MS_NS
    assert sum(bench.forwarder.histogram) == 1
