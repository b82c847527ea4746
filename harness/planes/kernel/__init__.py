"""The kernel's data plane: a Linux bridge between the hosts, and on each of its ports a netem queue per source.

The kernel forwards and delays every packet; no process of Trellis touches it. So it is a second, independent emulation
of the same network. docs/kernel-plane.md has its theory of operation.

``settings`` writes and checks the kernel's settings, ``offloads`` switches offloads off, ``counting`` reads the
counters, ``monitor`` reports them, and ``handle`` is the plane for a testbed.
"""

from harness.planes.description import Description, Device

MOST_HOSTS = 64
"""A network of n hosts has n (n - 1) netem queues, each with a class and a filter."""

_PURPOSE = "delays of the kernel data plane"


def _module(name: str, command: tuple[str, ...]) -> Device:
    return Device(name, command, _PURPOSE, f"modprobe {name}; a kernel without it cannot have this data plane")


_FIXED = 'plane = "kernel" does not change its network during a run'
_HTB = ("tc", "qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb")
_FLOWER = ("tc", "filter", "add", "dev", "lo", "parent", "1:", "protocol", "ip", "flower", "classid", "1:1")

PLANE = Description(
    name="kernel",
    can=frozenset({"shape", "mtu", "capture", "opaque"}),
    cannot={
        "jitter": 'plane = "kernel" has constant delays: netem draws jitter per packet, which no check could judge',
        "rate": 'plane = "kernel" has no rates of links: HTB sends the first packet at once, and netem counts packets',
        "queue": 'plane = "kernel" has no rates of links, so it has no queues',
        **dict.fromkeys(("faults", "disorder"), _FIXED),
    },
    needs=(
        _module("sch_netem", ("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")),
        _module("sch_htb", _HTB),
        _module("cls_flower", ("sh", "-c", f"{' '.join(_HTB)} && {' '.join(_FLOWER)}")),
    ),
    make="harness.planes.kernel.handle:KernelPlane",
    most_hosts=MOST_HOSTS,
)
