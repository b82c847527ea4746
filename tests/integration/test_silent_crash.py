"""A neighbour's view of a host whose peer crashes, and of one that vanishes: real processes in two network namespaces.

Node 0 and the test itself are at host 0, the node that ends is at host 1.
"""

import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest

from harness.machine.netns import entered
from harness.testbeds.emulated.echo import EchoSockets
from peer.core.contract import message_id
from peer.core.schedule import Action, Crash, Join, Publish, Vanish, encode_schedule
from peer.instances.spec import PeerPlace
from peer.trace import TraceEvent
from tests.integration.test_agent import CHECKOUT, LIMIT_S, Machine, process_below, until

pytestmark = pytest.mark.root

WAN, CTL = ("10.0.0.1", "10.0.0.2"), ("172.16.0.1", "172.16.0.2")
PORT, METRICS_PORT = 9000, 9100
DECODER = msgspec.json.Decoder(TraceEvent)
SILENCE_S = 3.0
"""How long a neighbour that should hear nothing is watched. It hears of a crash within milliseconds."""


@pytest.fixture
def holders() -> Iterator[list[int]]:
    """The processes that hold the hosts' namespaces, which one cable connects: two addresses at each end."""
    command = ["unshare", "--net", "sh", "-c", "ip link set lo up; echo; exec sleep 600"]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in WAN]
    try:
        for holder in started:
            holder.stdout.readline()
        here, there = (holder.pid for holder in started)
        in_host(here, f"ip link add wan0 type veth peer name wan0 netns {there}")
        for pid, wan, ctl in zip((here, there), WAN, CTL, strict=True):
            in_host(pid, f"ip address add {wan}/24 dev wan0; ip address add {ctl}/24 dev wan0; ip link set wan0 up")
        yield [here, there]
    finally:
        for holder in started:
            holder.kill()
            holder.wait()
            holder.stdout.close()


def in_host(pid: int, script: str) -> str:
    return subprocess.check_output(["nsenter", f"--net=/proc/{pid}/ns/net", "sh", "-ec", script], text=True)


@contextmanager
def inside(pid: int) -> Iterator[None]:
    with Path(f"/proc/{pid}/ns/net").open("rb") as namespace, entered(namespace.fileno()):
        yield


class Hosts(Machine):
    """The agent with nodes 0 and 1, each at its host, which follow a schedule for as long as the test wants."""

    def __init__(self, folder: Path, holders: list[int], *schedule: Action, **changes: object) -> None:
        self.holders = holders
        places = tuple(
            PeerPlace(node, (WAN[node], PORT), (CTL[node], METRICS_PORT), f"/proc/{pid}/ns/net")
            for node, pid in enumerate(holders)
        )
        documents = {"schedule.jsonl": encode_schedule(schedule).decode()}
        super().__init__(
            folder,
            2,
            documents,
            peers=places,
            addresses=tuple(place.listen for place in places),
            agent_metrics=None,
            stop_ns=int(2 * LIMIT_S * 1e9),
            **changes,
        )

    def __enter__(self) -> "Hosts":
        self.await_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        self.process.wait(LIMIT_S)
        self.process.stderr.close()

    def seen(self) -> list[str]:
        """What node 0 saw of its link to node 1: ``up``, or the reason for its end."""
        events = [event for event in self.flushed(0) if event.event in ("add_peer", "remove_peer")]
        return [event.reason or "up" for event in events]

    def flushed(self, node: int) -> list[TraceEvent]:
        """What a running peer has written of its trace; the last line may be half there."""
        whole, _, _ = self.folder.joinpath(f"trace/{node}.jsonl").read_bytes().rpartition(b"\n")
        return DECODER.decode_lines(whole)

    def dial(self, limit_s: float) -> socket.socket:
        """Connect from host 0 to where node 1 listens."""
        with inside(self.holders[0]):
            return socket.create_connection((WAN[1], PORT), limit_s)

    def reachable(self) -> bool:
        try:
            self.dial(1.0).close()
        except OSError:
            return False
        return True

    def kept(self, host: int = 1) -> list[str]:
        """The sockets that a host's kernel has at its address in the emulated network."""
        own = socket.inet_aton(WAN[host])[::-1].hex().upper()
        rows = Path(f"/proc/{self.holders[host]}/net/tcp").read_text().splitlines()[1:]
        return [row for row in rows if row.split()[1].startswith(own)]


