"""The form of a study file. docs/studies.md explains it with examples.

A study is an experiment, the grid of its variations, and the tables and figures of the results.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from harness.experiment.sections.values import Count, Name, NonNegative, Positive

Number = int | float
Cell = int | float | str
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class RunSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """How each experiment is simulated, and when its overlay is measured."""

    length_s: Positive | None = None
    """Simulate this long from the nodes' start and publish no messages. Without it: the experiment's warm-up, duration
    and cool-down with its publications."""
    settled_s: Positive | None = None
    """End earlier, once no logical link has begun or ended for this long; needs ``length_s``."""
    snapshots_s: tuple[Positive, ...] = ()
    """Instants after the nodes' start at which the overlay is measured; it is always measured at the end."""
    snapshot_every_s: Positive | None = None
    """Interval at which the overlay is measured, too."""
    newcomers_s: NonNegative = 2.0
    """Snapshots leave out nodes that joined within this time before (SpiderCast 3.8); nodes that are up from the start
    are included."""
    control_from_s: NonNegative = 0.0
    """With ``length_s``, control frames and changes are counted from this instant on; otherwise during the publishing
    window."""
    epoch_messages: Count | None = None
    """Also measure deliveries separately for each group of this many messages."""
    window_s: Positive | None = None
    """Also measure deliveries separately by publication time, in windows of this length from the workload's zero."""
    skip_messages: Annotated[int, Meta(ge=0)] = 0
    """Leave the first messages of each ``epoch_messages`` (this many) out of all measures of deliveries, such as those
    that use the links of two epochs in Topiary's overlap."""


class Variant(Struct, forbid_unknown_fields=True, frozen=True):
    """A named set of settings, such as a protocol with its parameters. The variants are the axis ``variant``."""

    name: str
    set: dict[str, Any] = field(default_factory=dict)
    """Dotted keys of the experiment and their values."""


class Shown(Struct, forbid_unknown_fields=True, frozen=True):
    """A measure in a table or figure."""

    of: str
    """A measure's name, optionally after ``first``, ``last``, ``mean``, ``min`` or ``max`` over the snapshots, epochs
    or windows."""
    label: str = ""
    """The name to show instead."""
    by: float | None = None
    """For a measure that is counted by something, such as topics: the count to show."""
    at: float | None = None
    """The epoch, or the instant of the snapshot or the beginning of the window (s), to show."""

    @property
    def title(self) -> str:
        """Return the name to show."""
        return self.label or self.of


def as_shown(entry: str | Shown) -> Shown:
    """Return an entry of a table or figure; a text is a measure's name."""
    return Shown(entry) if isinstance(entry, str) else entry


class PaperTable(Struct, forbid_unknown_fields=True, frozen=True):
    """The numbers of the paper, for comparison."""

    columns: tuple[Cell, ...]
    """Values of the table's column axis."""
    rows: tuple[tuple[Cell, ...], ...]
    """Values of the table's row axes, then one number per column; a text such as "> 100" is shown unchanged."""


class TableSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """A table: one row per combination of some axes, one column per value of another axis."""

    name: Name
    title: str
    rows: tuple[str, ...]
    """Axes of the rows; the values of the axis ``measure`` are the labels."""
    columns: str
    """Axis of the columns."""
    measures: tuple[str | Shown, ...]
    where: dict[str, Any] = field(default_factory=dict)
    """Only points with these values."""
    digits: Annotated[int, Meta(ge=0, le=9)] = 2
    growth_over: str = ""
    """Adds a column with the exponent of the power law by which a measure grows along the columns: over their axis, if
    its values are numbers, or over this measure."""
    note: str = ""
    paper: PaperTable | None = None


class PaperCurve(Struct, forbid_unknown_fields=True, frozen=True):
    """Points that the paper states for a curve."""

    points: tuple[tuple[Number, Number], ...]
    label: str = "paper"


class FigureSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """A figure: measures over an axis, one curve per combination of other axes."""

    name: Name
    title: str
    x: str
    """An axis of numbers, or ``at_s`` (the instants of the snapshots, or the beginnings of the windows), or what a
    measure is counted by, such as ``epoch``, ``degree`` or ``rank``."""
    y: tuple[str | Shown, ...]
    """Measures, each with its own curves."""
    series: tuple[str, ...] = ()
    """Axes that distinguish the curves."""
    where: dict[str, Any] = field(default_factory=dict)
    """Only points with these values."""
    kind: Literal["line", "log-log", "log-y", "bars", "histogram", "cdf", "rank"] = "line"
    """``line``: means with their intervals. ``log-log``: the same on logarithmic axes; ``log-y``: only the y
    axis is. ``histogram``, ``cdf``: distribution of a measure that counts nodes by ``degree`` or ``percent``. ``bars``:
    shares of what a measure counts. ``rank``: a line on logarithmic axes."""
    begin_s: Number = 0
    """With ``x = "at_s"``: the instant of the axis's 0."""
    unit_s: Positive = 1
    """With ``x = "at_s"``: the seconds of the axis's unit, such as the length of an epoch."""
    xlabel: str = ""
    ylabel: str = ""
    ymin: Number = 0
    """Start of the y axis, unless a curve is lower."""
    ymax: Number | None = None
    """End of the y axis, unless a curve is higher."""
    note: str = ""
    paper: tuple[PaperCurve, ...] = ()


