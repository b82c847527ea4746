"""How benchmarks wait for other processes."""

import pytest

from benchmarks._waiting import wait_for


def test_a_wait_ends_when_the_condition_is_true() -> None:
    asked = iter([False, [], "yes"])
    wait_for(lambda: next(asked), "a word", 60)
    assert list(asked) == []


def test_a_wait_that_is_in_vain_says_for_what() -> None:
    with pytest.raises(TimeoutError, match=r"^waited 0 s for the relays$"):
        wait_for(lambda: False, "the relays", 0)
