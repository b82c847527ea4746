"""With which run a report compares its run."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from metrics.measures.registry import HEADLINE, MEASURES
from metrics.report.baseline import COMPARED, Contrast, contrast, describe_baseline, find_baseline, name_sides
from metrics.report.run import Run
from metrics.rundir import RunDir, RunDirError
from tests.fabricate import Fabrication

Make = Callable[..., Path]


class Opened(Run):
    """A run without tables, which a baseline does not need."""

    def __init__(self, path: Path) -> None:
        RunDir.__init__(self, path)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Fabrication(nodes=3, messages=1).write(tmp_path_factory.mktemp("baseline") / "run")


@pytest.fixture
def make(written: Path, tmp_path: Path) -> Make:
    """Makes a run of a protocol beside the others, with a verdict and a date."""

    def copy(
        name: str,
        protocol: str,
        date: int,
        verdict: str = "valid",
        experiment: str = "same",
        headline: dict[str, float | None] | None = None,
        **settings: object,
    ) -> Path:
        run_dir = Path(shutil.copytree(written, tmp_path / name))
        plan = json.loads((run_dir / "plan.json").read_text())
        plan["experiment"] |= {"protocol": protocol, **settings}
        (run_dir / "plan.json").write_text(json.dumps(plan))
        (run_dir / "experiment.toml").write_text(experiment)
        summary = {
            "verdict": verdict, "reasons": [], "headline": headline or {}, "checks": [], "run_id": name,
            "name": "fabricated", "seed": 3, "protocol": protocol,
        }  # fmt: skip
        (run_dir / "summary.json").write_text(json.dumps(summary))
        os.utime(run_dir / "manifest.json", (date, date))
        return run_dir

    return copy


def found_beside(run_dir: Path) -> str | None:
    baseline = find_baseline(Opened(run_dir))
    return None if baseline is None else baseline.path.name


def test_the_last_run_of_another_protocol_is_the_baseline(make: Make) -> None:
    run_dir = make("mine", "random", 50)
    assert found_beside(run_dir) is None
    make("old", "complete", 10)
    assert found_beside(run_dir) == "old"
    make("late", "stan", 90)
    make("middle", "complete", 30)
    assert found_beside(run_dir) == "late"
    baseline = find_baseline(Opened(run_dir))
    assert baseline is not None and describe_baseline(baseline) == "stan, seed 3, valid (late)"


def test_runs_that_compare_badly_are_passed_over(make: Make) -> None:
    run_dir = make("mine", "random", 50)
    make("same-protocol", "random", 60)
    make("invalid", "stan", 70, verdict="invalid")
    make("other-file", "stan", 80, experiment="another")
    make("as-long", "stan", 81, experiment="emas")
    (make("unfinished", "stan", 90) / "summary.json").unlink()
    (make("damaged", "stan", 91) / "summary.json").write_text("{")
    (make("without-experiment", "stan", 92) / "experiment.toml").unlink()
    linked = make("linked", "stan", 93)
    (linked / "summary.json").rename(linked.parent / "elsewhere.json")
    (linked / "summary.json").symlink_to(linked.parent / "elsewhere.json")
    manifest = json.loads((run_dir / "manifest.json").read_text())
    other = make("other-testbed", "stan", 94) / "manifest.json"
    other.write_text(json.dumps(manifest | {"testbed": "simulated" if manifest["testbed"] != "simulated" else "x"}))
    workload = json.loads((run_dir / "plan.json").read_text())["experiment"]["workload"]
    make("other-workload", "stan", 95, workload=workload | {"duration_s": 999.0})
    make("other-network", "stan", 96, underlay={"kind": "uniform", "hosts": 1000})
    assert found_beside(run_dir) is None
    make("suspect", "stan", 10, verdict="suspect", stan={"view": 3}, membership={"kind": "cyclon"})
    assert found_beside(run_dir) == "suspect"


def test_the_run_that_is_asked_for_is_the_baseline(make: Make) -> None:
    run_dir, other = make("mine", "random", 50), make("other", "random", 10, experiment="else")
    make("late", "stan", 90)
    baseline = find_baseline(Opened(run_dir), other)
    assert baseline is not None and baseline.path == other
    (other / "summary.json").unlink()
    with pytest.raises(RunDirError, match=r"summary\.json is missing"):
        find_baseline(Opened(run_dir), other)


def test_the_first_numbers_of_both_runs_are_compared(make: Make) -> None:
    mine: dict[str, float | None] = {
        "delivery_ratio": 0.875, "propagation_delay_ms_p50": 60.0, "hops_mean": 2.0, "degree_mean": 0.0,
        "traffic_overhead_ratio": 0.25, "control_bytes_per_peer_per_s": 1250.5, "duplicates_per_delivery": None,
        "lateness_ms_p99": 3.0,
    }  # fmt: skip
    theirs: dict[str, float | None] = {
        "delivery_ratio": 1.0, "propagation_delay_ms_p50": 80.0, "hops_mean": 2.0, "degree_mean": 0.0,
        "traffic_overhead_ratio": 0.125, "control_bytes_per_peer_per_s": 0.0, "duplicates_per_delivery": 4.0,
    }  # fmt: skip
    run, baseline = (
        RunDir(make(name, name, 50, headline=numbers)) for name, numbers in (("random", mine), ("stan", theirs))
    )
    assert [(each.here, each.there, each.difference) for each in contrast(run, baseline)] == [
        ("87.50%", "100.00%", "-12.5 percentage points"),
        ("60 ms", "80 ms", "-25 %"),
        ("2", "2", "none"),
        ("not known", "4", ""),
        ("25.00%", "12.50%", "+12.5 percentage points"),
        ("0", "0", "none"),
        ("1,250 bytes/s", "0 bytes/s", "+1,250 bytes/s"),
    ], "in the order of COMPARED, and no number that neither run has"
    assert contrast(run, baseline)[0] == Contrast(MEASURES["delivery_ratio"].text, *FIRST)
    assert set(COMPARED) <= set(HEADLINE)
    assert contrast(baseline, run)[-1].difference == "-100 %"


FIRST = ("87.50%", "100.00%", "-12.5 percentage points")


def test_runs_of_one_protocol_are_told_apart_by_their_identities(make: Make) -> None:
    one, other, third = (RunDir(make(*words)) for words in (("a", "stan", 1), ("b", "random", 2), ("c", "stan", 3)))
    assert name_sides(one, other) == ("stan", "random")
    assert name_sides(one, third) == ("a", "c")
