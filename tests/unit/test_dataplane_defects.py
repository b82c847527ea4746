"""Frames that are late or vanish on purpose, and only those."""

import socket
from collections import deque
from collections.abc import Callable
from typing import Literal, cast

import pytest

from harness.planes.pcapng import INBOUND, OUTBOUND
from harness.planes.userspace.capture import CaptureRecorder
from harness.planes.userspace.commands import Attach, decode_command, encode
from harness.planes.userspace.defects import (
    Defect,
    HiddenDefect,
    HiddenDefectForwarder,
    LateFirsts,
    LateFirstsNetwork,
    UnaskedCopies,
    UnaskedCopiesForwarder,
    UnaskedDrops,
    UnaskedDropsForwarder,
    WrongRates,
    emulate,
    make_forwarder,
)
from harness.planes.userspace.forwarder import Forwarder
from harness.planes.userspace.links import AccessLink, EmulatedNetwork
from topologies.network import Network, uniform_network
from topologies.timeline import Change, Reach

HOSTS, DELAY_MS, LATE_MS = 4, 10.0, 1.5
ADDRESSES = [f"10.0.0.{host + 1}" for host in range(HOSTS)]
FRAMES = [(0, 1), (0, 1), (1, 0), (0, 2), (2, 0), (2, 0), (1, 2), (3, 1), (0, 1)]


def late(defect: LateFirsts, *, renewed: bool = False) -> list[bool]:
    """Which of ``FRAMES`` are late. ``renewed``: all pairs are set again before each, to what they are."""
    asked = uniform_network(HOSTS, DELAY_MS)
    network = LateFirstsNetwork(asked, 1, defect)
    for host, address in enumerate(ADDRESSES):
        network.add(AccessLink(host, host), address)
    found = []
    for source, destination in FRAMES:
        if renewed:
            network.set_pairs(asked)
        pair = network.links[source].route[socket.inet_aton(ADDRESSES[destination])]
        assert (pair.source.host, pair.destination.host) == (source, destination)
        found.append({10_000_000: False, 11_500_000: True}[pair.delay_ns])
    return found


@pytest.mark.parametrize("renewed", [False, True])
def test_the_first_frame_of_each_directed_pair_is_late(renewed: bool) -> None:
    expected = [True, False, True, True, True, False, True, True, False]
    assert late(LateFirsts("pairs"), renewed=renewed) == expected


@pytest.mark.parametrize("renewed", [False, True])
def test_the_first_frame_that_each_host_sends_is_late(renewed: bool) -> None:
    expected = [True, False, True, False, True, False, False, True, False]
    assert late(LateFirsts("hosts"), renewed=renewed) == expected


def test_the_defect_may_be_of_every_so_many_pairs() -> None:
    expected = [False, False, True, False, True, False, False, True, False]
    assert late(LateFirsts("pairs", every=2)) == expected


def test_frames_to_nowhere_are_not_late() -> None:
    network = LateFirstsNetwork(uniform_network(1, 0.0), 1, LateFirsts("hosts"))
    network.add(AccessLink(0, 0), ADDRESSES[0])
    assert network.links[0].route[socket.inet_aton("10.9.9.9")].dead_end == "unknown_destination"
    assert network.links[0].route[socket.inet_aton(ADDRESSES[0])].delay_ns == 1_500_000


@pytest.mark.parametrize(("factor", "rate_mbit"), [(0.0, 4.0), (1.5, 1.5), (1.0, 1.0)])
def test_rates_that_changes_ask_for_are_applied_wrongly(factor: float, rate_mbit: float) -> None:
    """And the delays that the same change asks for are not."""
    network = emulate(Network(2, lambda *_: 10.0, rate_mbit=[4.0] * 4), 1, WrongRates(factor))
    for host in range(2):
        network.add(AccessLink(host, host), ADDRESSES[host])
    change = Change(from_ns=0, fault=0, sources=(0,), destinations=(1,), up=(0,), rate_mbit=1.0, delay_factor=3.0)
    network.change((Reach(change, 2),))
    assert [link.up_byte_ns for link in network.links] == [8000 / rate_mbit, 2000]
    assert network.links[0].route[socket.inet_aton(ADDRESSES[1])].delay_ns == 30_000_000


def test_no_network_has_the_defect_unless_it_is_asked_for() -> None:
    attach = decode_command(encode(Attach((), 1, 1.0, 1)))
    assert isinstance(attach, Attach) and attach.defect is None
    clean = emulate(uniform_network(1, 0.0), 1, None)
    assert type(clean) is EmulatedNetwork
    assert type(make_forwarder(clean, lambda: 0, 100, 1, None)) is Forwarder


@pytest.mark.parametrize(
    "defect", [LateFirsts("pairs"), HiddenDefect("read", 2.5), HiddenDefect("write", 0, 3), UnaskedCopies(5)]
)
def test_a_defect_reaches_the_forwarding_process_as_it_is(defect: Defect) -> None:
    asked = Attach((), 1, 1.0, 1, defect)
    assert decode_command(encode(asked)) == asked
    network = emulate(uniform_network(1, 0.0), 1, defect)
    assert isinstance(network, LateFirstsNetwork) is isinstance(defect, LateFirsts)
    forwarder = make_forwarder(network, lambda: 0, 100, 1, defect)
    assert isinstance(forwarder, HiddenDefectForwarder) is isinstance(defect, HiddenDefect)


