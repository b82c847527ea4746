"""The table of a paper's numbers by the readings of the paper: which reading gives which of the numbers."""

from collections.abc import Sequence

from harness.studies.claims import MET, NOT_MEASURED, PARTLY, REPORTED, Finding, show_values
from harness.studies.tables import tabulate

HEAD = ("number", "the paper")
COUNTED = (("numbers met", (MET,)), ("numbers met, at least partly", (MET, PARTLY)))
"""The rows that count, and the verdicts that they count."""


def show_readings(findings: Sequence[Finding]) -> str:
    """Return a Markdown table of the claims with a ``reading``; empty if there are none.

    A row is a number of the paper, a column a reading, both in the order of the claims. A cell has our value and the
    verdict. It is empty if no study judges the reading by the number. Two more rows count the numbers that a reading
    meets, at least in part, of those that it is judged by, since a reading is chosen by all numbers together.

    Args:
        findings: the judged claims of a paper's studies.
    """
    judged = [finding for finding in findings if finding.claim.reading]
    if not judged:
        return ""
    readings = tuple(dict.fromkeys(finding.claim.reading for finding in judged))
    papers = {finding.claim.number: finding.claim.paper for finding in reversed(judged)}
    rows: dict[str, dict[str, Finding]] = {}
    for finding in judged:
        rows.setdefault(finding.claim.number, {})[finding.claim.reading] = finding
    cells = [
        [number, papers[number], *(_cell(found.get(reading)) for reading in readings)] for number, found in rows.items()
    ]
    for name, counted in COUNTED:
        columns = ([found[reading] for found in rows.values() if reading in found] for reading in readings)
        cells.append([name, "", *(_share(column, counted) for column in columns)])
    return tabulate((*HEAD, *readings), cells)


def _cell(finding: Finding | None) -> str:
    return "" if finding is None else f"{show_values(finding)}: {finding.verdict}"


def _share(findings: Sequence[Finding], counted: tuple[str, ...]) -> str:
    """Return how many of a reading's judged numbers have one of these verdicts."""
    verdicts = [each.verdict for each in findings]
    judged = [verdict for verdict in verdicts if verdict not in (REPORTED, NOT_MEASURED)]
    return f"{sum(verdict in counted for verdict in judged)} of {len(judged)}"
