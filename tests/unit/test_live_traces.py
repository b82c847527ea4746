"""Messages, delays and links by lines of traces, which are read in any order."""

from collections.abc import Iterator
from itertools import permutations

import pytest

from harness.live.snapshot import LATEST_S, LinkUse
from harness.live.traces import SETTLED_S, Due, Flow, Links, Messages, TraceLine

S, MS = 1_000_000_000, 1_000_000
ZERO_NS = 100 * S


def due(*messages: tuple[int, int]) -> Iterator[Due]:
    return iter([Due(number, nodes) for number, nodes in messages])


def at(event: str, ms: float, node: int, message_id: int = 1) -> TraceLine:
    return TraceLine(event, ZERO_NS + round(ms * MS), node, message_id=message_id)


def taken(lines: list[TraceLine] | tuple[TraceLine, ...], *messages: tuple[int, int]) -> Messages:
    found = Messages(due(*messages), ZERO_NS)
    for line in lines:
        found.take(line)
    return found


def test_the_order_in_which_traces_are_read_changes_nothing() -> None:
    lines = [at("publish", 10, 0), at("deliver", 30, 1), at("deliver", 50, 2), at("deliver", 10, 0)]
    for order in permutations(lines):
        found = taken(order, (1, 0b110))
        assert (found.published, found.delivered, found.expected) == (1, 2, 2)
        delay = found.recent(ZERO_NS + S)
        assert delay is not None
        assert (delay.p50, delay.deliveries, delay.until_s) == (30.0, 2, 0.05)


def test_only_the_first_delivery_at_a_node_counts_and_only_where_one_is_due() -> None:
    found = taken([at("publish", 0, 0), *(at("deliver", ms, 1) for ms in (5, 6)), at("deliver", 7, 3)], (1, 0b010))
    assert (found.delivered, found.expected) == (1, 1)


def test_a_delivery_without_its_publication_waits() -> None:
    found = taken([at("deliver", 5, 1)], (1, 0b010))
    assert (found.published, found.delivered, found.expected) == (0, 0, 0)
    assert found.recent(ZERO_NS + S) is None


def test_messages_that_are_published_out_of_their_order_are_found() -> None:
    found = taken([at("publish", 0, 0, 2), at("publish", 1, 0, 1)], (1, 0b010), (2, 0b110))
    assert (found.published, found.expected, found.unscheduled) == (2, 3, 0)


def test_a_message_that_the_schedule_does_not_have_is_counted() -> None:
    found = taken([at("publish", 0, 0, 9), at("deliver", 1, 1, 9)], (1, 0b010))
    assert (found.published, found.delivered, found.expected, found.unscheduled) == (1, 0, 0, 1)


def test_delays_are_of_the_last_seconds_alone() -> None:
    found = taken([at("publish", 0, 0), at("deliver", 5, 1), at("deliver", 1_005, 2)], (1, 0b110))
    delay = found.recent(ZERO_NS + round((LATEST_S + 1) * S))
    assert delay is not None
    assert (delay.deliveries, delay.p50) == (1, 1_005.0)
    assert found.recent(ZERO_NS + round((LATEST_S + 2) * S)) is None


@pytest.mark.parametrize("now_s", [3, SETTLED_S + 3])
def test_seconds_have_their_own_numbers_also_when_their_delays_are_kept_no_longer(now_s: int) -> None:
    lines = [at("publish", 900, 0), at("deliver", 1_000, 1), at("deliver", 1_200, 2)]
    found = taken(lines, (1, 0b110)).seconds(ZERO_NS + now_s * S)
    assert found == {0: Flow(1, 0, None, None), 1: Flow(0, 2, 200 * MS, pytest.approx(298 * MS))}


def send(second: int, node: int, peer: int, length: int) -> TraceLine:
    return TraceLine("send", second * S, node, peer, len_bytes=length)


def test_links_add_up_both_directions_of_the_last_whole_seconds() -> None:
    links = Links()
    assert links.latest(10 * S) is None
    for second, node, peer, length in ((5, 1, 0, 1), (6, 0, 1, 10), (8, 1, 0, 100), (9, 0, 1, 1000), (7, 2, 1, 5)):
        links.take(send(second, node, peer, length))
    assert links.latest(10 * S) == (LinkUse(0, 1, 110), LinkUse(1, 2, 5))
    assert links.latest(30 * S) == ()
