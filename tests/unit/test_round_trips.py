"""Round trips between machines: what is asked of the probers, what they answer, and what their rows say."""

import json
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.experiment.inventory import Machine
from harness.testbeds import remote
from harness.testbeds.remote.probing import RoundTrips, pairs_of, sample_schedule, sweep_schedule
from metrics.asked import direct_delays_ms
from metrics.recorded.round_trips import SCHEMA, measure_phases, measured_underlay, read_round_trips
from metrics.rundir import ClockOffset, Placement, RunDir
from tests.fabricate import Fabrication
from topologies.generated import uniform_underlay

PROBER = Path(remote.__file__).with_name("prober.py")

# ----------------------------------------------------------------------------------------------- the schedules


def placed(*addresses: str) -> list[Placement]:
    """Nodes in turn on two machines, by the third number of their addresses."""
    return [Placement(node, node, f"m{each.split('.')[2]}", each, "") for node, each in enumerate(addresses)]


def test_every_machine_probes_all_other_addresses_and_a_shared_one_itself() -> None:
    assert pairs_of(placed("10.0.0.1", "10.0.1.1", "10.0.0.1")) == {
        "m0": [("10.0.0.1", "10.0.0.1"), ("10.0.0.1", "10.0.1.1")],
        "m1": [("10.0.1.1", "10.0.0.1")],
    }


@given(count=st.integers(1, 300), packets=st.integers(2, 5), seed=st.integers(0, 9))
def test_a_sweep_probes_every_pair_as_often_and_not_faster_than_it_may(count: int, packets: int, seed: int) -> None:
    pairs = [("a", str(number)) for number in range(count)]
    schedule = sweep_schedule(pairs, packets, np.random.default_rng(seed))
    assert Counter(schedule.pairs) == dict.fromkeys(pairs, packets)
    gaps_ns = np.diff(schedule.due_ns)
    assert (gaps_ns >= 999_999).all()
    of_pair = np.array([schedule.due_ns[place::count] for place in range(count)])
    assert (np.diff(of_pair) >= 199_999_999).all()


@given(rate_per_s=st.floats(0, 50), length_s=st.floats(0, 60))
def test_random_pairs_are_probed_at_equal_intervals(rate_per_s: float, length_s: float) -> None:
    schedule = sample_schedule([("a", "b"), ("a", "c")], rate_per_s, length_s, np.random.default_rng(0))
    assert len(schedule.pairs) == len(schedule.due_ns) == int(rate_per_s * length_s)
    assert all(0 <= due_ns <= length_s * 1e9 for due_ns in schedule.due_ns)


# ------------------------------------------------------------------------------------------------- the probers


