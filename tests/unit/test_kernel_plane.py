"""The kernel plane's settings as commands, their comparison with what was read back, its counters, and its choice."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from harness.doctor.facts import Trial
from harness.errors import ExperimentError
from harness.experiment.form import Experiment
from harness.experiment.loader import decode_experiment
from harness.planes.kernel import MOST_HOSTS, PLANE, counting, settings
from harness.planes.kernel.settings import Leaf, find_differences, port_device
from harness.planes.plane import DROP_CAUSES, Counters, Port
from harness.planning import make_plan, planes
from topologies.network import AskedOfPairs, Network

MS = 1_000_000
DELAY_MS = np.array([[0, 10, 20.5], [30, 0, 40.125], [50, 60, 0]])
LOSS_RATIO = np.array([[0, 0, 0.25], [0, 0, 0], [0.000001, 0, 0]])
NETWORK = Network.of_pairs(AskedOfPairs(DELAY_MS, np.zeros((3, 3)), LOSS_RATIO))
PORTS = [Port(host, f"/netns/{host}", f"10.0.0.{host + 1}") for host in range(3)]
PAIRS = [(source, destination) for source in range(3) for destination in range(3) if source != destination]
LEAVES = settings.ask_leaves(NETWORK, 2.0, 1500)

_CLASS = re.compile(r"class add dev (\S+) parent 1: classid (1:\w+) htb rate 100gbit burst 1mb cburst 1mb quantum 1514")
_LEAF = re.compile(r"qdisc add dev (\S+) parent (1:\w+) handle (\w+): netem (.*)")
_FILTER = re.compile(
    r"filter add dev (\S+) parent 1: protocol ip prio 1 handle (\d+) flower src_ip (\S+) classid (1:\w+)"
)


def test_each_directed_pair_is_asked_for_its_own_delay_and_loss() -> None:
    asked = {(leaf.source, leaf.destination): leaf for leaf in LEAVES}
    assert list(asked) == sorted(PAIRS, key=lambda pair: pair[::-1])
    for pair, leaf in asked.items():
        assert leaf.delay_ns == round(2 * DELAY_MS[pair] * MS)
        assert leaf.loss_ratio == LOSS_RATIO[pair]


@pytest.mark.parametrize("delay_ms", [0, 1, 100, 5000])
def test_a_leaf_has_room_for_the_bandwidth_delay_product(delay_ms: int) -> None:
    full_size = settings.limit_packets(delay_ms * MS, 1500) - settings.FEWEST_PACKETS
    wire_bits = (1500 + 14) * 8
    assert full_size * wire_bits >= settings.LINE_MBIT * 1e6 * delay_ms / 1e3 > (full_size - 1) * wire_bits


def parse(pattern: re.Pattern[str]) -> list[tuple[str, ...]]:
    found = (pattern.fullmatch(line) for line in settings.shaping_commands(PORTS, LEAVES))
    return [match.groups() for match in found if match]


def test_packets_of_a_source_reach_its_own_leaf_at_the_destinations_port() -> None:
    classes, leaves, filters = parse(_CLASS), parse(_LEAF), parse(_FILTER)
    assert len(filters) == len(PAIRS)
    assert len(classes) == len(leaves) == len(PAIRS) + len(PORTS), "a class per pair, and one of unknown sources"
    assert {(device, parent) for device, parent, *_ in leaves} == set(classes)
    assert len({(device, handle) for device, _, handle, _ in leaves}) == len(leaves)
    assert len({(device, handle) for device, handle, *_ in filters}) == len(filters)
    netem = {(device, parent): words for device, parent, _, words in leaves}
    for leaf in LEAVES:
        ((classid,),) = [
            [classid]
            for device, _, address, classid in filters
            if (device, address) == (port_device(leaf.destination), PORTS[leaf.source].address)
        ]
        loss = f" loss random {100 * leaf.loss_ratio:f}%" if leaf.loss_ratio else ""
        asked = f"limit {leaf.limit} delay {leaf.delay_ns // 1000}.000us{loss}"
        assert netem[port_device(leaf.destination), classid] == asked


def test_packets_of_unknown_sources_are_dropped() -> None:
    defaults = [line for line in settings.shaping_commands(PORTS, LEAVES) if " htb default " in line]
    assert defaults == [f"qdisc add dev wan{host}p root handle 1: htb default ffff" for host in range(3)]
    unknown = [words for _, parent, _, words in parse(_LEAF) if parent == "1:ffff"]
    assert unknown == ["loss 100%"] * 3


def test_the_most_hosts_have_different_handles() -> None:
    ports = [Port(host, "", f"10.0.0.{host + 1}") for host in range(MOST_HOSTS)]
    leaves = [Leaf(source, 0, MS, 0.0, 1000) for source in range(1, MOST_HOSTS)]
    found = (_LEAF.fullmatch(line) for line in settings.shaping_commands(ports, leaves))
    handles = [match[3] for match in found if match and match[1] == port_device(0)]
    assert len(set(handles)) == MOST_HOSTS and "1" not in handles


def test_every_host_is_behind_its_own_port_and_knows_all_others() -> None:
    links = "\n".join(settings.bridge_commands(PORTS))
    for port, line in zip(PORTS, settings.forwarding_commands(PORTS), strict=True):
        mac = settings.mac(port.address)
        assert line == f"fdb replace {mac} dev wan{port.host}p master static"
        peer = f"link add wan{port.host}p mtu 1500 type veth peer name wan0 mtu 1500 address {mac} netns {port.netns}"
        assert peer in links
        assert f"wan{port.host}p type bridge_slave learning off flood off mcast_flood off bcast_flood off" in links
        commands = settings.host_commands(port, PORTS)
        known = {line.split()[2]: line.split()[4] for line in commands if line.startswith("neighbour")}
        assert known == {other.address: settings.mac(other.address) for other in PORTS if other is not port}
    assert len({settings.mac(port.address) for port in PORTS}) == len(PORTS)


def test_devices_and_queues_follow_the_mtu() -> None:
    ports = [replace(port, mtu=9000) for port in PORTS]
    devices = [line for line in settings.bridge_commands(ports) if " type veth " in line]
    assert len(devices) == len(PORTS) + 1
    assert all(line.count(" mtu 9000") == 2 for line in devices)
    classes = [line for line in settings.shaping_commands(ports, LEAVES) if line.startswith("class ")]
    assert len(classes) == len(PAIRS) + len(PORTS)
    assert all(line.endswith(" quantum 9014") for line in classes)
    for small, large in zip(LEAVES, settings.ask_leaves(NETWORK, 2.0, 9000), strict=True):
        assert settings.FEWEST_PACKETS < large.limit < small.limit


# --------------------------------------------------------------------------------------------------- read back


def read_back() -> tuple[list[dict[str, Any]], dict[int, list[dict[str, Any]]]]:
    """What ``tc -j`` shows of these settings, as of iproute2 6.1: delays in whole microseconds."""
    qdiscs: list[dict[str, Any]] = [
        {"kind": "htb", "handle": "1:", "dev": f"wan{host}p", "root": True, "options": {}} for host in range(3)
    ]
    filters: dict[int, list[dict[str, Any]]] = {host: [{"kind": "flower", "pref": 1}] for host in range(3)}
    for leaf in LEAVES:
        parent = f"1:{leaf.source + 1:x}"
        options: dict[str, Any] = {
            "limit": leaf.limit,
            "delay": {"delay": leaf.delay_ns // 1000 / 1e6, "jitter": 0, "correlation": 0},
        }
        if leaf.loss_ratio:
            options["loss-random"] = {"loss": leaf.loss_ratio, "correlation": 0}
        qdiscs.append({"kind": "netem", "dev": port_device(leaf.destination), "parent": parent, "options": options})
        keys = {"eth_type": "ipv4", "src_ip": PORTS[leaf.source].address}
        filters[leaf.destination].append({"kind": "flower", "options": {"classid": parent, "keys": keys}})
    return qdiscs, filters


def differences(qdiscs: Sequence[dict[str, Any]], filters: dict[int, list[dict[str, Any]]]) -> list[str]:
    return find_differences(LEAVES, PORTS, qdiscs, filters)


def test_settings_that_are_as_asked_do_not_differ() -> None:
    assert differences(*read_back()) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"delay": {"delay": 0.06 + 6e-6, "jitter": 0}}, "asked for a delay of 60 ms, found 60.006 ms"),
        ({"delay": {"delay": 0.06, "jitter": 0.001}}, "asked for a delay of 60 ms, found 60 ms +- 1 ms"),
        ({"delay": {}}, "asked for a delay of 60 ms, found 0 ms"),
        ({"loss-random": {"loss": 0.01}}, "asked for a loss of 0, found 0.01"),
        ({"limit": 1000}, "packets, found 1000"),
    ],
)
def test_a_setting_that_differs_is_named(change: dict[str, Any], words: str) -> None:
    qdiscs, filters = read_back()
    (entry,) = [entry for entry in qdiscs if (entry["dev"], entry.get("parent")) == ("wan0p", "1:2")]
    entry["options"] |= change
    (difference,) = differences(qdiscs, filters)
    assert difference.startswith("from host 1 to host 0: ") and words in difference


def test_a_missing_leaf_and_a_filter_to_another_one_are_named() -> None:
    qdiscs, filters = read_back()
    lacking = [entry for entry in qdiscs if (entry["dev"], entry.get("parent")) != ("wan2p", "1:1")]
    assert differences(lacking, filters) == ["from host 0 to host 2: expected a netem qdisc, found none"]
    filters[0][1]["options"]["classid"] = "1:3"
    assert differences(qdiscs, filters) == ["from host 1 to host 0: packets go to class 1:3, not 1:2"]


# ---------------------------------------------------------------------------------------------------- counters

DEVICES = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0
wansink:      0       0    0    0    0     0          0         0       50       5    0    0    0     0       0          0
 wan0p:    1140      10    0    0    0     0          0         0     2280      20    0    3    0     0       0          0
 wan1p:    2280      20    0    0    0     0          0         0      570       5    0    0    0     0       0          0
"""  # noqa: E501 - as the kernel writes it


