"""What the comparison of two versions of the simulator says."""

import pytest

from benchmarks.simulator_versions import compare


def run(cpu_s: float, events: int = 1_000_000, frames: int = 5) -> dict[str, float]:
    return {"cpu_s": cpu_s, "events": events, "frames": frames, "bytes": 7}


def test_ratios_are_those_of_pairs():
    found = compare([run(4), run(8), run(10)], [run(1), run(6), run(5)])
    assert found["present_over_earlier"] == pytest.approx(0.5)
    assert (found["least_ratio"], found["greatest_ratio"]) == (0.25, 0.75)
    assert found["earlier_us_per_event"] == pytest.approx(8)
    assert found["present_us_per_event"] == pytest.approx(5)
    assert found["same"] == 1


@pytest.mark.parametrize("other", [run(1, events=1), run(1, frames=6), {"cpu_s": 1.0, "events": 1_000_000}])
def test_versions_that_simulate_something_else_are_not_the_same(other: dict[str, float]):
    assert compare([run(1), run(1)], [run(1), other])["same"] == 0
