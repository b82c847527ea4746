"""Writes the tables of docs/verdict.md, which are made from the rules: ``python -m metrics.checks.page``.

Each stands between ``<!-- table: NAME -->`` and ``<!-- end of table -->``; the rest of the page is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from metrics import first_packets
from metrics.checks.first_packets import COMPARED
from metrics.checks.registry import RULES
from metrics.checks.rule import GRAVE_FACTOR, CheckRule, Limit, Samples, Section

PAGE = Path(__file__).parents[2] / "docs" / "verdict.md"

_TABLE = re.compile(r"(<!-- table: (.*?) -->\n\n).*?(\n\n<!-- end of table -->)", re.DOTALL)


def fill(text: str) -> str:
    """The page with its tables made anew.

    Raises:
        ValueError: it has not just the places of these tables.
    """
    tables = make_tables()
    places = [place[2] for place in _TABLE.finditer(text)]
    if sorted(places) != sorted(tables):
        raise ValueError(f"the page has places for the tables {places}, not for {list(tables)}")
    return _TABLE.sub(lambda place: place[1] + tables[place[2]] + place[3], text)


def make_tables() -> dict[str, str]:
    """Every table by its name."""
    return {
        "consistency": _tabulate_rules("consistency"),
        "certificate": _tabulate_rules("certificate"),
        "first packets": _tabulate_first_packets(),
        "overload": _tabulate_rules("overload"),
        "samples": _tabulate_samples(),
    }


def _tabulate_rules(section: Section) -> str:
    rows: dict[str, list[CheckRule]] = {}
    for rule in RULES:
        if rule.section == section:
            rows.setdefault(rule.row, []).append(rule)
    cells = ((f"`{row}`", those[0].fails_if, _consequence(those), those[0].why) for row, those in rows.items())
    return _tabulate(("check", "fails if", "makes the run", "why"), cells)


def _consequence(rules: Sequence[CheckRule]) -> str:
    """What a failure of the checks in a row makes of the run; those that differ from the first are named."""
    first = rules[0]
    parts = [first.severity]
    if first.grave:
        parts.append(f"above {Limit(GRAVE_FACTOR * first.limits[0].value, first.limits[0].unit)} invalid")
    parts += [f"`{rule.name}`: {rule.severity}" for rule in rules if rule.severity != first.severity]
    return "; ".join(parts)


def _tabulate_samples() -> str:
    """What stalls of the host may explain; checks with the same samples share a row."""
    rows: dict[Samples, dict[str, None]] = {}
    for rule in RULES:
        if rule.samples is not None:
            rows.setdefault(rule.samples, {})[f"`{rule.row}`"] = None
    cells = ((", ".join(names), samples.sample, samples.interval) for samples, names in rows.items())
    return _tabulate(("check", "a sample", "from, to"), cells)


def _tabulate_first_packets() -> str:
    header = ("check", "slots", "found if (a - b) / M exceeds", "and P[Bin(a + b, 1/2) >= a] is below")
    cells = []
    for name, (check, slots) in COMPARED.items():
        rule = first_packets.RULES[name]
        share, suspicious = Limit(rule.share, "ratio"), f"{first_packets.SUSPICIOUS_P:g}"
        slots = f"{slots} with a control within {rule.apart_ms:g} ms"
        cells.append((f"`{check.name}`", slots, f"{share}", f"{rule.p_value:g}", suspicious, f"{rule.fewest}"))
    return _tabulate((*header, "suspicious if below", "fewest slots"), cells)


def _tabulate(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    escaped = ([cell.replace("|", "\\|") for cell in row] for row in (header, *rows))
    lines = [f"| {' | '.join(cells)} |" for cells in escaped]
    lines.insert(1, "|---" * len(header) + "|")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
