"""Where a pair's draws begin: by seed and pair alone, spread over the tables, and only for pairs that draw."""

import socket

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.planes.userspace.links import AccessLink, EmulatedNetwork, Pair
from tests.examples import examples
from topologies.draws import TABLE_SIZE, mix
from topologies.network import Link, Network

HOSTS = 64
seeds = st.integers(0, 2**70)
few = settings(max_examples=examples(20))


def asked(hosts: int, jitter_ms: float, loss_ratio: float) -> Network:
    return Network(hosts, lambda *_: 10.0, jitter_ms=lambda *_: jitter_ms, loss_ratio=lambda *_: loss_ratio)


def network(seed: int, hosts: int = HOSTS, loss_ratio: float = 0.3) -> EmulatedNetwork:
    made = EmulatedNetwork(asked(hosts, 1.0, loss_ratio), seed)
    for host in range(hosts):
        made.add(AccessLink(host, host), f"10.0.0.{host}")
    return made


def pair(made: EmulatedNetwork, source: int, destination: int) -> Pair:
    return made.links[source].route[socket.inet_aton(f"10.0.0.{destination}")]


def fates(made: EmulatedNetwork, source: int, destination: int, frames: int = 50) -> list[int | None]:
    """The delays of so many frames, one every 10 ms; None = lost."""
    found = pair(made, source, destination)
    return [found.draw_delay_ns(made.draws, at_ms * 1_000_000) for at_ms in range(0, 10 * frames, 10)]


def starts(seed: int) -> npt.NDArray[np.int64]:
    """(pairs, 2) cursors and strides of all directed pairs."""
    made = network(seed)
    pairs = [pair(made, source, destination) for source in range(HOSTS) for destination in range(HOSTS)]
    return np.array([(found.cursor, found.stride) for found in pairs])


@pytest.mark.parametrize(
    ("word", "mixed"), [(0, 0xE220A8397B1DCDAF), (1234567, 6457827717110365317), (2**64 - 1, 0xE4D971771B652C20)]
)
def test_mixes_as_splitmix64_does(word: int, mixed: int) -> None:
    """The generator's published first outputs for these seeds."""
    assert mix(word) == mixed


@few
@given(seeds)
def test_draws_begin_anywhere_with_odd_strides(seed: int) -> None:
    """4096 cursors and strides over 16 equal parts of the tables: 256 in each, six deviations allowed."""
    found = starts(seed)
    assert (found[:, 1] % 2 == 1).all()
    for column in found.T:
        counts = np.bincount(column * 16 // TABLE_SIZE, minlength=16)
        assert abs(counts - 256).max() < 6 * 256**0.5
    assert len(np.unique(found, axis=0)) > 0.999 * len(found)
    assert (found != starts(seed + 1)).any(axis=1).mean() > 0.999


@few
@given(seeds)
def test_neighbouring_pairs_draw_independently(seed: int) -> None:
    """Over 4095 neighbours the differences are as uniform as the starts themselves."""
    cursors = starts(seed)[:, 0]
    for column in (np.diff(cursors), (cursors.reshape(HOSTS, HOSTS) - cursors.reshape(HOSTS, HOSTS).T)[0, 1:]):
        counts = np.bincount(column % TABLE_SIZE * 8 // TABLE_SIZE, minlength=8)
        expected = len(column) / 8
        assert abs(counts - expected).max() < 6 * expected**0.5


@few
@given(seeds, st.integers(0, 9), st.integers(0, 9))
def test_a_pairs_draws_differ_by_seed_and_direction_and_are_the_same_again(seed: int, source: int, to: int) -> None:
    ours = fates(network(seed, 10), source, to)
    assert ours == fates(network(seed, 10), source, to)
    assert ours != fates(network(seed + 1, 10), source, to)
    assert source == to or ours != fates(network(seed, 10), to, source)


@few
@given(seeds, st.integers(0, 5), st.sampled_from(["set_pair", "set_pairs"]))
def test_a_pair_that_gets_loss_late_fares_as_one_that_always_had_it(seed: int, before: int, how: str) -> None:
    always, late = network(seed, 3), network(seed, 3, loss_ratio=0.0)
    for _ in range(before):
        assert pair(late, 0, 1).stride == 0, "a pair without loss draws none, so it does not look for where to begin"
    if how == "set_pair":
        late.set_pair(0, 1, Link(10.0, 1.0, 0.3))
    else:
        late.set_pairs(asked(3, 1.0, 0.3))
    assert fates(late, 0, 1) == fates(always, 0, 1)


@few
@given(seeds, st.integers(1, 20))
def test_a_pair_without_loss_for_a_while_goes_on_where_it_was(seed: int, before: int) -> None:
    steady, paused = network(seed, 3), network(seed, 3)
    assert fates(paused, 0, 1, before) == fates(steady, 0, 1, before)
    for jitter_ms, loss_ratio in ((0.0, 0.0), (1.0, 0.3)):
        paused.set_pairs(asked(3, jitter_ms, loss_ratio))
        assert pair(paused, 0, 1).uneven == bool(loss_ratio)
    assert fates(paused, 0, 1) == fates(steady, 0, 1)
