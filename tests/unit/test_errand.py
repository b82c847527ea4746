"""What is shipped to a machine for a whole run, and what comes back."""

import io
import tarfile
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import pytest

from harness.commands.run import find_machine, name_machine, print_outcome
from harness.deployment.answers import StepError
from harness.deployment.errand import fetch_run
from harness.deployment.package import PARTS, STAGE_DEPENDENCIES, pack_folder, pack_trellis
from harness.errors import ExperimentError
from harness.stages.manifest import revision
from metrics.analysis import analyse
from metrics.report import report
from metrics.rundir import RunDir
from tests.fabricate import Fabrication

CHECKOUT = Path(__file__).parents[2]


def names_in(archive: bytes) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        return set(found.getnames())


def test_all_packages_are_shipped_with_their_data_and_nothing_else() -> None:
    names = names_in(pack_trellis())
    assert {name.partition("/")[0] for name in names} == set(PARTS)
    assert {"harness/stages/execution.py", "metrics/report/page.html.j2", "topologies/data/world_cities.csv"} <= names
    assert not any("__pycache__" in name for name in names)


def test_a_run_directory_is_packed_with_the_paths_in_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b.json").write_text("{}")
    assert names_in(pack_folder(tmp_path)) == {"a/b.json"}


def test_the_running_stage_needs_the_packages_of_the_extra() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    extra = {name.partition("=")[0] for name in project["optional-dependencies"]["harness"]}
    asked = {name.replace("_", "-") for name in STAGE_DEPENDENCIES}
    assert asked == {*project["dependencies"], *extra}


class Session:
    """A machine that lists some files."""

    work = PurePosixPath("/srv/r")

    def __init__(self, *listed: str) -> None:
        self._listed = listed
        self.fetched: dict[str, str] = {}

    def run_python(self, source: str, *words: str) -> str:
        assert words == ("/srv/r/run",)
        return msgspec.json.encode(self._listed).decode()

    def fetch(self, wanted: dict[str, str], destination: Path, budget_bytes: int) -> None:
        assert budget_bytes > 0
        self.fetched = wanted


def fetch(session: Any, run_dir: Path) -> dict[str, str]:
    fetch_run(session, run_dir)
    fetched: dict[str, str] = session.fetched
    return fetched


def test_files_that_this_side_has_are_not_fetched(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("ours")
    found = fetch(Session("plan.json", "manifest.json", "prometheus/data/wal/00000000"), tmp_path)
    assert found == {
        "run/manifest.json": "manifest.json",
        "run/prometheus/data/wal/00000000": "prometheus/data/wal/00000000",
    }


@pytest.mark.parametrize(
    "name", ["../plan.json", "/etc/passwd", "trace/../../x", ".ssh/authorized_keys", "a//b", "a\nb"]
)
def test_files_outside_a_run_directory_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(StepError, match="among them"):
        fetch(Session("manifest.json", name), tmp_path)


INVENTORY = """
[[machines]]
name = "alpha"
host = "192.0.2.1"
key = "k"
known_hosts = "h"

[[machines]]
name = "beta"
host = "192.0.2.2"
key = "k"
known_hosts = "h"
"""


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(INVENTORY)
    return path


def test_a_machine_is_named_by_its_inventory(inventory: Path) -> None:
    assert find_machine(str(inventory), "emulated").name == "alpha"
    assert find_machine(f"{inventory}:beta", "simulated").name == "beta"


@pytest.mark.parametrize(
    ("suffix", "testbed", "problem"),
    [
        (":gamma", "emulated", "has no machine gamma; it has alpha, beta"),
        ("", "remote", "own inventory; leave --on out, or add --testbed emulated"),
        (".none:alpha", "emulated", "expected INVENTORY or INVENTORY:MACHINE, and there is no file"),
    ],
)
def test_a_machine_that_cannot_be_used_is_refused(inventory: Path, suffix: str, testbed: str, problem: str) -> None:
    with pytest.raises(ExperimentError, match=problem):
        find_machine(f"{inventory}{suffix}", testbed)


def test_the_manifest_the_report_and_the_output_name_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "FIGURES", ())
    run_dir = Fabrication(messages=4).write(tmp_path / "run", deployment={"folder": "f"})
    assert RunDir(run_dir).manifest.machine == ""
    name_machine(run_dir, "beta")
    known = RunDir(run_dir).manifest
    assert known.deployment == {"folder": "f", "machine": "beta"}
    assert known.run_id == "fabricated-run", "the machine has all runs in folders of the same name"
    assert known.versions.items() >= revision().items()
    print_outcome(run_dir, analyse(run_dir, "here"), as_json=False)
    assert "machine: beta" in capsys.readouterr().out.splitlines()
    assert f"testbed {RunDir(run_dir).experiment['testbed']} on beta." in (run_dir / "report/index.html").read_text()
