"""The doctor's judgements on injected facts, its name check, and its real probes on this machine."""

import argparse
import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from harness.commands import doctor
from harness.doctor import collisions, facts, probes
from harness.doctor.collisions import find_collisions
from harness.doctor.facts import Facts, TimerLateness, Trial
from harness.doctor.findings import Finding, can_run
from harness.doctor.programs import read_programs

WORKED = Trial(True)
FAILED = Trial(False, "Operation not permitted")
GOOD = Facts(
    is_root=True,
    namespaces=WORKED,
    user_namespaces=WORKED,
    devices=dict.fromkeys(facts.DEVICES, WORKED),
    realtime=WORKED,
    programs={program.name: f"/usr/bin/{program.name}" for program in read_programs()},
    java_major=17,
    pressure_available=True,
    cgroup_version=2,
    cpus=4,
    visible_cpus=4,
    open_files=1 << 20,
    processes=1 << 15,
    neighbours=1 << 14,
    clocksource="tsc",
    monotonic_resolution_ns=1,
    timer=TimerLateness(0.05, 0.2),
    memory_available_mib=16_000,
    disk_free_mib=50_000,
    collisions=(),
)

FLAWS = {
    "namespaces": ({"namespaces": FAILED}, "problem"),
    "user namespaces": ({"user_namespaces": FAILED}, "note"),
    "veth": ({"devices": {**GOOD.devices, "veth": FAILED}}, "problem"),
    "bridge": ({"devices": {**GOOD.devices, "bridge": FAILED}}, "problem"),
    "tun": ({"devices": {**GOOD.devices, "tun": FAILED}}, "problem"),
    **{name: ({"devices": {**GOOD.devices, name: FAILED}}, "note") for name in facts.OPTIONAL},
    "mnexec": ({"programs": {**GOOD.programs, "mnexec": None}}, "problem"),
    "prometheus": ({"programs": {**GOOD.programs, "prometheus": None}}, "problem"),
    "wirefilter": ({"programs": {**GOOD.programs, "wirefilter": None}}, "note"),
    "java": ({"java_major": 11}, "problem"),
    "import names": ({"collisions": ("the import name 'metrics' is also owned by x",)}, "problem"),
    "open files": ({"open_files": 512}, "problem"),
    "processes": ({"processes": 100}, "problem"),
    "neighbour table": ({"neighbours": 1024}, "note"),
    "real-time priority": ({"realtime": FAILED}, "note"),
    "pressure (PSI)": ({"pressure_available": False}, "note"),
    "processors": ({"cpus": 1, "visible_cpus": 1}, "note"),
    "clock": ({"clocksource": "hpet"}, "note"),
    "timers": ({"timer": TimerLateness(0.1, 4.0)}, "note"),
    "memory": ({"memory_available_mib": 500}, "problem"),
    "disk": ({"disk_free_mib": 2000}, "note"),
}


def test_a_good_machine_has_only_good_findings() -> None:
    findings = probes.examine(GOOD)
    assert {finding.level for finding in findings} == {"ok"}
    assert not any(finding.mend or finding.fix for finding in findings)


def test_every_subject_is_tried_with_a_flaw() -> None:
    programs = {program.name for program in read_programs()}
    subjects = {finding.subject for finding in probes.examine(GOOD)}
    assert subjects - programs <= set(FLAWS)


@pytest.mark.parametrize(("subject", "flaw", "level"), [(name, *flaw) for name, flaw in FLAWS.items()], ids=FLAWS)
def test_a_flaw_is_found_and_explained(subject: str, flaw: dict[str, object], level: str) -> None:
    findings = probes.examine(msgspec.structs.replace(GOOD, **flaw))
    (finding,) = [finding for finding in findings if finding.level != "ok"]
    assert (finding.subject, finding.level) == (subject, level)
    assert finding.found
    assert finding.meaning
    assert finding.mend or subject == "pressure (PSI)"
    assert can_run(findings) == (level != "problem")


def test_without_java_a_run_is_possible() -> None:
    (finding,) = [
        finding for finding in probes.examine(msgspec.structs.replace(GOOD, java_major=None)) if finding.level != "ok"
    ]
    assert (finding.subject, finding.level) == ("java", "note")
    assert "one process computes the tables" in finding.found
    assert finding.mend


def test_without_namespaces_nothing_is_said_of_devices_that_could_not_be_tried() -> None:
    """As for root in a container with Docker's default capabilities."""
    refused = Trial(False, "unshare: unshare failed: Operation not permitted")
    flawed = msgspec.structs.replace(GOOD, namespaces=refused, devices=dict.fromkeys(GOOD.devices, refused))
    (finding,) = [finding for finding in probes.examine(flawed) if finding.level != "ok"]
    assert finding.subject == "namespaces"
    assert "its devices were not tried" in finding.meaning
    assert "CAP_SYS_ADMIN and CAP_NET_ADMIN" in finding.mend
    assert "modprobe" not in finding.mend
    user = msgspec.structs.replace(flawed, is_root=False)
    assert "run as root" in next(finding for finding in probes.examine(user) if finding.level != "ok").mend


