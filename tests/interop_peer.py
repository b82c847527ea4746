"""A program of gossipsub-interop that floods: ``interop_peer.py DIALECT --params FILE``. It has no GossipSub."""

import asyncio
import json
import os
import socket
import struct
import sys
import time
from datetime import UTC, datetime, timedelta, timezone

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

STARTED_S = time.monotonic()
DIGITS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
ZONES = {"go": timezone(timedelta(hours=2)), "jvm": timezone(-timedelta(hours=8)), "nim": timezone(timedelta())}


def now(dialect: str) -> str:
    """The present time: with an offset or Z, with 9 digits or, in JavaScript, 3; Go leaves out zeros at the end."""
    at_ns = time.time_ns()
    whole = datetime.fromtimestamp(at_ns // 10**9, ZONES.get(dialect, UTC)).isoformat()
    date, zone = (whole[:-6], whole[-6:]) if dialect in ZONES else (whole[:-6], "Z")
    fraction = f"{at_ns % 10**9:09d}"[: 3 if dialect == "js" else 9]
    return f"{date}.{fraction.rstrip('0') or '0' if dialect == 'go' else fraction}{zone}"


def peer_id(node: int) -> str:
    key = Ed25519PrivateKey.from_private_bytes(node.to_bytes(4, "little") + bytes(28)).public_key()
    value, text = int.from_bytes(b"\x00\x24\x08\x01\x12\x20" + key.public_bytes_raw()), ""
    while value:
        value, rest = divmod(value, 58)
        text = DIGITS[rest] + text
    return f"1{text}"


async def dial(host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a node, which may not listen yet on a busy machine."""
    while True:
        try:
            return await asyncio.open_connection(host, 9000)
        except ConnectionError:
            await asyncio.sleep(0.1)


class Peer:
    def __init__(self, dialect: str) -> None:
        self.dialect, self.node = dialect, int(socket.gethostname().removeprefix("node"))
        self.topics, self.seen, self.links, self.tasks = set(), set(), {}, []

    def tell(self, msg: str, **values: object) -> None:
        line = {"time": now(self.dialect), "level": "INFO", "msg": msg, **values}
        print(json.dumps(line, separators=(",", ":")), flush=True)

    def receive(self, other: int, topic: str, message: bytes) -> None:
        number, again = int.from_bytes(message[:8]), message[:8] in self.seen
        sender, named = {"from": peer_id(other)}, {"topic": topic}
        said = {"rust": {} if again else sender | named, "jvm": sender, "nim": named}.get(self.dialect, sender | named)
        if self.dialect != "nim" or topic in self.topics:
            self.tell("Received Message", **said, id=str(number))
        self.send(other, topic, message)

    def send(self, origin: int | None, topic: str, message: bytes) -> None:
        if message[:8] not in self.seen:
            self.seen.add(message[:8])
            name = topic.encode()
            for node, writer in self.links.items():
                if node != origin:
                    writer.write(struct.pack(">II", len(name), len(message)) + name + message)

    async def read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, other: int | None = None) -> None:
        try:
            other = int.from_bytes(await reader.readexactly(4)) if other is None else other
            self.links[other] = writer
            while True:
                name, size = struct.unpack(">II", await reader.readexactly(8))
                topic = (await reader.readexactly(name)).decode()
                self.receive(other, topic, await reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.links.pop(other, None)

    async def follow(self, instruction: dict) -> None:
        match instruction:
            case {"type": "ifNodeIDEquals", "nodeID": node, "instruction": inner}:
                await (self.follow(inner) if node == self.node else asyncio.sleep(0))
            case {"type": "waitUntil", "elapsedSeconds": elapsed_s}:
                await asyncio.sleep(max(0, STARTED_S + elapsed_s - time.monotonic()))
            case {"type": "connect", "connectTo": nodes}:
                for node in nodes:
                    reader, writer = await dial(f"node{node}")
                    writer.write(self.node.to_bytes(4))
                    self.tasks.append(asyncio.create_task(self.read(reader, writer, node)))
            case {"type": "subscribeToTopic", "topicID": topic}:
                self.topics.add(topic)
            case {"type": "publish", "messageID": number, "messageSizeBytes": size, "topicID": topic}:
                print(f"Publishing message {number}", file=sys.stderr)
                self.send(None, topic, number.to_bytes(8) + bytes(size - 8))
            case {"type": "initGossipSub", "gossipSubParams": {**values}} if None not in values.values():
                pass
            case {"type": "setTopicValidationDelay", "topicID": _, "delaySeconds": _}:
                pass
            case _:
                sys.exit(f"unknown instruction: {instruction}")

    async def run(self, script: list[dict]) -> None:
        self.listening = await asyncio.start_server(self.read, "0.0.0.0", 9000)
        self.tell("PeerID", id=peer_id(self.node), node_id=str(self.node) if self.dialect in "rust nim" else self.node)
        for instruction in script:
            await self.follow(instruction)
        sys.stderr.flush()
        os._exit(0)  # without the errors that asyncio logs of cancelled connections


if __name__ == "__main__":
    _, chosen, option, path = sys.argv
    assert option == "--params" and path.startswith("/") and path.endswith(".json")  # as Go and Rust ask for
    with open(path) as file:  # noqa: PTH123 - it reads one file
        asyncio.run(Peer(chosen).run(json.load(file)["script"]))
