"""A run's hosts, routers and links as a ``mininet.net.Mininet``, and Mininet's command line on them.

Mininet builds the network from a ``Topo``: first the nodes, then the links, then ``configHosts`` boots all hosts
together (``hosts.boot``). Routers and links are the data plane's own, so they have no process and no device: the
network lists them, and nothing runs on them. The data plane makes a host's device when it is attached.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np
from mininet.cli import CLI
from mininet.link import Intf, Link
from mininet.log import error, output
from mininet.net import Mininet
from mininet.node import Node
from mininet.topo import Topo

from harness.testbeds.emulated.hosts import EmulatedHost, boot
from metrics.rundir import Placement
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
        super().__init__(name, node, port=len(node.intfs), moveIntfFn=lambda name, node: None)
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
        _: Mininet's numbers of ports and hardware addresses.
    """

    def __init__(self, one: Node, other: Node, said: str, **_: object) -> None:
        self.intf1, self.intf2 = _interface(one), _interface(other)
        self.intf1.link = self.intf2.link = self
        self._said = said

    def stop(self) -> None:
        """Leave the devices to the data plane, which has made them."""

    def status(self) -> str:
        return f"({self._said})"

    def __str__(self) -> str:
        return f"{self.intf1.node.name}<->{self.intf2.node.name}"


def _interface(node: Node) -> PlaneInterface:
    """Return a new end of a link at a node: of a host, the first one is its device."""
    number = len(node.intfs)
    if isinstance(node, EmulatedHost) and not number:
        return PlaneInterface("wan0", node, node.wan_ip)
    return PlaneInterface(f"{node.name}-eth{number}", node)


class PlaneRouter(Node):  # type: ignore[misc]
    """A router of the data plane, which is no process."""

    isSetup = True
    """It needs none of Mininet's programs."""

    def startShell(self, mnopts: str | None = None) -> None:
        pass


class EmulatedNet(Mininet):  # type: ignore[misc]
    """The hosts of the testbed, and the routers and links between them.

    Args:
        topo: the nodes and links, all made at once; None = they are added, and ``build`` boots the hosts.

    Raises:
        TestbedError: too many hosts, or a namespace or link could not be made.
    """

    hosts: list[EmulatedHost]

    def __init__(self, topo: Topo | None = None) -> None:
        EmulatedHost.checkSetup()
        Mininet.inited = True  # its limits are the machine's, and the testbed raises what it needs
        super().__init__(topo, host=EmulatedHost, switch=PlaneRouter, link=PlaneLink, controller=None)

    def configHosts(self) -> None:
        """Boot the hosts, which Mininet has made without their shells."""
        boot(self.hosts)


class RunTopo(Topo):  # type: ignore[misc]
    """The hosts, routers and links of a run.

    Args:
        underlay: of the run.
        placement: of its nodes, in the order of their hosts.
    """

    @staticmethod
    def sorted(items: Iterable[str]) -> list[str]:
        """Return nodes in the order in which they were added, so that hosts are in that of their numbers."""
        return list(items)

    def build(self, underlay: Underlay, placement: Sequence[Placement]) -> None:
        """Add all nodes and links."""
        names = choose_names(underlay)
        for name, place in zip(names, placement, strict=True):
            self.addHost(name, number=place.host, ctl_ip=place.ctl_ip, ip=f"{place.wan_ip}/{PREFIX}")
        if underlay.graph is not None:
            self._add_graph(underlay.graph, underlay.routers, names)
            return
        self.addSwitch(HUB)
        others = ~np.eye(underlay.size, dtype=bool)
        shortest_ms = underlay.delay_ms.min(axis=1, where=others, initial=np.inf)
        longest_ms = underlay.delay_ms.max(axis=1, where=others, initial=0)
        for name, least_ms, most_ms in zip(names, shortest_ms, longest_ms, strict=True):
            self.addLink(name, HUB, said=f"{least_ms:g} to {most_ms:g} ms to other hosts")

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
                self.addLink(name, nodes[router], said="access link")
        for link, back in _both_ways(graph.links):
            if link.source in nodes and link.destination in nodes:
                said = "one way" if back is None else f"back {_describe(back)}"
                self.addLink(nodes[link.source], nodes[link.destination], said=f"{_describe(link)}; {said}")


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
    times = Counter(names)
    usable = [name for name in names if _NAME.fullmatch(name) and not hasattr(CLI, f"do_{name}") and times[name] == 1]
    own = set(usable) - taken - {HUB}
    for number, name in enumerate(names, 1):
        others = (f"{letter}{number}" + "_" * tries for tries in count())
        word = name if name in own else next(word for word in others if word not in taken and word not in own)
        taken.add(word)
        yield word


def make_net(underlay: Underlay, placement: Sequence[Placement]) -> EmulatedNet:
    """Return the network of a run, whose hosts have booted. The data plane is not attached yet.

    Args:
        underlay: of the run.
        placement: of its nodes: one on each host.

    Raises:
        TestbedError: too many hosts, or a namespace or link could not be made.
    """
    return EmulatedNet(RunTopo(underlay, sorted(placement, key=lambda place: place.host)))


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


def describe_hosts(net: EmulatedNet, underlay: Underlay) -> Iterator[str]:
    """Yield a line per host: the name on the command line, its address, and its name in the underlay."""
    for host, place in zip(net.hosts, underlay.hosts, strict=True):
        yield f"{host.name:<12} {host.wan_ip:<15} {place.name}"


def open_console(net: Mininet) -> None:
    """Let the user look around until the input ends or ``exit``."""
    output("*** Links and routers are the data plane's. Commands: HOST COMMAND, links, net, dump, pingall, exit\n")
    Console(net)
