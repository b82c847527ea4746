"""The two error rates of the judgement over first packets, in a network whose machine stalls at random.

``trellis bench first_packets --modelled 2000`` has the numbers of docs/verdict.md; these are fewer of the same.
"""

from typing import Literal

import numpy as np
import pytest

from benchmarks._stalling_network import draw_stalls, introduce
from harness.planes.userspace.defects import LateFirsts
from metrics.recorded.first_packets import IntroductionAttempt, standing
from tests.examples import long_unless
from topologies.generated import cities_underlay
from topologies.geography import world_cities
from topologies.network import Network

CITIES = Network.of(cities_underlay(world_cities()[:20]))
STALLS = [(0.05, 15, 40), (0.6, 15, 40), (2.0, 5, 40), (20.0, 2, 10)]


def is_found(attempts: list[IntroductionAttempt]) -> bool:
    contrasts = [standing(attempts, name) for name in ("pairs", "hosts")]
    return any(contrast is not None and contrast.found for contrast in contrasts)


def sweeps(
    defect: LateFirsts | None, stalls: tuple[float, float, float], count: int, **options: bool
) -> list[list[IntroductionAttempt]]:
    random = np.random.default_rng(1)
    return [introduce(CITIES, draw_stalls(*stalls, random), defect, seed, **options) for seed in range(count)]


@pytest.mark.parametrize("stalls", long_unless(STALLS[3:], STALLS))
def test_stalls_are_not_taken_for_late_first_packets(stalls: tuple[float, float, float]) -> None:
    """Though they made the difference in a share of sweeps when first packets were compared with later ones."""
    found = sweeps(None, stalls, 100)
    assert not any(is_found(attempts) for attempts in found)
    assert sum(contrast.found for attempts in found for contrast in attempts[0].contrasts) <= 2
    met = sum(attempts[0].contrasts[0].tally.first_only > 0 for attempts in found)
    assert met > {0.05: 0, 0.6: 5, 2.0: 30, 20.0: 90}[stalls[0]]


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("of", ["pairs", "hosts"])
@pytest.mark.parametrize("stalls", long_unless([STALLS[1]], [(0.0, 0, 0), *STALLS[:3]]))
def test_late_first_packets_are_found(
    of: Literal["pairs", "hosts"], stalls: tuple[float, float, float], watched: bool
) -> None:
    """+1.5 ms."""
    assert all(is_found(attempts) for attempts in sweeps(LateFirsts(of), stalls, 20, watched=watched))


def test_late_first_packets_of_a_fifth_of_the_pairs_are_found() -> None:
    """A first attempt alone has too few pairs for that."""
    found = sweeps(LateFirsts("pairs", every=10), (0.05, 15, 40), 20)
    assert all(is_found(attempts) for attempts in found)
    assert not all(attempts[0].contrasts[0].found for attempts in found)
