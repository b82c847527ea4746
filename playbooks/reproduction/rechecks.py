"""Makes some recorded runs of a study again, to see whether a record of older code still holds with this one.

The result is in ``docs/reproduction/<paper>.rechecks.json``. The paper's page shows it as long as the record stays.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from harness.studies.loader import load_study
from harness.studies.origin import describe_commit, find_origin
from harness.studies.recheck import MINUTES, draw_runs, make_again
from harness.studies.record import Record
from playbooks.reproduction.by_study import keep_entries, read_entries
from playbooks.reproduction.papers import HERE, Paper, Place

SHOWN = 3
"""So many runs with other numbers are shown; the others are counted."""


class Recheck(Struct, frozen=True):
    """Runs of a record that were made again.

    Attributes:
        study: the study's name.
        results: the hash of the recorded results.
        commit: the commit with which the runs were made again.
        clean: whether that code was as committed.
        date: the day, in UTC.
        minutes: the recorded minutes of the runs together were at most these.
        runs: how many runs were made again.
        numbers: how many numbers were compared.
        differing: for each run with other numbers, its point and seed, and the first of these numbers.
    """

    study: str
    results: str
    commit: str
    clean: bool
    date: str
    minutes: float
    runs: int
    numbers: int
    differing: tuple[str, ...]

    def __str__(self) -> str:
        commit = describe_commit(self.commit, clean=self.clean)
        made = (
            f"Runs made again on {self.date} with {commit}, drawn at random with at most"
            f" {self.minutes:g} min of processor time in all: {self.runs}, with {self.numbers} recorded numbers"
        )
        if not self.differing:
            return f"{made}. **All are as recorded.**"
        more = len(self.differing) - SHOWN
        shown = "; ".join([*self.differing[:SHOWN], *([f"and {more} more"] if more > 0 else [])])
        return f"{made}. **In {len(self.differing)} of these runs, numbers differ**: {shown}."


def recheck(paper: Paper, name: str, *, minutes: float = MINUTES, place: Place = HERE) -> Recheck:
    """Make some runs of a study's record again.

    Args:
        paper: the paper.
        name: the name of the study.
        minutes: how many recorded minutes the runs may have together.
        place: where the pages and the study files are.

    Raises:
        ExperimentError: there is no record, or each run takes longer.
        StaleRecord: the record is not one of the study as it is now.
    """
    source = place.studies / f"{name}.toml"
    study = load_study(source)
    drawn = draw_runs(place.record(paper, name), study, source.parent, minutes=minutes)
    origin = find_origin(source, None)
    compared = list(make_again(study, drawn))
    return Recheck(
        name,
        digest_results(drawn.record),
        origin.commit,
        origin.clean,
        origin.date,
        minutes,
        len(compared),
        sum(each.numbers for each in compared),
        tuple(f"{each.where}: {each.differences[0]}" for each in compared if each.differences),
    )


def digest_results(record: Record) -> str:
    """Return the hash of a record's results."""
    return hashlib.sha256(msgspec.json.encode(record.results, order="deterministic")).hexdigest()[:16]


def read_rechecks(paper: Paper, place: Place = HERE) -> Mapping[str, Recheck]:
    """Read the rechecks of a paper's records, by study."""
    return {each.study: each for each in read_entries(_path(paper, place), Recheck)}


def keep_recheck(paper: Paper, found: Recheck, place: Place = HERE) -> Path:
    """Write a recheck in place of an earlier one of the same study, and return the file."""
    return keep_entries(_path(paper, place), Recheck, [found])


def _path(paper: Paper, place: Place) -> Path:
    return place.pages / f"{paper.name}.rechecks.json"
