"""Network namespaces for tests, each held by a process that sleeps."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

_IPV6_OFF = "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6"


@contextmanager
def held_namespaces(count: int) -> Iterator[list[str]]:
    """Make namespaces without IPv6, and return their paths."""
    command = ["unshare", "--net", "sh", "-c", f"{_IPV6_OFF}; ip link set lo up; echo; exec sleep 600"]
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
