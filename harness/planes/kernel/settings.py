"""The kernel's settings of the plane: the commands that make them, and how they differ from what was read back.

Every host has a veth pair. Its end in the host is the device of the ``Port``; the other end is a port of one Linux
bridge, which forwards by a fixed table. The delay of a directed pair is on the bridge's port towards the destination:
under one HTB qdisc, each source has a class with a netem leaf. So a packet is captured at its source's device before
its delay, and at its destination's device after it. The classes have a rate that no packet waits for.

Frames that no host has the address of go to the port ``SINK``, which counts them.

Source: tc-netem(8), tc-htb(8), tc-flower(8), bridge(8).
"""

import ipaddress
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from harness.planes.plane import Port
from topologies.network import Network

BRIDGE = "wanbr"
SINK = "wansink"

LINE_MBIT = 1000
"""Rate up to which a leaf has room for all packets of full size that are on their way."""

FEWEST_PACKETS = 1000
"""The least room of a leaf, in packets, and what it has beyond the bandwidth-delay product: small packets, bursts."""

TOLERANCE_NS = 5_000
"""By how much a delay that the kernel reports may differ: it counts in ticks, and ``tc`` prints whole microseconds."""

TOLERANCE_LOSS = 1e-6

_ETHERNET_BYTES = 14
_UNLIMITED = "rate 100gbit burst 1mb cburst 1mb"
"""Without a burst, a class would wait for its next token after each packet."""

_UNKNOWN = 0xFFFF
"""The class of packets from no known source, which are dropped and counted."""


class Leaf(NamedTuple):
    """What is asked of the packets of a directed pair.

    Attributes:
        source, destination: hosts.
        delay_ns: in real time.
        loss_ratio: 0..1.
        limit: packets that the leaf holds; it drops further ones.
    """

    source: int
    destination: int
    delay_ns: int
    loss_ratio: float
    limit: int


def ask_leaves(network: Network, time_dilation: float, mtu: int) -> list[Leaf]:
    """Return what is asked of every directed pair.

    Args:
        network: without jitter and rates.
        time_dilation: factor by which delays are longer in real time.
        mtu: bytes of the largest packet.
    """
    hosts = range(network.size)
    leaves = []
    for destination in hosts:
        for source in hosts:
            if source != destination:
                asked = network.asked(source, destination)
                delay_ns = round(asked.delay_ms * 1e6 * time_dilation)
                limit = limit_packets(delay_ns, mtu)
                leaves.append(Leaf(source, destination, delay_ns, asked.loss_ratio, limit))
    return leaves


def limit_packets(delay_ns: int, mtu: int) -> int:
    """Return the room of a leaf: the bandwidth-delay product at ``LINE_MBIT`` and ``FEWEST_PACKETS`` more."""
    return FEWEST_PACKETS + math.ceil(LINE_MBIT * 1e6 * delay_ns / 1e9 / 8 / (mtu + _ETHERNET_BYTES))


def port_device(host: int) -> str:
    """Return the bridge's port of a host."""
    return f"wan{host}p"


def mac(address: str) -> str:
    """Return a locally administered MAC address that contains the IPv4 address."""
    return "02:01:" + ipaddress.IPv4Address(address).packed.hex(":")


def bridge_commands(ports: Sequence[Port]) -> list[str]:
    """Return the commands of ``ip`` that make the bridge, the sink and every host's veth pair."""
    commands = [
        f"link add {BRIDGE} type bridge stp_state 0 mcast_snooping 0",
        f"link set {BRIDGE} up",
        f"link add {SINK} mtu {ports[0].mtu} type veth peer name {SINK}p mtu {ports[0].mtu}",
        f"link set {SINK}p up",
        f"link set {SINK} master {BRIDGE} up",
        f"link set {SINK} type bridge_slave learning off flood on mcast_flood on bcast_flood on",
    ]
    for port in ports:
        near, mtu = port_device(port.host), port.mtu
        commands += [
            f"link add {near} mtu {mtu} type veth"
            f" peer name {port.device} mtu {mtu} address {mac(port.address)} netns {port.netns}",
            f"link set {near} master {BRIDGE} up",
            f"link set {near} type bridge_slave learning off flood off mcast_flood off bcast_flood off",
        ]
    return commands


def forwarding_commands(ports: Sequence[Port]) -> list[str]:
    """Return the commands of ``bridge``: the fixed table of which host is behind which port."""
    return [f"fdb replace {mac(port.address)} dev {port_device(port.host)} master static" for port in ports]


