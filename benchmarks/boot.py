"""How fast the network of a run and its peers are ready, and what a peer costs in memory.

``nodes_and_links_share`` is the part of a boot in which Mininet makes nodes and links, before the hosts' shells start.
Beside it, in the same run: Mininet's own ``--topo single,N`` through its API, and plain starts of a Python process that
imports the same peer. Everything happens inside one sandbox, a few hundred processes at most.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _hosts import bench_topo

from harness.deployment.agents import Site, build_agent_specs
from harness.deployment.fleet import Deployment
from harness.experiment.form import Experiment
from harness.experiment.inventory import METRICS_PORT, PEER_PORT
from harness.machine import sandbox
from harness.planning.documents import encode_overlay
from harness.testbeds.emulated.hosts import EmulatedHost, processes
from harness.testbeds.emulated.mininet_net import EmulatedNet
from harness.testbeds.emulated.sshd import serving_ssh
from peer.instances.spec import NodeSpec, OverlayDocument
from peer.runtime.agent_metrics import read_pss_bytes

HOSTS = 100
WORK = Path("/run/bench")
PLAIN_PEER = "import sys, peer.runtime.supervisor; print('ready', flush=True); sys.stdin.read()"


def main(argv: list[str] | None = None) -> int:
    """Measure inside a sandbox and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--hosts", type=int, default=HOSTS)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if not given.inside:
        options = ["--json"] if given.json else []
        return sandbox.run([sys.executable, "-P", __file__, "--inside", f"--hosts={given.hosts}", *options])
    result = measure(given.hosts)
    print(json.dumps(result) if given.json else "\n".join(f"{name:>40}  {value:.4g}" for name, value in result.items()))
    return 0


class _TimedNet(EmulatedNet):
    """Notes when Mininet has made all nodes and links."""

    def configHosts(self) -> None:
        self.made_at = time.monotonic()
        super().configHosts()


def measure(count: int) -> dict[str, float]:
    """Rates in 1/s, memory in MiB, and the ratios between them."""
    mininet_s = _time_mininet(count)
    start = time.monotonic()
    net = _TimedNet(bench_topo(count))
    hosts_s, made_s = time.monotonic() - start, net.made_at - start
    peers_s, peer_mib = _time_peers(net.hosts)
    net.stop()
    plain_s, plain_mib = _time_plain(count)
    return {
        "hosts": float(count),
        "hosts_per_s": count / hosts_s,
        "mininet_hosts_per_s": count / mininet_s,
        "hosts_ratio": mininet_s / hosts_s,
        "nodes_and_links_share": made_s / hosts_s,
        "peers_per_s": count / peers_s,
        "plain_processes_per_s": count / plain_s,
        "peers_ratio": plain_s / peers_s,
        "peer_pss_mib": peer_mib,
        "plain_process_pss_mib": plain_mib,
        "pss_ratio": plain_mib / peer_mib,
    }


def _time_mininet(count: int) -> float:
    """Seconds for Mininet to build and start ``--topo single,count``."""
    from mininet.net import Mininet
    from mininet.node import Switch
    from mininet.topo import SingleSwitchTopo

    class IpBridge(Switch):  # type: ignore[misc]
        """Mininet's LinuxBridge by iproute2, since brctl is long out of use."""

        def start(self, _controllers: Sequence[Any]) -> None:
            ports = [port.name for port in self.intfList() if port.name.startswith(self.name)]
            commands = [f"link add {self.name} type bridge", f"link set {self.name} up"]
            commands += [f"link set {port} master {self.name} up" for port in ports]
            subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), text=True, check=True)

        def stop(self, deleteIntfs: bool = True) -> None:
            subprocess.run(["ip", "link", "delete", self.name], check=True)
            super().stop(deleteIntfs)

    Mininet.inited = True  # or it would raise limits of the whole machine, for good
    start = time.monotonic()
    net = Mininet(topo=SingleSwitchTopo(count), switch=IpBridge, controller=None)
    net.start()
    elapsed = time.monotonic() - start
    net.stop()
    return elapsed


def _time_peers(made: Sequence[EmulatedHost]) -> tuple[float, float]:
    """Seconds from the order to start the agent until all peers stand at the barrier; MiB of PSS a peer."""
    specs = build_agent_specs(Experiment("boot"), [_site(host) for host in made])
    nodes = tuple(NodeSpec(host.number, 1, (), {"name": "random", "degree": 1}, {"name": "flood"}) for host in made)
    with (
        serving_ssh(WORK / "sshd", "127.0.0.1", 2222, name="bench") as machine,
        Deployment([machine], "boot", WORK / "logs") as deployment,
    ):
        deployment.connect()
        deployment.ship()
        deployment.push(specs, encode_overlay(OverlayDocument(1, "random", nodes)), b"")
        start = time.monotonic()
        deployment.start_agents()
        deployment.await_ready(60)
        elapsed = time.monotonic() - start
        return elapsed, read_pss_bytes(processes(made)) / 2**20 / len(made)


def _site(host: EmulatedHost) -> Site:
    return Site(host.number, "bench", (host.ctl_ip, PEER_PORT), (host.ctl_ip, METRICS_PORT), host.netns)


def _time_plain(count: int) -> tuple[float, float]:
    """Seconds until as many Python processes, all started at once, have imported the peer; MiB of PSS a process."""
    start = time.monotonic()
    command = [sys.executable, "-c", PLAIN_PEER]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(count)]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    elapsed = time.monotonic() - start
    memory_mib = read_pss_bytes(process.pid for process in processes) / 2**20 / count
    for process in processes:
        process.communicate()
    return elapsed, memory_mib


if __name__ == "__main__":
    sys.exit(main())
