"""A run's hosts, routers and links as a ``mininet.net.Mininet``, so that Mininet's CLI can look around in them.

Mininet builds the network from a ``Topo``. Its hosts are the testbed's, which have booted before: Mininet's shells in
their namespaces, with the device of the data plane. Routers and links are the data plane's own, so they have no process
and no device: the CLI lists them, and nothing runs on them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from mininet.cli import CLI
from mininet.link import Intf, Link
from mininet.log import error, output
from mininet.net import Mininet
from mininet.node import Node
from mininet.topo import Topo

from harness.testbeds.emulated.hosts import EmulatedHost
from topologies.link_graph import GraphLink, LinkGraph
from topologies.model import Underlay

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
"""Names that are a word of Mininet's command line."""

PREFIX = 16
"""Of the hosts' addresses (``Port.prefix``)."""

HUB = "wan"
"""The node in the middle of a network that is a matrix: the data plane."""


class PlaneInterface(Intf):  # type: ignore[misc] # Mininet has no types
    """An end of a link of the data plane. Only a host's first one is a device."""

    def __init__(self, name: str, node: Node, address: str | None = None) -> None:
        super().__init__(name, node, moveIntfFn=lambda name, node: None)
        self.ip, self.prefixLen = address, PREFIX

    def config(self, **_: Any) -> dict[str, Any]:  # noqa: ANN401 - Mininet's parameters
        return {}

    def updateIP(self) -> str | None:
        return str(self.ip) if self.ip else None

    def status(self) -> str:
        return "OK"


class PlaneLink(Link):  # type: ignore[misc]
    """A link of the data plane.

    Args:
        one: a node.
        other: the node at the other end.
        said: what the link does to packets.
        addresses: of hosts, by their names.
        _: Mininet's numbers of ports and hardware addresses.
    """

    def __init__(self, one: Node, other: Node, said: str, addresses: Mapping[str, str], **_: object) -> None:
        self.intf1, self.intf2 = (_interface(node, addresses) for node in (one, other))
        self.intf1.link = self.intf2.link = self
        self._said = said

    def status(self) -> str:
        return f"({self._said})"

    def __str__(self) -> str:
        return f"{self.intf1.node.name}<->{self.intf2.node.name}"


def _interface(node: Node, addresses: Mapping[str, str]) -> PlaneInterface:
    """Return a new end of a link at a node: of a host, the first one is its device."""
    number = len(node.intfs)
    if node.name in addresses and not number:
        return PlaneInterface("wan0", node, addresses[node.name])
    return PlaneInterface(f"{node.name}-eth{number}", node)


class PlaneRouter(Node):  # type: ignore[misc]
    """A router of the data plane, which is no process."""

    def startShell(self, mnopts: str | None = None) -> None:
        pass


class PlaneNet(Mininet):  # type: ignore[misc]
    """A network whose hosts the testbed has configured."""

    def configHosts(self) -> None:
        pass


class RunTopo(Topo):  # type: ignore[misc]
    """The hosts, routers and links of an underlay.

    Args:
        underlay: of the run.
        addresses: of the hosts in their order, by their names.
    """

    def build(self, underlay: Underlay, addresses: Mapping[str, str]) -> None:
        """Add all nodes and links."""
        self._addresses = addresses
        names = list(addresses)
        for name in names:
            self.addHost(name)
        if underlay.graph is not None:
            self._add_graph(underlay.graph, underlay.routers, names)
            return
        self.addSwitch(HUB)
        for number, name in enumerate(names):
            others = [delay_ms for other, delay_ms in enumerate(underlay.delay_ms[number]) if other != number]
            self._join(name, HUB, f"{min(others):g} to {max(others):g} ms to other hosts")

    def _add_graph(self, graph: LinkGraph, routers: Sequence[int], names: Sequence[str]) -> None:
        """Add routers and links. A router that does not forward is its host; other hosts have access links."""
        nodes: dict[int, str] = {}
        for name, router in zip(names, routers, strict=True):
            if not graph.routers[router].forwards:
                nodes.setdefault(router, name)
        inner = [number for number, router in enumerate(graph.routers) if router.forwards]
        words = _words([graph.routers[number].name for number in inner], "r", set(names))
        nodes |= {number: self.addSwitch(word) for number, word in zip(inner, words, strict=True)}
        for name, router in zip(names, routers, strict=True):
            if nodes[router] != name:
                self._join(name, nodes[router], "access link")
        for link, back in _both_ways(graph.links):
            if link.source in nodes and link.destination in nodes:
                said = "one way" if back is None else f"back {_describe(back)}"
                self._join(nodes[link.source], nodes[link.destination], f"{_describe(link)}; {said}")

    def _join(self, one: str, other: str, said: str) -> None:
        self.addLink(one, other, said=said, addresses=self._addresses)


