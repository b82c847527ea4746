"""What processes are known to send: clients of iperf and iperf3, whose rate and time are in their arguments.

Other programs do not say how much they send. A transfer is not known either if it has an end by its bytes, or if TCP
loses packets on its path: it is not known how fast it is then.
"""

import getopt
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from harness.errors import ExperimentError
from harness.experiment.shadow import is_shadow
from harness.machine.calibration import CALIBRATE_VARIABLE, Calibration, calibrate
from harness.planes.registry import DEFAULT
from harness.planning.plan import PlannedRun
from harness.planning.processors import REFERENCE_WORK_US
from harness.testbeds.registry import find_testbed
from peer.runtime.names import name_hosts
from topologies.bottlenecks import Bottlenecks
from topologies.model import DOWN, UP, Underlay

CARRIED_MBIT: Final = 600.0
"""What the userspace data plane carried in one TCP flow (docs/benchmarks.md). The machine was not calibrated then, and
is taken for the reference machine."""

CARRIED_FRAMES_PER_S: Final = 206_000.0
"""What a processor of that machine carried of datagrams of 256 bytes, without a capture (docs/benchmarks.md)."""

WINDOW_BYTES: Final = 3 << 20
"""What a TCP connection may have under way by the kernel's defaults: half of the largest ``tcp_rmem`` (tcp(7))."""

SEGMENT_BYTES: Final = 1448
DATAGRAM_BYTES: Final = 1470
"""The payload of a packet, if the arguments do not say it."""

TIME_S: Final = 10.0
UDP_MBIT: Final = 1.0
"""The defaults of both programs."""

_SHORT: Final = {
    "iperf": "b:ef:hi:l:mo:p:uw:zB:CM:NS:Z:s1t:UDVc:dn:rF:IL:P:RT:Xx:y:H:",
    "iperf3": "p:f:i:I:F:A:B:VJdvhsD1c:X:ub:t:n:k:l:P:Rw:C:M:N46S:L:ZO:T:",
}
_LONG: Final = (
    *("client=", "udp", "bandwidth=", "bitrate=", "time=", "num=", "bytes=", "blockcount=", "fileinput=", "file="),
    *("len=", "length=", "parallel=", "reverse", "bidir", "dualtest", "full-duplex", "window=", "server", "port="),
    *("format=", "interval=", "enhanced", "json", "verbose", "logfile=", "forceflush", "get-server-output", "title="),
    *("nodelay", "no-delay", "mss=", "set-mss=", "tos=", "version4", "version6", "zerocopy", "omit=", "bind="),
)
_NAMES: Final[dict[str | tuple[str, str], str]] = {
    ("iperf", "-d"): "both",
    ("iperf", "-I"): "amount",
    ("iperf", "-r"): "amount",
    "-b": "rate",
    "--bandwidth": "rate",
    "--bitrate": "rate",
    "-c": "client",
    "-t": "time",
    "-u": "udp",
    "-n": "amount",
    "--num": "amount",
    "--bytes": "amount",
    "-k": "amount",
    "--blockcount": "amount",
    "-F": "amount",
    "--file": "amount",
    "--fileinput": "amount",
    "-l": "length",
    "--len": "length",
    "-P": "parallel",
    "-R": "reverse",
    "--bidir": "both",
    "--dualtest": "both",
    "--full-duplex": "both",
    "-w": "window",
}
"""The options that count, of one or both programs, by their meaning. Others keep their names. ``amount``: the transfer
does not end by its time, or not at once."""

_SUFFIXES: Final = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}


class Transfer(NamedTuple):
    """What a process sends from one host to another.

    Attributes:
        process: its number in ``peer.processes``.
        sender: a node.
        receiver: another one.
        mbit: its rate in Mbit/s.
        packet_bytes: the payload of each of its packets.
        start_s: when it begins, after the start of the publishing window.
        end_s: when it ends.
    """

    process: int
    sender: int
    receiver: int
    mbit: float
    packet_bytes: float
    start_s: float
    end_s: float


