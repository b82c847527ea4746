"""The stage of ``trellis mn``: the hosts and the network of a plan, and Mininet's command line, inside a sandbox.

    python -m harness.stages.console RUN_DIR DESCRIPTOR

DESCRIPTOR is the user's standard input: that of the process is the lifeline of the sandbox.
"""

import os
import sys
from pathlib import Path
from pkgutil import resolve_name

from mininet.log import setLogLevel

from harness.errors import TrellisError
from harness.planes.plane import PlaneMaker, Port
from harness.planes.registry import PLANES
from harness.planning import read_plan
from harness.terminal import printable
from harness.testbeds.emulated.mininet_net import describe_hosts, make_net, open_console
from harness.testbeds.registry import find_testbed


def look_around(run_dir: Path) -> None:
    """Boot the hosts of a plan, attach them to the data plane, and open the command line.

    Raises:
        TestbedError: a host, a device or the data plane could not be made.
    """
    setLogLevel("info")
    planned = read_plan(run_dir)
    experiment, underlay = planned.plan.experiment, planned.underlay
    net = make_net(underlay, planned.plan.placement)
    plane_name = find_testbed(experiment.testbed, experiment.plane).plane
    assert plane_name is not None, "every emulated testbed names a data plane"
    make: PlaneMaker = resolve_name(PLANES[plane_name].make)
    plane = make(
        planned.network, planned.plan.seed, run_dir, None, 1.0, round(experiment.verdict.lateness_p99_ms * 1e6)
    )
    mtu = experiment.underlay.mtu_bytes
    plane.attach([Port(host.number, host.netns, host.wan_ip, mtu=mtu) for host in net.hosts])
    for line in describe_hosts(net, underlay):
        print(printable(line), flush=True)
    open_console(net)
    plane.close()
    net.stop()


def main() -> int:
    """Look around, and return the exit status."""
    os.dup2(int(sys.argv[2]), 0)
    try:
        look_around(Path(sys.argv[1]))
    except TrellisError as error:
        print(f"trellis mn: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
