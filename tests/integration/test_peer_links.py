"""The pool of connections over real TCP on loopback: races, refusals, bad frames, full queues, exact stream offsets."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from peer.core import links as links_module
from peer.core.contract import Event, FrameReceived, LinkDown, LinkUp
from peer.core.frames import Bye, Data, Frame, Hello, Subscriptions
from peer.runtime.addresses import AddressBook
from peer.runtime.pool import ConnectionPool
from peer.trace import TraceEvent
from peer.wire import Decoder, encode
from tests.event_loop import LIMIT_S, run

RUN = 77


class Recorder:
    """A driver that writes everything down and lets a test wait for what it wants to see."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.told: list[tuple] = []
        self.events: list[TraceEvent] = []
        self.frames: list[tuple[int, Frame]] = []
        self.changed = asyncio.Event()
        self.insist: Callable[[int], None] | None = None

    def feed(self, event: Event) -> None:
        self.changed.set()
        match event:
            case LinkUp(peer, outbound):
                self.told.append(("up", peer, outbound))
            case LinkDown(peer, reason, retrying):
                self.told.append(("down", peer, reason, retrying))
                if self.insist is not None and not retrying:
                    self.insist(peer)
            case FrameReceived(peer, frame):
                self.frames.append((peer, frame))

    def trace(self, event: TraceEvent) -> None:
        self.events.append(event)
        self.changed.set()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    def named(self, event: str) -> list[TraceEvent]:
        return [found for found in self.events if found.event == event]


class Network:
    """Pools of nodes 0 .. n-1 on loopback; entered, all of them listen."""

    def __init__(
        self,
        nodes: int,
        queue_bytes: int = 1 << 20,
        runs: tuple[int, ...] | None = None,
        hosts: tuple[str, ...] | None = None,
    ) -> None:
        hosts = hosts or ("127.0.0.1",) * nodes
        self.doors = [socket.create_server((host, 0)) for host in hosts]
        self.addresses = tuple(door.getsockname() for door in self.doors)
        book = AddressBook(self.addresses)
        self.owners = [Recorder(node) for node in range(nodes)]
        self.pools = [
            ConnectionPool(owner, node, (runs or (RUN,) * nodes)[node], book, hosts[node], queue_bytes, Random(node))
            for node, owner in enumerate(self.owners)
        ]
        self.servers: list[asyncio.AbstractServer | None] = [None] * nodes

    async def __aenter__(self) -> Network:
        for node, door in enumerate(self.doors):
            door.setblocking(False)
            self.servers[node] = await asyncio.get_running_loop().create_server(self.pools[node].accept, sock=door)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(pool.close() for pool in self.pools))
        for server in self.servers:
            server.close()

    async def linked(self, *pairs: tuple[int, int]) -> None:
        for one, other in pairs:
            await self.owners[one].until(lambda one=one, other=other: other in self.pools[one].table.links)
            await self.owners[other].until(lambda one=one, other=other: one in self.pools[other].table.links)

    def check_frame_sets(self) -> None:
        """What was sent was received, with the same place in the same stream."""
        sent, received = (
            Counter(
                (event.conn, event.direction, event.off, event.len_bytes, event.kind, event.message_id)
                for owner in self.owners
                for event in owner.named(name)
            )
            for name in ("send", "receive")
        )
        assert sent == received
        assert set(sent.values()) == {1}


def data(sequence: int, size: int = 10) -> Data:
    return Data(sequence, (1,), 1, 1, bytes(size))


def test_a_link_carries_frames_both_ways_and_closes_without_loss():
    async def scenario() -> None:
        async with Network(2) as net:
            net.pools[0].table.connect(1)
            await net.linked((0, 1))
            for sequence in range(500):
                net.pools[0].send(1, data(sequence))
                net.pools[1].send(0, data(1000 + sequence))
            # Both close while everything is still under way.
        assert net.owners[0].told == [("up", 1, True), ("down", 1, "stop", False)]
        assert net.owners[1].told == [("up", 0, False), ("down", 0, "stop", False)]
        for owner in net.owners:
            assert len([event for event in owner.named("receive") if event.kind == Data.kind]) == 500
        net.check_frame_sets()

    run(scenario)