def host_commands(port: Port, ports: Sequence[Port]) -> list[str]:
    """Return the commands of ``ip`` in a host. All neighbours are known, so that no first packet waits for ARP."""
    neighbours = [
        f"neighbour replace {other.address} lladdr {mac(other.address)} nud permanent dev {port.device}"
        for other in ports
        if other is not port
    ]
    return [
        f"address add {port.address}/{port.prefix} dev {port.device}",
        f"link set {port.device} up",
        *neighbours,
    ]


def shaping_commands(ports: Sequence[Port], leaves: Sequence[Leaf]) -> Iterator[str]:
    """Yield the commands of ``tc``: at every port an HTB qdisc, and for every source a class, a leaf and a filter."""
    for port in ports:
        device = port_device(port.host)
        yield f"qdisc add dev {device} root handle 1: htb default {_UNKNOWN:x}"
        yield from _class_commands(port, _UNKNOWN, "loss 100%")
    for leaf in leaves:
        port, number = ports[leaf.destination], leaf.source + 1
        loss = f" loss random {100 * leaf.loss_ratio:.6f}%" if leaf.loss_ratio else ""
        yield from _class_commands(port, number, f"limit {leaf.limit} delay {leaf.delay_ns / 1000:.3f}us{loss}")
        address = ports[leaf.source].address
        yield (
            f"filter add dev {port_device(port.host)} parent 1: protocol ip prio 1 handle {number}"
            f" flower src_ip {address} classid 1:{number:x}"
        )


def _class_commands(port: Port, number: int, netem: str) -> Iterator[str]:
    device, quantum = port_device(port.host), port.mtu + _ETHERNET_BYTES  # a packet of full size per turn
    yield f"class add dev {device} parent 1: classid 1:{number:x} htb {_UNLIMITED} quantum {quantum}"
    yield f"qdisc add dev {device} parent 1:{number:x} handle {_handle(number):x}: netem {netem}"


def _handle(number: int) -> int:
    """Return the handle of a class's leaf; 1 is the root's."""
    return number + 1 if number != _UNKNOWN else 0xFFF0


def find_differences(
    leaves: Sequence[Leaf],
    ports: Sequence[Port],
    qdiscs: Sequence[Mapping[str, Any]],
    filters: Mapping[int, Sequence[Mapping[str, Any]]],
) -> list[str]:
    """Return a sentence for every setting that is not what was asked for.

    Args:
        leaves: what was asked for.
        ports: of all hosts.
        qdiscs: the output of ``tc -j qdisc show``.
        filters: by host, the output of ``tc -j filter show`` of its port.
    """
    found = {(entry["dev"], entry.get("parent", "root")): entry for entry in qdiscs}
    routes = {
        (host, _source_of(entry)): entry["options"].get("classid")
        for host, entries in filters.items()
        for entry in entries
        if "options" in entry
    }
    differences = []
    for leaf in leaves:
        device, parent = port_device(leaf.destination), f"1:{leaf.source + 1:x}"
        pair = f"from host {leaf.source} to host {leaf.destination}"
        if difference := _differs(leaf, found.get((device, parent))):
            differences.append(f"{pair}: {difference}")
        elif (route := routes.get((leaf.destination, ports[leaf.source].address))) != parent:
            differences.append(f"{pair}: packets go to class {route}, not {parent}")
    return differences


def _source_of(entry: Mapping[str, Any]) -> str | None:
    address: str | None = entry["options"].get("keys", {}).get("src_ip")
    return address


def _differs(leaf: Leaf, entry: Mapping[str, Any] | None) -> str:
    """Return how a netem qdisc differs from what was asked for; empty if it does not."""
    if entry is None or entry["kind"] != "netem":
        return f"expected a netem qdisc, found {'none' if entry is None else entry['kind']}"
    options = entry["options"]
    delay_s, jitter_s = (options.get("delay", {}).get(key, 0.0) for key in ("delay", "jitter"))
    loss_ratio = options.get("loss-random", {}).get("loss", 0.0)
    if abs(delay_s * 1e9 - leaf.delay_ns) > TOLERANCE_NS or jitter_s:
        return f"asked for a delay of {leaf.delay_ns / 1e6:g} ms, found {delay_s * 1e3:g} ms +- {jitter_s * 1e3:g} ms"
    if abs(loss_ratio - leaf.loss_ratio) > TOLERANCE_LOSS:
        return f"asked for a loss of {leaf.loss_ratio:g}, found {loss_ratio:g}"
    if options["limit"] != leaf.limit:
        return f"asked for room for {leaf.limit} packets, found {options['limit']}"
    return ""
