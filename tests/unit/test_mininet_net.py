"""Mininet's view of a run: names of its command line, routers and links."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mininet.log import lg

from harness.experiment.loader import decode_experiment
from harness.planning.placement import place_in_sandbox
from harness.planning.underlays import make_underlay
from harness.testbeds.emulated import mininet_net
from harness.testbeds.emulated.hosts import EmulatedHost
from harness.testbeds.emulated.mininet_net import Console, EmulatedNet, choose_names, describe_hosts, make_net
from topologies.generated import plain_underlay
from topologies.graph_paths import ask_paths, graph_underlay
from topologies.link_graph import GraphLink, LinkGraph, Router
from topologies.model import Host, Underlay, between

TOPOS = Path(__file__).parents[2] / "playbooks" / "experiments" / "topos.py"

Cli = Callable[[Underlay, str], list[str]]


def made(**underlay: Any) -> Underlay:
    document = {"name": "x", "protocol": "complete", "underlay": underlay}
    return make_underlay(decode_experiment(document), TOPOS.parent).underlay


def net_of(underlay: Underlay) -> EmulatedNet:
    return make_net(underlay, place_in_sandbox(decode_experiment({"name": "x"}), Path(), underlay.size))


@pytest.fixture(autouse=True)
def booted(monkeypatch: pytest.MonkeyPatch) -> list[list[EmulatedHost]]:
    """The hosts that each network would have booted. They have no shells."""
    found: list[list[EmulatedHost]] = []
    monkeypatch.setattr(mininet_net, "boot", found.append)
    return found


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch) -> Cli:
    """What the command line answers to a line."""

    def ask(underlay: Underlay, line: str) -> list[str]:
        heard = io.StringIO()
        monkeypatch.setattr(lg.handlers[0], "stream", heard)
        console = Console.__new__(Console)
        console.mn = net_of(underlay)
        console.onecmd(line)
        return [each.rstrip() for each in heard.getvalue().splitlines()]

    return ask


def named(names: list[str]) -> Underlay:
    return plain_underlay("x", tuple(Host(name=name, site=name) for name in names), between(len(names), 5.0))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["web", "db"], ["web", "db"]),
        (["New York", "Oslo"], ["h1", "Oslo"]),
        (["Oslo", "Oslo", "h2"], ["h1", "h2_", "h2"]),
        (["links", "wan", "9a"], ["h1", "h2", "h3"]),
    ],
)
def test_hosts_have_names_that_are_words_of_the_command_line(names: list[str], expected: list[str]) -> None:
    assert choose_names(named(names)) == expected


def test_a_topology_has_its_nodes_and_links(say: Cli) -> None:
    dumbbell = made(kind="mininet", topo="topos.py:Dumbbell,1")
    assert say(dumbbell, "net") == [
        "l1 wan0:s1-eth0",
        "r1 wan0:s2-eth0",
        "s1 s1-eth0:wan0 s1-eth1:s2-eth1",
        "s2 s2-eth0:wan0 s2-eth1:s1-eth1",
    ]
    way = "jitter 0.577 ms, 10 Mbit/s, queue 60 ms"
    assert say(dumbbell, "links") == [
        "l1<->s1 (1 ms; back 1 ms)",
        "r1<->s2 (1 ms, loss 0.001; back 1 ms, loss 0.001)",
        f"s1<->s2 (20 ms, {way}; back 30 ms, {way})",
    ]
    net = net_of(dumbbell)
    assert [(host.name, host.IP()) for host in net.hosts] == [("l1", "10.0.0.1"), ("r1", "10.0.0.2")]
    assert net["r1"].defaultIntf().updateIP() == "10.0.0.2"


def test_hosts_are_in_the_order_of_the_run_and_boot_together(booted: list[list[EmulatedHost]]) -> None:
    underlay = named(["Oslo", "New York", "Accra"])
    net = net_of(underlay)
    assert [(host.name, host.number) for host in net.hosts] == [("Oslo", 0), ("h2", 1), ("Accra", 2)]
    assert booted == [net.hosts]
    assert [(host.ctl_ip, host.wan_ip) for host in net.hosts] == [
        ("172.16.0.1", "10.0.0.1"),
        ("172.16.0.2", "10.0.0.2"),
        ("172.16.0.3", "10.0.0.3"),
    ]
    assert list(describe_hosts(net, underlay))[1].split() == ["h2", "10.0.0.2", "New", "York"]


def test_hosts_can_be_added_one_by_one(booted: list[list[EmulatedHost]]) -> None:
    """As in scripts for Mininet; then ``build`` boots them."""
    net = EmulatedNet()
    first, second = (net.addHost(f"h{number}", number=number, ctl_ip=f"172.16.0.{number + 1}") for number in (0, 1))
    net.addLink(first, second, said="5 ms")
    assert not booted
    net.build()
    assert booted == [[first, second]]
    assert [first.IP(), second.IP()] == ["10.0.0.1", "10.0.0.2"]


def test_the_end_of_a_network_takes_no_device_away(monkeypatch: pytest.MonkeyPatch) -> None:
    net = net_of(named(["a", "b"]))
    monkeypatch.setattr(EmulatedHost, "cmd", lambda host, *words: pytest.fail(f"{host}: {words}"))
    net.stop()


def test_hosts_at_routers_have_access_links(say: Cli) -> None:
    """A router whose name a host has gets a number. Mininet sorts links by the names of their nodes."""
    assert say(made(kind="dumbbell", hosts=3, delay_ms=7), "links") == [
        "h3<->r1 (access link)",
        "left<->r1 (access link)",
        "r1<->r2 (7 ms; back 7 ms)",
        "right<->r2 (access link)",
    ]


def test_a_link_without_a_way_back_is_said(say: Cli) -> None:
    graph = LinkGraph(
        (Router("a"), Router("b")),
        (GraphLink(0, 1, 1.0), GraphLink(0, 1, 2.0), GraphLink(1, 0, 3.0)),
    )
    underlay = graph_underlay("x", "x", graph, (0, 1), ask_paths(graph))
    assert [line for line in say(underlay, "links") if "access" not in line] == [
        "r1<->r2 (1 ms; back 3 ms)",
        "r1<->r2 (2 ms; one way)",
    ]


def test_a_matrix_has_one_node_in_the_middle(say: Cli) -> None:
    assert say(named(["a", "b"]), "links") == [
        "a<->wan (5 to 5 ms to other hosts)",
        "b<->wan (5 to 5 ms to other hosts)",
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("wan ls", "*** wan is a router of the data plane: nothing runs on it"),
        ("link a b down", "*** The links are those of the experiment; change its file"),
        ("switch wan stop", "*** The links are those of the experiment; change its file"),
        ("dpctl show", "*** The links are those of the experiment; change its file"),
        ("nothing", "*** Unknown command: nothing"),
    ],
)
def test_what_cannot_be_done_is_said(say: Cli, line: str, problem: str) -> None:
    assert say(named(["a", "b"]), line) == [problem]
