"""A comparison as CSV and as JSON, for programs."""

import csv
import io
from collections.abc import Sequence
from typing import Any

import msgspec

from metrics.comparison.conditions import Outcome
from metrics.comparison.differences import Comparison
from metrics.spreadsheets import plain_cell

COLUMNS = (
    *("measure", "unit", "group", "runs", "value", "ci95_half_width", "n", "interval_over"),
    *("difference", "difference_ratio", "difference_ci95_half_width", "p", "p_adjusted", "is_real"),
)
"""The columns of the CSV file; differences are to the baseline, and empty in its own rows."""


def list_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Return one row per measure and group, with the keys ``COLUMNS``; None if there is no value."""
    found = []
    for row in comparison.rows:
        base = row.cells[comparison.baseline].estimate
        for group, cell in zip(comparison.groups, row.cells, strict=True):
            each, change = cell.estimate, cell.difference
            ratio = None if change is None or base is None or not base.value else change.value / abs(base.value)
            values = (
                *(row.name, row.unit, group.label, len(group.runs)),
                *((None, None, 0) if each is None else (each.value, each.half_width, each.n)),
                *(cell.over, None if change is None else change.value, ratio),
                *((None, None) if change is None else (change.half_width, change.p)),
                *(cell.p_adjusted, cell.is_real),
            )
            found.append(dict(zip(COLUMNS, values, strict=True)))
    return found


def to_csv(comparison: Comparison) -> str:
    """Return the rows as CSV with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: plain_cell(value) for name, value in row.items()} for row in list_rows(comparison))
    return text.getvalue()


def to_json(comparison: Comparison, outcomes: Sequence[Outcome] = ()) -> bytes:
    """Return the groups with their runs, the rows, the notes and the outcomes of conditions as one object."""
    groups = [
        {
            "label": group.label,
            "settings": group.settings,
            "runs": [
                {
                    "run_dir": str(run.path),
                    "seed": run.plan.seed,
                    "verdict": run.summary.verdict,
                    "scope": run.summary.scope,
                }
                for run in group.runs
            ],
        }
        for group in comparison.groups
    ]
    document = {
        "baseline": comparison.groups[comparison.baseline].label,
        "groups": groups,
        "measures": list_rows(comparison),
        "notes": comparison.notes,
        "conditions": [
            {
                "condition": str(each.condition),
                "group": each.group,
                "state": each.state,
                "words": each.words,
                "more_runs": each.more_runs,
            }
            for each in outcomes
        ],
    }
    return msgspec.json.format(msgspec.json.encode(document)) + b"\n"
