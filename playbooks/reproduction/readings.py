"""The table of a paper's numbers by the readings of the paper: which reading gives which of the numbers."""

from collections.abc import Sequence

from harness.studies.claims import Finding, show_values
from harness.studies.tables import tabulate

HEAD = ("number", "the paper")


def show_readings(findings: Sequence[Finding]) -> str:
    """Return a Markdown table of the claims with a ``number`` and a ``reading``; empty if there are none.

    A row is a number of the paper, a column a reading, both in the order of the claims. A cell has our value and the
    verdict. It is empty if no study judges the reading by the number.

    Args:
        findings: the judged claims of a paper's studies.
    """
    judged = [finding for finding in findings if finding.claim.number and finding.claim.reading]
    if not judged:
        return ""
    readings = tuple(dict.fromkeys(finding.claim.reading for finding in judged))
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for finding in judged:
        claim = finding.claim
        rows.setdefault((claim.number, claim.paper), {})[claim.reading] = f"{show_values(finding)}: {finding.verdict}"
    cells = [[*head, *(found.get(reading, "") for reading in readings)] for head, found in rows.items()]
    return tabulate((*HEAD, *readings), cells)
