"""How the benchmark of hops compares two checkouts, and what it counts of processes."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import hops
from benchmarks.hops import CHECKOUT, Load, Spent, compare, spent

OTHER = Path("/other")


def test_checkouts_are_measured_together_and_compared_in_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[list[Path]] = []

    def measure(checkouts: Sequence[Path], load: Load) -> list[dict[str, float]]:
        rounds.append([*checkouts])
        number = len(rounds)
        times = {OTHER: 100.0 * number, CHECKOUT: 50.0 * number * number}
        return [{"us_per_hop": times[checkout], "pss_mib": 0.0} for checkout in checkouts]

    monkeypatch.setattr(hops, "measure", measure)
    found = compare(OTHER, Load(2, 1.0, 0.0), 3)
    assert rounds == [[OTHER, CHECKOUT], [CHECKOUT, OTHER], [OTHER, CHECKOUT]]
    assert found == {
        "us_per_hop": "[100.0, 200.0, 300.0] -> [50.0, 200.0, 450.0]",
        "us_per_hop_ratio": "1.000 of [0.5, 1.0, 1.5]",
        "pss_mib": "[0.0, 0.0, 0.0] -> [0.0, 0.0, 0.0]",
    }


def test_what_a_process_has_used_grows_and_has_two_parts() -> None:
    before = spent([os.getpid()])
    sum(range(10**6))
    used = spent([os.getpid()]) - before
    assert used.cpu_s > 0
    assert used.wake_ups >= 0
    whole = spent([os.getpid()])
    assert whole.user_s + whole.system_s == pytest.approx(whole.cpu_s)
    assert Spent(3, 2, 1, 5) - Spent(1, 1, 0, 2) == Spent(2, 1, 1, 3)
