"""How many examples properties and parametrized tests have: all in ``.ci/run --all``, some of them in its usual run."""

from collections.abc import Collection, Iterable

import pytest
from hypothesis import settings

ALL = 100
"""What a property has that does not say how many, in a run of all: Hypothesis's own number."""
FEW = 4


def examples(number: int) -> int:
    """Return how many examples to make, now, of a property that has this number of them in a run of all."""
    return max(1, number * settings().max_examples // ALL)


def long_unless(usual: Collection[object], values: Iterable[object]) -> list[object]:
    """Return the parameters of a test, those that are not usual with the marker ``long``. Each usual one is a value."""
    every = list(values)
    gone = [value for value in usual if value not in every]
    assert not gone, f"usual, but not among the values: {gone}"
    return [value if value in usual else pytest.param(value, marks=pytest.mark.long) for value in every]