def test_frames_are_counted_at_the_ports() -> None:
    counters = counting.count_frames(counting.read_devices(DEVICES), 2)
    assert (counters.frames_in, counters.frames_out) == (30, 25)
    assert (counters.bytes_in, counters.bytes_out) == (3420 - 14 * 30, 2850 - 14 * 25)
    dropped = {cause: count for cause, count in counters.drops.items() if count}
    assert dropped == {"unknown_destination": 5, "device_full": 3} and set(counters.drops) == set(DROP_CAUSES)


def test_drops_of_leaves_have_their_cause() -> None:
    qdiscs = [
        {"kind": "htb", "options": {}, "drops": 1000, "qlen": 7},
        {"kind": "netem", "options": {"limit": 1}, "drops": 1, "qlen": 3},
        {"kind": "netem", "options": {"loss-random": {"loss": 0.01}}, "drops": 20, "qlen": 4},
        {"kind": "netem", "options": {"loss-random": {"loss": 1}}, "drops": 300, "qlen": 0},
    ]
    leaves = counting.count_leaves(qdiscs)
    assert {cause: count for cause, count in leaves.drops.items() if count} == {
        "loss": 20,
        "unknown_destination": 300,
        "overload": 1,
    }
    assert leaves.in_flight == 7
    counters = counting.add_leaves(counting.count_frames(counting.read_devices(DEVICES), 2), leaves)
    assert (counters.drops["unknown_destination"], counters.in_flight) == (305, 7)
    assert counters.unaccounted == 30 - 25 - (20 + 305 + 1 + 3) - 7