class Client(Struct, frozen=True):
    """What a client of iperf or iperf3 asks for.

    Attributes:
        server: the host, by a name or an address.
        does: whether it ``sends`` or ``receives``, or both.
        udp: whether it sends by UDP, otherwise by TCP.
        mbit: the rate of a stream (Mbit/s); infinite = as fast as the network allows.
        streams: how many there are.
        packet_bytes: the payload of a packet.
        window_bytes: what TCP may have under way.
        time_s: how long it sends.
    """

    server: str
    does: tuple[Literal["sends", "receives"], ...]
    udp: bool
    mbit: float
    streams: float
    packet_bytes: float
    window_bytes: float
    time_s: float


class Demand(NamedTuple):
    """What transfers send at the same time: Mbit/s and packets/s, from an instant on (s)."""

    at_s: float
    transfers: tuple[Transfer, ...]
    mbit: float
    packets_per_s: float


def refuse_transfers(planned: PlannedRun, here: bool) -> None:
    """Refuse a run whose processes are known to send more than the data plane carries on this machine.

    Nothing is refused if the network changes during the run, if the run is dilated, or if the machine was not
    calibrated.

    Args:
        planned: the run.
        here: whether the run is made on this machine.

    Raises:
        ExperimentError: it is so; the message names the process and the numbers.
    """
    experiment = planned.plan.experiment
    testbed = find_testbed(experiment.testbed, experiment.plane)
    if not (here and testbed.here and testbed.plane == DEFAULT) or planned.changes or experiment.dilation != 1:
        return
    demands = list_demands(list(find_transfers(planned)), planned.underlay)
    if not demands or (calibration := calibrate()) is None:
        return
    for demand in demands:
        if problem := _exceeds(demand, calibration):
            largest = max(demand.transfers, key=lambda transfer: transfer.mbit)
            raise ExperimentError(_place_of(planned, largest.process), problem)


def _exceeds(demand: Demand, calibration: Calibration) -> str:
    """Return why a machine does not carry what is sent, as a sentence; empty if it may."""
    speed = REFERENCE_WORK_US / calibration.work_us
    for amount, carried, unit in (
        (demand.mbit, CARRIED_MBIT * speed, "Mbit/s"),
        (demand.packets_per_s, CARRIED_FRAMES_PER_S * speed, "packets/s"),
    ):
        if amount > carried:
            sent = f"up to {amount:,.0f} {unit}" if math.isfinite(amount) else f"{unit} without a limit"
            several = len({transfer.process for transfer in demand.transfers})
            who = "this process sends" if several == 1 else f"this and {several - 1} further processes send"
            most = f"the data plane carries at most {carried:,.0f} here ({calibration.work_us:.0f} us of work)"
            fix = f"limit the rates, or set {CALIBRATE_VARIABLE}=0 to run it all the same"
            return f"{who} {sent} from {demand.at_s:g} s on, and {most}; {fix}"
    return ""


def _place_of(planned: PlannedRun, number: int) -> str:
    """Return where a process is in the experiment file."""
    if not is_shadow(planned.source):
        return f"$.peer.processes[{number}].command"
    processes = planned.plan.experiment.peer.processes
    node = processes[number].node
    before = sum(process.node == node for process in processes[:number])
    return f"{planned.source}: hosts.{planned.underlay.hosts[node].name}.processes[{before}].args"


def find_transfers(planned: PlannedRun) -> Iterator[Transfer]:
    """Yield what the processes of a run are known to send, without what other transfers take of the same links."""
    experiment, underlay = planned.plan.experiment, planned.underlay
    if len(Bottlenecks.of(underlay)):
        return  # links inside the network limit the transfers, too
    names = {name: node for node, name in enumerate(name_hosts([host.name for host in underlay.hosts]))}
    names |= {place.wan_ip: node for node, place in enumerate(planned.plan.placement)}
    length_s = experiment.workload.duration_s + experiment.workload.cooldown_s
    for number, process in enumerate(experiment.peer.processes):
        client = read_client(process.command)
        other = None if client is None else names.get(client.server)
        if client is None or other is None or other == process.node:
            continue
        end_s = min(process.start_s + client.time_s, process.shutdown_s or math.inf, length_s)
        pairs = {"sends": (process.node, other), "receives": (other, process.node)}
        for pair in (pairs[each] for each in client.does):
            mbit = _rate_mbit(client, underlay, *pair)
            if mbit > 0 and end_s > process.start_s:
                yield Transfer(number, *pair, mbit, client.packet_bytes, process.start_s, end_s)


