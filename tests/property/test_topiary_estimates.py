"""Topiary's estimates of what was published: gaps in publishers' numbers, and what forged numbers can do to them."""

from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from peer.core.contract import message_id
from peer.core.frames import Data
from peer.core.payload import make_payload, topic_sequence
from peer.protocols.topiary.estimates import MISSED_ALLOWANCE, REMEMBERED, RateEstimate, SequenceEstimate
from peer.testing import stored

SECOND_NS = 1_000_000_000


def copy_of(identifier: int, topics: tuple[int, ...], payload: bytes) -> Data:
    return Data(identifier, topics, 1, 1, payload)


def hear(estimate: SequenceEstimate, sequence: int, publisher: int = 3, topics: tuple[int, ...] = (7,)) -> bool:
    """A message with this number comes in at a node that subscribes to topics 7 and 8."""
    identifier = message_id(publisher, sequence)
    return estimate.see(copy_of(identifier, topics, make_payload(identifier, sequence, 64)), frozenset({7, 8}))


@given(st.lists(st.integers(0, MISSED_ALLOWANCE), min_size=1, max_size=30), st.integers(0, MISSED_ALLOWANCE))
def test_gaps_in_a_publishers_numbers_are_counted_as_published(heard: list[int], before: int):
    estimate = SequenceEstimate()
    hear(estimate, before)
    estimate.turn_over()
    for sequence in heard:
        assert hear(estimate, sequence)
    assert estimate.published([7, 8], SECOND_NS) == {7: max(0, max(heard) - before), 8: 0}


@given(st.integers(0, 40), st.integers(0, 40), st.integers(-200, 200))
def test_a_jump_is_believed_up_to_twice_what_came_in_on_the_topic(before: int, now: int, jump: int):
    """Also down, where the publisher began anew or the last number was forged."""
    estimate = SequenceEstimate()
    hear(estimate, 300)
    for epoch in (before, now):
        estimate.turn_over()
        for sequence in range(epoch):
            hear(estimate, sequence, publisher=4)
    believed = abs(jump) <= MISSED_ALLOWANCE + 2 * max(before, now + 1)
    assert hear(estimate, 300 + jump) == believed
    others = max(0, now - before)  # the same numbers again are late ones
    assert estimate.published([7], SECOND_NS) == {7: others + (max(jump, 0) if believed else 1)}


@given(st.integers(1, 100), st.integers(0, 99), st.integers(1 << 8, (1 << 32) - 101))
def test_one_forged_number_is_not_seen_in_the_estimate(messages: int, at: int, forged: int):
    estimate = SequenceEstimate()
    estimate.turn_over()
    for sequence in range(messages):
        if sequence == at % messages:
            assert not hear(estimate, sequence + forged) or sequence == 0
        else:
            hear(estimate, sequence)
    assert estimate.published([7], SECOND_NS) == {7: messages}
    estimate.turn_over()
    for sequence in range(messages, messages + 3):
        hear(estimate, sequence)
    assert 2 <= estimate.published([7], SECOND_NS)[7] <= 3, "and the count goes on from the genuine ones"


@given(st.integers(1, 100), st.integers(0, 30))
def test_a_whole_epoch_that_was_lost_is_counted(each: int, quiet: int):
    """Also after further epochs in which nothing was published, so that nothing came in."""
    estimate = SequenceEstimate()
    for sequence in range(each):
        hear(estimate, sequence)
    for _ in range(1 + quiet):
        estimate.turn_over()
    estimate.turn_over()
    for sequence in range(2 * each, 3 * each):
        assert hear(estimate, sequence)
    assert estimate.published([7], SECOND_NS) == {7: 2 * each}


@given(st.integers(1, 100), st.integers(1, 4))
def test_one_forged_number_after_a_lost_epoch_counts_as_one_message(each: int, times: int):
    estimate = SequenceEstimate()
    for sequence in range(each):
        hear(estimate, sequence)
    estimate.turn_over()
    estimate.turn_over()
    assert not hear(estimate, each - 1 + MISSED_ALLOWANCE + 2 * each * times + 1)
    assert estimate.published([7], SECOND_NS) == {7: 1}