def ended(plug: socket.socket) -> bool:
    """Whether the other side ends the connection, in whichever way."""
    try:
        return plug.recv(1) == b""
    except ConnectionResetError:
        return True


def privileges(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff")), 16)


@pytest.mark.parametrize("end", [Crash, Vanish])
def test_a_neighbour_hears_of_a_crash_and_nothing_of_a_silent_one(
    end: type[Crash | Vanish], tmp_path: Path, holders: list[int]
) -> None:
    with Hosts(tmp_path, holders, end(4_000_000_000, 1)) as hosts:
        first = process_below(hosts, 1)
        hosts.start()
        until(hosts.reachable)
        with hosts.dial(LIMIT_S) as plug:
            second = process_below(hosts, 1, first)
            if end is Crash:
                assert ended(plug)
                until(lambda: hosts.seen()[1:2])
                assert hosts.seen()[1] in ("closed", "ConnectionResetError")
                with pytest.raises(ConnectionRefusedError):
                    hosts.dial(LIMIT_S)
                return
            plug.settimeout(SILENCE_S)
            with pytest.raises(TimeoutError):
                plug.recv(1)
        assert hosts.seen() == ["up"]
        with pytest.raises(TimeoutError):
            hosts.dial(1.0)
        assert hosts.kept() == []
        assert [event.reason for event in hosts.flushed(1) if event.event == "leave"] == ["crashed"]
        # What is not the peer's still works: the control network, and the echo with which the network is measured.
        with (
            inside(holders[0]),
            urllib.request.urlopen(f"http://{CTL[1]}:{METRICS_PORT}/metrics", timeout=LIMIT_S) as page,
        ):
            assert b"trellis_links 0.0" in page.read()
        echo = EchoSockets([f"/proc/{pid}/ns/net" for pid in holders], WAN)
        _, received = echo.exchange([(0, 1), (1, 0)], np.zeros(2, np.int64), int(LIMIT_S * 1e9))
        assert received.all()
        # Only the process without the node may change the host's rules.
        parent = hosts.call("status")["peers"]["1"]["pid"]
        assert (privileges(parent), privileges(second)) == (1 << 12, 0)


TRY = """
import sys
from peer.runtime.namespaces import CAP_NET_ADMIN, drop_privileges
from peer.runtime.silence import Silence
drop_privileges(kept=[CAP_NET_ADMIN] if sys.argv[1] == "kept" else [])
Silence("10.0.0.2")
"""


def test_only_a_process_with_the_privilege_silences_a_host_and_trying_leaves_nothing(holders: list[int]) -> None:
    rules = in_host(holders[1], "ip rule")
    for kept, words in ((True, ""), (False, "add the rule that silences 10.0.0.2")):
        command = [f"--net=/proc/{holders[1]}/ns/net", sys.executable, "-c", TRY, "kept" if kept else ""]
        done = subprocess.run(["nsenter", *command], stderr=subprocess.PIPE, text=True, cwd=CHECKOUT, check=False)
        assert (done.returncode == 0, words in done.stderr) == (kept, True), done.stderr
        assert in_host(holders[1], "ip rule") == rules


def test_a_host_that_is_back_resets_its_old_connections_and_takes_new_ones(tmp_path: Path, holders: list[int]) -> None:
    back_ns = 4_000_000_000
    schedule = (
        Vanish(1_500_000_000, 1),
        Join(back_ns, 1, (0,)),
        Publish(back_ns + 500_000_000, 0, message_id(0, 0), (0,), 100),
        Vanish(back_ns + 6_000_000_000, 1),
        Join(back_ns + 7_000_000_000, 1, (0,)),
    )
    with Hosts(tmp_path, holders, *schedule) as hosts:
        zero_ns = hosts.start()
        until(lambda: hosts.seen()[2:3])
        assert hosts.seen() == ["up", "ConnectionResetError", "up"]
        lost = next(event for event in hosts.flushed(0) if event.event == "remove_peer")
        assert lost.ts_ns >= zero_ns + back_ns
        assert hosts.reachable()
        until(lambda: hosts.seen()[4:5])
        assert hosts.seen()[3:] == ["ConnectionResetError", "up"], "as often as the schedule says"
        assert "blackhole" not in in_host(holders[1], "ip rule")
