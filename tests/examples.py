"""How many examples properties have: all in ``.ci/run --all``, some of them in its usual run."""

from hypothesis import settings

ALL = 100
"""What a property has that does not say how many, in a run of all: Hypothesis's own number."""
FEW = 10


def examples(number: int) -> int:
    """Return how many examples to make, now, of a property that has this number of them in a run of all."""
    return max(1, number * settings().max_examples // ALL)
