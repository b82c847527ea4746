"""Sets as integers against Python's own sets."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.core.bitset import bitset, choose, lowest, members, most_often, sample

numbers = st.one_of(st.integers(0, 40), st.integers(0, 3000))
sets = st.frozensets(numbers, max_size=60)


@given(sets)
def test_members_are_those_put_in_rising(given_members: frozenset[int]):
    bits = bitset(given_members)
    assert list(members(bits)) == sorted(given_members)
    assert bits.bit_count() == len(given_members)
    assert bits == sum(1 << member for member in given_members)
    assert not bits or lowest(bits) == min(given_members)


@given(sets, sets)
def test_operators_of_integers_are_those_of_sets(one: frozenset[int], other: frozenset[int]):
    assert bitset(one) & bitset(other) == bitset(one & other)
    assert bitset(one) | bitset(other) == bitset(one | other)
    assert bitset(one) & ~bitset(other) == bitset(one - other)


def test_an_empty_set_has_no_member_to_choose():
    with pytest.raises(IndexError):
        choose(0, Random(1))


@given(sets.filter(bool), st.integers(0, 2**32))
def test_the_chosen_one_is_a_member(given_members: frozenset[int], seed: int):
    assert choose(bitset(given_members), Random(seed)) in given_members


def excess(counts: Counter[int], cells: int) -> float:
    """Pearson's chi squared of equal cells, in standard deviations above its mean."""
    expected = counts.total() / cells
    statistic = sum((counts[cell] - expected) ** 2 for cell in range(cells)) / expected
    return (statistic - (cells - 1)) / (2 * (cells - 1)) ** 0.5


@pytest.mark.parametrize("place", [lambda i: i, lambda i: 7 * i + 3, lambda i: i * i, lambda i: 2 ** (i % 11) + i])
def test_every_member_is_chosen_equally_often(place):
    ranks = {place(i): i for i in range(30)}
    bits, draws = bitset(ranks), Random(5)
    counts = Counter(ranks[choose(bits, draws)] for _ in range(6000))
    assert excess(counts, 30) < 4


@given(sets, st.integers(-1, 70), st.integers(0, 2**32))
def test_a_sample_is_a_subset_of_the_size_asked_for(given_members: frozenset[int], count: int, seed: int):
    drawn = set(members(sample(bitset(given_members), count, Random(seed))))
    assert drawn <= given_members
    assert len(drawn) == min(max(count, 0), len(given_members))


@pytest.mark.parametrize("count", [3, 13, 27])
def test_every_member_is_in_equally_many_samples(count: int):
    ranks = {i * i + 1: i for i in range(30)}
    bits, draws = bitset(ranks), Random(9)
    counts = Counter(ranks[member] for _ in range(2000) for member in members(sample(bits, count, draws)))
    # A sample's members exclude each other, so the statistic lies below that of independent draws.
    assert excess(counts, 30) < 4
    assert min(counts[rank] for rank in range(30)) > 0


@given(st.lists(sets, max_size=12), sets)
def test_most_often_is_what_counting_one_by_one_gives(given_sets: list[frozenset[int]], among: frozenset[int]):
    counts = Counter(member for one in given_sets for member in one & among)
    most = max(counts.values(), default=None)
    expected = {member for member, count in counts.items() if count == most}
    assert set(members(most_often(map(bitset, given_sets), bitset(among)))) == expected
