"""The userspace data plane: one process reads packets from TUN devices and writes them when they are due.

It needs no scheduler of the kernel, so it runs on any Linux. docs/dataplane.md has its theory of operation.

``handle`` is the plane for a testbed. ``forwarder`` handles frames, and ``process`` is the loop around it. ``monitor``
reports on it and ``writer`` writes captures to disk, each in a separate process.
"""

from harness.planes.description import Description, Device

PLANE = Description(
    name="userspace",
    can=frozenset({"shape", "jitter", "rate", "queue", "mtu", "capture", "faults", "disorder"}),
    needs=(
        Device(
            "tun",
            ("ip", "tuntap", "add", "dev", "t0", "mode", "tun"),
            "emulated network of the userspace data plane",
            "modprobe tun; without root also: chmod 666 /dev/net/tun; in a container: --device /dev/net/tun",
        ),
    ),
    make="harness.planes.userspace.handle:UserspacePlane",
)
