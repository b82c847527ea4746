"""Testbeds and data planes describe themselves; nothing else names one, and the running stage asks what they can."""

import ast
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import get_args, get_type_hints
from unittest.mock import MagicMock

import pytest
from msgspec.structs import replace

from harness.commands import run as command
from harness.deployment.fleet import Deployment
from harness.errors import ExperimentError
from harness.experiment.form import Experiment
from harness.experiment.loader import check_rules, decode_experiment, load_experiment
from harness.experiment.sections.underlay import UnderlaySpec
from harness.machine import sandbox
from harness.machine.capacity import Capacity
from harness.planes.description import Description as PlaneDescription
from harness.planes.description import PlaneAbility
from harness.planes.plane import CaptureCounts, Capturing, Plane, PlaneMaker, Port
from harness.planes.registry import AUTO, PLANES
from harness.planes.registry import DEFAULT as DEFAULT_PLANE
from harness.planning import make_plan, prediction, write_plan
from harness.stages import execution
from harness.testbeds import base, emulated
from harness.testbeds.base import Accounting, Faulting, Findings, Probing, Recording
from harness.testbeds.description import ABILITIES, Ability, Description, HostLimit
from harness.testbeds.emulated import mininet_net
from harness.testbeds.emulated import testbed as emulated_testbed
from harness.testbeds.registry import DEFAULT, TESTBEDS, find_lack
from metrics.rundir import Manifest, Placement
from peer.runtime.clock import UNDILATED
from topologies.network import Network

CHECKOUT = Path(__file__).parents[2]
WITH_MACHINES = [name for name, testbed in TESTBEDS.items() if testbed.testbed]

BRIEF = """
name = "brief"
protocol = "complete"
underlay = { kind = "uniform", hosts = 2 }
workload = { warmup_s = 0.01, duration_s = 0.1, publish_rate_per_s = 50, cooldown_s = 0.01 }
"""


def deviations(protocol: type, made: type) -> list[str]:
    """The methods of a protocol that a class lacks, or declares with other parameters or another result."""
    names = [name for name, value in vars(protocol).items() if callable(value) and not name.startswith("_")]
    assert names
    return [
        name
        for name in names
        if not hasattr(made, name)
        or inspect.signature(getattr(made, name)) != inspect.signature(getattr(protocol, name))
    ]


def test_a_description_is_registered_under_its_name() -> None:
    for registry in (TESTBEDS, PLANES):
        assert all(name == description.name for name, description in registry.items())
    assert DEFAULT in TESTBEDS
    assert {testbed.plane for testbed in TESTBEDS.values()} - {None} == {DEFAULT_PLANE}
    assert DEFAULT_PLANE in PLANES and AUTO not in PLANES


def test_abilities_have_a_meaning_and_a_reason() -> None:
    assert set(get_args(PlaneAbility)) <= set(ABILITIES)
    for name, testbed in TESTBEDS.items():
        lacks = {ability: find_lack(name, ability) for ability in ABILITIES}
        assert {ability for ability, reason in lacks.items() if reason is None} == testbed.can
        assert "" not in lacks.values()


def test_without_a_reason_users_are_told_which_testbeds_can(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_lack("emulated", "inventory") == 'only testbed = "remote" uses it'
    monkeypatch.setitem(TESTBEDS, "other", replace(TESTBEDS["remote"], name="other"))
    assert find_lack("emulated", "inventory") == 'only testbed = "remote" or "other" uses it'


def test_a_description_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="testbed remote: dilate in both can and cannot"):
        replace(TESTBEDS["remote"], can=frozenset({"dilate"}))


@pytest.mark.parametrize("name", TESTBEDS)
def test_what_a_description_names_exists(name: str) -> None:
    testbed = TESTBEDS[name]
    for reference, parameters in ((testbed.place, 3), (testbed.estimate, 2), (testbed.stage, 1), (testbed.testbed, 1)):
        if reference is not None:
            assert len(inspect.signature(resolve_name(reference)).parameters) == parameters
    assert (testbed.testbed is None) == (testbed.stage != execution.__name__ + ":run_planned")


@pytest.mark.parametrize("name", WITH_MACHINES)
def test_a_testbed_does_what_its_description_says(name: str) -> None:
    testbed = TESTBEDS[name]
    assert testbed.testbed is not None
    made = get_type_hints(resolve_name(testbed.testbed))["return"]
    assert deviations(base.Testbed, made) == []
    abilities: tuple[tuple[type, set[Ability]], ...] = (
        (Probing, {"probe"}),
        (Recording, {"certify", "capture"}),
        (Faulting, {"faults", "pause"}),
    )
    for protocol, needed in abilities:
        assert issubclass(made, protocol) == bool(needed & testbed.can)
        assert not issubclass(made, protocol) or deviations(protocol, made) == []
    assert not issubclass(made, Accounting) or deviations(Accounting, made) == []


