"""Mininet hosts with a control network.

Mininet makes the hosts: each ``mininet.node.Host`` is a shell in a network namespace. No controller or switch runs,
since a latency matrix needs none. Mininet calls ``ip`` once per link; this module uses one batch per namespace, in
parallel, through the hosts' shells.

The control network has no delay and carries scraping, but nothing that is measured. It connects each host with the
sandbox and not with other hosts, so that no peer can avoid the emulated network. Its neighbour
entries are permanent: all namespaces share the kernel's neighbour table (1024 entries by default), which does not count
permanent entries and so never overflows. IPv6 is switched off, since each new link would flood the bridge with
multicast reports.
"""

import ipaddress
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mininet.node import Host as MininetHost

from harness.errors import TestbedError
from harness.testbeds.emulated import LIMIT
from harness.testbeds.emulated.host_processes import find_processes
from peer.runtime.limits import allow_open_files

CTL_BRIDGE = "ctlbr"
CTL_DEVICE = "ctl0"
CTL_GATEWAY = "172.16.255.254"
CTL_PREFIX = 16

_AT_A_TIME = 4
"""Shells that start in parallel: Mininet mostly waits for their prompts."""

_BATCHES = Path("/run/trellis")
_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_IPV6_SWITCHES = Path("/proc/sys/net/ipv6/conf")
_FIRST_FREE_PORT = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")


class EmulatedHost:
    """A host of the testbed: Mininet's namespace and its address on the control network."""

    def __init__(self, number: int, shell: MininetHost, ctl_ip: str) -> None:
        self.number = number
        self.shell = shell
        self.ctl_ip = ctl_ip

    @property
    def netns(self) -> str:
        """The path of the network namespace, for ``setns``."""
        return f"/proc/{self.shell.pid}/ns/net"


def start(ctl_ips: Sequence[str], names: Sequence[str] = ()) -> list[EmulatedHost]:
    """Make one host per control address; its number is the index. Runs inside a sandbox.

    Args:
        ctl_ips: the addresses.
        names: of the hosts for Mininet; empty = ``h`` and the number.

    Raises:
        TestbedError: too many hosts, or a namespace or link could not be made.
    """
    if len(ctl_ips) > LIMIT.hosts:
        raise TestbedError(f"make {len(ctl_ips)} hosts", f"the control bridge carries at most {LIMIT.hosts}")
    _BATCHES.mkdir(mode=0o700, exist_ok=True)
    allow_open_files(len(ctl_ips))
    for switch in _IPV6_SWITCHES.glob("*/disable_ipv6"):  # none in a kernel without IPv6
        switch.write_text("1", encoding="ascii")
    if _FORWARDING.exists():
        _FORWARDING.write_text("0", encoding="ascii")  # a new namespace has the value of the machine
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        shells = list(pool.map(_mininet_host, names or [f"h{number}" for number in range(len(ctl_ips))]))
    hosts = [
        EmulatedHost(number, shell, ctl_ip) for number, (shell, ctl_ip) in enumerate(zip(shells, ctl_ips, strict=True))
    ]
    _batch("sandbox", _sandbox_commands(hosts))
    _configure(hosts)
    return hosts


def stop(hosts: Sequence[EmulatedHost]) -> None:
    """End the hosts' shells. A namespace ends with its last process."""
    for host in hosts:
        host.shell.terminate()


def processes(hosts: Sequence[EmulatedHost]) -> list[int]:
    """Return the processes in the hosts' namespaces, except Mininet's shells."""
    return find_processes({host.shell.pid for host in hosts})


def _mininet_host(name: str) -> MininetHost:
    try:
        return MininetHost(name)
    except (OSError, SystemExit) as error:
        raise TestbedError(f"start Mininet host {name}", str(error)) from error


def _sandbox_commands(hosts: Sequence[EmulatedHost]) -> list[str]:
    """Return the ``ip`` commands for the bridge and a veth pair from it into every host."""
    commands = [
        f"link add {CTL_BRIDGE} address {_mac(CTL_GATEWAY)} type bridge",
        f"address add {CTL_GATEWAY}/{CTL_PREFIX} dev {CTL_BRIDGE}",
        f"link set {CTL_BRIDGE} up",
    ]
    for host in hosts:
        port = f"ctl{host.number}"
        commands += [
            f"link add {port}p type veth peer name {CTL_DEVICE} address {_mac(host.ctl_ip)} netns {host.shell.pid}",
            f"link set {port}p master {CTL_BRIDGE} up",
            f"link set {port}p type bridge_slave isolated on",
            f"neighbour add {host.ctl_ip} lladdr {_mac(host.ctl_ip)} nud permanent dev {CTL_BRIDGE}",
        ]
    return commands


def _host_commands(host: EmulatedHost) -> list[str]:
    return [
        "link set lo up",
        f"address add {host.ctl_ip}/{CTL_PREFIX} dev {CTL_DEVICE}",
        f"link set {CTL_DEVICE} up",
        f"neighbour add {CTL_GATEWAY} lladdr {_mac(CTL_GATEWAY)} nud permanent dev {CTL_DEVICE}",
    ]


def _configure(hosts: Sequence[EmulatedHost]) -> None:
    """Let every host's shell configure its own side, all in parallel; no output means success.

    Programs may listen on any port of their host, such as 80, although they have no capabilities.
    """
    ipv6_off = f"for switch in {_IPV6_SWITCHES}/*/disable_ipv6; do [ ! -e $switch ] || echo 1 >$switch; done"
    ports_free = f"[ ! -e {_FIRST_FREE_PORT} ] || echo 0 >{_FIRST_FREE_PORT}"
    for host in hosts:
        batch = _write_batch(f"h{host.number}", _host_commands(host))
        host.shell.sendCmd(f"{ipv6_off}; {ports_free}; ip -batch {batch}")
    said = {host.number: host.shell.waitOutput().strip() for host in hosts}
    for number, words in said.items():
        if words:
            raise TestbedError(f"set up the control link of host {number}", words.splitlines()[0])


def _batch(name: str, commands: Sequence[str]) -> None:
    done = subprocess.run(["ip", "-batch", _write_batch(name, commands)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestbedError("make the control network", done.stderr.strip())


def _write_batch(name: str, commands: Sequence[str]) -> str:
    path = _BATCHES / f"{name}.batch"
    path.write_text("\n".join(commands) + "\n", encoding="utf-8")
    return str(path)


def _mac(address: str) -> str:
    """Return a locally administered MAC address that contains the IPv4 address."""
    return "02:00:" + ipaddress.IPv4Address(address).packed.hex(":")
