"""What the doctor says."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Level = Literal["ok", "note", "problem"]


class Finding(Struct, frozen=True):
    """One line of the doctor's report.

    Attributes:
        subject: what was looked at.
        level: ``ok``; ``note`` (a run can be made, with the limit that ``meaning`` states); ``problem`` (no run can).
        found: what was found.
        meaning: what that means for a run.
        mend: what a person does about it, in words or as a command; empty when there is nothing to mend.
        fix: the command that ``doctor --fix`` runs, only where it is safe to run unasked; empty otherwise.
    """

    subject: str
    level: Level
    found: str
    meaning: str
    mend: str = ""
    fix: tuple[str, ...] = ()


def can_run(findings: list[Finding]) -> bool:
    """Whether a run can be made: nothing found is a problem."""
    return all(finding.level != "problem" for finding in findings)