@pytest.mark.parametrize("nodes", [2, 6])
def test_simultaneous_opens_leave_one_link_a_pair_which_the_lower_node_opened(nodes: int):
    async def scenario() -> None:
        pairs = list(itertools.combinations(range(nodes), 2))
        async with Network(nodes) as net:
            for one, other in pairs:
                net.pools[one].table.connect(other)
                net.pools[other].table.connect(one)
            await net.linked(*pairs)
            for one, other in pairs:
                link = net.pools[one].table.links[other]
                assert link.conn == net.pools[other].table.links[one].conn
                net.pools[one].send(other, data(one))
                net.pools[other].send(one, data(other))
        for owner in net.owners:
            ups = Counter(told[1] for told in owner.told if told[0] == "up")
            assert ups == dict.fromkeys(set(range(nodes)) - {owner.node}, 1)
            assert len([frame for _, frame in owner.frames if isinstance(frame, Data)]) <= nodes - 1
            assert not owner.named("reject")
        for one, other in pairs:
            [added] = [event for event in net.owners[one].named("add_peer") if event.peer == other]
            [mirror] = [event for event in net.owners[other].named("add_peer") if event.peer == one]
            assert (added.conn, added.direction, mirror.direction) == (mirror.conn, "orig", "resp")
        net.check_frame_sets()

    run(scenario)


@pytest.mark.parametrize("seed", range(12))
def test_opens_in_any_order_and_with_any_haste_end_in_one_link(seed: int):
    """The second side opens at some point of the first one's handshake, through a proxy that dawdles."""

    async def scenario() -> None:
        draws = Random(seed)
        async with Network(2) as net:
            proxies = [await Proxy.start(net.addresses[node], draws.choice([0, 0.003, 0.01])) for node in range(2)]
            for pool in net.pools:
                pool.addresses = AddressBook(tuple(proxy.address for proxy in proxies))
            first = draws.randrange(2)
            net.pools[first].table.connect(1 - first)
            await asyncio.sleep(draws.choice([0, 0.001, 0.004, 0.012]))
            net.pools[1 - first].table.connect(first)
            await net.linked((0, 1))
            for proxy in proxies:
                await proxy.settle()
            await net.linked((0, 1))
            assert [pool.links for pool in net.pools] == [1, 1]
            net.pools[0].send(1, data(1))
            net.pools[1].send(0, data(2))
            for owner in net.owners:
                await owner.until(lambda owner=owner: owner.frames)
        for proxy in proxies:
            await proxy.stop()

    run(scenario)


class Proxy:
    """Passes bytes on to an address after a delay, and keeps what it saw of each connection and direction."""

    def __init__(self, target: tuple[str, int], delay_s: float) -> None:
        self.target = target
        self.delay_s = delay_s
        self.streams: dict[tuple[str, str], bytearray] = {}
        self.busy: set[asyncio.Task] = set()

    @classmethod
    async def start(cls, target: tuple[str, int], delay_s: float = 0.0) -> Proxy:
        proxy = cls(target, delay_s)
        proxy.server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        proxy.address = proxy.server.sockets[0].getsockname()
        return proxy

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self.target)
        origin = "{}:{}".format(*writer.get_extra_info("peername"))
        copies = [self.copy(reader, back, (origin, "orig")), self.copy(there, writer, (origin, "resp"))]
        await asyncio.gather(*copies)
        for end in (writer, back):
            end.close()

    async def copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: tuple[str, str]) -> None:
        stream = self.streams.setdefault(key, bytearray())
        while content := await reader.read(1 << 16):
            stream += content
            await asyncio.sleep(self.delay_s)
            writer.write(content)
        if writer.can_write_eof():
            writer.write_eof()

    async def settle(self) -> None:
        """Wait until no bytes come any more for a few delays."""
        before = -1
        while (now := sum(map(len, self.streams.values()))) != before:
            before = now
            await asyncio.sleep(5 * self.delay_s + 0.02)

    async def stop(self) -> None:
        self.server.close()


def test_traced_offsets_are_where_the_frames_lie_in_the_byte_stream():
    async def scenario() -> None:
        async with Network(2) as net:
            proxy = await Proxy.start(net.addresses[1])
            net.pools[0].addresses = AddressBook((net.addresses[0], proxy.address))
            net.pools[0].table.connect(1)
            await net.linked((0, 1))
            draws = Random(1)
            for sequence in range(200):
                net.pools[0].send(1, data(sequence, draws.randrange(5000)))
                net.pools[1].send(0, Subscriptions(tuple(range(draws.randrange(400)))))
            await net.owners[0].until(lambda: len(net.owners[0].frames) == 200)
            await net.owners[1].until(lambda: len(net.owners[1].frames) == 200)
        streams = {side: bytes(stream) for (_, side), stream in proxy.streams.items()}
        for side, sender, receiver in (("orig", 0, 1), ("resp", 1, 0)):
            truth = [(off, length, frame.kind) for off, length, frame in Decoder().feed(streams[side])]
            assert sum(length for _, length, _ in truth) == len(streams[side])
            for node, event in ((sender, "send"), (receiver, "receive")):
                traced = [e for e in net.owners[node].named(event) if e.direction == side]
                assert [(e.off, e.len_bytes, e.kind) for e in traced] == truth
                assert {e.peer for e in traced} == {1 - node}
        await proxy.stop()

    run(scenario)


