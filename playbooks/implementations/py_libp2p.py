"""A py-libp2p peer: docs/programs.md describes the lines. A node's key has its number as its seed (go_libp2p.py).

The protections of the stock gossipsub are off: they take at most 10 messages per second and topic, and peers of three
different networks only. Its heartbeat is that of the others, 1 s instead of 120 s.
"""

import os
import sys
import time

import trio
from libp2p import new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo
from libp2p.pubsub.gossipsub import GossipSub
from libp2p.pubsub.pubsub import Pubsub
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr

NODE, HOST, PORT = int(os.environ["TRELLIS_NODE"]), os.environ["TRELLIS_HOST"], int(os.environ["TRELLIS_PORT"])
ATTEMPTS = 6


def key_of(node):
    return create_new_key_pair(node.to_bytes(32, "little"))


def report(*words):
    print(*words, f"ts_ns={time.monotonic_ns()}", flush=True)


async def connect(host, node, address, port):
    peer_id = ID.from_pubkey(key_of(node).public_key)
    for _ in range(ATTEMPTS):
        try:
            await host.connect(PeerInfo(peer_id, [Multiaddr(f"/ip4/{address}/tcp/{port}")]))
            return
        except Exception as error:
            print(f"connect {node}: {error}", file=sys.stderr, flush=True)
            await trio.sleep(1)


async def receive(subscription):
    while True:
        message = await subscription.get()
        message_id = int.from_bytes(message.data[:8], "big")
        if message_id >> 32 != NODE:
            report("deliver", message_id)


async def obey(host, pubsub, nursery):
    subscriptions = {}
    print("ready", flush=True)
    async for line in trio.wrap_file(sys.stdin):
        match line.split():
            case "connect", node, address, port:
                nursery.start_soon(connect, host, int(node), address, int(port))
            case "subscribe", topic:
                subscriptions[topic] = await pubsub.subscribe(topic)
                nursery.start_soon(receive, subscriptions[topic])
            case "unsubscribe", topic:
                await pubsub.unsubscribe(topic)
            case "publish", message_id, topic, size:
                report("publish", message_id)
                nursery.start_soon(pubsub.publish, topic, int(message_id).to_bytes(8, "big").ljust(int(size), b"\0"))
            case ["stop"]:
                os._exit(0)


async def main():
    host = new_host(key_pair=key_of(NODE), muxer_preference="YAMUX")
    router = GossipSub(
        [TProtocol("/meshsub/1.1.0")],
        degree=6,
        degree_low=4,
        degree_high=12,
        heartbeat_interval=1,
        adaptive_gossip_enabled=False,
        spam_protection_enabled=False,
        eclipse_protection_enabled=False,
    )
    pubsub = Pubsub(host, router, strict_signing=True)
    async with (
        host.run(listen_addrs=[Multiaddr(f"/ip4/{HOST}/tcp/{PORT}")]),
        trio.open_nursery() as nursery,
        background_trio_service(pubsub),
        background_trio_service(router),
    ):
        await pubsub.wait_until_ready()
        await obey(host, pubsub, nursery)


trio.run(main)