def counted(frames_in: int, frames_out: int, in_flight: int) -> Counters:
    return Counters(frames_in, frames_out, 0, 0, {}, in_flight)


@pytest.mark.parametrize(
    ("readings", "reads"),
    [
        ([counted(9, 9, 0)] * 2, 2),
        ([counted(9, 5, 4)] * 2, 2),  # frames in flight are counted, and need not arrive
        ([counted(9, 5, 4), counted(9, 6, 3), counted(9, 6, 3)], 3),
        ([counted(9, 5, 3)] * 2 + [counted(9, 5, 4)] * 2, 4),  # one was between the counters
        ([counted(9, 5, 3)] * 5, 5),  # one is missing for good
        ([counted(9, 5 + read, 4 - read) for read in range(5)], 5),
    ],
)
def test_the_counters_are_read_until_they_account_for_every_frame(readings: list[Counters], reads: int) -> None:
    left = list(readings)
    settled = counting.settle(lambda: left.pop(0), lambda: not left)
    assert settled == readings[reads - 1]
    assert len(readings) - len(left) == reads


# ---------------------------------------------------------------------------------------------------- choice


def experiment(plane: str, keys: dict[str, object] | None = None, **underlay: object) -> Experiment:
    network = {"kind": "uniform", "hosts": 4} | underlay
    document = {"name": "x", "protocol": "complete", "plane": plane, "underlay": network}
    return decode_experiment(document | (keys or {}))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> dict[str, Trial]:
    """What the kernel says when a device is tried."""
    trials = {device.name: Trial(True) for device in PLANE.needs}
    monkeypatch.setattr(planes, "try_device", lambda device: trials[device.name])
    return trials


