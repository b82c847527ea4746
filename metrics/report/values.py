"""Writes values and lists for people."""

from collections.abc import Sequence
from typing import Any

from metrics.measures.measure import Measure


def format_value(measure: Measure[Any], value: float) -> str:
    """Return a measure's value for people, with its unit unless the measure's text names it; shares in percent."""
    return f"{value:.2%}" if measure.unit == "ratio" else f"{format_number(value)} {measure.unsaid_unit}".rstrip()


def format_number(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return a number for people: four significant digits, thousands separated; any other value unchanged."""
    if value is None:
        return "not computed"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.4g}"


def join_words(words: Sequence[str]) -> str:
    """Return some words as a list in a sentence, such as "a, b and c"."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)
