"""Network namespaces for benchmarks and tests, each held by a process that sleeps, and programs inside them."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks._flows import LISTENS, SERVER

HELD_S = 600
"""After so long a namespace ends by itself, unless it is asked to be held longer."""

_IPV6_OFF = "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6"


@contextmanager
def held_namespaces(count: int, held_s: int = HELD_S) -> Iterator[list[str]]:
    """Hold empty network namespaces with loopback and without IPv6, as in a run; yield their paths."""
    command = ["unshare", "--net", "sh", "-c", f"{_IPV6_OFF}; ip link set lo up; echo; exec sleep {held_s}"]
    holders = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for holder in holders:
            assert holder.stdout
            holder.stdout.readline()
        yield [f"/proc/{holder.pid}/ns/net" for holder in holders]
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()
            assert holder.stdout
            holder.stdout.close()


def inside(netns: str) -> list[str]:
    """Return the words before a command that run it inside a namespace."""
    return ["nsenter", f"--net={netns}"]


def listen(netns: str) -> "subprocess.Popen[str]":
    """Start iperf3's server for one client, and wait until it listens."""
    server = subprocess.Popen([*inside(netns), *SERVER], stdout=subprocess.PIPE, text=True)
    assert server.stdout
    while LISTENS not in (line := server.stdout.readline()):
        if not line:
            raise RuntimeError(f"iperf3 does not listen: exit status {server.wait()}")
    return server
