"""How often two sweeps of the idle network find a pair of hosts whose delay is wrong, and how long they take.

Real sweeps: inside one sandbox, hosts in cities of the world are probed over a data plane that is sound, or in which
the round trip of one pair, drawn anew each time, is longer or shorter than asked for. A virtual machine's processors
are kept awake, as in a run. Each row counts how many pairs of sweeps found any pair off (``metrics.recorded.offsets``),
and how many found the right one.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np
from _hosts import bench_topo

from harness.experiment.form import ProbeSpec, VerdictSpec
from harness.machine import sandbox
from harness.machine.awake import kept_awake
from harness.machine.watchdog import Watchdog
from harness.planes.plane import Port
from harness.planes.userspace.handle import UserspacePlane
from harness.stages import manifest
from harness.testbeds.emulated.certifier import Certifier
from harness.testbeds.emulated.mininet_net import EmulatedNet
from harness.testbeds.emulated.pace import FIRST_PER_S, Pace
from harness.testbeds.emulated.probes import Prober
from metrics.recorded.offsets import measure_offsets
from metrics.recorded.probing import read_achieved
from metrics.rundir.phases import IDLE_PHASES
from peer.runtime.clock import UNDILATED
from topologies.generated import cities_underlay
from topologies.geography import world_cities
from topologies.network import Network

HOSTS, TIMES = 20, 20
OFF_MS = 0.5

Row = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    """Measure inside a sandbox, and print a row per condition."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--hosts", type=int, default=HOSTS)
    parser.add_argument("--times", type=int, default=TIMES, help="pairs of sweeps per condition")
    parser.add_argument("--off-ms", type=float, default=OFF_MS, help="by how much the round trip is off")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if not given.inside:
        return sandbox.run([sys.executable, "-P", __file__, "--inside", *(sys.argv[1:] if argv is None else argv)])
    rows = list(_measure(given.hosts, given.times, (0.0, given.off_ms, -given.off_ms)))
    if given.json:
        print(json.dumps(rows))
    return 0


def _measure(size: int, times: int, offsets_ms: tuple[float, ...]) -> Iterator[Row]:
    network = Network.of(cities_underlay(world_cities()[:size]))
    net = EmulatedNet(bench_topo(size))
    with kept_awake():
        for off_ms in offsets_ms:
            found = [_sweep_twice(network, net, off_ms, seed) for seed in range(times)]
            row: Row = {"hosts": size, "off_ms": off_ms, "pairs of sweeps": times}
            row |= {name: sum(each[name] for each in found) for name in ("found any", "found it")}
            row |= {name: round(median(each[name] for each in found), 2) for name in ("sweep_s", "requests_per_pair")}
            print("  ".join(f"{name} {value}" for name, value in row.items()), file=sys.stderr, flush=True)
            yield row
    net.stop()


def _sweep_twice(network: Network, net: EmulatedNet, off_ms: float, seed: int) -> Row:
    """Both sweeps over a data plane of their own, in which one pair may be off."""
    netns, wan = [host.netns for host in net.hosts], [host.wan_ip for host in net.hosts]
    wrong = sorted(int(host) for host in np.random.default_rng(seed).choice(network.size, 2, replace=False))
    asked = network.asked_of_pairs()
    delay_ms = asked.delay_ms.copy()
    delay_ms[wrong[0], wrong[1]] += off_ms
    limits = msgspec.to_builtins(VerdictSpec())
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        run_dir = Path(folder)
        watchdog = Watchdog(run_dir, UNDILATED)
        watchdog.start()
        stack.callback(watchdog.stop)
        plane = UserspacePlane(network.with_pairs(asked._replace(delay_ms=delay_ms)), seed, run_dir)
        stack.callback(plane.kill)
        plane.attach(
            [Port(number, path, address) for number, (path, address) in enumerate(zip(netns, wan, strict=True))]
        )
        prober = Prober(network, netns, wan, manifest.epoch_offset_ns(), seed)
        stack.callback(prober.close)
        certifier = Certifier(prober, network, run_dir, seed)
        certifier.introduce(FIRST_PER_S)
        pace, started_s = Pace(plane), time.perf_counter()
        for phase in IDLE_PHASES:
            certifier.sweep(phase, ProbeSpec().packets_per_pair, pace, limits)
        sweep_s = (time.perf_counter() - started_s) / len(IDLE_PHASES)
        prober.write(run_dir / "achieved.parquet")
        return _judge(run_dir, wrong) | {"sweep_s": sweep_s}


def _judge(run_dir: Path, wrong: list[int]) -> Row:
    rows = read_achieved(run_dir)
    found = None if rows is None else measure_offsets(rows)
    if rows is None or found is None:
        raise RuntimeError("the sweeps left no rows")
    named = found.name == f"hosts {wrong[0]} and {wrong[1]}"
    requests = sum(rows["sent"].to_pylist()) / rows.num_rows
    return {"found any": found.beyond > 0, "found it": found.beyond > 0 and named, "requests_per_pair": requests}


if __name__ == "__main__":
    sys.exit(main())
