"""The prober over a real data plane, inside a sandbox."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.machine import sandbox
from harness.testbeds.emulated.certifier import SLOT_NS

pytestmark = pytest.mark.root

PACKETS = 12
"""The most to each pair: some are on their way while nothing else holds this machine up."""

LIMIT_MS = 0.3
"""The error with which a pair is not probed again."""

PROGRAM = """
import sys
from pathlib import Path
import numpy as np
from harness.stages import manifest
from harness.testbeds.emulated.certifier import SLOT_NS
from harness.testbeds.emulated.mininet_net import EmulatedNet
from harness.planes.plane import PairsChange, Port
from harness.testbeds.emulated.probes import Prober
from harness.planes.userspace.handle import UserspacePlane
from topologies.network import AskedOfPairs, Network

folder, size, packets, limit_ms = Path(sys.argv[1]), 4, int(sys.argv[2]), float(sys.argv[3])
zero = np.zeros((size, size))
delay_ms = np.array([[0 if a == b else 10.0 + a for b in range(size)] for a in range(size)])
loss_ratio = zero.copy()
loss_ratio[0, 1] = 1.0
jitter_ms = zero + 2.0
network = Network.of_pairs(AskedOfPairs(delay_ms, jitter_ms, loss_ratio))
net = EmulatedNet()
for n in range(size):
    net.addHost(f"h{n}", number=n, ctl_ip=f"172.16.0.{n + 1}", ip=f"10.0.0.{n + 1}/16")
net.build()
netns, wan = [host.netns for host in net.hosts], [host.wan_ip for host in net.hosts]
plane = UserspacePlane(network, 1, folder)
plane.attach([Port(n, netns[n], wan[n]) for n in range(size)])
prober = Prober(network, netns, wan, manifest.epoch_offset_ns(), 1)
plane.apply(PairsChange(network.without_jitter()))
prober.sweep("before", packets, lambda: 1000.0, np.full((size, size), limit_ms))
due_ns = np.arange(400) * SLOT_NS
np.save(folder / "sent.npy", prober.exchange(np.tile([[1, 2]], (400, 1)), due_ns)[0])
plane.apply(PairsChange(network.with_pairs(AskedOfPairs(delay_ms, jitter_ms, zero))))
until = plane.counters().frames_out + 200
prober.start_sampling(200, 60)
while plane.counters().frames_out < until:
    pass
prober.stop_sampling("during")
prober.write(folder / "achieved.parquet")
prober.close()
plane.close()
net.stop()
"""


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("probes")
    assert sandbox.run([sys.executable, "-c", PROGRAM, str(folder), str(PACKETS), str(LIMIT_MS)], keep=[folder]) == 0
    return folder


@pytest.fixture(scope="module")
def achieved(probed: Path) -> pa.Table:
    return pq.read_table(probed / "achieved.parquet")


def rows(achieved: pa.Table, phase: str) -> list[dict]:
    return [row for row in achieved.to_pylist() if row["phase"] == phase]


def test_a_sweep_has_every_pair_once_from_one_of_its_hosts(achieved: pa.Table) -> None:
    pairs = sorted(sorted((row["src"], row["dst"])) for row in rows(achieved, "before"))
    assert pairs == [[a, b] for a in range(4) for b in range(a + 1, 4)]


def test_a_pair_is_probed_until_its_error_is_within_the_limit(achieved: pa.Table) -> None:
    for row in rows(achieved, "before"):
        if row["rtt_ms"] is None:
            continue
        settled = row["rtt_ms"] - row["asked_rtt_ms"] <= LIMIT_MS
        at_once = row["first_rtt_ms"] is not None and row["first_rtt_ms"] - row["asked_rtt_ms"] <= LIMIT_MS
        assert settled or row["sent"] == PACKETS
        assert (row["sent"] == 1) == at_once
        assert row["rtt_ms"] == row["first_rtt_ms"] or not at_once


def test_no_answer_is_faster_than_asked_and_the_best_are_hardly_slower(achieved: pa.Table) -> None:
    for row in rows(achieved, "before"):
        assert row["asked_rtt_ms"] == 20 + row["src"] + row["dst"]
        if row["rtt_ms"] is not None:
            assert row["first_rtt_ms"] >= row["rtt_ms"] >= row["asked_rtt_ms"]
            assert row["rtt_ms"] < row["asked_rtt_ms"] + 1


def test_a_pair_that_loses_everything_is_null_and_its_reverse_too(achieved: pa.Table) -> None:
    """Every round trip between the two crosses the lossy direction."""
    for row in rows(achieved, "before"):
        lost = {row["src"], row["dst"]} == {0, 1}
        assert (row["rtt_ms"] is None) == (row["first_rtt_ms"] is None) == lost
        assert (row["sent"], row["received"]) == ((PACKETS, 0) if lost else (row["sent"], row["sent"]))


def test_samples_are_single_packets_with_the_jitter_asked_for(achieved: pa.Table) -> None:
    samples = rows(achieved, "during")
    assert len(samples) >= 50
    assert all(row["src"] != row["dst"] and row["sent"] == 1 for row in samples)
    assert all(row["first_rtt_ms"] == row["rtt_ms"] for row in samples)
    assert all(row["asked_jitter_ms"] == pytest.approx(8**0.5) for row in samples)
    assert {row["asked_jitter_ms"] for row in rows(achieved, "before")} == {0.0}


def test_probes_are_sent_as_far_apart_as_a_slots(probed: Path) -> None:
    """And not in bursts a millisecond apart, to which epoll rounds; a part of them at least, on a busy machine."""
    apart_ns = np.diff(np.load(probed / "sent.npy"))
    assert np.mean(abs(apart_ns - SLOT_NS) < SLOT_NS / 3) > 0.25
