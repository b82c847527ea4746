"""Chapters of the report: figures that answer one kind of question, with the headline numbers that belong to them."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure as Canvas
from msgspec import Struct

from metrics.measures.distribution import Distribution
from metrics.report.canvas import styled
from metrics.report.run import Run

NS_PER_S = 1_000_000_000


class Drawing(Struct, frozen=True):
    """A figure of one run, and ``seen``: what it shows, in a sentence or two with the run's numbers."""

    canvas: Canvas
    seen: str


Draw = Callable[[Run], Drawing | None]


class Figure(Struct, frozen=True):
    """A figure of the report.

    Attributes:
        name: the name in addresses and file names.
        title: the title above it.
        caption: what is drawn.
        meaning: how to read it, for readers who do not know the terms.
        tables: the tables whose columns it shows.
        draw: draws it; returns None if the run has nothing to show.
    """

    name: str
    title: str
    caption: str
    meaning: str
    tables: tuple[str, ...]
    draw: Draw


class Chapter:
    """A chapter of the report.

    Args:
        name: the name in addresses.
        title: the title above it.
        numbers: the headline numbers that it shows first.
    """

    def __init__(self, name: str, title: str, numbers: tuple[str, ...]) -> None:
        self.name, self.title, self.numbers = name, title, numbers
        self.figures: list[Figure] = []

    def figure(self, title: str, *tables: str, meaning: str, name: str = "") -> Callable[[Draw], Draw]:
        """Add a function as the chapter's next figure, drawn in the report's style. Its docstring is the caption.

        Args:
            title: the title of the figure.
            tables: the tables whose columns the figure shows.
            meaning: how to read it, in plain words.
            name: the name of the figure; otherwise the name of the function.
        """

        def enter(draw: Draw) -> Draw:
            caption = " ".join((draw.__doc__ or "").split())
            named = name or draw.__name__.replace("_", "-")
            drawn = styled(draw)
            self.figures.append(Figure(named, title, caption, " ".join(meaning.split()), tables, drawn))
            return drawn

        return enter


def number(value: float, digits: int = 3) -> str:
    """Return a number for a sentence: some significant digits, thousands separated."""
    if value == 0 or abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return np.format_float_positional(value, digits, fractional=False, trim="-")


def percent(share: float) -> str:
    """Return a share for a sentence, never rounded to all or nothing."""
    if 0.9995 <= share < 1:
        return "more than 99.9 %"
    if 0 < share < 0.0005:
        return "less than 0.1 %"
    return f"{share:.1%}".replace(".0%", "%").replace("%", " %")


def count(many: int, one: str, several: str = "") -> str:
    """Return a number of things for a sentence, such as ``1 link`` and ``1,200 links``.

    Args:
        many: how many.
        one: the singular.
        several: the plural, if it is not the singular and an s.
    """
    return f"{many:,} {one if many == 1 else several or f'{one}s'}"


def spread(values: npt.ArrayLike | Distribution) -> tuple[float, float, float]:
    """Return the median, the 99th percentile and the largest of (n,) values without NaN; n > 0."""
    if isinstance(values, Distribution):
        return values.quantile(0.5), values.quantile(0.99), values.max()
    known = np.asarray(values, dtype=float)
    median, high = np.quantile(known, (0.5, 0.99))
    return float(median), float(high), float(known.max())