def test_a_broken_link_comes_back_and_keeps_its_promise():
    async def scenario() -> None:
        async with Network(2) as net:
            net.pools[0].table.connect(1)
            await net.linked((0, 1))
            net.pools[0].table.links[1].transport.abort()
            await net.owners[0].until(lambda: len(net.owners[0].told) == 3)
            await net.linked((0, 1))
            assert [told[0] for told in net.owners[0].told] == ["up", "down", "up"]
            assert net.owners[0].told[1][3] is True
            assert net.owners[1].told[1][3] is False
            net.pools[0].send(1, data(1))
            await net.owners[1].until(lambda: net.owners[1].frames)

    run(scenario)


def test_who_cannot_be_reached_is_given_up_after_growing_pauses(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(links_module, "PAUSES_S", (0.0, 0.01, 0.02))

    async def scenario() -> None:
        async with Network(2) as net:
            net.servers[1].close()
            net.doors[1].close()
            net.pools[0].table.connect(1)
            await net.owners[0].until(lambda: net.owners[0].told)
            assert net.owners[0].told == [("down", 1, "unreachable", False)]
            assert net.pools[0].table.wanted == {}
            net.pools[0].table.connect(1)  # it may be asked for again
            await net.owners[0].until(lambda: len(net.owners[0].told) == 2)

    run(scenario)


def test_a_link_closed_on_purpose_is_not_opened_again():
    async def scenario() -> None:
        async with Network(2) as net:
            net.pools[0].table.connect(1)
            await net.linked((0, 1))
            link = net.pools[0].table.links[1]
            net.pools[1].table.disconnect(0, "pruned")
            await net.owners[0].until(lambda: len(net.owners[0].told) == 2)
            assert net.owners[0].told[1] == ("down", 1, "pruned", False)
            assert net.owners[1].told[1] == ("down", 0, "pruned", False)
            await link.ended
            assert (net.pools[0].table.wanted, net.pools[0].table.dialling) == ({}, set())
        net.check_frame_sets()

    run(scenario)


async def speak(net: Network, content: bytes) -> bytes:
    """Say something to node 0 on a connection of one's own; its answer up to its FIN."""
    reader, writer = await asyncio.open_connection(*net.addresses[0])
    writer.write(content)
    writer.write_eof()
    try:
        answer = await reader.read()
    finally:
        writer.close()
    return answer


GREETING = encode(Hello(1, RUN))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "bad_magic"),
        (encode(Hello(1, RUN + 1)), "wrong_run"),
        (encode(Hello(0, RUN)), "wrong_node"),
        (encode(Hello(9, RUN)), "wrong_node"),
        (encode(Hello(-1, RUN)), "wrong_node"),
        (encode(data(1)), "no_hello"),
        (GREETING + GREETING, "second_hello"),
        (GREETING + encode(data(1))[:-2], "truncated"),
        (GREETING + b"\x74\x52\x01\xfe" + (24).to_bytes(4, "big") + bytes(16), "unknown_kind"),
        (GREETING + b"\x74\x52\x01\x10" + (1 << 31).to_bytes(4, "big") + bytes(16), "oversized"),
    ],
)
def test_bad_frames_close_their_link_with_a_reason_and_harm_nobody(content: bytes, reason: str):
    async def scenario() -> None:
        async with Network(3) as net:
            net.pools[2].table.connect(0)
            await net.linked((2, 0))
            answer = [frame for _, _, frame in Decoder().feed(await speak(net, content))]
            [reject] = net.owners[0].named("reject")
            assert reject.reason == reason
            assert answer[-1] == Bye(reason)
            assert net.pools[0].counts.rejected == {reason: 1}
            assert 1 not in net.pools[0].table.links
            net.pools[2].send(0, data(5))
            await net.owners[0].until(lambda: net.owners[0].frames)
            assert net.owners[0].frames[-1] == (2, data(5))

    run(scenario)