class Console(CLI):  # type: ignore[misc]
    """Mininet's command line, without the commands that would change links or switches."""

    def default(self, line: str) -> None:
        """Run a command on a host."""
        first, _, _ = self.parseline(line)
        if first in self.mn and isinstance(self.mn[first], PlaneRouter):
            error(f"*** {first} is a router of the data plane: nothing runs on it\n")
        else:
            super().default(line)

    def do_link(self, _line: str) -> None:
        """Explain that the links are the experiment's."""
        error("*** The links are those of the experiment; change its file\n")

    do_switch = do_dpctl = do_link


def choose_names(underlay: Underlay) -> list[str]:
    """Return a name for every host that is a word of the command line: its own one, or ``h1``, ``h2`` and so on."""
    return list(_words([host.name for host in underlay.hosts], "h", set()))


def _words(names: Sequence[str], letter: str, taken: set[str]) -> Iterator[str]:
    """Yield different words for names, and add them to ``taken``."""
    usable = [
        name for name in names if _NAME.fullmatch(name) and not hasattr(CLI, f"do_{name}") and names.count(name) == 1
    ]
    own = set(usable) - taken - {HUB}
    for number, name in enumerate(names, 1):
        others = (word for tries in count() if (word := f"{letter}{number}" + "_" * tries) not in taken | own)
        word = name if name in own else next(others)
        taken.add(word)
        yield word


def make_net(hosts: Sequence[EmulatedHost], underlay: Underlay, addresses: Mapping[str, str]) -> Mininet:
    """Return the network of hosts that run, and of the routers and links between them.

    Args:
        hosts: in their order, attached to the data plane.
        underlay: of the run.
        addresses: of the hosts in their order, by their names.
    """
    Mininet.inited = True  # its limits are the machine's, and the testbed has raised what it needs
    shells = {name: host.shell for name, host in zip(addresses, hosts, strict=True)}
    return PlaneNet(
        RunTopo(underlay, addresses),
        switch=PlaneRouter,
        host=lambda name, **_: shells[name],
        controller=None,
        link=PlaneLink,
    )


def _both_ways(links: Sequence[GraphLink]) -> list[tuple[GraphLink, GraphLink | None]]:
    """Return each link with a later one that leads back; None = there is none."""
    found: list[tuple[GraphLink, GraphLink | None]] = []
    alone: dict[tuple[int, int], list[int]] = {}
    for link in links:
        if waiting := alone.get((link.destination, link.source)):
            place = waiting.pop(0)
            found[place] = found[place][0], link
        else:
            alone.setdefault((link.source, link.destination), []).append(len(found))
            found.append((link, None))
    return found


def _describe(link: GraphLink) -> str:
    parts = [f"{link.delay_ms:g} ms"]
    parts += [f"jitter {link.jitter_ms:.3g} ms"] if link.jitter_ms else []
    parts += [f"loss {link.loss_ratio:.3g}"] if link.loss_ratio else []
    parts += [f"{link.rate_mbit:g} Mbit/s, queue {link.queue_ms:g} ms"] if link.rate_mbit else []
    return ", ".join(parts)


def describe_hosts(underlay: Underlay, addresses: Mapping[str, str]) -> Iterator[str]:
    """Yield a line per host: the name on the command line, its address, and its name in the underlay."""
    for (name, address), host in zip(addresses.items(), underlay.hosts, strict=True):
        yield f"{name:<12} {address:<15} {host.name}"


def open_console(net: Mininet) -> None:
    """Let the user look around until the input ends or ``exit``."""
    output("*** Links and routers are the data plane's. Commands: HOST COMMAND, links, net, dump, pingall, exit\n")
    Console(net)