def test_nothing_is_mended_without_the_right_to() -> None:
    flawed = msgspec.structs.replace(GOOD, is_root=False, java_major=None, neighbours=1024)
    assert not any(finding.fix for finding in probes.examine(flawed))


@pytest.mark.parametrize(
    ("said", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "21" 2023', 21),
        ("", None),
    ],
)
def test_java_version(said: str, major: int | None) -> None:
    assert facts.java_major(said) == major


def test_a_quota_is_told_with_what_it_means() -> None:
    (finding,) = [it for it in probes.examine(msgspec.structs.replace(GOOD, cpus=2)) if it.level != "ok"]
    assert (finding.subject, finding.level) == ("processors", "note")
    assert "2 of 4 by a quota" in finding.found
    assert "throttled" in finding.meaning


def test_memory_available() -> None:
    assert facts.memory_available_mib("MemFree: 1 kB\nMemAvailable:    2048 kB\n") == 2
    assert facts.memory_available_mib("") == 0


def test_attempt_tells_why_it_failed() -> None:
    assert facts.attempt(("true",)) == WORKED
    assert facts.attempt(("sh", "-c", "echo first >&2; echo last >&2; exit 1")) == Trial(False, "last")
    assert facts.attempt(("false",)) == Trial(False, "exit status 1")
    assert not facts.attempt(("/no/such/program",)).worked


# --------------------------------------------------------------------------------------------------- collisions

HOME = Path("/home")
OURS = {room: ["trellis-testbed"] for room in collisions.ROOMS}
HERE: dict[str, Path | None] = {room: HOME / room for room in collisions.ROOMS}


def test_our_own_rooms_do_not_collide() -> None:
    assert find_collisions(OURS, HERE, HOME) == []
    assert find_collisions({"numpy": ["numpy"]}, HERE, HOME) == []


def test_a_stranger_that_owns_a_room_collides() -> None:
    (collision,) = find_collisions({**OURS, "metrics": ["trellis-testbed", "metrics"]}, HERE, HOME)
    assert "'metrics'" in collision
    assert "distribution metrics" in collision


def test_a_room_found_elsewhere_collides() -> None:
    (collision,) = find_collisions(OURS, {**HERE, "peer": Path("/elsewhere/peer")}, HOME)
    assert "/elsewhere/peer" in collision


def test_a_collision_in_an_environment_is_found(tmp_path: Path) -> None:
    info = tmp_path / "stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("peer\n")
    argv = [sys.executable, "-c", "from harness.doctor import collisions; print(collisions.current_collisions())"]
    beside = os.environ | {"PYTHONPATH": str(tmp_path)}
    for environment, sentences in (
        (os.environ, []),
        (beside, ["the import name 'peer' is also owned by the distribution stranger"]),
    ):
        found = subprocess.run(
            argv, cwd=collisions.CHECKOUT, env=environment, capture_output=True, text=True, check=True
        )
        assert ast.literal_eval(found.stdout) == sentences


# ------------------------------------------------------------------------------------------------------- the verb


def options(**chosen: bool) -> argparse.Namespace:
    return argparse.Namespace(**{"fix": False, "json": False, **chosen})


def test_the_verb_reports_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    status = doctor.run(options(json=True))
    document = json.loads(capsys.readouterr().out)
    assert document["can_run"] == (status == 0)
    assert {"namespaces", "tun", "java", "timers"} <= {finding["subject"] for finding in document["findings"]}


def test_text_says_found_meaning_and_mend() -> None:
    flaw = Finding("tun", "problem", "absent", "no network", "modprobe tun")
    lines = doctor.as_text([Finding("veth", "ok", "there", "control network"), flaw]).splitlines()
    assert lines[0].split() == ["ok", "veth", "there:", "control", "network"]
    assert lines[1].split() == ["problem", "tun", "absent:", "no", "network"]
    assert lines[2].strip() == "fix: modprobe tun"
    assert lines[3] == "no run can be made; problems: 1"


def test_mending_runs_each_safe_command_once(tmp_path: Path) -> None:
    note = tmp_path / "note"
    command = ("sh", "-c", f"echo mended >>{note}")
    flaws = [Finding(name, "problem", "f", "m", "mend", command) for name in ("a", "b")]
    assert doctor.mend([*flaws, Finding("c", "problem", "f", "m", "only by hand")])
    assert note.read_text() == "mended\n"
    assert not doctor.mend([Finding("d", "ok", "f", "m", fix=command)])
    assert note.read_text() == "mended\n"