def test_another_run_is_refused_by_both_sides_and_given_up():
    async def scenario() -> None:
        async with Network(2, runs=(RUN, RUN + 1)) as net:
            net.pools[0].table.connect(1)
            await net.owners[0].until(lambda: net.owners[0].told)
            assert net.owners[0].told == [("down", 1, "wrong_run", False)]
            assert net.owners[1].told == []
            assert [event.reason for event in net.owners[1].named("reject")] == ["wrong_run"]
        net.check_frame_sets()

    run(scenario)


def test_a_full_queue_drops_frames_and_says_so():
    async def scenario() -> None:
        queue_bytes = 200_000
        async with Network(2, queue_bytes) as net:
            net.pools[0].table.connect(1)
            await net.linked((0, 1))
            receiver = net.pools[1].table.links[0].transport
            receiver.pause_reading()
            sent = 0
            while not net.owners[0].named("drop"):
                net.pools[0].send(1, data(sent, 50_000))
                sent += 1
                assert sent < 2000
                await asyncio.sleep(0)
            assert net.pools[0].queued_bytes <= queue_bytes
            [drop] = net.owners[0].named("drop")
            assert (drop.peer, drop.kind, drop.reason, drop.message_id) == (1, Data.kind, "queue_full", sent - 1)
            assert net.pools[0].counts.dropped == {"queue_full": 1}
            receiver.resume_reading()
            await net.owners[1].until(lambda: len(net.owners[1].frames) == sent - 1)
        net.check_frame_sets()

    run(scenario)


def test_a_frame_without_a_link_is_dropped_and_says_so():
    async def scenario() -> None:
        async with Network(2) as net:
            net.pools[0].send(1, data(3))
            [drop] = net.owners[0].named("drop")
            assert (drop.peer, drop.reason, drop.message_id) == (1, "no_link", 3)

    run(scenario)


@pytest.mark.parametrize("seed", range(15))
def test_after_any_turmoil_the_wanted_links_and_no_others_are_up(seed: int, monkeypatch: pytest.MonkeyPatch):
    """Nodes open, close and lose links at random; when that ends, both ends agree and every wish is met."""
    monkeypatch.setattr(links_module, "PAUSES_S", tuple(0.002 * step for step in range(40)))
    nodes = 4
    pairs = list(itertools.permutations(range(nodes), 2))

    async def scenario() -> None:
        draws = Random(seed)
        async with Network(nodes) as net:
            for _ in range(60):
                one, other = draws.choice(pairs)
                stir(net, draws, one, other)
                await asyncio.sleep(draws.choice([0, 0, 0.001, 0.003]))
            # From now on every link is wanted, also where a late Bye makes a pool forget the wish.
            for owner, pool in zip(net.owners, net.pools, strict=True):
                owner.insist = pool.table.connect
            for one, other in pairs:
                net.pools[one].table.connect(other)
            await net.linked(*pairs)
            for one, other in pairs:
                net.pools[one].send(other, data(one * nodes + other))
            for owner in net.owners:
                await owner.until(lambda owner=owner: len(owner.frames) >= nodes - 1)
            for one, other in itertools.combinations(range(nodes), 2):
                assert net.pools[one].table.links[other].conn == net.pools[other].table.links[one].conn
        for owner in net.owners:
            check_story(owner)
        assert not any(owner.named("reject") for owner in net.owners)

    run(scenario)


def stir(net: Network, draws: Random, one: int, other: int) -> None:
    match draws.randrange(4):
        case 0 | 1:
            net.pools[one].table.connect(other)
        case 2:
            net.pools[one].table.disconnect(other, "stirred")
        case 3 if other in net.pools[one].table.links:
            net.pools[one].table.links[other].transport.abort()


def check_story(owner: Recorder) -> None:
    """What an owner is told makes sense: up and down in turn, and a traced link for each."""
    up: set[int] = set()
    for what, peer, *_ in owner.told:
        if what == "up":
            assert peer not in up
            up.add(peer)
        else:
            up.discard(peer)
    assert up == set()
    linked: set[tuple[int | None, str | None]] = set()
    for event in owner.events:
        link = (event.peer, event.conn)
        match event.event:
            case "add_peer":
                assert link not in linked  # a port may be used again, but only after the link is gone
                linked.add(link)
            case "remove_peer":
                linked.remove(link)
    assert linked == set()
