"""Makes some recorded runs of a study again, to see whether a record of older code still holds with this one.

The result is in ``docs/reproduction/<paper>.rechecks.json``. The paper's page shows it as long as the record stays.
"""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from harness.errors import ExperimentError
from harness.studies.loader import load_study
from harness.studies.origin import find_origin
from harness.studies.recheck import choose_runs, make_again
from harness.studies.record import read_record
from playbooks.reproduction.by_study import keep_entries, read_entries
from playbooks.reproduction.papers import HERE, Paper, Place

SHOWN = 3
"""So many runs with other numbers are shown; the others are counted."""


class Recheck(Struct, frozen=True):
    """Runs of a record that were made again.

    Attributes:
        study: the study's name.
        code: the hash of the code with which it was recorded.
        commit: the commit with which the runs were made again.
        clean: whether that code was as committed.
        date: the day, in UTC.
        minutes: the recorded minutes of the runs together were at most these.
        runs: how many runs were made again, drawn from those that take at most ``minutes``.
        differing: for each with other numbers, its point and seed, and the first of these numbers.
    """

    study: str
    code: str
    commit: str
    clean: bool
    date: str
    minutes: float
    runs: int
    differing: tuple[str, ...]

    def __str__(self) -> str:
        changes = "" if self.clean else ", **with changes that were not committed**"
        made = (
            f"Runs made again on {self.date} with commit `{self.commit}`{changes}, drawn at random with at most "
            f"{self.minutes:g} min of processor time in all: {self.runs}"
        )
        if not self.differing:
            return f"{made}. **All their numbers are as recorded.**"
        more = len(self.differing) - SHOWN
        shown = "; ".join([*self.differing[:SHOWN], *([f"and {more} more"] if more > 0 else [])])
        return f"{made}. **In {len(self.differing)} of them, numbers differ**: {shown}."


def recheck(paper: Paper, name: str, *, minutes: float, draw: int = 1, place: Place = HERE) -> Recheck:
    """Make some runs of a study's record again.

    Args:
        paper: the paper.
        name: the name of the study.
        minutes: how many recorded minutes the runs may have together.
        draw: the seed by which they are drawn.
        place: where the pages and the study files are.

    Raises:
        ExperimentError: there is no record, or each run takes longer.
        StaleRecord: the record is not one of the study as it is now.
    """
    source, path = place.studies / f"{name}.toml", place.record(paper, name)
    if not path.exists():
        raise ExperimentError(str(path), "there is no record")
    study = load_study(source)
    record = read_record(path, study, partial=True)
    chosen = choose_runs(study, record, source.parent, cpu_s=60 * minutes, draw=draw)
    if not chosen:
        raise ExperimentError(str(path), f"no simulated run took at most {minutes:g} minutes")
    origin = find_origin(source, None)
    compared = list(make_again(study, chosen))
    differing = tuple(str(each).split("; ")[0] for each in compared if each.differences)
    return Recheck(
        name, record.source.code, origin.commit, origin.clean, origin.date, minutes, len(compared), differing
    )


def read_rechecks(paper: Paper, place: Place = HERE) -> Mapping[str, Recheck]:
    """Read the rechecks of a paper's records, by study."""
    return {each.study: each for each in read_entries(_path(paper, place), Recheck)}


def keep_recheck(paper: Paper, found: Recheck, place: Place = HERE) -> Path:
    """Write a recheck in place of an earlier one of the same study, and return the file."""
    return keep_entries(_path(paper, place), Recheck, [found])


def _path(paper: Paper, place: Place) -> Path:
    return place.pages / f"{paper.name}.rechecks.json"
