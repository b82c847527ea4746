"""Drives p2pd, the daemon of go-libp2p, as a peer: `go_libp2p.py P2PD [--quic]`. docs/programs.md describes the lines.

The daemon is asked by protobuf messages on a Unix socket. It is given no bootstrap nodes, relays or DHT. A node's key
has the node's number as its seed (32 bytes, little-endian), so that every node knows every other node's peer id.

Key and socket are in TMPDIR, which Trellis removes with the program. The daemon and this program have it as their
working directory, since the path of a socket has at most 107 bytes.
"""

import asyncio
import os
import socket
import sys
import time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

CONNECT, PUBSUB = 1, 8
PUBLISH, SUBSCRIBE = 2, 3
NODE, HOST, PORT = int(os.environ["TRELLIS_NODE"]), os.environ["TRELLIS_HOST"], int(os.environ["TRELLIS_PORT"])
QUIC = "--quic" in sys.argv
SOCKET, KEY = "p2pd.sock", "key"
TCP_CODE, UDP_CODE, QUIC_V1_CODE = 6, 273, 461  # of multiaddresses: multiformats/multicodec, table.csv
ATTEMPTS = 6


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def number(field, value):
    return varint(field << 3) + varint(value)


def blob(field, value):
    return varint(field << 3 | 2) + varint(len(value)) + value


def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def fields(data):
    """The values of a message's fields, by number: integers and byte strings."""
    at, found = 0, {}
    while at < len(data):
        key, at = read_varint(data, at)
        value, at = read_varint(data, at)
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        found.setdefault(key >> 3, []).append(value)
    return found


def key_of(node):
    """The seed and the public key of a node."""
    seed = node.to_bytes(32, "little")
    return seed, Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def peer_id(node):
    return b"\x00\x24\x08\x01\x12\x20" + key_of(node)[1]


def report(*words):
    print(*words, f"ts_ns={time.monotonic_ns()}", flush=True)


async def read_frame(reader):
    head = b""
    while not head or head[-1] > 127:
        head += await reader.readexactly(1)
    return await reader.readexactly(read_varint(head, 0)[0])


async def ask(kind, body):
    """Ask the daemon on a connection of its own, which lives on."""
    reader, writer = await asyncio.open_unix_connection(SOCKET)
    request = number(1, kind) + body
    writer.write(varint(len(request)) + request)
    answer = fields(await read_frame(reader))
    if answer.get(1, [0])[0] != 0:
        raise RuntimeError(fields(answer[2][0])[1][0].decode())
    return reader, writer


async def start(p2pd):
    """Start the daemon, and wait until it answers."""
    seed, public = key_of(NODE)
    Path(KEY).write_bytes(b"\x08\x01\x12\x40" + seed + public)
    listen = f"/unix/proc/self/cwd/{SOCKET}"  # a multiaddress has absolute paths only
    own = f"/ip4/{HOST}/udp/{PORT}/quic-v1" if QUIC else f"/ip4/{HOST}/tcp/{PORT}"
    words = [p2pd, "-listen", listen, "-hostAddrs", own, "-id", KEY]
    words += [
        "-pubsub",
        f"-quic={str(QUIC).lower()}",
        "-relay=false",
        "-relayService=false",
        "-relayDiscovery=false",
        "-q",
    ]
    quiet = asyncio.subprocess.DEVNULL
    daemon = await asyncio.create_subprocess_exec(*words, stdin=quiet, stdout=quiet)
    while not Path(SOCKET).exists():
        if daemon.returncode is not None:
            sys.exit(f"p2pd ended with status {daemon.returncode}")
        await asyncio.sleep(0.05)
    return daemon


async def connect(node, host, port):
    address = b"\x04" + socket.inet_aton(host) + varint(UDP_CODE if QUIC else TCP_CODE) + port.to_bytes(2, "big")
    if QUIC:
        address += varint(QUIC_V1_CODE)
    body = blob(2, blob(1, peer_id(node)) + blob(2, address) + number(3, 20))
    for _ in range(ATTEMPTS):
        try:
            _, writer = await ask(CONNECT, body)
            writer.close()
            return
        except RuntimeError as error:
            print(f"connect {node}: {error}", file=sys.stderr, flush=True)
            await asyncio.sleep(1)


async def receive(topic):
    """Subscribe to a topic, and report what comes. The subscription ends with its connection."""
    reader, writer = await ask(PUBSUB, blob(8, number(1, SUBSCRIBE) + blob(2, topic.encode())))
    try:
        while True:
            data = fields(await read_frame(reader))[2][0]
            message_id = int.from_bytes(data[:8], "big")
            if message_id >> 32 != NODE:
                report("deliver", message_id)
    finally:
        writer.close()


async def publish(message_id, topic, size):
    data = message_id.to_bytes(8, "big").ljust(size, b"\0")
    report("publish", message_id)
    _, writer = await ask(PUBSUB, blob(8, number(1, PUBLISH) + blob(2, topic.encode()) + blob(3, data)))
    writer.close()


async def main():
    os.chdir(os.environ["TMPDIR"])
    daemon = await start(sys.argv[1])
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    subscriptions, tasks = {}, set()
    print("ready", flush=True)
    async for line in orders:
        match line.decode().split():
            case "connect", node, host, port:
                tasks.add(asyncio.create_task(connect(int(node), host, int(port))))
            case "subscribe", topic:
                subscriptions[topic] = asyncio.create_task(receive(topic))
            case "unsubscribe", topic:
                subscriptions.pop(topic).cancel()
            case "publish", message_id, topic, size:
                await publish(int(message_id), topic, int(size))
            case ["stop"]:
                break
    for task in (*tasks, *subscriptions.values()):
        task.cancel()
    daemon.terminate()
    await daemon.wait()


asyncio.run(main())
