"""IDONTWANT spares duplicates where sending takes time, and changes nothing where it takes none."""

from pathlib import Path

import pytest

from harness.experiment.loader import decode_experiment
from harness.studies.form import RunSpec
from harness.studies.point_run import simulate_point


def measure(idontwant: bool, rate_mbit: float) -> dict[str, float]:
    """40 nodes on one topic, messages of 20 kB."""
    experiment = decode_experiment(
        {
            "name": "x",
            "protocol": "gossipsub",
            "testbed": "simulated",
            "underlay": {"kind": "unit-square", "hosts": 40, "rate_mbit": rate_mbit},
            "gossipsub": {"profile": "go", "connections": 10, "idontwant": idontwant},
            "workload": {
                "topics": 1,
                "publish_interval": "fixed",
                "publish_rate_per_s": 1,
                "payload_bytes": 20_000,
                "warmup_s": 5,
                "duration_s": 20,
            },
            "interests": {"ratio": 1.0},
        }
    )
    measures = ["duplicates_per_delivery", "delivery_ratio"]
    rows = simulate_point(experiment, RunSpec(), measures, Path())
    return {row.measure: row.value for row in rows if row.moment is None}


@pytest.mark.parametrize(("rate_mbit", "least", "most"), [(5, 0.0, 0.9), (0, 1.0, 1.0)])
def test_duplicates_are_spared_where_sending_takes_time(rate_mbit: float, least: float, most: float):
    with_it, without = measure(True, rate_mbit), measure(False, rate_mbit)
    assert with_it["delivery_ratio"] == without["delivery_ratio"] == 1.0
    assert without["duplicates_per_delivery"] > 3
    kept = with_it["duplicates_per_delivery"] / without["duplicates_per_delivery"]
    assert least <= kept <= most