def read_client(command: Sequence[str]) -> Client | None:
    """Return what a command asks for if it is a client of iperf or iperf3 that ends by its time, otherwise None.

    So it is with options that are not known, and with values that the program does not take.
    """
    program = Path(command[0]).name
    if program not in _SHORT:
        return None
    try:
        found, _ = getopt.gnu_getopt(list(command[1:]), _SHORT[program], list(_LONG))
        options = {_NAMES.get((program, name)) or _NAMES.get(name) or name.lstrip("-"): text for name, text in found}
        if "client" not in options or "amount" in options:
            return None
        udp = "udp" in options
        rate = options.get("rate", f"{UDP_MBIT}m" if udp else "0").partition("/")[0].partition(",")[0]
        return Client(
            server=options["client"],
            does=("sends", "receives") if "both" in options else ("receives",) if "reverse" in options else ("sends",),
            udp=udp,
            mbit=_quantity(rate) / 1e6 or math.inf,
            streams=float(options.get("parallel", 1)),
            packet_bytes=(_quantity(options.get("length", "0")) or DATAGRAM_BYTES) if udp else SEGMENT_BYTES,
            window_bytes=min(WINDOW_BYTES, _quantity(options.get("window", f"{WINDOW_BYTES}"))),
            time_s=float(options.get("time", TIME_S)) or math.inf,
        )
    except (getopt.GetoptError, ValueError):
        return None


def _rate_mbit(client: Client, underlay: Underlay, sender: int, receiver: int) -> float:
    """Return the rate of a client's streams in a direction (Mbit/s); 0 = not known."""
    links = (_limit(underlay, side, node) for side, node in ((UP, sender), (DOWN, receiver)))
    stream = client.mbit if client.udp else min(client.mbit, _tcp_mbit(underlay, sender, receiver, client.window_bytes))
    return min(stream * client.streams, *links)


def _quantity(text: str) -> float:
    """Return a number with a suffix, whose steps are thousands.

    Raises:
        ValueError: it is none.
    """
    found = re.fullmatch(r"([0-9.]+)([kmg]?)", text.lower())
    if found is None:
        raise ValueError(text)
    return float(found[1]) * _SUFFIXES[found[2]]


def _tcp_mbit(underlay: Underlay, sender: int, receiver: int, window_bytes: float) -> float:
    """Return the largest rate of a TCP connection by its window (Mbit/s); 0 = not known, since packets are lost."""
    pairs = ((sender, receiver), (receiver, sender))
    if any(underlay.loss_ratio[pair] for pair in pairs):
        return 0.0
    round_trip_ms = float(sum(underlay.delay_ms[pair] for pair in pairs))
    return window_bytes * 8 / 1e3 / round_trip_ms if round_trip_ms else math.inf


def _limit(underlay: Underlay, side: int, node: int) -> float:
    """Return the rate of a host's access link (Mbit/s)."""
    return float(underlay.rate_mbit[side, node]) or math.inf


def list_demands(transfers: Sequence[Transfer], underlay: Underlay) -> list[Demand]:
    """Return what is sent at each instant at which a transfer begins: at one of them it is most.

    Transfers that ask together for more than an access link passes get a part of it, in proportion to what they ask.
    What one of them leaves unused, because it is also limited at its other end, is not given to the others.
    """
    found = []
    for at_s in sorted({each.start_s for each in transfers}):
        now = tuple(each for each in transfers if each.start_s <= at_s < each.end_s)
        sent = _passed(underlay, UP, [(each.sender, each.mbit) for each in now])
        received = _passed(underlay, DOWN, [(each.receiver, each.mbit) for each in now])
        rates = [each.mbit * min(sent[each.sender], received[each.receiver]) for each in now]
        packets = (mbit * 1e6 / 8 / each.packet_bytes for mbit, each in zip(rates, now, strict=True))
        found.append(Demand(at_s, now, sum(rates), sum(packets)))
    return found


def _passed(underlay: Underlay, side: int, asked: Sequence[tuple[int, float]]) -> dict[int, float]:
    """Return for each node which part its access link passes of the Mbit/s that are asked of it."""
    sums: dict[int, float] = {}
    for node, mbit in asked:
        sums[node] = sums.get(node, 0.0) + mbit
    return {
        node: min(1.0, _limit(underlay, side, node) / mbit) if math.isfinite(mbit) else 1.0
        for node, mbit in sums.items()
    }