class Bounds(Struct, forbid_unknown_fields=True, frozen=True):
    """A closed range; without an end it is unlimited there."""

    at_least: Number | None = None
    at_most: Number | None = None


class GrowthSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """The exponent b of the power law y = a x^b by which a measure y grows."""

    along: str
    """The axis whose points the law is fitted to."""
    over: str = ""
    """x: a measure. Without it: the axis, whose values are numbers then."""


class ClaimSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """A claim of the paper, and the results that meet it."""

    text: str
    """The quantity that the paper makes a statement of, such as "overhead of A over that of B"."""
    paper: str
    """What the paper says, with the section or figure."""
    of: str | Shown
    """The measure to judge."""
    met: Bounds = Bounds()
    """The range of values that meet the claim, at every point. Without it: ``same_as`` or ``reported``."""
    where: dict[str, Any] = field(default_factory=dict)
    """Only points with these values."""
    over: dict[str, Any] = field(default_factory=dict)
    """Divide by the value of the point that has these values instead."""
    over_at: float | None = None
    """Divide by the value at this epoch, instant of a snapshot, or beginning of a window (s)."""
    over_of: str | Shown | None = None
    """Divide by this measure instead of the same one."""
    growth: GrowthSpec | None = None
    """Judge the exponent of the measure's growth instead of the measure."""
    same_as: str | Shown | None = None
    """Another measure that ``of`` must not differ from but for chance: the claim is met at the points at which a paired
    t test over the seeds, with Holm's adjustment for the number of points, finds no difference at the level of 5 %. The
    quotient of the two is shown."""
    partly: Bounds | None = None
    """A wider range of values that meet the claim in part. Without it, values of which only some are in ``met`` do."""
    reported: bool = False
    """The paper says neither a number nor a direction ("a small effect"): the value is shown and not judged."""
    ours: bool = False
    """The statement is ours and not the paper's. It is shown and counted apart, as beyond the paper."""
    irreproducible: str = ""
    """Why no implementation can have the paper's number with the settings that the paper states. A claim that is not
    met is irreproducible then. The text takes the place of ``why``."""
    why: str = ""
    """Why the claim is met only in part or not at all, or what its number does not show. No measured numbers: these
    come from the record."""
    digits: Annotated[int, Meta(ge=0, le=9)] = 3
    number: str = ""
    """The statement of the paper that the claim is about, where several claims are about the same one: at several
    points, or by several readings of the paper. On a paper's page, all of them count as one statement."""
    reading: str = ""
    """Which reading of the paper the claim judges by that number. The page of the paper shows all such claims as one
    table, numbers by readings."""

    @property
    def compares(self) -> bool:
        """Return whether it is about the quotient of two values."""
        return bool(self.over) or any(each is not None for each in (self.over_at, self.over_of, self.same_as))

    @property
    def divisor(self) -> Shown:
        """Return the measure to divide by, if it compares."""
        other = self.same_as if self.over_of is None else self.over_of
        shown = as_shown(self.of if other is None else other)
        return shown if self.over_at is None else replace(shown, at=self.over_at)


class QuickSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """The changes of ``--quick``: fewer and smaller points."""

    seeds: Count | tuple[Seed, ...] | None = None
    set: dict[str, Any] = field(default_factory=dict)
    """Dotted keys of the experiment."""
    grid: dict[str, Any] = field(default_factory=dict)
    """Axes with other values."""
    run: dict[str, Any] = field(default_factory=dict)
    """Fields of ``[run]``."""


class Study(Struct, forbid_unknown_fields=True, frozen=True):
    """A study."""

    name: Name
    measures: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Measures of every run; docs/studies.md lists them."""
    reproduces: str = ""
    """The table or figure of a paper that it reproduces."""
    description: str = ""
    """A note for readers, shown on the page of results."""
    discussion: str = ""
    """What the results mean, and the reasons for differences from the paper; Markdown, shown on the paper's page. No
    measured numbers: these come from the record."""
    seeds: Count | Annotated[tuple[Seed, ...], Meta(min_length=1)] = 3
    """A number n for the seeds 1 to n, or a list of seeds."""
    experiment: dict[str, Any] = field(default_factory=dict)
    """The sections of an experiment file, shared by all points."""
    run: RunSpec = field(default_factory=RunSpec)
    grid: dict[str, Any] = field(default_factory=dict)
    """Dotted keys of the experiment, each with a list of values; every combination is a point. An axis that sets
    several keys is a section with ``keys`` and ``values``."""
    variants: tuple[Variant, ...] = ()
    table: tuple[TableSpec, ...] = ()
    figure: tuple[FigureSpec, ...] = ()
    claim: tuple[ClaimSpec, ...] = ()
    quick: QuickSpec = field(default_factory=QuickSpec)
