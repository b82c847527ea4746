"""Makes a study's tables, with the paper's numbers for comparison."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from msgspec import Struct

from harness.studies.form import Cell, Shown, TableSpec, as_shown
from harness.studies.growth import fit_exponent
from harness.studies.loader import MEASURE
from harness.studies.results import matching, mean_of, values_along
from harness.studies.store import Result
from metrics.intervals import Interval

EXPONENT = "exponent"
"""The head of the column of ``TableSpec.growth_over``."""


class TableEntry(Struct, frozen=True):
    """The content of a cell: our value (None = no run has one) and the paper's (None = not stated)."""

    ours: Interval | None
    paper: Cell | None


class Table(Struct, frozen=True):
    """The content of a table. ``heads``: values of the column axis; ``rows``: labels of the row axes, then entries."""

    spec: TableSpec
    heads: tuple[Cell, ...]
    rows: tuple[tuple[tuple[Cell, ...], tuple[TableEntry, ...]], ...]

    @property
    def headings(self) -> tuple[str, ...]:
        """Return the headings of the columns of entries."""
        return tuple(str(head) if head == EXPONENT else f"{self.spec.columns} = {head}" for head in self.heads)


def make_table(spec: TableSpec, results: Sequence[Result]) -> Table:
    """Return the table of these results; combinations without a run have no row."""
    chosen = matching(results, spec.where)
    shown = {each.title: each for each in map(as_shown, spec.measures)}
    heads = _values(chosen, spec.columns, shown)
    rows = []
    for labels in product(*(_values(chosen, axis, shown) for axis in spec.rows)):
        entries = tuple(_entry(spec, chosen, shown, labels, head) for head in heads)
        if spec.growth_over:
            entries = (*entries, _exponent(spec, chosen, shown, labels))
        if any(entry.ours is not None for entry in entries):
            rows.append((labels, entries))
    return Table(spec, (*heads, EXPONENT) if spec.growth_over else tuple(heads), tuple(rows))


def _values(results: Sequence[Result], axis: str, shown: dict[str, Shown]) -> list[Cell]:
    return list(shown) if axis == MEASURE else values_along(results, axis)


def _entry(
    spec: TableSpec, results: Sequence[Result], shown: dict[str, Shown], labels: tuple[Cell, ...], head: Cell
) -> TableEntry:
    where, measure = _find((*spec.rows, spec.columns), (*labels, head), shown)
    ours = mean_of(matching(results, where), measure.of, measure.by, measure.at)
    return TableEntry(ours, _paper(spec, labels, head))


def _exponent(
    spec: TableSpec, results: Sequence[Result], shown: dict[str, Shown], labels: tuple[Cell, ...]
) -> TableEntry:
    where, measure = _find(spec.rows, labels, shown)
    return TableEntry(fit_exponent(matching(results, where), spec.columns, spec.growth_over, measure), None)


def _find(axes: Sequence[str], values: Sequence[Cell], shown: dict[str, Shown]) -> tuple[dict[str, Cell], Shown]:
    """Return the point and the measure of a place in the table."""
    where = dict(zip(axes, values, strict=True))
    return where, shown[str(where.pop(MEASURE, next(iter(shown))))]


def _paper(spec: TableSpec, labels: tuple[Cell, ...], head: Cell) -> Cell | None:
    if spec.paper is None or head not in spec.paper.columns:
        return None
    place = len(labels) + spec.paper.columns.index(head)
    found = next((row[place] for row in spec.paper.rows if row[: len(labels)] == labels), "")
    return None if found == "" else found


def show_interval(over: Interval, form: str) -> str:
    """Return a mean with half the width of its interval, such as ``29.3 ± 0.4``. ``form``: how both are formatted."""
    return f"{over.mean:{form}}" + ("" if over.half_width is None else f" ± {over.half_width:{form}}")


def show_entry(entry: TableEntry, digits: int) -> str:
    """Return a cell's text, such as ``29.3 ± 0.4 (paper: 29, +1.0 %)``."""
    text = "-" if entry.ours is None else show_interval(entry.ours, f".{digits}f")
    if entry.paper is None:
        return text
    if entry.ours is None or isinstance(entry.paper, str) or not entry.paper:
        return f"{text} (paper: {entry.paper})"
    return f"{text} (paper: {entry.paper}, {100 * (entry.ours.mean / entry.paper - 1):+.1f} %)"


def write_markdown(table: Table) -> str:
    """Return the table as Markdown."""
    spec = table.spec
    head = [*spec.rows, *table.headings]
    rows = [
        [*map(str, labels), *(show_entry(entry, spec.digits) for entry in entries)] for labels, entries in table.rows
    ]
    text = f"**{spec.title}**\n\n{tabulate(head, rows, texts=len(spec.rows))}\n"
    return f"{text}\n{spec.note}\n" if spec.note else text


def tabulate(head: Sequence[str], rows: Iterable[Sequence[str]], texts: int | None = None) -> str:
    """Return a Markdown table, without a newline at the end.

    Args:
        head: the names of the columns.
        rows: the cells.
        texts: the number of columns of text; the others are numbers, at the right. None = all are text.
    """
    numbers = 0 if texts is None else len(head) - texts
    rule = [*("---" for _ in head[: len(head) - numbers]), *("---:" for _ in range(numbers))]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |" for cells in (head, rule, *rows)
    )


def write_csv(table: Table) -> str:
    """Return the table as CSV, one line per cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*table.spec.rows, table.spec.columns, "mean", "ci95_half_width", "n", "paper"])
    writer.writerows(_records(table))
    return text.getvalue()


def _records(table: Table) -> Iterator[list[object]]:
    for labels, entries in table.rows:
        for head, entry in zip(table.heads, entries, strict=True):
            ours = entry.ours or (None, None, 0)
            yield [*labels, head, *ours, entry.paper]
