"""The simulated testbed: all nodes in one process, on virtual time.

``harness.simulator`` replaces processes, SSH and data plane, so there is no testbed object:
``harness.stages.simulation`` is its running stage.
"""

from harness.testbeds.description import Description

TESTBED = Description(
    name="simulated",
    text="the same nodes on virtual time, in one process and without root",
    can=frozenset(
        {"shape", "jitter", "rate", "dilate", "vanish", "faults", "pause", "simulate"}
    ),  # virtual time is the same at any dilation
    cannot={
        "queue": "its queues drop nothing",
        "disorder": 'testbed = "simulated" carries frames over connections, which deliver each byte once and in order',
        "mtu": 'testbed = "simulated" sends frames in packets of at most 1,500 bytes',
        "capture": "it has no packets",
        "probe": "its delays are exactly those that were asked for",
        "certify": "there is no data plane",
        "command": 'testbed = "simulated" runs Python nodes in one process and starts no program',
        "record": 'testbed = "simulated" records no events: the same seed simulates the same run again',
        "processes": "it runs on virtual time, in one process",
    },
    place="harness.planning.placement:place_in_sandbox",
    estimate="harness.planning.needs:estimate_simulation",
    stage="harness.stages.simulation:simulate_planned",
)
