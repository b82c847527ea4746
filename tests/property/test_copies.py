"""What a node keeps for others is bounded in number and in bytes, in every protocol that keeps copies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.core import copies
from peer.core.contract import message_id
from peer.core.copies import Copies
from peer.core.dissemination.notify_pull import NotifyPull, NotifyPullParameters
from peer.core.frames import UNLIMITED_TTL, Data
from peer.core.parts import Part, State, Turn
from peer.protocols.gossipsub.cache import MessageCache
from peer.testing import stored
from tests.lone_plumtree import Lone

ROOM, PAYLOAD = 10_000, b"x" * 900

some_puts = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), max_size=60)


@given(some_puts, st.none() | st.integers(1, 6), st.integers(40, 120))
def test_the_latest_are_kept_within_both_bounds(puts: list[tuple[int, int]], most: int | None, room: int) -> None:
    """Against a plain list: the same keys in the same order, and never too many nor too many bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies, "MOST_KEPT_BYTES", room)
        kept: Copies[int, int] = Copies(most)
        plain: list[tuple[int, int]] = []
        for key, size in puts:
            kept.put(key, size, size)
            plain = [(it, size if it == key else was) for it, was in plain]
            if key not in dict(plain):
                plain.append((key, size))
            while sum(was for _, was in plain) > room or (most is not None and len(plain) > most):
                plain.pop(0)
            assert list(kept.items()) == plain
        for key, _ in plain[::2]:
            kept.forget(key)
        assert list(kept.items()) == plain[1::2]


def payload_bytes(thing: object) -> int:
    """The bytes of all payloads that a node still refers to."""
    return sum(len(one.payload) for one in stored(thing) if isinstance(one, Data))


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "MOST_KEPT_BYTES", ROOM)


def copy_of(number: int) -> Data:
    return Data(message_id(9, number), (0,), 1, UNLIMITED_TTL, PAYLOAD)


@pytest.mark.usefixtures("little_room")
def test_plumtree_keeps_no_more_bytes_of_a_neighbour_than_have_room() -> None:
    core = Lone(cache_s=1000.0)
    core.befriend(2, 3)
    for number in range(40):
        core.hear(2, copy_of(number))
        core.forget()
        assert payload_bytes(core.part("dissemination")) <= ROOM
    assert payload_bytes(core.part("dissemination")) > ROOM / 2


class Chooser(Part):
    """Stands for an overlay."""

    writes = frozenset({"directs"})


@pytest.mark.usefixtures("little_room")
def test_notify_pull_keeps_no_more_bytes_in_each_store_than_have_room() -> None:
    state = State(0, 1, (0,), 20)
    Chooser(state).write(directs=lambda topic: (2, 3))
    part = NotifyPull(state, NotifyPullParameters(catch_up_s=1000.0))
    for number in range(40):
        part.receive(Turn(state, number), 2, copy_of(number))
    assert ROOM / 2 < payload_bytes(part) <= 2 * ROOM, "those to be pulled, and those for later receivers"


@pytest.mark.usefixtures("little_room")
def test_gossipsub_keeps_no_more_bytes_of_the_last_heartbeats_than_have_room() -> None:
    cache = MessageCache(5, 3)
    for number in range(40):
        cache.put(copy_of(number))
    assert ROOM / 2 < payload_bytes(cache) <= ROOM
    kept = {message_id(9, number) for number in range(40) if cache.get(message_id(9, number))}
    assert set(cache.advertisable()[0]) == kept and message_id(9, 39) in kept
    for _ in range(5):
        cache.shift()
    assert payload_bytes(cache) == 0
