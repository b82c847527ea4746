"""Mininet hosts and their control network, inside a sandbox."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.machine import sandbox

pytestmark = pytest.mark.root

MAKE = """
from harness.testbeds.emulated.mininet_net import EmulatedNet

def make(count):
    net = EmulatedNet()
    for number in range(count):
        net.addHost(f"h{number}", number=number, ctl_ip=f"172.16.{(number + 1) >> 8}.{(number + 1) & 255}")
    net.build()
    return net
"""

PROGRAM = f"""{MAKE}
import json, sys
from pathlib import Path
net = make(int(sys.argv[1]))
answers = [host.cmd(sys.argv[3]) for host in net.hosts]
netns = [host.netns for host in net.hosts]
net.stop()
Path(sys.argv[2]).write_text(json.dumps([netns, answers]))
"""


def ask_hosts(folder: Path, count: int, command: str, first: str = "true") -> tuple[list[str], list[str]]:
    """Make hosts, run a shell command in each; their namespaces and answers.

    ``first``: a shell command that the sandbox runs before.
    """
    answers = folder / "answers.json"
    program = [sys.executable, "-c", PROGRAM, str(count), str(answers), command]
    status = sandbox.run(["sh", "-ec", f'{first}; exec "$@"', "sh", *program], keep=[folder])
    assert status == 0
    namespaces, said = json.loads(answers.read_text())
    return namespaces, said


def test_each_host_has_loopback_and_a_control_device_and_no_default_route(tmp_path: Path) -> None:
    namespaces, said = ask_hosts(tmp_path, 3, "ip -json address | tr -d '\\n'; echo; ip route")
    assert len(set(namespaces)) == 3
    for number, answer in enumerate(said):
        devices, routes = answer.strip().splitlines()
        seen = {device["ifname"]: [one["local"] for one in device["addr_info"]] for device in json.loads(devices)}
        assert seen["ctl0"] == [f"172.16.0.{number + 1}"]
        assert "127.0.0.1" in seen["lo"]
        assert set(seen) == {"lo", "ctl0"}
        assert routes.startswith("172.16.0.0/16 dev ctl0")


def test_the_control_network_reaches_the_sandbox_without_resolving_addresses(tmp_path: Path) -> None:
    connect = "bash -c 'exec 3<>/dev/tcp/172.16.255.254/1' 2>&1 | tail -1; ip neighbour"
    _, said = ask_hosts(tmp_path, 2, connect)
    for answer in said:
        assert "Connection refused" in answer, "nobody listens there, but the answer must come"
        assert answer.strip().splitlines()[-1].endswith("PERMANENT")


def test_the_control_network_does_not_connect_hosts_with_each_other(tmp_path: Path) -> None:
    connect = 'for n in 1 2; do timeout 20 bash -c "exec 3<>/dev/tcp/172.16.0.$n/1" 2>&1 | tail -1; done'
    _, said = ask_hosts(tmp_path, 2, connect, "echo 1 > /proc/sys/net/ipv4/ip_forward")
    answers = [["refused" in line for line in answer.strip().splitlines()] for answer in said]
    assert answers == [[True, False], [False, True]], "each host reaches itself only"
    assert all("No route to host" in answer for answer in said)


def test_ipv6_is_off(tmp_path: Path) -> None:
    _, said = ask_hosts(tmp_path, 1, "ip -6 address; cat /proc/sys/net/ipv6/conf/ctl0/disable_ipv6")
    assert said[0].strip() == "1"


def test_a_kernel_without_ipv6_is_no_obstacle(tmp_path: Path) -> None:
    """Its settings are not there; the mount hides all of a namespace's network settings, also those of new ones."""
    _, said = ask_hosts(
        tmp_path, 2, "ls /proc/sys/net; ip -o -4 address show dev ctl0", "mount -t tmpfs none /proc/sys/net"
    )
    assert ["172.16.0.1/16" in said[0], "172.16.0.2/16" in said[1]] == [True, True]
    assert not any("ipv" in answer for answer in said)


def test_a_low_soft_limit_of_open_files_is_raised(tmp_path: Path) -> None:
    """Mininet keeps two descriptors per host, which 64 are too few for."""
    namespaces, _ = ask_hosts(tmp_path, 40, "true", "ulimit -Sn 64")
    assert len(set(namespaces)) == 40


def test_too_many_hosts_are_refused(tmp_path: Path) -> None:
    program = f"{MAKE}\ntry: make(1001)\nexcept Exception as error: print(type(error).__name__, error)"
    entered = sandbox.enter(
        [sys.executable, "-c", f"import sys; sys.stdout = open(r'{tmp_path}/out', 'w')\n{program}"], keep=[tmp_path]
    )
    entered.wait()
    assert (tmp_path / "out").read_text().startswith("TestbedError make 1001 hosts")


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    """Mininet itself leaves the process when mnexec is missing: here it is an error like any other."""
    program = (
        f"{MAKE}\n"
        "import os, sys; os.environ['PATH'] = '/nowhere'\n"
        "from harness.errors import TestbedError\n"
        "try: make(1)\n"
        "except TestbedError as error: sys.exit(40)"
    )
    assert sandbox.run([sys.executable, "-c", program]) == 40
    assert subprocess.run([sys.executable, "-c", "pass"], check=False).returncode == 0
