"""Messages on several topics, over the overlays of topics as they come: who gets them, and over which links."""

from collections import Counter
from pathlib import Path

import pytest

from harness.experiment.loader import decode_experiment
from harness.simulator.hosts import End
from harness.simulator.simulation import Simulation
from harness.studies.form import RunSpec
from harness.studies.point_run import simulate_point
from peer.core.frames import Data, Frame
from tests.examples import long_unless


@pytest.fixture
def crossings(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[int, int, int]]:
    """Copies by sender, receiver and message."""
    counts: Counter[tuple[int, int, int]] = Counter()
    write = Simulation.write

    def watch(simulation: Simulation, end: End, frame: Frame) -> None:
        if isinstance(frame, Data):
            counts[end.host.number, end.peer, frame.message_id] += 1
        write(simulation, end, frame)

    monkeypatch.setattr(Simulation, "write", watch)
    return counts


@pytest.mark.parametrize("protocol", ["spidercast", "similarity", "ring-per-topic"])
@pytest.mark.parametrize("topics_per_message", long_unless({3}, [1, 3]))
def test_every_subscriber_gets_it_and_no_link_takes_it_twice(protocol, topics_per_message, crossings):
    experiment = decode_experiment(
        {
            "name": "x",
            "protocol": protocol,
            "testbed": "simulated",
            "underlay": {"kind": "unit-square", "hosts": 60},
            "workload": {
                "topics": 12,
                "topics_per_message": topics_per_message,
                "warmup_s": 15,
                "duration_s": 10,
                "publish_rate_per_s": 5,
            },
            "interests": {"kind": "popularity", "subscriptions_min": 4, "subscriptions_max": 4},
        }
    )
    rows = simulate_point(experiment, RunSpec(), ["delivery_ratio", "topics_partitioned"], Path())
    found = {row.measure: row.value for row in rows}
    assert found["delivery_ratio"] == 1
    assert set(crossings.values()) == {1}
