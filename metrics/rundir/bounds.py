"""Bounds of numbers in the documents of a run: Trellis writes no numbers beyond them.

Instants and their sums fit into 64 bits, and loops over the seconds or nodes of a run end.
"""

from typing import Annotated, Final, TypeAlias

from msgspec import Meta

Instant: TypeAlias = Annotated[int, Meta(ge=-(2**61), le=2**61)]
"""An instant in ns of virtual time."""
EpochOffset: TypeAlias = Annotated[int, Meta(ge=-(2**62), le=2**62)]
"""The real time at the instant 0, in ns."""
Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]
"""A count. Some hundred such numbers can be added up."""
Whole: TypeAlias = Annotated[int, Meta(ge=-(2**53), le=2**53)]
"""Any other whole number."""
NodeNumber: TypeAlias = Annotated[int, Meta(ge=0, lt=100_000)]
"""The number of a node or host, from 0. Plans have 10,000 at most."""
TopicNumber: TypeAlias = Annotated[int, Meta(ge=0, lt=2**32)]
"""The number of a topic."""
MessageNumber: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""The number of a message."""
Seed: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""The seed of an experiment."""
Span: TypeAlias = Annotated[float, Meta(ge=0, le=604_800)]
"""Seconds, up to a week."""
Number: TypeAlias = Annotated[float, Meta(ge=-1e300, le=1e300)]
"""Any finite number."""
Dilation: TypeAlias = Annotated[float, Meta(gt=0, le=1000)]
"""Real seconds per second of virtual time."""
Text: TypeAlias = Annotated[str, Meta(max_length=10_000)]
"""A name or a sentence."""

LONGEST_NS: Final = 30 * 86_400 * 1_000_000_000
"""The longest run: the workload of an experiment may take a week."""

DEEPEST: Final = 16
"""The deepest nesting of values of an experiment."""


def require_shallow(value: object) -> None:
    """Check that no value is nested deeper than ``DEEPEST``, and that names are short.

    Raises:
        ValueError: one is, or a name has more than 100 letters.
    """
    level = [value]
    for _ in range(DEEPEST):
        inner: list[object] = []
        for each in level:
            if isinstance(each, dict):
                if any(len(str(name)) > 100 for name in each):
                    raise ValueError("expected names of at most 100 letters")
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        level = inner
    if level:
        raise ValueError(f"expected values that are nested at most {DEEPEST} deep")