@pytest.mark.parametrize("name", PLANES)
def test_a_plane_has_the_interface(name: str) -> None:
    make = resolve_name(PLANES[name].make)
    assert deviations(Plane, make) == []
    assert issubclass(make, Capturing) == ("capture" in PLANES[name].can)
    assert not issubclass(make, Capturing) or deviations(Capturing, make) == []
    asked = list(inspect.signature(PlaneMaker.__call__).parameters)[1:]
    assert list(inspect.signature(make).parameters)[: len(asked)] == asked


def test_a_plane_without_a_method_is_noticed() -> None:
    assert deviations(Probing, Experiment) == ["probe"]
    other = type("Other", (), {"cpu_s": emulated_testbed.EmulatedTestbed.cpu_s, "resources": lambda self, more: {}})
    assert deviations(Accounting, other) == ["resources"]


# --------------------------------------------------------------------------------------------------- names

MAY_NAME = {
    *(path.relative_to(CHECKOUT) for path in (CHECKOUT / "harness/testbeds").rglob("*.py")),
    Path("metrics/rundir/documents.py"),  # the table for manifests of earlier versions
}


def names(source: str) -> list[int]:
    """The lines with a string that is a testbed's name."""
    if not any(name in source for name in TESTBEDS):
        return []
    constants = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    return [node.lineno for node in constants if node.value in TESTBEDS]


