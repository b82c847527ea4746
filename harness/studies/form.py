"""The form of a study file. docs/studies.md explains it with examples.

A study is an experiment, the grid of what varies in it, and what to show of the results.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from harness.experiment import Count, Name, NonNegative, Positive

Number = int | float
Cell = int | float | str
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class RunSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """How each experiment is simulated, and when its overlay is looked at."""

    length_s: Positive | None = None
    """Simulate so long from the nodes' start on and publish nothing. Without it the experiment's warm-up, duration and
    cool-down are simulated with their publications."""
    settled_s: Positive | None = None
    """End earlier, as soon as no logical link has begun or ended for so long; needs ``length_s``."""
    snapshots_s: tuple[Positive, ...] = ()
    """Instants after the nodes' start at which the overlay is measured; it is in any case at the end."""
    snapshot_every_s: Positive | None = None
    """Measure it every so often, too."""
    newcomers_s: NonNegative = 2.0
    """Snapshots leave out nodes that joined within so long before (SpiderCast 3.8); nodes that are up from the start
    are included."""
    control_from_s: NonNegative = 0.0
    """With ``length_s``, control frames and changes are counted from this instant on; otherwise during the publishing
    window."""
    epoch_messages: Count | None = None
    """Measure deliveries also for every so many messages on their own."""
    skip_messages: Annotated[int, Meta(ge=0)] = 0
    """Of every ``epoch_messages``, leave the first so many out of all measures of deliveries, such as those that
    Topiary's overlap carries over the links of two epochs."""


class Variant(Struct, forbid_unknown_fields=True, frozen=True):
    """A named set of settings, such as a protocol with its parameters; ``variant`` is then an axis like the others."""

    name: str
    set: dict[str, Any] = field(default_factory=dict)
    """Dotted keys of the experiment and their values."""


class Shown(Struct, forbid_unknown_fields=True, frozen=True):
    """A measure as a table or figure shows it."""

    of: str
    """A measure's name, perhaps after one of ``first``, ``last``, ``mean``, ``min``, ``max`` over the snapshots."""
    label: str = ""
    """What readers see in its place."""
    by: float | None = None
    """For a measure that is counted by something: its value at this one, such as a topic's number."""
    at: float | None = None
    """Its value in this epoch, or at this snapshot's instant (s)."""

    @property
    def title(self) -> str:
        """What readers see."""
        return self.label or self.of


def as_shown(entry: str | Shown) -> Shown:
    """An entry of a table or figure; a text is a measure's name."""
    return Shown(entry) if isinstance(entry, str) else entry


class PaperTable(Struct, forbid_unknown_fields=True, frozen=True):
    """What the paper prints, to stand beside our numbers."""

    columns: tuple[Cell, ...]
    """Values of the table's column axis."""
    rows: tuple[tuple[Cell, ...], ...]
    """Values of the table's row axes, then a number a column; a text such as "> 100" is shown as it is."""


class TableSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """A table: a row for each combination of some axes, a column for each value of another."""

    name: Name
    title: str
    rows: tuple[str, ...]
    """Axes; ``measure`` is one, whose values are the labels."""
    columns: str
    """One further axis."""
    measures: tuple[str | Shown, ...]
    where: dict[str, Any] = field(default_factory=dict)
    """Only points with these values."""
    digits: Annotated[int, Meta(ge=0, le=9)] = 2
    note: str = ""
    paper: PaperTable | None = None


class PaperCurve(Struct, forbid_unknown_fields=True, frozen=True):
    """Points that the paper states for a curve."""

    points: tuple[tuple[Number, Number], ...]
    label: str = "paper"


class FigureSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """A figure: a measure over an axis, a curve for each combination of the others."""

    name: Name
    title: str
    x: str
    """An axis of numbers; ``at_s``: the instants of the snapshots; or what a measure is counted by, such as ``epoch``,
    ``degree`` or ``rank``."""
    y: tuple[str | Shown, ...]
    """Measures; several are several curves."""
    series: tuple[str, ...] = ()
    """Axes that tell curves apart."""
    where: dict[str, Any] = field(default_factory=dict)
    """Only points with these values."""
    kind: Literal["line", "bars", "histogram", "cdf", "rank"] = "line"
    """``line``: means with their intervals. ``histogram``, ``cdf``: of a measure that counts nodes by ``degree``.
    ``bars``: shares of what a measure counts. ``rank``: a line on logarithmic axes."""
    begin_s: Number = 0
    """With ``x = "at_s"``: the instant where the axis has its 0 ..."""
    unit_s: Positive = 1
    """... and the seconds that make one there, such as an epoch's."""
    xlabel: str = ""
    ylabel: str = ""
    ymin: Number = 0
    """Where the y axis begins, unless a curve goes below it."""
    ymax: Number | None = None
    """Where it ends, unless a curve goes above it."""
    note: str = ""
    paper: tuple[PaperCurve, ...] = ()


class QuickSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """What ``--quick`` changes: smaller and fewer points, for a first look."""

    seeds: Count | tuple[Seed, ...] | None = None
    set: dict[str, Any] = field(default_factory=dict)
    """Dotted keys of the experiment."""
    grid: dict[str, Any] = field(default_factory=dict)
    """Axes with other values."""
    run: dict[str, Any] = field(default_factory=dict)
    """Fields of ``[run]``."""


class Study(Struct, forbid_unknown_fields=True, frozen=True):
    """The study itself."""

    name: Name
    measures: Annotated[tuple[str, ...], Meta(min_length=1)]
    """What is computed for every run; docs/studies.md lists them."""
    reproduces: str = ""
    """Which table or figure of which paper."""
    description: str = ""
    """For the reader; it stands on the results' page."""
    seeds: Count | Annotated[tuple[Seed, ...], Meta(min_length=1)] = 3
    """A number n for the seeds 1 .. n, or the seeds themselves."""
    experiment: dict[str, Any] = field(default_factory=dict)
    """The sections of an experiment file, which all points share."""
    run: RunSpec = field(default_factory=RunSpec)
    grid: dict[str, Any] = field(default_factory=dict)
    """Dotted keys of the experiment, each with a list of values; every combination is a point. An axis that sets
    several keys is a section with ``keys`` and ``values``."""
    variants: tuple[Variant, ...] = ()
    table: tuple[TableSpec, ...] = ()
    figure: tuple[FigureSpec, ...] = ()
    quick: QuickSpec = field(default_factory=QuickSpec)
