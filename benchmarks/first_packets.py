"""How often the certificate finds first packets that are late, and how often it finds them where they are not.

Real sweeps: inside one sandbox, hosts in cities of the world are introduced to each other over a data plane that is
sound, or makes the first packet of each directed pair, or the first one that each host sends, late. Each sweep has a
new data plane, whose devices and pairs nobody has used; a virtual machine's processors are kept awake, as in a run.

Modelled sweeps (``--modelled N``): the same introduction and judgement over a network that exists in memory, whose
machine stalls at random, at several rates. No process is started.
"""

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _hosts import bench_topo
from _stalling_network import draw_stalls, introduce

from harness.machine import sandbox
from harness.machine.awake import kept_awake
from harness.machine.watchdog import Watchdog
from harness.planes.plane import Port
from harness.planes.userspace.defects import LateFirsts
from harness.planes.userspace.handle import UserspacePlane
from harness.stages import manifest
from harness.testbeds.emulated.certifier import Certifier
from harness.testbeds.emulated.mininet_net import EmulatedNet
from harness.testbeds.emulated.pace import FIRST_PER_S
from harness.testbeds.emulated.probes import Prober
from metrics.recorded import first_packets
from metrics.recorded.first_packets import IntroductionAttempt, standing
from metrics.recorded.stalls import read_stalls
from peer.runtime.clock import UNDILATED
from topologies.generated import cities_underlay
from topologies.geography import world_cities
from topologies.network import Network

HOSTS, SWEEPS = 20, 20
LATE_MS = 1.5
MODELLED_TOO = (5, 10, 20)
"""The model also makes the first packets of only every so many directed pairs late; a probe is the first of two."""

STALLS = ((0.0, 0, 0), (0.05, 15, 40), (0.6, 15, 40), (2.0, 5, 40), (20.0, 2, 10))
"""Stalls per second, and the shortest and the longest in ms."""

Row = dict[str, Any]
Conditions = dict[str, LateFirsts | None]


def main(argv: list[str] | None = None) -> int:
    """Measure inside a sandbox, or model, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--hosts", type=int, default=HOSTS)
    parser.add_argument("--sweeps", type=int, default=SWEEPS, help="per condition")
    parser.add_argument("--late-ms", type=float, default=LATE_MS, help="by how much first packets are late")
    parser.add_argument("--modelled", type=int, default=0, metavar="N", help="model N sweeps per condition instead")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if not given.modelled and not given.inside:
        return sandbox.run([sys.executable, "-P", __file__, "--inside", *(sys.argv[1:] if argv is None else argv)])
    network = Network.of(cities_underlay(world_cities()[: given.hosts]))
    pairs, hosts_only = LateFirsts("pairs", given.late_ms), LateFirsts("hosts", given.late_ms)
    conditions: Conditions = {"clean": None, "every pair": pairs, "every host": hosts_only}
    if given.modelled:
        some: Conditions = {
            f"{200 // every} % of pairs": LateFirsts("pairs", given.late_ms, every) for every in MODELLED_TOO
        }
        rows = _model(network, given.modelled, conditions | some)
    else:
        rows = _measure(network, given.sweeps, conditions)
    if given.json:
        print(json.dumps(list(rows)))
        return 0
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    return 0


def _measure(network: Network, sweeps: int, conditions: Conditions) -> Iterator[Row]:
    """A row per condition."""
    net = EmulatedNet(bench_topo(network.size))
    with kept_awake():
        for condition, defect in conditions.items():
            judged = [_sweep(network, net, defect, seed) for seed in range(sweeps)]
            yield {"condition": condition} | _count(judged)
    net.stop()


def _sweep(network: Network, net: EmulatedNet, defect: LateFirsts | None, seed: int) -> list[IntroductionAttempt]:
    """The attempts of one introduction over a data plane of its own."""
    netns, wan = [host.netns for host in net.hosts], [host.wan_ip for host in net.hosts]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        run_dir = Path(folder)
        watchdog = Watchdog(run_dir, UNDILATED)
        watchdog.start()
        stack.callback(watchdog.stop)
        plane = UserspacePlane(network, seed, run_dir, defect=defect)
        stack.callback(plane.kill)
        plane.attach(
            [Port(number, path, address) for number, (path, address) in enumerate(zip(netns, wan, strict=True))]
        )
        prober = Prober(network, netns, wan, manifest.epoch_offset_ns(), seed)
        stack.callback(prober.close)
        rows = Certifier(prober, network, run_dir, seed).introduce(FIRST_PER_S)
        return first_packets.judge(rows, read_stalls(run_dir))


def _model(network: Network, sweeps: int, conditions: Conditions) -> Iterator[Row]:
    """A row per condition and rate of stalls."""
    for condition, defect in conditions.items():
        for rate_per_s, shortest_ms, longest_ms in STALLS:
            random = np.random.default_rng(1)
            drawn = (draw_stalls(rate_per_s, shortest_ms, longest_ms, random) for _ in range(sweeps))
            judged = [introduce(network, stalls, defect, seed) for seed, stalls in enumerate(drawn)]
            stalls = f"{rate_per_s:g}/s of {shortest_ms} to {longest_ms} ms"
            yield {"condition": condition, "stalls": stalls} | _count(judged)


def _count(judged: list[list[IntroductionAttempt]]) -> Row:
    """Of the sweeps: how many a first attempt made suspicious, and how many were found at fault in the end."""
    firsts = [any(contrast.suspicious for contrast in attempts[0].contrasts) for attempts in judged]
    row: Row = {"sweeps": len(judged), "suspicious at first": sum(firsts)}
    faults = {name: [_is_found(attempts, name) for attempts in judged] for name in first_packets.RULES}
    row |= {f"by {name}": sum(found) for name, found in faults.items()}
    return row | {"found": sum(map(any, zip(*faults.values(), strict=True)))}


def _is_found(attempts: list[IntroductionAttempt], name: first_packets.Name) -> bool:
    contrast = standing(attempts, name)
    return contrast is not None and contrast.found


if __name__ == "__main__":
    sys.exit(main())
