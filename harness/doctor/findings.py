"""The findings of the doctor."""

from typing import Literal

from msgspec import Struct

Level = Literal["ok", "note", "problem"]


class Finding(Struct, frozen=True):
    """One line of the doctor's report.

    Attributes:
        subject: what was checked.
        level: ``ok``; ``note`` (a run can be made, with the limit in ``meaning``); ``problem`` (no run can be made).
        found: what was found.
        meaning: what that means for a run.
        mend: how the user can fix it, as a sentence or a command; empty if there is nothing to fix.
        fix: the command that ``doctor --fix`` runs, if that is safe; otherwise empty.
    """

    subject: str
    level: Level
    found: str
    meaning: str
    mend: str = ""
    fix: tuple[str, ...] = ()


def can_run(findings: list[Finding]) -> bool:
    """Return whether a run can be made: no finding is a problem."""
    return all(finding.level != "problem" for finding in findings)
