"""How the benchmark of hops compares two checkouts, and what it counts of processes."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import hops
from benchmarks.hops import CHECKOUT, Group, Load, Spent, compare, spent

THIS = Group(CHECKOUT, 1)


@pytest.mark.parametrize("other", [Group(Path("/other"), 1), Group(CHECKOUT, 25)])
def test_groups_are_measured_together_and_compared_in_rounds(other: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[list[Group]] = []

    def measure(groups: Sequence[Group], load: Load) -> list[dict[str, float]]:
        rounds.append([*groups])
        number = len(rounds)
        times = {other: 100.0 * number, THIS: 50.0 * number * number}
        return [{"us_per_hop": times[group], "pss_mib": 0.0} for group in groups]

    monkeypatch.setattr(hops, "measure", measure)
    found = compare(other, THIS, Load(2, 1.0, 0.0), 3)
    assert rounds == [[other, THIS], [THIS, other], [other, THIS]]
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