def test_no_code_names_a_testbed() -> None:
    found = {
        f"{path.relative_to(CHECKOUT)}:{line}"
        for room in ("harness", "metrics", "peer", "playbooks", "topologies")
        for path in (CHECKOUT / room).rglob("*.py")
        if path.relative_to(CHECKOUT) not in MAY_NAME
        for line in names(path.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_a_name_of_a_testbed_is_found() -> None:
    assert names('if run.manifest.testbed == "emulated": pass') == [1]
    assert names('"""The emulated testbed."""') == []


# --------------------------------------------------------------------------------------------------- a toy


def place_at_the_bench(_: Experiment, __: Path, nodes: int) -> tuple[Placement, ...]:
    return tuple(Placement(node, node, "bench", f"192.0.2.{node}", "") for node in range(nodes))


TOYS = "toys_of_a_test"
"""The name of a module that has the code of the toys."""

BENCH = Description(
    name="bench",
    text="a toy",
    can=frozenset({"shape", "simulate"}),
    cannot={"command": "its programs are glued in"},
    place=f"{TOYS}:place",
    estimate="harness.planning.needs:estimate_simulation",
    stage=f"{TOYS}:stage",
    limit=HostLimit(5, "at the bench"),
)


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType(TOYS)
    module.place = place_at_the_bench  # type: ignore[attr-defined]
    module.stage = lambda run_dir: f"ran {run_dir}"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, TOYS, module)
    return module


@pytest.fixture
def bench(toys: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """An experiment on a testbed that nothing else knows."""
    monkeypatch.setitem(TESTBEDS, "bench", BENCH)
    return replace(
        decode_experiment({"name": "x", "protocol": "complete", "underlay": {"kind": "uniform", "hosts": 4}}),
        testbed="bench",
    )


def test_a_new_testbed_refuses_by_its_description(bench: Experiment) -> None:
    check_rules(bench)
    for changes, place, words in (
        ({"peer": replace(bench.peer, command=("node",))}, "$.peer.command", "its programs are glued in"),
        ({"time_dilation": 2.0}, "$.time_dilation", 'only testbed = "emulated" or "simulated" uses it'),
        ({"inventory": "machines.toml"}, "$.inventory", 'only testbed = "remote" uses it'),
        ({"churn": replace(bench.churn, silent_ratio=0.5)}, "$.churn.silent_ratio", 'only testbed = "emulated" or'),
    ):
        with pytest.raises(ExperimentError) as refused:
            check_rules(replace(bench, **changes))
        assert refused.value.path == place and refused.value.problem.startswith(words)


def test_a_new_testbed_is_planned_by_its_description(bench: Experiment, tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text("")
    plan = make_plan(bench, file).plan
    assert [place.wan_ip for place in plan.placement] == ["192.0.2.0", "192.0.2.1", "192.0.2.2", "192.0.2.3"]
    assert plan.prediction.wall_s is None and plan.prediction.processes == 1
    with pytest.raises(ExperimentError, match="expected at most 5 hosts at the bench, got 6"):
        make_plan(replace(bench, underlay=UnderlaySpec(kind="uniform", hosts=6)), file)


@pytest.mark.parametrize("here", [True, False])
def test_a_run_elsewhere_may_need_more_than_this_machine_has(
    here: bool, bench: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction, "this_machine", lambda: Capacity(0, 0, 0))
    monkeypatch.setitem(TESTBEDS, "bench", replace(BENCH, here=here))
    if here:
        with pytest.raises(ExperimentError, match="4 hosts need 1 processes, this machine has 0"):
            make_plan(bench, tmp_path / "x.toml")
        make_plan(bench, tmp_path / "x.toml", here=False)
    else:
        make_plan(bench, tmp_path / "x.toml")


@pytest.mark.parametrize("sandboxed", [True, False])
def test_the_stage_runs_in_a_sandbox_if_the_description_says_so(
    sandboxed: bool, bench: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: list[str] = []

    def start(way: str) -> Callable[..., int]:
        return lambda *_, **__: ways.append(way) or 0  # type: ignore[func-returns-value]

    monkeypatch.setattr(sandbox, "run", start("sandbox"))
    monkeypatch.setattr(command, "run_stage", start("here"))
    monkeypatch.setitem(TESTBEDS, "bench", replace(BENCH, sandboxed=sandboxed))
    assert command.perform_stage("bench", tmp_path) == 0
    assert ways == ["sandbox" if sandboxed else "here"]


def test_the_running_stage_is_the_description_s(
    bench: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = make_plan(bench, tmp_path / "x.toml")
    monkeypatch.setattr(execution, "read_plan", lambda run_dir: planned)
    assert execution.stage_of(tmp_path)(tmp_path) == f"ran {tmp_path}"  # type: ignore[comparison-overlap]


class AttachedError(Exception):
    """Raised by the toy plane: the rest of the testbed is not needed."""


class ToyPlane:
    def __init__(self, network: Network, seed: int, folder: Path, *_: object) -> None:
        self.made_for = (network.size, network.asked(0, 1), seed, folder)

    def attach(self, ports: Sequence[Port]) -> None:
        raise AttachedError(self.made_for, [(port.address, port.mtu) for port in ports])


def test_an_emulated_testbed_uses_the_plane_that_its_description_names(
    toys: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toys.plane = ToyPlane  # type: ignore[attr-defined]
    plane = PlaneDescription(name="toy", can=frozenset({"shape"}), needs=(), make=f"{TOYS}:plane")
    other = emulated.describe("other", "a toy", plane)
    assert other.can == TESTBEDS["emulated"].can - {"jitter", "rate", "queue", "mtu", "capture", "faults", "disorder"}
    monkeypatch.setitem(PLANES, "toy", plane)
    monkeypatch.setitem(TESTBEDS, "other", other)
    monkeypatch.setattr(emulated_testbed, "make_keep_awake", lambda: None)
    monkeypatch.setattr(emulated_testbed, "Watchdog", MagicMock())
    monkeypatch.setattr(mininet_net, "boot", lambda _: None)
    file = tmp_path / "brief.toml"
    file.write_text(BRIEF)
    planned = make_plan(load_experiment(file, ["underlay.mtu_bytes=1280"]), file)
    plan = replace(planned.plan, experiment=replace(planned.plan.experiment, testbed="other"))
    booting = emulated_testbed.EmulatedTestbed(replace(planned, plan=plan), tmp_path, 0, UNDILATED)
    with pytest.raises(AttachedError) as attached:
        booting.boot()
    made_for = (2, planned.network.asked(0, 1), plan.seed, tmp_path)
    assert attached.value.args == (made_for, [("10.0.0.1", 1280), ("10.0.0.2", 1280)])
    assert [str(link) for link in booting.net.links] == ["h1<->wan", "h2<->wan"]


class CapturingPlane:
    """A plane of which only the capture is used."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def start_capture(self, folder: Path, snaplen_bytes: int, epoch_offset_ns: int) -> None:
        self.asked.append(f"start in {folder.name}, {snaplen_bytes} bytes")

    def stop_capture(self) -> CaptureCounts:
        self.asked.append("stop")
        return CaptureCounts((), 0, 0, 0, 0)


def record_on(plane: object, tmp_path: Path, capture: str) -> tuple[MagicMock, MagicMock]:
    """Record on an emulated testbed with this plane, and return its captures in hosts and its prober."""
    file = tmp_path / "brief.toml"
    file.write_text(BRIEF + capture)
    planned = make_plan(load_experiment(file), file)
    made = emulated_testbed.make(base.Setting(planned, tmp_path, 0, UNDILATED))
    captures, prober = MagicMock(), MagicMock()
    vars(made).update(_plane=plane, _host_captures=captures, _prober=prober)
    made.start_recording(5.0)
    made.stop_recording()
    return captures, prober


def test_a_plane_that_can_capture_does_so_if_it_is_asked(tmp_path: Path) -> None:
    for capture, asked in (("snaplen_bytes = 200", ["start in capture, 200 bytes", "stop"]), ("enabled = false", [])):
        plane = CapturingPlane()
        captures, prober = record_on(plane, tmp_path, f"capture = {{ {capture} }}")
        assert plane.asked == asked
        assert captures.start.called == captures.stop.called == bool(asked)
        assert prober.start_sampling.called and prober.stop_sampling.called


def test_a_plane_without_captures_is_asked_for_none(tmp_path: Path) -> None:
    captures, prober = record_on(object(), tmp_path, "capture = { enabled = true }")
    assert not captures.start.called and not captures.stop.called
    assert prober.start_sampling.called and prober.stop_sampling.called


# ---------------------------------------------------------------------------------------------- the running stage


RUNNING = ("warmup", "workload", "cooldown", "stop")


class BareTestbed:
    """A testbed with machines, and nothing else."""

    def boot(self) -> None: ...

    def machines(self) -> tuple[()]:
        return ()

    def sites(self) -> tuple[()]:
        return ()

    def metrics(self) -> dict[str, tuple[str, int]]:
        return {}

    def close(self) -> Findings:
        return Findings()


class WatchedTestbed(BareTestbed):
    """One that does all that a testbed may."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def probe(self, moment: str) -> None:
        self.asked.append(moment)

    def start_recording(self, longest_s: float) -> None:
        self.asked.append("start")

    def lost(self) -> dict[str, str]:
        return {}

    def stop_recording(self) -> None:
        self.asked.append("stop")

    def cpu_s(self) -> float:
        self.asked.append("cpu")
        return 1.5 * self.asked.count("cpu")

    def resources(self) -> dict[str, float]:
        self.asked.append("resources")
        return {"peers_pss_mib": 1.0}


class EmptyDeployment(Deployment):
    """No machines, so nothing is done on any."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__([], "t", Path())

    def __enter__(self) -> "EmptyDeployment":
        return self

    def start(self, zero_epoch_ns: int) -> dict[str, int]:
        return {"m": 0}


def run_on(testbed: BareTestbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifest:
    file, run_dir = tmp_path / "brief.toml", tmp_path / "run"
    file.write_text(BRIEF)
    write_plan(make_plan(load_experiment(file), file), run_dir)
    monkeypatch.setattr(execution, "make_testbed", lambda setting: testbed)
    monkeypatch.setattr(execution, "SETTLE_S", 0.0)
    monkeypatch.setattr(execution, "Deployment", EmptyDeployment)
    monkeypatch.setattr(execution.Execution, "deploy", lambda self, deployment: None)
    return execution.run_planned(run_dir)


def test_a_testbed_without_probes_and_captures_is_asked_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = run_on(BareTestbed(), tmp_path, monkeypatch)
    assert manifest.resources == {}
    assert [phase.name for phase in manifest.phases] == ["boot", "deploy", *RUNNING, "collect"]
    assert manifest.can == tuple(sorted(TESTBEDS["emulated"].can))


def test_a_testbed_is_asked_for_all_that_it_does_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    testbed = WatchedTestbed()
    manifest = run_on(testbed, tmp_path, monkeypatch)
    assert testbed.asked == ["before", "start", "cpu", "cpu", "resources", "stop", "after"]
    assert manifest.resources == {"peers_pss_mib": 1.0, "peers_cpu_s": 1.5}
    phases = [phase.name for phase in manifest.phases]
    assert phases == ["boot", "deploy", "probe_before", *RUNNING, "settle", "probe_after", "collect"]


# ---------------------------------------------------------------------------------------------- the analysis


def manifest_of(testbed: str, can: tuple[str, ...] | None) -> Manifest:
    return Manifest("r", testbed, 0, 0, (), (), {}, {}, {}, {}, can=can)


@pytest.mark.parametrize("name", ["emulated", "simulated"])
@pytest.mark.parametrize("ability", ["shape", "capture", "certify", "simulate"])
def test_a_manifest_of_an_earlier_version_has_the_abilities_of_its_testbed(name: str, ability: Ability) -> None:
    assert manifest_of(name, None).has_ability(ability) == (ability in TESTBEDS[name].can)


def test_the_remote_testbed_of_earlier_versions_could_not_capture() -> None:
    assert not manifest_of("remote", None).has_ability("capture")


def test_a_manifest_says_what_its_testbed_could() -> None:
    assert manifest_of("bench", ("capture",)).has_ability("capture")
    assert not manifest_of("emulated", ()).has_ability("capture")
    assert not manifest_of("bench", None).has_ability("capture")
