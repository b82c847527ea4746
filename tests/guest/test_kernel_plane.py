"""The kernel plane on a kernel with netem: its delays, losses, captures and counters, beside the userspace plane."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks._namespaces import held_namespaces
from harness.errors import TestbedError
from harness.planes.kernel.handle import KernelPlane
from harness.planes.kernel.settings import port_device
from harness.planes.plane import CaptureCounts, Counters, PairChange, Plane, Port
from harness.planes.userspace.handle import UserspacePlane
from harness.stages import manifest
from harness.testbeds.emulated.echo import PACKET_BYTES, EchoSockets
from metrics.checks.network import is_no_chance
from metrics.pcap.records import RX, TX
from metrics.recorded.host_captures import Seen, read_seen
from topologies.network import AskedOfPairs, Network

HOSTS = 8
PAIRS = [(source, destination) for source in range(HOSTS) for destination in range(HOSTS) if source != destination]
ROUNDS = 20
"""So many that the round trips of one moment in which the guest's only processor does something else, two to four of
them, are less than 1 %."""

LIMIT_MS = 0.5
"""The error that ``verdict.wire_error_p99_ms`` allows by default."""

LOSS_RATIO = 0.2
Made = Callable[..., Plane]
PLANES: dict[str, Made] = {"kernel": KernelPlane, "userspace": UserspacePlane}


def ask(loss: dict[tuple[int, int], float] | None = None) -> Network:
    """A network of which no two directed pairs have the same delay: 5 to 60 ms."""
    delay_ms = np.zeros((HOSTS, HOSTS))
    loss_ratio = np.zeros((HOSTS, HOSTS))
    for number, pair in enumerate(PAIRS):
        delay_ms[pair] = 5 + number + 0.125
    for pair, ratio in (loss or {}).items():
        loss_ratio[pair] = ratio
    return Network.of_pairs(AskedOfPairs(delay_ms, np.zeros((HOSTS, HOSTS)), loss_ratio))


@pytest.fixture
def namespaces() -> Iterator[list[str]]:
    with held_namespaces(HOSTS) as paths:
        yield paths


class Exchanged(NamedTuple):
    """Echo requests over a plane.

    Attributes:
        rtt_ms: (rounds, pairs) their round trips; nan = no reply.
        seen: the captured packets of each host.
        capture: what the plane counted during the capture.
        counters: its counters at the end.
    """

    rtt_ms: npt.NDArray[np.float64]
    seen: list[Seen]
    capture: CaptureCounts
    counters: Counters


def exchange(
    make: Made,
    namespaces: list[str],
    folder: Path,
    network: Network,
    pairs: list[tuple[int, int]],
    rounds: int = ROUNDS,
) -> Exchanged:
    """Send echo requests, 2 ms apart, over a plane that captures."""
    plane = make(network, 1, folder, None, 1.0, 500_000)
    addresses = [f"10.0.0.{host + 1}" for host in range(HOSTS)]
    plane.attach([Port(host, netns, addresses[host]) for host, netns in enumerate(namespaces)])
    offset_ns = manifest.epoch_offset_ns()
    plane.start_capture(folder / "capture", 96, offset_ns)  # type: ignore[attr-defined]
    due_ns = np.arange(rounds * len(pairs)) * 2_000_000
    sent_ns, received_ns = EchoSockets(namespaces, addresses).exchange(pairs * rounds, due_ns, 500_000_000)
    capture: CaptureCounts = plane.stop_capture()  # type: ignore[attr-defined]
    assert plane.lost() == {}
    counters = plane.close().counters
    assert plane.complaints == []
    seen = [read_seen(capture.files, host, offset_ns) for host in range(HOSTS)]
    rtt_ms = np.where(received_ns > 0, (received_ns - sent_ns) / 1e6, np.nan).reshape(rounds, len(pairs))
    return Exchanged(rtt_ms, [each for each in seen if each is not None], capture, counters)


def crossings_ms(seen: list[Seen], source: int, destination: int, limit: int) -> npt.NDArray[np.float64]:
    """How long packets took from the tap of one host to that of another, by their captured beginnings."""
    left, came = seen[source], seen[destination]
    sent = dict(zip(map(bytes, left.keys[left.tap == TX]), left.at_ns[left.tap == TX].tolist(), strict=True))
    keys, at_ns = map(bytes, came.keys[came.tap == RX]), came.at_ns[came.tap == RX].tolist()
    return np.array([(at - sent[key]) / 1e6 for key, at in zip(keys, at_ns, strict=True) if key in sent][:limit])


def test_both_planes_have_the_delays_that_were_asked_for(namespaces: list[str], tmp_path: Path) -> None:
    network = ask()
    asked_ms = network.asked_of_pairs().delay_ms
    record, median_ms = {}, {}
    for name, make in PLANES.items():
        folder = tmp_path / name
        folder.mkdir()
        found = exchange(make, namespaces, folder, network, PAIRS)
        assert not np.isnan(found.rtt_ms).any()
        asked_rtt_ms = np.array([asked_ms[a, b] + asked_ms[b, a] for a, b in PAIRS])
        rtt_error_ms = np.abs(found.rtt_ms - asked_rtt_ms)
        wire = {pair: crossings_ms(found.seen, *pair, limit=2 * ROUNDS) for pair in PAIRS}
        lacking = {pair: len(taken) for pair, taken in wire.items() if len(taken) != 2 * ROUNDS}
        assert lacking == {}, f"{name}: each pair has a request and a reply of each round"
        error_ms = np.concatenate([np.abs(taken - asked_ms[pair]) for pair, taken in wire.items()])
        record[name] = {
            "rtt_error_ms": dict(zip(("p50", "p99", "max"), np.quantile(rtt_error_ms, [0.5, 0.99, 1]), strict=True)),
            "wire_error_ms": dict(zip(("p50", "p99", "max"), np.quantile(error_ms, [0.5, 0.99, 1]), strict=True)),
        }
        median_ms[name] = np.array([np.median(taken) for taken in wire.values()])
        frames = 2 * ROUNDS * len(PAIRS)
        assert (found.capture.frames_in, found.capture.frames_out) == (frames, frames)
        assert (found.capture.records_written, found.capture.records_dropped) == (2 * frames, 0)
        counters = found.counters
        assert (counters.frames_in, counters.frames_out, counters.unaccounted) == (frames, frames, 0)
        assert counters.bytes_in == counters.bytes_out == frames * PACKET_BYTES
    print(json.dumps(record, indent=1))
    table = np.array([[asked_ms[pair] for pair in PAIRS], *median_ms.values()])
    for pair, (asked, *medians) in zip(PAIRS, table.T, strict=True):
        words = " ".join(f"{name} {median:.3f}" for name, median in zip(median_ms, medians, strict=True))
        print(f"{pair}: asked {asked:.3f} ms, {words}, difference {1e3 * (medians[1] - medians[0]):.0f} us")
    Path(os.environ["TRELLIS_RESULTS"], "delays.json").write_text(json.dumps(record))
    for name, errors in record.items():
        assert errors["wire_error_ms"]["p99"] < LIMIT_MS, name
        assert errors["rtt_error_ms"]["p99"] < 2 * LIMIT_MS, name


def test_a_pair_loses_what_was_asked_for_and_no_other_pair_does(namespaces: list[str], tmp_path: Path) -> None:
    rounds, lossy = 500, (0, 1)
    found = exchange(KernelPlane, namespaces, tmp_path, ask({lossy: LOSS_RATIO}), [lossy, (2, 3)], rounds)
    lost = np.isnan(found.rtt_ms).sum(axis=0)
    assert not is_no_chance(int(lost[0]), rounds, LOSS_RATIO)
    assert lost[1] == 0
    assert {cause: count for cause, count in found.counters.drops.items() if count} == {"loss": lost[0]}
    assert found.counters.unaccounted == 0


def test_frames_to_no_host_are_counted(namespaces: list[str], tmp_path: Path) -> None:
    plane = KernelPlane(ask(), 1, tmp_path, None, 1.0, 0)
    plane.attach([Port(host, netns, f"10.0.0.{host + 1}") for host, netns in enumerate(namespaces)])
    command = ["nsenter", f"--net={namespaces[0]}", "ping", "-c", "3", "-i", "0.2", "-W", "1", "-b", "10.0.255.255"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    counters = plane.close().counters
    assert counters.drops["unknown_destination"] == counters.frames_in == 3
    assert counters.unaccounted == 0


def test_a_changed_setting_is_noticed_and_the_network_does_not_change(namespaces: list[str], tmp_path: Path) -> None:
    plane = KernelPlane(ask(), 1, tmp_path, None, 1.0, 0)
    ports = [Port(host, netns, f"10.0.0.{host + 1}") for host, netns in enumerate(namespaces)]
    plane.attach(ports)
    plane.check_settings()
    words = ["tc", "qdisc", "change", "dev", port_device(1), "parent", "1:1", "netem", "limit", "2000", "delay", "9ms"]
    subprocess.run(words, check=True)
    with pytest.raises(TestbedError, match=r"from host 0 to host 1: asked for a delay of 5\.125 ms, found 9 ms"):
        plane.check_settings()
    with pytest.raises(TestbedError, match="does not change its network during a run"):
        plane.apply(PairChange(0, 1, 1.0, 0.0, 0.0))
    plane.close()
    left = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout
    assert "wan" not in left
