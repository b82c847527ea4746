"""A py-libp2p peer, which obeys lines (docs/programs.md), or with --params a script (docs/gossipsub-interop.md).

A node's key has its number as its seed (go_libp2p.py). The protections of the stock gossipsub are off: they take at
most 10 messages per second and topic, and peers of three different networks only. Its heartbeat is that of the others,
1 s instead of 120 s.
"""

# ruff: noqa: E402 - a script counts from the start of the program, and the imports take seconds
import time

BEGAN_S = time.monotonic()

import json
import os
import socket
import sys
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import trio
from libp2p import new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo
from libp2p.pubsub import mcache
from libp2p.pubsub.gossipsub import GossipSub
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.pubsub import Pubsub
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr

ATTEMPTS = 6
INTEROP_PORT = 9000
OPTIONS = {
    "degree": 6,
    "degree_low": 4,
    "degree_high": 12,
    "heartbeat_interval": 1,
    "adaptive_gossip_enabled": False,
    "spam_protection_enabled": False,
    "eclipse_protection_enabled": False,
}
PARAMETERS = {
    "D": ("degree", 1),
    "Dlo": ("degree_low", 1),
    "Dhi": ("degree_high", 1),
    "HistoryLength": ("gossip_history", 1),
    "HistoryGossip": ("gossip_window", 1),
    "HeartbeatInitialDelay": ("heartbeat_initial_delay", 1e9),
    "HeartbeatInterval": ("heartbeat_interval", 1e9),
    "FanoutTTL": ("time_to_live", 1e9),
    "PrunePeers": ("px_peers_count", 1),
    "PruneBackoff": ("prune_back_off", 1e9),
    "UnsubscribeBackoff": ("unsubscribe_back_off", 1e9),
    "DirectConnectInitialDelay": ("direct_connect_initial_delay", 1e9),
    "MaxIDontWantMessages": ("max_idontwant_messages", 1),
}
"""The parameters of gossipsub-interop that this implementation has, with their divisors: ns are s here."""


def key_of(node):
    return create_new_key_pair(node.to_bytes(32, "little"))


def make_message(message_id, size):
    return message_id.to_bytes(8, "big").ljust(size, b"\0")


def id_of(data):
    return int.from_bytes(data[:8], "big")


def content_id(message):
    return message.data[:8]


class Anonymous(GossipSub):
    """Takes messages without an author. To the stock router, they are different messages of one author."""

    def _check_equivocation(self, msg):
        return True


class Heard(Pubsub):
    """Tells of every copy that arrives."""

    def hear(self, sender, message):
        pass

    async def push_msg(self, msg_forwarder, msg):
        if msg_forwarder != self.my_id:
            self.hear(msg_forwarder, msg)
        await super().push_msg(msg_forwarder, msg)


@asynccontextmanager
async def started(node, address, port, router_class, options, **settings):
    """The host, its pubsub and a nursery, while they run."""
    host = new_host(key_pair=key_of(node), muxer_preference="YAMUX")
    router = router_class([TProtocol("/meshsub/1.1.0")], **OPTIONS | options)
    pubsub = Heard(host, router, **settings)
    async with (
        host.run(listen_addrs=[Multiaddr(f"/ip4/{address}/tcp/{port}")]),
        trio.open_nursery() as nursery,
        background_trio_service(pubsub),
        background_trio_service(router),
    ):
        await pubsub.wait_until_ready()
        yield host, pubsub, nursery


async def connect(host, node, address, port):
    peer_id = ID.from_pubkey(key_of(node).public_key)
    for _ in range(ATTEMPTS):
        try:
            await host.connect(PeerInfo(peer_id, [Multiaddr(f"/ip4/{address}/tcp/{port}")]))
            return
        except Exception as error:
            print(f"connect {node}: {error}", file=sys.stderr, flush=True)
            await trio.sleep(1)


