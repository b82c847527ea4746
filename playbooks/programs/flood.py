"""A peer that floods: docs/programs.md. A frame is a message id (8 bytes), a topic (4), a length (4), a payload."""

import asyncio
import os
import struct
import sys

HEAD = struct.Struct(">QII")
topics, seen, links, dials = set(), set(), set(), []


def spread(message_id, topic, payload, source=None):
    if message_id in seen:
        print("duplicate", message_id, flush=True)
        return
    seen.add(message_id)
    if source is None or topic in topics:
        print("publish" if source is None else "deliver", message_id, flush=True)
    for link in links - {source}:
        link.write(HEAD.pack(message_id, topic, len(payload)) + payload)


async def receive(reader, writer):
    links.add(writer)
    try:
        while True:
            message_id, topic, length = HEAD.unpack(await reader.readexactly(HEAD.size))
            spread(message_id, topic, await reader.readexactly(length), writer)
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        links.remove(writer)


async def dial(host, port):
    await receive(*await asyncio.open_connection(host, port))


async def main():
    await asyncio.start_server(receive, os.environ["TRELLIS_HOST"], os.environ["TRELLIS_PORT"])
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    print("ready", flush=True)
    async for line in orders:
        match line.decode().split():
            case "connect", _, host, port:
                dials.append(asyncio.create_task(dial(host, port)))
            case "subscribe", topic:
                topics.add(int(topic))
            case "unsubscribe", topic:
                topics.remove(int(topic))
            case "publish", message_id, topic, size:
                spread(int(message_id), int(topic), int(message_id).to_bytes(8, "big").ljust(int(size), b"\0"))
            case ["stop"]:
                return


asyncio.run(main())
