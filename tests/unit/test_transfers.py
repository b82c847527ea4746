"""Transfers that processes are known to make: what their arguments say, and which runs are refused by it."""

import math
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harness.cli import main
from harness.errors import ExperimentError
from harness.experiment.loader import load_experiment
from harness.machine.calibration import Calibration
from harness.planning import make_plan, transfers
from harness.planning.plan import PlannedRun
from harness.planning.processors import REFERENCE_WORK_US
from harness.planning.transfers import CARRIED_FRAMES_PER_S, CARRIED_MBIT, WINDOW_BYTES, Client, read_client

TCP = Client("web", ("sends",), False, math.inf, 1, 1448, WINDOW_BYTES, 10)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("iperf3 -c web", {}),
        ("/usr/bin/iperf --client=web -t 5 -N", {"time_s": 5}),
        ("iperf3 -c web -t 0 -b 20M -P 4", {"time_s": math.inf, "mbit": 20, "streams": 4}),
        ("iperf3 -cweb -R --bitrate 0", {"does": ("receives",)}),
        ("iperf3 -c web --bidir -w 100k", {"does": ("sends", "receives"), "window_bytes": 100_000}),
        ("iperf -c web -d", {"does": ("sends", "receives")}),
        ("iperf3 -c web -d", {}),
        ("iperf3 -c web -u", {"udp": True, "mbit": 1, "packet_bytes": 1470}),
        ("iperf3 -c web -u -b 1.5g/8 -l 200", {"udp": True, "mbit": 1500, "packet_bytes": 200}),
    ],
)
def test_the_arguments_of_a_client_are_read(command: str, expected: dict[str, Any]) -> None:
    found = read_client(command.split())
    assert found is not None
    assert found == replace(TCP, **expected)


@pytest.mark.parametrize(
    "command",
    [
        "curl web",
        "iperf3 -s",
        "iperf3 -c web -n 10M",
        "iperf3 -c web -F file",
        "iperf -c web -r",
        "iperf3 -c web --sctp",
        "iperf3 -c web -b fast",
        "iperf -c web -u -b 100pps",
        "iperf3 -c",
    ],
)
def test_what_ends_otherwise_or_is_not_understood_is_not_known(command: str) -> None:
    assert read_client(command.split()) is None


NETWORK = """
general: {{stop_time: 60 s}}
network:
  graph:
    type: gml
    inline: |
      graph [
        node [ id 0 host_bandwidth_up "{mbit} Mbit" host_bandwidth_down "{mbit} Mbit" ]
        edge [ source 0 target 0 latency "{latency_ms} ms" packet_loss {loss} ]
      ]
hosts:
  web: {{network_node_id: 0, processes: [{{path: {iperf}, args: -s, expected_final_state: running}}]}}
  other: {{network_node_id: 0, processes: [{{path: {iperf}, args: -s, expected_final_state: running}}]}}
"""
SLOWER, FASTER = 2 * REFERENCE_WORK_US, REFERENCE_WORK_US / 2


