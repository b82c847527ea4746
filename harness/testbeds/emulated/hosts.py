"""Mininet hosts with a control network.

Each host is a ``mininet.node.Host``: a shell in a network namespace. The network that Mininet builds of them
(``mininet_net``) boots them here, all together: Mininet itself starts one shell after the other and calls ``ip`` once
per link; here shells start in parallel, and each namespace runs one batch.

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
from typing import Any

from mininet.node import Host

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


class EmulatedHost(Host):  # type: ignore[misc] # Mininet has no types
    """A host of the testbed. Its shell starts when the network boots, not when Mininet makes the object.

    Args:
        name: Mininet's.
        number: of the host in the run.
        ctl_ip: its address on the control network.
        params: Mininet's; ``ip`` is the address and prefix on the emulated network.
    """

    def __init__(self, name: str, number: int, ctl_ip: str, **params: Any) -> None:  # noqa: ANN401 - Mininet's
        self.number = number
        self.ctl_ip = ctl_ip
        super().__init__(name, **params)

    @property
    def netns(self) -> str:
        """The path of the network namespace, for ``setns``."""
        return f"/proc/{self.pid}/ns/net"

    @property
    def wan_ip(self) -> str:
        """The address on the emulated network."""
        address, _, _ = self.params["ip"].partition("/")
        return str(address)

    @classmethod
    def setup(cls) -> None:
        """Look for Mininet's programs.

        Raises:
            TestbedError: one is missing; Mininet itself would leave the process.
        """
        try:
            super().setup()
        except (OSError, SystemExit) as error:
            raise TestbedError("make Mininet hosts", "mnexec or ifconfig was not found") from error

    def startShell(self, mnopts: str | None = None) -> None:
        """Wait for ``open``: Mininet calls this for one host after the other."""

    def open(self) -> None:
        """Start the shell, in a namespace of its own.

        Raises:
            TestbedError: it did not start.
        """
        try:
            super().startShell()
        except OSError as error:
            raise TestbedError(f"start Mininet host {self.name}", str(error)) from error


def boot(hosts: Sequence[EmulatedHost]) -> None:
    """Start the hosts' shells and make the control network. Runs inside a sandbox.

    Raises:
        TestbedError: too many hosts, or a namespace or link could not be made.
    """
    if len(hosts) > LIMIT.hosts:
        raise TestbedError(f"make {len(hosts)} hosts", f"the control bridge carries at most {LIMIT.hosts}")
    _BATCHES.mkdir(mode=0o700, exist_ok=True)
    allow_open_files(len(hosts))
    for switch in _IPV6_SWITCHES.glob("*/disable_ipv6"):  # none in a kernel without IPv6
        switch.write_text("1", encoding="ascii")
    if _FORWARDING.exists():
        _FORWARDING.write_text("0", encoding="ascii")  # a new namespace has the value of the machine
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        list(pool.map(EmulatedHost.open, hosts))
    _batch("sandbox", _sandbox_commands(hosts))
    _configure(hosts)


def processes(hosts: Sequence[EmulatedHost]) -> list[int]:
    """Return the processes in the hosts' namespaces, except Mininet's shells."""
    return find_processes({host.pid for host in hosts})


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
            f"link add {port}p type veth peer name {CTL_DEVICE} address {_mac(host.ctl_ip)} netns {host.pid}",
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
        host.sendCmd(f"{ipv6_off}; {ports_free}; ip -batch {batch}")
    said = {host.number: host.waitOutput().strip() for host in hosts}
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
