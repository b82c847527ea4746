"""Experiment files that are right: defaults, overrides, and the reference made from the form."""

from pathlib import Path

import pytest

from harness.experiment.form import Experiment
from harness.experiment.loader import load_experiment
from harness.experiment.specification import write_specification

ROOT = Path(__file__).parents[2]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.toml"
    path.write_text('name = "x"\nseed = 5\n[underlay]\nkind = "uniform"\nhosts = 4\n[random]\ndegree = 2\n')
    return path


def test_absent_keys_take_the_defaults_of_the_form(file: Path) -> None:
    experiment = load_experiment(file)
    defaults = Experiment(name="x")
    assert (experiment.seed, experiment.underlay.hosts) == (5, 4)
    assert experiment.workload == defaults.workload
    assert experiment.underlay.delay_ms == defaults.underlay.delay_ms


def test_overrides_apply_in_order_and_take_toml_or_bare_words(file: Path) -> None:
    overrides = ["underlay.hosts=9", "underlay.hosts=8", "name=bare-word", 'description="two words"']
    overrides += ["peer.metrics=false", "workload.publish_interval=fixed", "peer.command=['a', 'b']"]
    experiment = load_experiment(file, overrides)
    assert (experiment.underlay.hosts, experiment.name, experiment.description) == (8, "bare-word", "two words")
    assert (experiment.peer.metrics, experiment.peer.command) == (False, ("a", "b"))
    assert experiment.workload.publish_interval == "fixed"


def test_the_seed_argument_wins(file: Path) -> None:
    assert load_experiment(file, ["seed=6"]).seed == 6
    assert load_experiment(file, ["seed=6"], seed=7).seed == 7


@pytest.mark.parametrize("example", sorted((ROOT / "playbooks" / "experiments").glob("*.toml")), ids=lambda p: p.stem)
def test_every_shipped_experiment_loads(example: Path) -> None:
    assert load_experiment(example).name == example.stem


def test_the_reference_is_up_to_date() -> None:
    committed = (ROOT / "docs" / "experiment-spec.md").read_text(encoding="utf-8")
    assert committed == write_specification(), (
        "run: python -m harness.experiment.specification > docs/experiment-spec.md"
    )