def chosen(plane: str, folder: Path, here: bool = True, **options: Any) -> str:
    file = folder / "x.toml"
    file.write_text("")
    return make_plan(experiment(plane, **options), file, here=here).plan.experiment.plane


def test_auto_is_the_kernel_where_it_can_carry_the_network(kernel: dict[str, Trial], tmp_path: Path) -> None:
    assert chosen("auto", tmp_path) == "kernel"
    assert chosen("auto", tmp_path, rate_mbit=5) == chosen("auto", tmp_path, jitter=1.0) == "userspace"
    assert chosen("auto", tmp_path, kind="dumbbell", link_rate_mbit=5) == "userspace"
    assert chosen("auto", tmp_path, hosts=MOST_HOSTS + 1) == chosen("auto", tmp_path, here=False) == "userspace"
    for keys in ({"testbed": "simulated"}, {"capture": {"enabled": False}}):
        assert chosen("auto", tmp_path, keys=keys) == "userspace"
    kernel["cls_flower"] = Trial(False, "unknown")
    assert chosen("auto", tmp_path) == "userspace"


def test_the_kernel_is_refused_by_name_if_it_lacks_something(kernel: dict[str, Trial], tmp_path: Path) -> None:
    assert chosen("kernel", tmp_path) == "kernel"
    kernel["sch_netem"] = Trial(False, "Specified qdisc kind is unknown.")
    with pytest.raises(ExperimentError, match=r"\$.plane: .*needs sch_netem, which this kernel lacks: Specified"):
        chosen("kernel", tmp_path)
    assert chosen("kernel", tmp_path, here=False) == "kernel"
    with pytest.raises(ExperimentError, match=r"\$.plane: .*needs sch_netem"):
        planes.refuse_lacking_kernel(experiment("kernel"))
    planes.refuse_lacking_kernel(experiment("userspace"))


@pytest.mark.parametrize(
    ("underlay", "place", "words"),
    [
        ({"hosts": 65}, "$.underlay.hosts", "at most 64 hosts with plane"),
        ({"jitter": 2.0}, "$.underlay.jitter", 'constant delays.*set jitter = "none"'),
    ],
)
def test_a_network_that_the_kernel_plane_cannot_make_is_refused(
    underlay: dict[str, object], place: str, words: str, kernel: dict[str, Trial], tmp_path: Path
) -> None:
    with pytest.raises(ExperimentError, match=words) as refused:
        chosen("kernel", tmp_path, **underlay)
    assert place in str(refused.value)


def test_keys_that_the_kernel_plane_cannot_honour_are_refused() -> None:
    for key in ("rate_mbit", "up_mbit", "down_mbit"):
        with pytest.raises(ExperimentError, match='plane = "kernel" has no rates of links'):
            experiment("kernel", **{key: 5})
        experiment("userspace", **{key: 5})
    with pytest.raises(ExperimentError, match='plane = "kernel" has no rates of links'):
        experiment("kernel", kind="dumbbell", link_rate_mbit=5)
    experiment("kernel", loss_ratio=0.1)
