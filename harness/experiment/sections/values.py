"""The types of values in experiments and studies. Constraints are part of the types."""

from typing import Annotated

from msgspec import Meta

from topologies.limits import FASTEST_MBIT, LARGEST_DELAY_MS

ON_LINE = r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]"
"""A pattern of a character that ends no line."""

Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}\Z")]
Ratio = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Span = Annotated[float, Meta(ge=0, le=604_800)]
Instant = Annotated[float, Meta(ge=-604_800, le=1_209_600)]
Duration = Annotated[float, Meta(ge=1e-9, le=1e9)]
TraceInstant = Annotated[float, Meta(ge=-1e18, le=1e18)]
Delay = Annotated[float, Meta(gt=0, le=LARGEST_DELAY_MS)]
OptionalDelay = Annotated[float, Meta(ge=0, le=LARGEST_DELAY_MS)]
AccessRate = Annotated[float, Meta(ge=0, le=FASTEST_MBIT)]
FilePath = Annotated[str, Meta(min_length=1)]
Group = Annotated[str, Meta(min_length=1)] | Count | tuple[Annotated[int, Meta(ge=0)], ...]