def test_what_is_remembered_of_publishers_is_bounded_whatever_is_claimed():
    estimate = SequenceEstimate()
    for publisher in range(REMEMBERED + 100):
        hear(estimate, 5, publisher)
        hear(estimate, 5, publisher=1, topics=(1000 + publisher, 7))
        hear(estimate, 5, publisher=1, topics=(1000 + publisher,))
        copy = copy_of(message_id(1, 5), (1000 + publisher, 7), make_payload(message_id(1, 5), 5, 64))
        estimate.pass_over(copy, frozenset({7}))
    sizes = [len(one) for one in stored(estimate) if isinstance(one, dict)]
    assert max(sizes) == REMEMBERED
    assert sum(sizes) < REMEMBERED + 20, "nothing else grows with the publishers"
    estimate.turn_over()
    hear(estimate, 8, REMEMBERED + 99)
    assert estimate.published([7], SECOND_NS)[7] == 3, "the last ones are still known"
    most = MISSED_ALLOWANCE + 2 * 2 * (REMEMBERED + 100)  # two messages came in per publisher
    assert hear(estimate, 5 + most, REMEMBERED + 98)
    assert not hear(estimate, 6 + most, REMEMBERED + 97)


def test_a_known_rate_needs_no_message():
    assert RateEstimate(2.5).published([1, 2], 4 * SECOND_NS) == {1: 10.0, 2: 10.0}


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**32 - 1), st.integers(0, 100))
def test_a_payload_has_its_size_and_tells_its_number(identifier: int, sequence: int, size: int):
    payload = make_payload(identifier, sequence, size)
    assert len(payload) == size
    assert topic_sequence(payload) == (sequence if size >= 12 else None)


class Losses(NamedTuple):
    """Messages that a node missed in some epochs, and those of them that its estimates saw."""

    true: int
    by_sequence: int
    by_rate: int


def measure_losses(lossy_epochs: int, epochs: int, each: int) -> list[Losses]:
    """One node of 1,000 with 20 of 100 topics and 1,000 messages an epoch, as in ``topiary-interest`` at 20 %.

    It loses every fifth message at random for ``lossy_epochs`` of ``epochs``, and none after them. What an estimate
    sees is what it takes for published less what came in.

    Returns:
        The sums over ``each`` epochs.
    """
    draws = Random(1)
    subscribers = [[node for node in range(1, 1000) if draws.random() < 0.2] for _ in range(100)]
    interests = frozenset(draws.sample(range(100), 20))
    sequence, rate = SequenceEstimate(), RateEstimate(1.0)
    counts: dict[tuple[int, int], int] = {}
    rows = []
    for epoch in range(epochs):
        sequence.turn_over()
        lost = received = 0
        for number in range(1000):
            topic = draws.randrange(100)
            pair = draws.choice(subscribers[topic]), topic
            count = counts[pair] = counts.get(pair, -1) + 1
            if topic not in interests:
                continue
            if epoch < lossy_epochs and draws.random() < 0.2:
                lost += 1
                continue
            received += 1
            identifier = message_id(pair[0], epoch * 1000 + number)
            sequence.see(copy_of(identifier, (topic,), make_payload(identifier, count, 12)), interests)
        by_sequence, by_rate = (
            round(sum(estimate.published(interests, 10 * SECOND_NS).values())) - received
            for estimate in (sequence, rate)
        )
        rows.append(Losses(lost, by_sequence, by_rate))
    return [Losses(*map(sum, zip(*rows[at : at + each], strict=True))) for at in range(0, epochs, each)]


def test_numbers_see_losses_late_and_a_known_rate_at_once():
    """docs/protocols/topiary.md has this table; it changes where these lines do."""
    rows = measure_losses(lossy_epochs=40, epochs=80, each=10)
    for place, row in enumerate(rows):
        print(f"| {10 * place}-{10 * place + 9} | {row.true} | {row.by_sequence} | {row.by_rate} |")
    assert [row.true > 0 for row in rows] == [True] * 4 + [False] * 4
    seen = [row.by_sequence / rows[place].true for place, row in enumerate(rows[:4])]
    assert seen == sorted(seen)
    assert seen[0] < 0.05
    assert 0.2 < seen[3] < 0.5
    assert rows[4].by_sequence > rows[3].by_sequence, "the gaps show when their publishers speak again"
    assert all(abs(row.by_rate - row.true) < 120 for row in rows), "2.5 times the root of 2,000 expected ones"