class Prober:
    """A prober on this machine's loopback."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def tell(self, said: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write((json.dumps(said) if said else "").encode() + b"\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


@contextmanager
def prober(port: int, *addresses: str, secret: str = "00" * 16) -> Iterator[Prober]:
    command = [sys.executable, str(PROBER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        made = Prober(process)
        made.tell({"secret": secret, "port": port, "addresses": addresses})
        assert process.stdout.readline() == b"ready\n"
        yield made
        process.stdin.close()
        assert process.wait(300) == 0


def free_udp_port() -> int:
    """A port that was free on loopback a moment ago."""
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def order(*pairs: tuple[str, str], apart_ns: int = 1000, grace_ns: int = 100_000_000) -> dict[str, Any]:
    return {"pairs": pairs, "due_ns": [place * apart_ns for place in range(len(pairs))], "grace_ns": grace_ns}


def test_probers_answer_each_other_and_themselves() -> None:
    port = free_udp_port()
    with prober(port, "127.0.0.1") as one, prober(port, "127.0.0.2", "127.0.0.3"):
        pairs = [("127.0.0.1", "127.0.0.2"), ("127.0.0.1", "127.0.0.3"), ("127.0.0.1", "127.0.0.1")]
        for _ in range(2):
            one.tell(order(*pairs, grace_ns=10_000_000_000))
            found = one.hear()
            assert [0 < rtt_ns < 5_000_000_000 for rtt_ns in found["rtt_ns"]] == [True] * 3
            assert sorted(found["sent_ns"]) == found["sent_ns"]


def test_a_request_that_nobody_answers_has_no_round_trip() -> None:
    port = free_udp_port()
    with prober(port, "127.0.0.1") as one:
        one.tell(order(("127.0.0.1", "127.0.0.9")))
        found = one.hear()
        assert (found["sent_ns"][0] > 0, found["rtt_ns"]) == (True, [0])


def test_a_prober_of_another_run_does_not_answer() -> None:
    port = free_udp_port()
    with prober(port, "127.0.0.1") as one, prober(port, "127.0.0.2", secret="11" * 16):
        one.tell(order(("127.0.0.1", "127.0.0.2")))
        assert one.hear()["rtt_ns"] == [0]


def test_an_empty_line_ends_the_sending() -> None:
    with prober(free_udp_port(), "127.0.0.1") as one:
        one.tell(order(*[("127.0.0.1", "127.0.0.1")] * 2, apart_ns=3_600_000_000_000))
        one.tell(None)
        found = one.hear()
        assert found["sent_ns"][1:] == found["rtt_ns"][1:] == [0]


def test_an_address_of_another_machine_is_refused() -> None:
    said = json.dumps({"secret": "00" * 16, "port": free_udp_port(), "addresses": ["192.0.2.1"]}).encode()
    done = subprocess.run([sys.executable, str(PROBER)], input=said + b"\n", capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(b"cannot listen on UDP 192.0.2.1:")


# ---------------------------------------------------------------------------------------------------- the rows


def trip(source: int, destination: int, phase: str, rtt_ms: float | None) -> dict[str, Any]:
    return {
        "src_ip": f"10.0.0.{source}",
        "dst_ip": f"10.0.0.{destination}",
        "phase": phase,
        "at_ns": 0,
        "rtt_ms": rtt_ms,
    }


def table_of(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), SCHEMA)


def test_pairs_without_any_answer_are_silent_after_two_requests() -> None:
    rows = [
        trip(1, 2, "before", 10.0),
        trip(1, 2, "before", None),
        trip(2, 1, "before", None),
        trip(2, 1, "before", None),
    ]
    rows += [trip(1, 3, "before", None)]
    found = measure_phases(table_of(*rows))["before"]
    assert (found.pairs, found.sent, found.received) == (3, 5, 1)
    assert found.silent == (("10.0.0.2", "10.0.0.1"),)
    assert found.least_ms == {("10.0.0.1", "10.0.0.2"): 10.0}


def test_phases_without_rows_are_left_out() -> None:
    assert list(measure_phases(table_of(trip(1, 2, "after", 3.0)))) == ["after"]


def test_the_measured_underlay_has_half_of_the_median_round_trip_of_the_idle_network() -> None:
    rows = [trip(1, 2, "before", rtt_ms) for rtt_ms in (9.0, 10.0, 50.0)] + [trip(2, 1, "after", 14.0)]
    rows += [trip(1, 2, "during", 90.0), trip(1, 3, "before", None)]
    asked = uniform_underlay(3, 40.0)
    nodes = [Placement(node, node, "m", f"10.0.0.{node + 1}", "") for node in range(3)]
    found = measured_underlay(asked, table_of(*rows), nodes)
    assert found.delay_ms[0, 1] == found.delay_ms[1, 0] == pytest.approx(6.0)
    assert np.isnan(found.delay_ms[0, 2]) and np.isnan(found.delay_ms[2, 1])
    assert (np.diag(found.delay_ms) == 0).all()
    assert found.hosts == asked.hosts
    assert not found.rate_mbit.any() and not found.loss_ratio.any()


def run_without_shape(folder: Path, *pairs: tuple[int, int]) -> RunDir:
    """A run of three nodes on a network that nobody shapes, with round trips of 8 ms between some nodes."""
    run_dir = Fabrication(nodes=3, topics=1, messages=4).write(folder / "run")
    manifest = json.loads((run_dir / "manifest.json").read_text()) | {"testbed": "remote", "can": ["probe"]}
    (run_dir / "manifest.json").write_text(json.dumps(manifest))
    run = RunDir(run_dir)
    address = {place.node: place.wan_ip for place in run.plan.placement}
    rows = [trip(0, 0, "before", 8.0) | {"src_ip": address[one], "dst_ip": address[other]} for one, other in pairs]
    pq.write_table(table_of(*rows), run_dir / "round_trips.parquet")
    return run


def test_a_run_on_a_network_that_nobody_shapes_has_the_measured_delays(tmp_path: Path) -> None:
    delays_ms = direct_delays_ms(run_without_shape(tmp_path, (0, 1), (1, 2), (2, 0)), 3)
    assert delays_ms is not None
    assert delays_ms.tolist() == [[0, 4, 4], [4, 0, 4], [4, 4, 0]]


def test_an_unmeasured_pair_leaves_the_delays_unknown(tmp_path: Path) -> None:
    assert direct_delays_ms(run_without_shape(tmp_path, (0, 1), (1, 2)), 3) is None


# ------------------------------------------------------------------------------------------------- the handle


class Fleet:
    """Machines whose probers answer every request but those to silent addresses, after ``RTT_NS``."""

    def __init__(self, *silent: str) -> None:
        self._silent = silent
        self._scripts = {name: FleetScript(silent) for name in ("m0", "m1")}

    def each(self, step: str, action: Any) -> dict[str, Any]:
        return {name: action(FleetSession(name, script)) for name, script in self._scripts.items()}


RTT_NS, SENT_NS = 2_500_000, 1_764_320_000_000_000_000


class FleetScript:
    has_ended = False

    def __init__(self, silent: tuple[str, ...]) -> None:
        self._silent = silent
        self._asked: dict[str, Any] = {}

    def tell(self, line: bytes) -> None:
        self._asked = json.loads(line) if line else self._asked

    def read_line(self, *_: object) -> bytes:
        pairs = self._asked.get("pairs", [])
        rtts = [0 if destination in self._silent else RTT_NS for _, destination in pairs]
        return json.dumps({"sent_ns": [SENT_NS] * len(pairs), "rtt_ns": rtts}).encode() + b"\n"


class FleetSession:
    def __init__(self, name: str, script: FleetScript) -> None:
        self.machine = Machine(name, name, "k", "h")
        self._script = script

    def start_script(self, source: bytes) -> FleetScript:
        assert source == PROBER.read_bytes()
        return self._script


def measured_by(*silent: str) -> RoundTrips:
    fleet: Any = Fleet(*silent)
    round_trips = RoundTrips(fleet, placed("10.0.0.1", "10.0.1.1"), seed=1)
    round_trips.start()
    round_trips.sweep("before", 2)
    round_trips.start_sampling(10, 2)
    round_trips.stop_sampling("during")
    return round_trips


def test_instants_are_brought_from_each_machine_s_clock_to_ours(tmp_path: Path) -> None:
    clocks = {"m1": ClockOffset(realtime_ns=7_000, monotonic_ns=0, error_ns=0)}
    measured_by("10.0.0.1").write(tmp_path / "round_trips.parquet", clocks, epoch_offset_ns=SENT_NS - 50_000)
    rows = read_round_trips(tmp_path)
    assert rows is not None
    assert Counter((row["src_ip"], row["phase"], row["at_ns"], row["rtt_ms"]) for row in rows.to_pylist()) == {
        ("10.0.0.1", "before", 50_000, 2.5): 2,
        ("10.0.1.1", "before", 43_000, None): 2,
        ("10.0.0.1", "during", 50_000, 2.5): 10,
        ("10.0.1.1", "during", 43_000, None): 10,
    }


def test_addresses_that_never_answer_are_named() -> None:
    assert measured_by().silent() == {}
    assert measured_by("10.0.0.1").silent() == {"m1": ["10.0.0.1"]}
