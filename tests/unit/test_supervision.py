"""Lost parts and late starts: what is said, and what becomes of the run."""

import math
import time
from pathlib import Path

import pytest

from harness.deployment.fleet import Deployment
from harness.errors import describe_status
from harness.experiment.inventory import Inventory, Machine, save_inventory
from harness.experiment.loader import load_experiment
from harness.planning import make_plan, write_plan
from harness.stages.execution import Execution
from harness.stages.supervision import POLL_S, PartLostError, Supervision
from peer.runtime.clock import Clock


class Parts:
    """Some parts, of which each is lost from a look on."""

    def __init__(self, **lost_at: int) -> None:
        self.looks = 0
        self._lost_at = lost_at

    def look(self) -> dict[str, str]:
        self.looks += 1
        return {name: "ended by SIGKILL" for name, at in self._lost_at.items() if self.looks >= at}


def test_a_lost_part_ends_the_wait_at_once_and_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    supervision = Supervision("abort", Clock())
    supervision.add(Parts(prober=2).look)
    with pytest.raises(PartLostError, match="prober: ended by SIGKILL"):
        supervision.wait_until(time.monotonic_ns() + 3600 * 10**9)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("trellis run: ")
    assert line.endswith(" prober: ended by SIGKILL; the run ends here")
    assert supervision.problems == ["prober: ended by SIGKILL"]


def test_a_run_that_goes_on_says_each_lost_part_once(capsys: pytest.CaptureFixture[str]) -> None:
    supervision = Supervision("continue", Clock())
    supervision.add(Parts(prober=1, plane=2).look)
    for _ in range(4):
        supervision.look()
    assert supervision.problems == ["prober: ended by SIGKILL", "plane: ended by SIGKILL"]
    assert [line.endswith("; the run goes on") for line in capsys.readouterr().err.splitlines()] == [True, True]


def test_an_end_in_the_last_moment_is_seen_too() -> None:
    supervision = Supervision("abort", Clock())
    supervision.add(Parts(prober=1).look)
    with pytest.raises(PartLostError):
        supervision.wait_until(0)


def test_looks_are_a_second_of_real_time_apart_whatever_the_dilation(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns, slept = [10**12], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now_ns[0] += math.ceil(seconds * 1e9)

    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns[0])
    monkeypatch.setattr(time, "sleep", sleep)
    clock = Clock(4.0)
    supervision = Supervision("abort", clock)
    supervision.add((parts := Parts()).look)
    supervision.wait_until(clock.now_ns() + round(2.5 * POLL_S / 4 * 1e9))
    assert slept[:3] == pytest.approx([POLL_S, POLL_S, POLL_S / 2])
    assert sum(slept[3:]) < 1e-6, "what was rounded"
    assert parts.looks == len(slept) + 1


def test_statuses_are_words() -> None:
    assert [describe_status(status) for status in (0, 7, -9, -40)] == [
        "ended with status 0", "ended with status 7", "ended by SIGKILL", "ended by signal 40"
    ]  # fmt: skip


@pytest.mark.parametrize(("count", "lead_s"), [(1, 1.6), (32, 1.6), (33, 2.2), (70, 2.8)])
def test_the_lead_grows_with_the_machines_and_with_how_long_they_take_to_answer(count: int, lead_s: float) -> None:
    deployment = Deployment([Machine(f"m{i}", "192.0.2.1", "k", "h") for i in range(count)], "t", Path("/none"))
    assert deployment.lead_s == 1.0
    deployment.call_s = {"m0": 0.3} | {f"m{i}": 0.1 for i in range(1, count)}
    assert deployment.lead_s == pytest.approx(lead_s)


EXPERIMENT = """
name = "late"
protocol = "complete"
testbed = "remote"
inventory = "inventory.toml"

[underlay]
kind = "uniform"
hosts = 3

[workload]
warmup_s = 5
"""


def test_a_late_start_is_a_reason_and_worse_when_publications_are_late(tmp_path: Path) -> None:
    source = tmp_path / "experiment.toml"
    source.write_text(EXPERIMENT)
    machine = '[[machines]]\nname = "m{0}"\nhost = "192.0.2.{0}"\nkey = "k"\nknown_hosts = "h"\n'
    (tmp_path / "inventory.toml").write_text("".join(machine.format(i) for i in range(3)))
    write_plan(make_plan(load_experiment(source), source), tmp_path / "run")
    save_inventory(Inventory(tuple(Machine(f"m{i}", f"192.0.2.{i}", "k", "h") for i in range(3))), tmp_path / "run")
    run, other = Execution(tmp_path / "run"), Execution(tmp_path / "run")
    run.judge_leads({"m0": 0, "m1": -1, "m2": -4_999_000_000})
    assert run.problems == [
        ("suspect", "the peers on m1 were told to start 0.000 s too late, of 5 s of warm-up"),
        ("suspect", "the peers on m2 were told to start 4.999 s too late, of 5 s of warm-up"),
    ]
    assert run.counters == {"start_lead_ns_min": -4_999_000_000}
    other.judge_leads({"m0": -5_000_000_000})
    assert [severity for severity, _ in other.problems] == ["invalid"]
    assert run.record.folder != other.record.folder