class Planner:
    """Plans experiments of Shadow whose clients have some arguments, on a machine of some speed."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._patch = monkeypatch
        self.iperf = folder / "iperf3"
        self.iperf.write_text("#!/bin/sh\n")
        self.iperf.chmod(0o755)
        self.calibrate(REFERENCE_WORK_US)

    def calibrate(self, work_us: float | None) -> None:
        found = None if work_us is None else Calibration(work_us, 0.1, True, 2)
        self._patch.setattr(transfers, "calibrate", lambda: found)

    def write(self, *clients: str, mbit: float = 1000, latency_ms: float = 1, loss: float = 0.0) -> Path:
        """Each client is a host of its own: when it starts (s), and its arguments."""
        text = NETWORK.format(mbit=mbit, latency_ms=latency_ms, loss=loss, iperf=self.iperf)
        for number, client in enumerate(clients):
            start_s, _, args = client.partition(" ")
            process = f"{{path: {self.iperf}, args: {args}, start_time: {start_s} s}}"
            text += f"  client{number}: {{network_node_id: 0, processes: [{process}]}}\n"
        path = self.folder / "shadow.yaml"
        path.write_text(text)
        return path

    def plan(self, *clients: str, here: bool = True, **network: float) -> PlannedRun:
        path = self.write(*clients, **network)
        return make_plan(load_experiment(path), path, here=here)

    def refusal(self, *clients: str, **network: float) -> str:
        """Return why a run is refused; empty if it is not."""
        try:
            self.plan(*clients, **network)
        except ExperimentError as error:
            return str(error)
        return ""


@pytest.fixture
def planner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planner:
    return Planner(tmp_path, monkeypatch)


def test_a_transfer_beyond_what_the_plane_carries_is_refused_by_its_key_with_the_numbers(
    planner: Planner, capsys: pytest.CaptureFixture[str]
) -> None:
    path = planner.write("2 -c web -t 5")
    assert main(["plan", str(path)]) == 2
    assert capsys.readouterr().err == (
        f"trellis plan: {path}: hosts.client0.processes[0].args: this process sends up to 1,000 Mbit/s from 2 s on, "
        f"and the data plane carries at most {CARRIED_MBIT:.0f} here ({REFERENCE_WORK_US:.0f} us of work); "
        "limit the rates, or set TRELLIS_CALIBRATE=0 to run it all the same\n"
    )


def test_the_speed_of_the_machine_decides(planner: Planner) -> None:
    asked = f"2 -c web -b {CARRIED_MBIT * 1.01:.0f}M"
    assert planner.refusal(asked) != ""
    assert planner.refusal(f"2 -c web -b {CARRIED_MBIT * 0.99:.0f}M") == ""
    planner.calibrate(FASTER)
    assert planner.refusal(asked) == ""
    planner.calibrate(SLOWER)
    assert f"carries at most {CARRIED_MBIT / 2:.0f} here" in planner.refusal(f"2 -c web -b {CARRIED_MBIT * 0.51:.0f}M")
    planner.calibrate(None)
    assert planner.refusal(asked) == ""


def test_a_run_on_another_machine_is_not_refused(planner: Planner) -> None:
    assert planner.plan("2 -c web", here=False).plan.prediction.processes > 0


def test_access_links_limit_transfers(planner: Planner) -> None:
    assert planner.refusal("2 -c web -b 900M", mbit=500) == ""
    assert planner.refusal("2 -c web", "2 -c web", mbit=500) == "", "one receiver has 500 Mbit/s for both"
    assert "this and 1 further processes send up to 1,000 Mbit/s" in planner.refusal("2 -c web", "2 -c other", mbit=500)
    assert "up to 1,000 Mbit/s" in planner.refusal("2 -c web --bidir", mbit=500)
    both_ends = (f"2 -c {server} -b 400M {way}" for server, way in (("web", "-R"), ("other", "")) for _ in range(2))
    assert "up to 1,000 Mbit/s" in planner.refusal(*both_ends, mbit=500), "web sends 500 to two, other gets as much"


def test_only_transfers_at_the_same_time_add_up(planner: Planner) -> None:
    one, other = "-c web -b 400M -t 5", "-c other -b 400M -t 5"
    assert planner.refusal(f"2 {one}", f"7 {other}") == ""
    assert "send up to 800 Mbit/s from 6 s on" in planner.refusal(f"2 {one}", f"6 {other}")
    assert planner.refusal(f"2 {one}", f"6 {other} -R") != ""


@pytest.mark.parametrize(("rates", "largest"), [((300, 400), 1), ((400, 300), 0)])
def test_the_largest_transfer_is_named(planner: Planner, rates: tuple[int, int], largest: int) -> None:
    asked = [f"2 -c {server} -b {rate}M" for server, rate in zip(("web", "other"), rates, strict=True)]
    assert f"hosts.client{largest}.processes[0].args: " in planner.refusal(*asked)


def test_a_window_limits_tcp(planner: Planner) -> None:
    """3 MiB in a round trip of 100 ms are 252 Mbit/s."""
    assert planner.refusal("2 -c web", latency_ms=50) == ""
    assert "up to 755 Mbit/s" in planner.refusal("2 -c web -P 3", latency_ms=50)
    assert planner.refusal("2 -c web -P 3 -w 100K", latency_ms=50) == ""
    assert planner.refusal("2 -c web -u -b 800M", latency_ms=50) != "", "UDP has none"


def test_tcp_that_loses_packets_is_not_known(planner: Planner) -> None:
    assert planner.refusal("2 -c web", loss=0.01) == ""
    assert planner.refusal("2 -c web -u -b 800M", loss=0.01) != ""


def test_small_packets_are_refused_by_their_number(planner: Planner) -> None:
    packets_per_s = CARRIED_FRAMES_PER_S * 1.1
    asked = f"2 -c web -u -l 100 -b {packets_per_s * 800 / 1e6:.3f}M"
    assert f"{packets_per_s:,.0f} packets/s from 2 s on" in planner.refusal(asked)
    assert planner.refusal(asked.replace("-l 100", "-l 200")) == ""
    shared = "2 -c web -u -l 100 -b 90M"
    assert planner.refusal(shared, shared, mbit=100) == "", "the receiver gets 125,000 per second"
    assert planner.refusal(shared, shared, mbit=200) != ""


EXPERIMENT = """
name = "x"
protocol = "complete"
underlay = { kind = "uniform", hosts = 3, delay_ms = 1 }
faults = FAULTS
[[peer.processes]]
node = 0
command = ["IPERF", "-s"]
expected = "running"
[[peer.processes]]
node = 1
command = ["IPERF", "-c", "TARGET"]
"""


@pytest.mark.parametrize("target", ["host-0", "10.0.0.1"])
def test_processes_of_an_experiment_are_refused_by_their_key(planner: Planner, target: str) -> None:
    path = planner.folder / "x.toml"
    text = EXPERIMENT.replace("IPERF", str(planner.iperf)).replace("TARGET", target)
    path.write_text(text.replace("FAULTS", "[]"))
    with pytest.raises(ExperimentError) as refused:
        make_plan(load_experiment(path), path)
    assert refused.value.path == f"{path}: $.peer.processes[1].command"
    path.write_text(text.replace("FAULTS", "[{ at_s = 1, degrade = { loss_ratio = 0.1 } }]"))
    assert make_plan(load_experiment(path), path).changes
    path.write_text(text.replace("FAULTS", "[]").replace(target, "elsewhere"))
    make_plan(load_experiment(path), path)
