"""The names of nodes and hosts for any kind of program: its own host name, and a hosts file.

A node has two names: ``node<number>``, and the name of its place in the underlay, such as a city, if it has one. A node
that runs processes of programs that know nothing of Trellis has only the second one, unless it has none.
"""

import ctypes
import os
import re
import socket
import unicodedata
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path
from typing import Final

from peer.core.identifiers import NodeId
from peer.instances.spec import AgentSpec
from peer.runtime.namespaces import check

HOSTS_FILE = "etc-hosts"
"""The name of the hosts file in the agent's work folder."""

_CLONE_NEWNS, _CLONE_NEWUTS = 0x00020000, 0x04000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_NO_LETTERS = re.compile("[^a-z0-9]+")
_MAX_LABEL = 63
_HOST_NAME = re.compile("[a-z0-9]([a-z0-9.-]{0,62}[a-z0-9-])?")
_LOOPBACK: Final = "localhost"


def node_name(node: NodeId) -> str:
    """Return the host name of a node's host."""
    return f"node{node}"


def own_names(agent: AgentSpec) -> list[str]:
    """Return the host name of every node's host. No two hosts have the same name."""
    if agent.processes and agent.names:
        return name_hosts(agent.names)
    return [node_name(node) for node in range(len(agent.addresses))]


def name_hosts(places: Sequence[str]) -> list[str]:
    """Return a host name for each place: its own name, unless it has none or an earlier host has it.

    No two hosts have the same name.
    """
    names = {_LOOPBACK: None}
    for node, place in enumerate(places):
        label, number = label_of(place), node_name(node)
        tries = chain([label] if label else [], [number], (f"{number}-{copy}" for copy in count(2)))
        names[next(each for each in tries if each not in names)] = None
    return list(names)[1:]


def describe_hosts(agent: AgentSpec) -> str:
    """Return a hosts file with the addresses of all nodes. A name stands for one address.

    If two places share a name, the first node has it. No place has the name of a node.
    """
    lines = [f"127.0.0.1 {_LOOPBACK}"]
    own = own_names(agent)
    used = {_LOOPBACK, *own}
    for node, (address, _) in enumerate(agent.addresses):
        place = label_of(agent.names[node]) if agent.names else ""
        names = dict.fromkeys([own[node], *([place] if place and place not in used else [])])
        used.update(names)
        lines.append(" ".join([address, *names]))
    return "\n".join(lines) + "\n"


def take_name(name: str, hosts: Path) -> None:
    """Give this process and its children a host name, and another file as /etc/hosts.

    Raises:
        OSError: the kernel refused. The process needs CAP_SYS_ADMIN.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    check(libc.unshare(_CLONE_NEWNS | _CLONE_NEWUTS), "unshare")
    socket.sethostname(name)
    check(libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None), "make the mounts private")
    check(libc.mount(os.fsencode(hosts), b"/etc/hosts", None, _MS_BIND, None), "/etc/hosts")


def label_of(place: str) -> str:
    """Return a place's name as a label of a host name; empty if no character of it is allowed there.

    A name that is a host name already stays as it is.
    """
    if _HOST_NAME.fullmatch(place):
        return place
    plain = unicodedata.normalize("NFKD", place).encode("ascii", "ignore").decode()
    return _NO_LETTERS.sub("-", plain.lower())[:_MAX_LABEL].strip("-")
