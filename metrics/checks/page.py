"""Writes the tables of docs/verdict.md that are made from the rules: ``python -m metrics.checks.page``.

Each stands between ``<!-- table: NAME -->`` and ``<!-- end of table -->``; the rest of the page is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from metrics.checks import RULES
from metrics.checks.rule import GRAVE_FACTOR, CheckRule, Limit
from metrics.probing import PHASES

PAGE = Path(__file__).parents[2] / "docs" / "verdict.md"

_TABLE = re.compile(r"(<!-- table: (.*?) -->\n\n).*?(\n\n<!-- end of table -->)", re.DOTALL)
_PHASE = re.compile(f"({'|'.join(PHASES)})$")


def fill(text: str) -> str:
    """Return the page with new tables."""
    tables = make_tables()
    return _TABLE.sub(lambda place: place[1] + tables[place[2]] + place[3], text)


def make_tables() -> dict[str, str]:
    """Every table by its name: one per section, and ``samples``, what stalls of the host may explain.

    Checks with the same texts share a row.
    """
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
    header = ("check", "fails if", "makes the run", "why")
    tables = {section: _tabulate(header, cells) for section, cells in rows.items()}
    cells = [[", ".join(names), *sample.split("; ", 1)] for sample, names in samples.items()]
    return tables | {"samples": _tabulate(("check", "a sample", "from, to"), cells)}


def _consequence(rules: Sequence[CheckRule]) -> str:
    """What a failure of the checks in a row makes of the run; those that differ from the first are named."""
    first = rules[0]
    parts = [first.severity]
    if first.grave:
        parts.append(f"above {Limit(GRAVE_FACTOR * first.limits[0].value, first.limits[0].unit)} invalid")
    parts += [f"`{rule.name}`: {rule.severity}" for rule in rules if rule.severity != first.severity]
    return "; ".join(parts)


def _tabulate(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in (header, *rows)]
    return "\n".join(["| " + lines[0] + " |", "|---" * len(header) + "|", *(f"| {line} |" for line in lines[1:])])


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