def forward(make: Callable[..., Forwarder], defect: Defect, protocols: tuple[int, ...]) -> tuple[list[int], Forwarder]:
    """Let packets of some protocols pass a forwarder; return the protocols of those that arrived, and the forwarder."""
    network = EmulatedNetwork(uniform_network(HOSTS, 0.0), 1)
    for host, address in enumerate(ADDRESSES):
        network.add(AccessLink(host, host), address)
    head = bytes([0x45]) + bytes(8) + b"%c" + bytes(2) + b"".join(map(socket.inet_aton, ADDRESSES[:2]))
    frames = deque(head % protocol for protocol in protocols)
    written: list[bytes] = []

    def read(_: int, __: int) -> bytes:
        if not frames:
            raise BlockingIOError
        return frames.popleft()

    def write(_: int, frame: bytes) -> int:
        written.append(frame)
        return len(frame)

    forwarder = make(defect, network, lambda: 0, read, write)
    forwarder.take_in(network.links[0])
    forwarder.let_out()
    assert forwarder.counters().unaccounted == 0
    return [frame[9] for frame in written], forwarder


def test_drops_that_nobody_asked_for_meet_tcp_alone_and_are_counted_under_their_cause() -> None:
    arrived, forwarder = forward(UnaskedDropsForwarder, UnaskedDrops("overload", 2), (6, 1, 6, 17, 6, 6, 6))
    assert arrived == [6, 1, 17, 6, 6]
    assert {cause: count for cause, count in forwarder.drops.items() if count} == {"overload": 2}


def test_copies_that_nobody_asked_for_are_of_udp_alone_and_are_counted() -> None:
    arrived, forwarder = forward(UnaskedCopiesForwarder, UnaskedCopies(2), (17, 6, 17, 1, 17, 17))
    assert arrived == [17, 6, 17, 17, 1, 17, 17, 17]
    assert forwarder.frames_doubled == 2


MS = 1_000_000
SENT_MS = range(0, 12, 2)
Instants = list[tuple[int, int]]
"""Instants in ms and the numbers of frames."""


def pass_on(defect: HiddenDefect) -> tuple[Instants, Instants, Instants, Forwarder]:
    """Send six frames from host 0 to host 1: what is recorded as read and as written, and what host 1 gets."""
    now_ns, device = 0, deque[bytes]()
    recorded: dict[int, Instants] = {OUTBOUND: [], INBOUND: []}
    received: Instants = []

    class Recorder:
        def add(self, host: int, direction: int, at_ns: int, frame: bytes) -> None:
            assert host == {OUTBOUND: 0, INBOUND: 1}[direction]
            recorded[direction].append((at_ns // MS, frame[20]))

    def read(descriptor: int, _: int) -> bytes:
        if descriptor or not device:
            raise BlockingIOError
        return device.popleft()

    def write(descriptor: int, frame: bytes) -> int:
        assert descriptor == 1
        received.append((now_ns // MS, frame[20]))
        return len(frame)

    network = EmulatedNetwork(uniform_network(HOSTS, DELAY_MS), 1)
    for host, address in enumerate(ADDRESSES):
        network.add(AccessLink(host, host), address)
    forwarder = HiddenDefectForwarder(defect, network, lambda: now_ns, read, write)
    forwarder.recorder = cast("CaptureRecorder", Recorder())
    sending = list(enumerate(SENT_MS))
    while sending or forwarder.next_due_ns is not None:
        instants = [sending[0][1] * MS] if sending else []
        now_ns = min([*instants, *([forwarder.next_due_ns] if forwarder.next_due_ns is not None else [])])
        if sending and sending[0][1] * MS == now_ns:
            head = bytes([0x45]) + bytes(11) + socket.inet_aton(ADDRESSES[0]) + socket.inet_aton(ADDRESSES[1])
            device.append(head + bytes([sending.pop(0)[0]]))
        assert forwarder.take_in(network.links[0])
        forwarder.let_out()
    return recorded[OUTBOUND], recorded[INBOUND], received, forwarder


def at(later_ms: float, kept: Callable[[int], bool] = lambda _: True) -> Instants:
    return [(int(sent_ms + later_ms), number) for number, sent_ms in enumerate(SENT_MS) if kept(number)]


def third(number: int) -> bool:
    return number % 3 != 2


def test_frames_may_wait_before_they_count_as_read() -> None:
    assert pass_on(HiddenDefect("read", late_ms=3))[:3] == (at(3), at(13), at(13))


def test_frames_may_wait_after_they_count_as_written() -> None:
    assert pass_on(HiddenDefect("write", late_ms=3))[:3] == (at(0), at(10), at(13))


@pytest.mark.parametrize("late_ms", [0, 3])
def test_frames_may_vanish_before_they_count_as_read(late_ms: float) -> None:
    *found, forwarder = pass_on(HiddenDefect("read", late_ms, drop_every=3))
    assert found == [at(late_ms, third), at(late_ms + 10, third), at(late_ms + 10, third)]
    assert (forwarder.frames_in, forwarder.frames_out, forwarder.counters().unaccounted) == (4, 4, 0)


@pytest.mark.parametrize("late_ms", [0, 3])
def test_frames_may_vanish_after_they_count_as_written(late_ms: float) -> None:
    *found, forwarder = pass_on(HiddenDefect("write", late_ms, drop_every=3))
    assert found == [at(0), at(10), at(late_ms + 10, third)]
    assert (forwarder.frames_in, forwarder.frames_out, forwarder.counters().unaccounted) == (6, 6, 0)


@pytest.mark.parametrize("side", ["read", "write"])
def test_a_frame_that_waits_is_in_no_measure_of_the_data_plane(side: Literal["read", "write"]) -> None:
    *_, forwarder = pass_on(HiddenDefect(side, late_ms=3))
    assert forwarder.lateness_max_ns == forwarder.frames_late == 0
