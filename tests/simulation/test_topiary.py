"""Topiary learns: the delay falls epoch by epoch, and with the scores as printed it grows."""

from pathlib import Path

import pytest

from harness.experiment.form import Experiment
from harness.experiment.loader import decode_experiment
from harness.studies.form import RunSpec
from harness.studies.point_run import simulate_point

EPOCHS = 13


def learn(**topiary) -> dict[str, list[float]]:
    """Each measure's values, epoch by epoch: 150 nodes on the square, 100 messages an epoch."""
    experiment: Experiment = decode_experiment(
        {
            "name": "x",
            "protocol": "topiary",
            "testbed": "simulated",
            "underlay": {"kind": "unit-square", "hosts": 150},
            "topiary": {"degree": 6, "epoch_messages": 100, "overlap_s": 0.5, **topiary},
            "workload": {"topics": 20, "publish_rate_per_s": 100, "warmup_s": 1, "duration_s": 1.2 * EPOCHS},
            "interests": {"ratio": 0.2},
        }
    )
    measures = ["propagation_delay_ms_mean", "delivery_ratio"]
    rows = simulate_point(experiment, RunSpec(epoch_messages=100), measures, Path())
    return {
        measure: [row.value for row in rows if row.measure == measure and row.moment is not None]
        for measure in measures
    }


def test_the_delay_falls_and_nearly_everything_arrives():
    found = learn()
    first, *_, last = found["propagation_delay_ms_mean"]
    assert last < 0.7 * first
    assert found["delivery_ratio"][-1] > 0.98


@pytest.mark.long
def test_the_literal_score_makes_it_grow():
    first, *_, last = learn(literal=True)["propagation_delay_ms_mean"]
    assert last > first
