"""Nodes that leave, crash and join again, over real TCP on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import pytest

from peer.core import contract
from peer.core.directory import Directory, PeerInfo
from peer.instances.spec import NodeSpec
from peer.runtime.addresses import AddressBook
from peer.runtime.exposition import expose
from peer.runtime.instances import Instances
from peer.runtime.metrics import collect
from peer.runtime.tracefile import TraceFile
from peer.trace import TraceEvent
from tests.event_loop import LIMIT_S, run

FLOOD = {"name": "flood"}


class Network:
    """Nodes 0 .. n-1 of protocol ``complete``, all subscribed to topic 0; entered, all of them are up."""

    def __init__(self, nodes: int, folder: Path) -> None:
        self.nodes = range(nodes)
        self.folder = folder
        self.directory = Directory(PeerInfo(node) for node in self.nodes)
        # Bound one after the other, so that no two ports are the same; free again until the instances listen there.
        doors = [socket.create_server(("127.0.0.1", 0)) for _ in self.nodes]
        self.addresses = tuple(door.getsockname() for door in doors)
        for door in doors:
            door.close()
        self.traces = [TraceFile(folder / f"{node}.jsonl", node, (0,), 1) for node in self.nodes]
        self.instances = [self.make_instances(node) for node in self.nodes]

    def make_instances(self, node: int) -> Instances:
        spec = NodeSpec(node, 1, (0,), {"name": "complete"}, FLOOD)
        return Instances(
            spec,
            self.traces[node],
            run=7,
            addresses=AddressBook(self.addresses),
            listen=self.addresses[node],
            send_queue_bytes=1 << 20,
        )

    async def __aenter__(self) -> Network:
        for instances in self.instances:
            instances.open_listener()
        for instances in self.instances:
            await instances.begin(self.directory)
        await self.linked(self.nodes)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(instances.close() for instances in self.instances))
        for node, trace in enumerate(self.traces):
            trace.close(2)
            assert self.events(node, "stop")

    async def linked(self, nodes: Iterable[int]) -> None:
        """Wait until these nodes have links to each other and to nobody else."""
        nodes = set(nodes)
        await self.until(lambda: all(self.peers(node) == nodes - {node} for node in nodes))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                await asyncio.sleep(0.002)

    def peers(self, node: int) -> set[int]:
        driver = self.instances[node].driver
        return set() if driver is None else set(driver.links.table.links)

    def node(self, node: int) -> contract.Node:
        driver = self.instances[node].driver
        assert driver is not None
        return driver.node

    def events(self, node: int, *names: str) -> list[TraceEvent]:
        self.traces[node].flush()
        lines = (self.folder / f"{node}.jsonl").read_bytes().splitlines()
        decoded = [msgspec.json.decode(line, type=TraceEvent) for line in lines]
        return [event for event in decoded if event.event in names]

    def metrics(self, node: int) -> dict[str, float]:
        self.traces[node].flush()
        lines = expose(collect(self.instances[node])).decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    def others_think(self, reason: str, of: int) -> None:
        for node in set(self.nodes) - {of}:
            [removed] = [event for event in self.events(node, "remove_peer") if event.peer == of]
            assert removed.reason == reason


async def knock(address: tuple[str, int]) -> None:
    """Open a connection, as somebody would who does not know better."""
    _, writer = await asyncio.open_connection(*address)
    writer.close()


def frames(net: Network, event: str) -> set[tuple]:
    return {
        (found.conn, found.direction, found.off, found.len_bytes, found.kind)
        for node in net.nodes
        for found in net.events(node, event)
    }


def test_a_node_leaves_in_order_and_joins_again_as_another(tmp_path: Path):
    async def scenario() -> None:
        async with Network(4, tmp_path) as net:
            first = net.node(2)
            net.instances[2].leave()
            assert net.instances[2].driver is None
            with pytest.raises(ConnectionRefusedError):
                await knock(net.addresses[2])
            await net.linked({0, 1, 3})
            net.others_think("left", of=2)
            await net.instances[2].join((3, 5), net.directory)
            for instances in net.instances:
                instances.feed(contract.PeerList(net.directory))
            await net.linked(net.nodes)
            second = net.node(2)
            assert second is not first
            assert second.state.seed != first.state.seed
            assert second.state.topics == {3, 5}
            story = [(event.event, event.topics, event.reason) for event in net.events(2, "start", "join", "leave")]
            assert story == [("start", (0,), None), ("leave", (0,), "left"), ("join", (3, 5), "joined")]
        # Everything that was sent was received, also by the node that was about to leave.
        assert frames(net, "send") == frames(net, "receive")

    run(scenario)


def test_a_crashed_node_says_nothing_and_is_refused_until_it_joins(tmp_path: Path):
    async def scenario() -> None:
        async with Network(3, tmp_path) as net:
            sent = len(net.events(1, "send"))
            net.instances[1].crash()
            with pytest.raises(ConnectionRefusedError):
                await knock(net.addresses[1])
            await net.linked({0, 2})
            net.others_think("closed", of=1)
            assert len(net.events(1, "send")) == sent
            assert {event.reason for event in net.events(1, "remove_peer", "leave", "prune")} == {"crashed"}
            await net.instances[1].join((0,), net.directory)
            await net.linked(net.nodes)
            assert [event.event for event in net.events(1, "start", "join", "leave")] == ["start", "leave", "join"]

    run(scenario)


def test_a_host_that_is_not_the_nodes_alone_does_not_vanish(tmp_path: Path):
    async def scenario() -> None:
        async with Network(2, tmp_path) as net:
            with pytest.raises(ValueError, match="cannot vanish"):
                net.instances[1].vanish()
            await net.linked(net.nodes)
            assert not net.events(1, "leave")

    run(scenario)


def test_logical_links_of_both_ends_end_with_a_life(tmp_path: Path):
    async def scenario() -> None:
        async with Network(3, tmp_path) as net:

            def counted(node: int) -> float | None:
                return net.metrics(node).get('trellis_logical_links{topic="0"}')

            await net.until(lambda: all(len(net.events(node, "graft")) == 2 for node in net.nodes))
            assert [counted(node) for node in net.nodes] == [2, 2, 2]
            net.instances[0].leave()
            await net.linked({1, 2})
            assert [counted(node) for node in net.nodes] == [None, 1, 1]
            assert {(e.peer, e.topics, e.reason) for e in net.events(0, "prune")} == {
                (1, (0,), "left"),
                (2, (0,), "left"),
            }
            for node in (1, 2):
                assert [(e.peer, e.topics) for e in net.events(node, "prune")] == [(0, (0,))]

    run(scenario)


def test_what_comes_while_a_node_is_down_reaches_nobody(tmp_path: Path):
    async def scenario() -> None:
        async with Network(2, tmp_path) as net:
            net.instances[1].crash()
            for event in (contract.PeerList(net.directory), contract.Publish((0,), 1, b"")):
                net.instances[1].feed(event)
            assert net.metrics(1)["trellis_links"] == 0
            before = net.metrics(1)['trellis_sent_frames_total{kind="hello"}']
            await net.instances[1].join((0,), net.directory)
            await net.linked(net.nodes)
            assert not net.events(1, "publish")
            metrics = net.metrics(1)
            assert metrics["trellis_links"] == 1
            assert metrics["process_cpu_seconds_total"] > 0
            assert metrics["process_resident_memory_bytes"] > 1 << 20
            after = metrics['trellis_sent_frames_total{kind="hello"}']
            assert after > before > 0, "the counts of all instances are one's own"

    run(scenario)


def test_a_message_under_way_is_delivered_before_the_last_word(tmp_path: Path):
    """What a node publishes just before it leaves is sent, received and delivered; what it gets meanwhile is not."""

    async def scenario() -> None:
        async with Network(3, tmp_path) as net:
            for node in net.nodes:  # the interests have arrived
                await net.until(lambda node=node: len(net.events(node, "graft")) == 2)
            net.instances[0].feed(contract.Publish((0,), contract.message_id(0, 0), b"last words"))
            net.instances[0].leave()
            net.instances[1].feed(contract.Publish((0,), contract.message_id(1, 0), b"too late"))
            await net.until(lambda: all(len(net.events(node, "deliver")) == 2 for node in (1, 2)))
            await net.linked({1, 2})
            assert len(net.events(0, "deliver")) == 1
        assert frames(net, "send") == frames(net, "receive")

    run(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_after_any_churn_those_who_are_up_are_linked(seed: int, tmp_path: Path):
    from random import Random

    async def scenario() -> None:
        draws, up = Random(seed), {0, 1, 2, 3, 4}
        async with Network(5, tmp_path) as net:
            for _ in range(12):
                node = draws.randrange(5)
                if node not in up:
                    up.add(node)
                    await net.instances[node].join((0,), Directory(PeerInfo(other) for other in up))
                else:
                    up.discard(node)
                    draws.choice([net.instances[node].leave, net.instances[node].crash])()
                    for instances in net.instances:
                        instances.feed(contract.PeerList(Directory(PeerInfo(other) for other in up)))
                await asyncio.sleep(draws.choice([0, 0.001, 0.01]))
            for node in up:
                net.instances[node].feed(contract.PeerList(Directory(PeerInfo(other) for other in up)))
            await net.linked(up)
        for node in net.nodes:
            instances = [event.event for event in net.events(node, "start", "join", "leave")]
            assert instances == [["join", "leave"][k % 2] if k else "start" for k in range(len(instances))]

    run(scenario)
