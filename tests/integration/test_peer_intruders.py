"""Connections that nobody of the run opened, over real TCP on loopback: what they get, and that they harm no link."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from random import Random

import pytest

from peer.core import links as links_module
from peer.core.frames import Bye, Frame, Hello
from peer.runtime import pool as pool_module
from peer.runtime import tcp_connection
from peer.runtime.addresses import AddressBook
from peer.runtime.admission import MOST_PER_NODE
from peer.wire import Decoder, encode
from tests.event_loop import LIMIT_S, run
from tests.integration.test_peer_links import GREETING, RUN, Network, data

TCP_REPAIR = 19
HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
STRANGE = "127.0.0.9"


class Intruder:
    """A connection to node 0 of a network, from an address of its own choice."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def come(cls, net: Network, source: str, content: bytes = b"") -> Intruder:
        intruder = cls(*await asyncio.open_connection(*net.addresses[0], local_addr=(source, 0)))
        intruder.writer.write(content)
        return intruder

    async def answer(self) -> list[Frame]:
        """The frames up to the end of the connection, however it ends."""
        content = b""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(LIMIT_S):
                while more := await self.reader.read(1 << 16):
                    content += more
        return [frame for _, _, frame in Decoder().feed(content)]

    def go(self) -> None:
        self.writer.close()


async def linked(net: Network) -> object:
    """The link of node 1 with node 0, at node 0."""
    net.pools[1].table.connect(0)
    await net.linked((1, 0))
    return net.pools[0].table.links[1]


async def check_alive(net: Network, link: object) -> None:
    """The link is still the same one, and carries frames."""
    assert net.pools[0].table.links[1] is link
    seen = len(net.owners[0].frames)
    net.pools[1].send(0, data(5))
    await net.owners[0].until(lambda: len(net.owners[0].frames) == seen + 1)
    assert [told[0] for told in net.owners[0].told] == ["up"]


async def shrunk_to(net: Network, connections: int) -> None:
    """Wait until node 0 has no more connections than this, links included."""
    async with asyncio.timeout(LIMIT_S):
        while len(net.pools[0].connections) > connections:
            await asyncio.sleep(0.01)


def reasons(net: Network) -> list[str | None]:
    return [event.reason for event in net.owners[0].named("reject")]


