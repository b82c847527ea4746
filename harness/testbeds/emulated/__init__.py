"""The emulated testbed: a Mininet network, a data plane for its links, an sshd, and the certificate's probes.

``testbed`` joins the parts; ``mininet_net`` has the network, ``hosts`` boots its hosts, ``harness.planes`` has the data
planes. ``pauser`` stops peers. ``probes``, ``introduction``, ``pace`` and ``certifier`` measure the idle network.
"""

from harness.planes.description import Description as PlaneDescription
from harness.planes.description import Device
from harness.planes.registry import PLANES
from harness.testbeds.description import Description, HostLimit

LIMIT = HostLimit(1000, "on the emulated testbed's control network")
"""The control network is a Linux bridge, which has 1024 ports."""

_CONTROL = "control network of the emulated hosts"
_DEVICES = (
    Device("veth", ("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1"), _CONTROL, "modprobe veth"),
    Device("bridge", ("ip", "link", "add", "b0", "type", "bridge"), _CONTROL, "modprobe bridge"),
)


def describe(name: str, text: str, plane: PlaneDescription) -> Description:
    """Return the description of the emulated testbed with a data plane, which adds abilities and needs.

    Args:
        name: the testbed's.
        text: what it is, as a phrase.
        plane: an entry of ``harness.planes.registry.PLANES``.
    """
    return Description(
        name=name,
        text=text,
        can=plane.can | {"probe", "certify", "dilate", "vanish", "pause", "command", "names", "record", "processes"},
        place="harness.planning.placement:place_in_sandbox",
        estimate="harness.planning.needs:estimate_processes",
        testbed="harness.testbeds.emulated.testbed:make",
        plane=plane.name,
        needs=(*_DEVICES, *plane.needs),
        limit=LIMIT,
        sandboxed=True,
    )


TESTBED = describe("emulated", "real processes on an emulated network on this machine", PLANES["userspace"])
