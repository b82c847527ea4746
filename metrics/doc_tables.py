"""Writes the tables of the documents that are made from code: ``python -m metrics.doc_tables``.

Each table is between ``<!-- table: NAME -->`` and ``<!-- end of table -->``; the rest of a page is written by hand.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from metrics.checks import RULES
from metrics.checks.rule import GRAVE_FACTOR, CheckRule, Limit
from metrics.comparison.error_rates import HEAD, tabulate_rates
from metrics.dataframes.catalogue import MEANINGS, OWN_SCHEMAS, to_spark
from metrics.measures.registry import HEADLINE, OVERLAY, STUDIED, find_measure
from metrics.recorded.probing import PHASES
from metrics.tables.schemas import TABLES

_NAMES = ("verdict", "results", "studies", "tables", "dataframes")
PAGES = tuple(Path(__file__).parents[1] / "docs" / f"{name}.md" for name in _NAMES)

_TABLE = re.compile(r"(<!-- table: (.*?) -->\n\n).*?(\n\n<!-- end of table -->)", re.DOTALL)
_PHASE = re.compile(f"({'|'.join(PHASES)})$")


def fill(text: str) -> str:
    """Return a page with new tables."""
    tables = make_tables()
    return _TABLE.sub(lambda place: place[1] + tables[place[2]] + place[3], text)


@cache
def make_tables() -> dict[str, str]:
    """Return every table by its name."""
    headline = [(name, measure) for name in HEADLINE if (measure := find_measure(name)) is not None]
    studied = [(family, measure) for family in STUDIED for measure in family.measures]
    labels = {measure.name: measure.label for family in OVERLAY for measure in family.measures}
    return _tables_of_checks() | {
        "headline": _tabulate(
            ("name", "unit", "meaning"), [(f"`{name}`", measure.unit, measure.text) for name, measure in headline]
        ),
        "measures of studies": _tabulate(
            ("measure", "unit", "of", "meaning", "counted by"),
            [(f"`{each.name}`", each.unit, family.title, each.text, each.by) for family, each in studied],
        ),
        "error rates of conditions": _tabulate(HEAD, tabulate_rates()),
        "dataframes": _tabulate(("name", "a row is"), [(f"`{name}`", text) for name, text in MEANINGS.items()]),
        "columns of dataframes": _tabulate(("dataframe", "column", "type", "unit"), _columns_of_dataframes()),
        "overlay": _tabulate(
            ("column", "meaning"), [(f"`{name}`", labels.get(name, "the instant")) for name in TABLES["overlay"]]
        ),
    }


def _columns_of_dataframes() -> Iterator[tuple[str, str, str, str]]:
    for name, schema in OWN_SCHEMAS.items():
        for field in to_spark(schema).fields:
            yield f"`{name}`", f"`{field.name}`", field.dataType.simpleString(), field.metadata.get("unit", "")


def _tables_of_checks() -> dict[str, str]:
    """Return a table per section, and ``samples``, which stalls may explain. Checks with equal texts share a row."""
    same: dict[tuple[str, ...], list[CheckRule]] = {}
    for rule in RULES:
        same.setdefault((rule.section, *rule.texts), []).append(rule)
    rows: dict[str, list[list[str]]] = {}
    samples: dict[str, list[str]] = {}
    for (section, condition, why, *late), rules in same.items():
        names = ", ".join(dict.fromkeys(f"`{_PHASE.sub('*', rule.name)}`" for rule in rules))
        fails_if = condition.removeprefix("Fails if").lstrip(", ").removesuffix(".")
        rows.setdefault(section, []).append([names, fails_if, _consequence(rules), why.removesuffix(".")])
        for sample in late:
            samples.setdefault(sample.removeprefix("Late: ").removesuffix("."), []).append(names)
    tables = {name: _tabulate(("check", "fails if", "makes the run", "why"), cells) for name, cells in rows.items()}
    cells = [[", ".join(names), *sample.split("; ", 1)] for sample, names in samples.items()]
    return tables | {"samples": _tabulate(("check", "a sample", "from, to"), cells)}


def _consequence(rules: Sequence[CheckRule]) -> str:
    """Return what a failure of the checks in a row makes of the run, with the checks that differ from the first."""
    first = rules[0]
    parts = [first.severity]
    if first.grave:
        parts.append(f"above {Limit(GRAVE_FACTOR * first.limits[0].value, first.limits[0].unit)} invalid")
    parts += [f"`{rule.name}`: {rule.severity}" for rule in rules if rule.severity != first.severity]
    return "; ".join(parts)


def _tabulate(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in (header, *rows)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]])


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(fill(page.read_text(encoding="utf-8")), encoding="utf-8")