def test_nobody_takes_over_a_live_link(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(links_module, "WAIT_S", 0.3)

    async def scenario() -> None:
        async with Network(2) as net:
            link = await linked(net)
            first = await Intruder.come(net, "127.0.0.1", GREETING)
            await net.owners[0].until(lambda: net.pools[0].table.waiting)
            second = await Intruder.come(net, "127.0.0.1", GREETING)
            assert await second.answer() == [Bye("already_linked")]
            assert net.pools[0].table.waiting, "the first one still waits"
            assert await first.answer() == [Bye("already_linked")]
            assert net.pools[0].counts.rejected == {"already_linked": 2}
            assert reasons(net) == ["already_linked"] * 2
            assert not net.pools[0].table.waiting
            await check_alive(net, link)
            for intruder in (first, second):
                intruder.go()

    run(scenario)


def test_a_connection_that_is_reset_before_it_is_accepted_harms_nobody():
    """As of a process that is killed right after it has connected."""

    async def scenario() -> None:
        async with Network(2) as net:
            link = await linked(net)
            for _ in range(5):  # the loop of node 0 does not turn meanwhile
                with socket.create_connection(net.addresses[0], source_address=("127.0.0.1", 0)) as plug:
                    plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await check_alive(net, link)
            assert len(net.pools[0].connections) == 1
            assert not net.pools[0].counts.rejected

    run(scenario)


def test_a_node_that_lost_its_link_gets_a_new_one_as_soon_as_the_old_ones_end_is_known():
    async def scenario() -> None:
        async with Network(2) as net:
            old = await Intruder.come(net, "127.0.0.1", GREETING)
            await net.owners[0].until(lambda: net.pools[0].links == 1)
            net.pools[1].table.connect(0)
            await net.owners[0].until(lambda: net.pools[0].table.waiting)
            assert [told[0] for told in net.owners[0].told] == ["up"]
            old.writer.write(encode(Bye("over")))
            await net.linked((0, 1))
            assert [told[:3] for told in net.owners[0].told] == [
                ("up", 1, False),
                ("down", 1, "over"),
                ("up", 1, False),
            ]
            assert not net.owners[0].named("reject")
            old.go()

    run(scenario)


def test_a_connection_that_vanished_without_a_word_is_found_out_and_replaced():
    """A socket in repair mode closes silently: its host then answers the probes of node 0 with a reset."""

    async def scenario() -> None:
        async with Network(2) as net:
            old = await Intruder.come(net, "127.0.0.1", GREETING)
            await net.owners[0].until(lambda: net.pools[0].links == 1)
            plug = old.writer.get_extra_info("socket")
            try:
                plug.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
            except PermissionError:
                pytest.skip("needs CAP_NET_ADMIN")
            old.writer.transport.abort()
            net.pools[1].table.connect(0)
            await net.owners[0].until(lambda: net.pools[0].table.waiting)
            await net.linked((0, 1))
            [down] = [told for told in net.owners[0].told if told[0] == "down"]
            assert down[2] != "already_linked"
            assert not net.owners[0].named("reject")

    run(scenario)


def test_a_node_that_wants_no_link_any_more_takes_none_that_waits(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(links_module, "WAIT_S", 0.3)

    async def scenario() -> None:
        async with Network(2) as net:
            await linked(net)
            intruder = await Intruder.come(net, "127.0.0.1", GREETING)
            await net.owners[0].until(lambda: net.pools[0].table.waiting)
            net.pools[0].table.disconnect(1, "pruned")
            assert await intruder.answer() == [Bye("pruned")]
            assert [told[0] for told in net.owners[0].told] == ["up", "down"]
            intruder.go()

    run(scenario)


@pytest.mark.parametrize(
    ("source", "content", "reason"),
    [
        (STRANGE, GREETING, "strange_address"),
        (HOSTS[2], GREETING, "wrong_address"),
        (HOSTS[1], encode(Hello(1, RUN + 1)), "wrong_run"),
        (HOSTS[1], encode(Hello(2**40, RUN)), "wrong_node"),
        (HOSTS[1], b"\x74\x52\x01\x03" + (1 << 20).to_bytes(4, "big") + bytes(300), "no_hello"),
    ],
)
def test_a_hello_is_believed_from_its_nodes_own_address_only(source: str, content: bytes, reason: str):
    async def scenario() -> None:
        async with Network(3, hosts=HOSTS) as net:
            link = await linked(net)
            intruder = await Intruder.come(net, source, content)
            answer = await intruder.answer()
            assert answer == ([] if reason == "strange_address" else [Bye(reason)])
            assert reasons(net) == [reason]
            assert net.pools[0].counts.rejected == {reason: 1}
            assert all(event.peer in (0, 1, 2, None) for event in net.owners[0].events)
            await check_alive(net, link)
            intruder.go()

    run(scenario)


def test_only_so_many_connections_of_an_address_may_be_no_links():
    async def scenario() -> None:
        async with Network(3, hosts=HOSTS) as net:
            silent = [await Intruder.come(net, HOSTS[1]) for _ in range(MOST_PER_NODE)]
            await net.owners[0].until(lambda: len(net.pools[0].connections) == MOST_PER_NODE)
            late = await Intruder.come(net, HOSTS[1], GREETING)
            assert await late.answer() == []
            assert net.pools[0].counts.rejected == {"too_many_connections": 1}
            net.pools[2].table.connect(0)
            await net.linked((2, 0))
            silent.pop().go()
            await shrunk_to(net, MOST_PER_NODE)
            net.pools[1].table.connect(0)
            await net.linked((1, 0))
            for intruder in silent:
                intruder.go()

    run(scenario)


def test_what_was_refused_counts_until_it_is_gone():
    async def scenario() -> None:
        async with Network(2, hosts=HOSTS[:2]) as net:
            refused = []
            for _ in range(MOST_PER_NODE + 1):
                before = len(net.owners[0].named("reject"))
                refused.append(await Intruder.come(net, HOSTS[1], GREETING + GREETING))  # up, and refused at once
                await net.owners[0].until(lambda before=before: len(net.owners[0].named("reject")) > before)
            assert reasons(net) == ["second_hello"] * MOST_PER_NODE + ["too_many_connections"]
            assert len(net.pools[0].connections) <= MOST_PER_NODE + 1
            for intruder in refused:
                intruder.go()

    run(scenario)


def test_who_says_no_hello_is_refused_after_a_while(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tcp_connection, "HANDSHAKE_TIMEOUT_S", 0.2)

    async def scenario() -> None:
        async with Network(2) as net:
            intruder = await Intruder.come(net, "127.0.0.1", GREETING[:10])
            assert await intruder.answer() == [Bye("no_hello")]
            assert net.pools[0].counts.rejected == {"no_hello": 1}
            intruder.go()

    run(scenario)


@pytest.mark.parametrize("seed", range(8))
def test_no_crowd_of_intruders_ends_a_link_or_stays(seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(links_module, "WAIT_S", 0.2)
    monkeypatch.setattr(tcp_connection, "HANDSHAKE_TIMEOUT_S", 0.3)
    monkeypatch.setattr(tcp_connection, "CLOSE_TIMEOUT_S", 0.3)
    monkeypatch.setattr(pool_module, "CLOSE_TIMEOUT_S", 0.3)
    draws = Random(seed)

    def content() -> bytes:
        parts = [
            GREETING,
            encode(Hello(draws.choice([0, 1, 2, 7, -1, 2**62]), RUN + draws.randrange(2))),
            encode(Bye("x" * draws.randrange(400))),
            encode(data(draws.randrange(9), draws.randrange(3000))),
            draws.randbytes(draws.randrange(600)),
            b"",
        ]
        return b"".join(draws.choices(parts, k=draws.randrange(4)))

    async def scenario() -> None:
        async with Network(3, hosts=HOSTS) as net:
            link = await linked(net)
            crowd = []
            for _ in range(80):
                with contextlib.suppress(ConnectionError):
                    crowd.append(await Intruder.come(net, draws.choice([*HOSTS[1:2], STRANGE]), content()))
                if crowd and draws.random() < 0.3:
                    crowd.pop(draws.randrange(len(crowd))).go()
                assert len(net.pools[0].connections) <= 3 * (MOST_PER_NODE + 1) + 1
                await asyncio.sleep(draws.choice([0, 0, 0.005]))
            await check_alive(net, link)
            await shrunk_to(net, 1)
            assert not net.pools[0].arrivals
            assert not net.pools[0].table.waiting
            await check_alive_again(net, link)
            for intruder in crowd:
                intruder.go()

    run(scenario)


async def check_alive_again(net: Network, link: object) -> None:
    net.owners[0].frames.clear()
    await check_alive(net, link)


def test_names_stand_for_their_addresses_and_shared_ones_for_all_their_nodes():
    book = AddressBook((("localhost", 1), ("127.0.0.1", 2), ("no.such.name.invalid", 3), ("127.0.0.2", 4)))
    assert [book.is_source_of(node, "127.0.0.1") for node in range(-1, 5)] == [False, True, True, False, False, False]
    assert book.count_nodes_at("127.0.0.1") == 2
    assert book.count_nodes_at("127.0.0.9") == 0
    assert book[3] == ("127.0.0.2", 4)
