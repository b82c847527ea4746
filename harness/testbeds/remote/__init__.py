"""The remote testbed: real machines from an inventory, over SSH, and whatever network is between them."""

from harness.testbeds.description import Description

_NETWORK = 'a run with testbed = "remote" changes nothing in a real network'

TESTBED = Description(
    name="remote",
    text="your own machines, over SSH",
    can=frozenset({"capture", "probe", "pause", "command", "record", "processes", "inventory"}),
    cannot={
        **dict.fromkeys(("shape", "jitter", "rate", "queue", "mtu", "faults", "disorder"), _NETWORK),
        "certify": "nobody asks anything of a real network, so nothing is compared with what was asked",
        "dilate": 'expected 1 with testbed = "remote": a real network cannot be slowed down',
        "vanish": 'testbed = "remote" has no silent crashes: a run changes no routing rules of real machines',
    },
    place="harness.planning.placement:place_on_inventory",
    estimate="harness.planning.needs:estimate_processes",
    testbed="harness.testbeds.remote.testbed:make",
    here=False,
)