async def obey():
    node, address, port = int(os.environ["TRELLIS_NODE"]), os.environ["TRELLIS_HOST"], int(os.environ["TRELLIS_PORT"])
    numbers = {ID.from_pubkey(key_of(other).public_key): other for other in range(int(os.environ["TRELLIS_NODES"]))}
    subscriptions = {}
    sources = {}  # of messages: the node that sent the first copy

    def report(*words):
        print(*words, f"ts_ns={time.monotonic_ns()}", flush=True)

    def hear(sender, message):
        message_id = id_of(message.data)
        if message_id in sources:
            report("duplicate", message_id, f"from={numbers[sender]}")
        else:
            sources[message_id] = numbers[sender]

    async def receive(subscription):
        while True:
            message_id = id_of((await subscription.get()).data)
            if message_id >> 32 != node:
                report("deliver", message_id, f"from={sources[message_id]}")

    async with started(node, address, port, GossipSub, {}, strict_signing=True) as (host, pubsub, nursery):
        pubsub.hear = hear
        print("ready", flush=True)
        async for line in trio.wrap_file(sys.stdin):
            match line.split():
                case "connect", other, its_address, its_port:
                    nursery.start_soon(connect, host, int(other), its_address, int(its_port))
                case "subscribe", topic:
                    subscriptions[topic] = await pubsub.subscribe(topic)
                    nursery.start_soon(receive, subscriptions[topic])
                case "unsubscribe", topic:
                    await pubsub.unsubscribe(topic)
                case "publish", message_id, topic, size:
                    sources[int(message_id)] = node
                    report("publish", message_id)
                    nursery.start_soon(pubsub.publish, topic, make_message(int(message_id), int(size)))
                case ["stop"]:
                    os._exit(0)


def tell(msg, **fields):
    line = {"time": datetime.now(UTC).isoformat(timespec="microseconds"), "level": "INFO", "msg": msg, **fields}
    print(json.dumps(line), flush=True)


async def drain(subscription):
    while True:
        await subscription.get()


async def follow(path):
    node = int(socket.gethostname().removeprefix("node"))
    script = [
        each["instruction"] if each["type"] == "ifNodeIDEquals" else each
        for each in json.loads(Path(path).read_text())["script"]
        if each.get("nodeID", node) == node
    ]
    asked = next((each["gossipSubParams"] for each in script if each["type"] == "initGossipSub"), {})
    options = {PARAMETERS[name][0]: value / PARAMETERS[name][1] for name, value in asked.items() if name in PARAMETERS}
    whole = {name: int(value) if value == int(value) else value for name, value in options.items()}
    mcache.default_msg_id_fn = content_id  # the cache of the router knows messages by author and number otherwise
    unsigned = {"strict_signing": False, "msg_id_constructor": content_id}
    async with started(node, "0.0.0.0", INTEROP_PORT, Anonymous, whole, **unsigned) as (host, pubsub, nursery):

        def hear(sender, message):
            tell("Received Message", **{"from": str(sender)}, topic=message.topicIDs[0], id=str(id_of(message.data)))

        pubsub.hear = hear
        tell("PeerID", id=str(host.get_id()), node_id=node)
        for each in script:
            match each:
                case {"type": "initGossipSub"}:
                    pass
                case {"type": "connect", "connectTo": others}:
                    async with trio.open_nursery() as dialling:
                        for other in others:
                            address = socket.gethostbyname(f"node{other}")
                            dialling.start_soon(connect, host, other, address, INTEROP_PORT)
                case {"type": "waitUntil", "elapsedSeconds": elapsed_s}:
                    await trio.sleep(max(0, BEGAN_S + elapsed_s - time.monotonic()))
                case {"type": "subscribeToTopic", "topicID": topic}:
                    nursery.start_soon(drain, await pubsub.subscribe(topic))
                case {"type": "setTopicValidationDelay", "topicID": topic, "delaySeconds": delay_s}:
                    pubsub.set_topic_validator(topic, validator(delay_s), is_async_validator=True)
                case {"type": "publish", "topicID": topic, "messageID": message_id, "messageSizeBytes": size}:
                    message = rpc_pb2.Message(data=make_message(message_id, size), topicIDs=[topic])
                    nursery.start_soon(pubsub.push_msg, pubsub.my_id, message)
                case _:
                    raise ValueError(f"{each['type']}: not an instruction that this program knows")
        os._exit(0)


def validator(delay_s):
    async def validate(sender, message):
        await trio.sleep(delay_s)
        return True

    return validate


if __name__ == "__main__":
    if "--params" in sys.argv:
        trio.run(follow, sys.argv[sys.argv.index("--params") + 1])
    else:
        trio.run(obey)
