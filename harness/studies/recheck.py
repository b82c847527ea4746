"""Makes some recorded runs of a study again with this code, and compares every number that the record has of them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

from msgspec import Struct

from harness.errors import ExperimentError
from harness.studies.executor import Failure, Outcome, execute
from harness.studies.form import Cell, Study
from harness.studies.kept import Columns, Kept
from harness.studies.points import describe_point, is_simulated
from harness.studies.record import Record, read_record
from harness.studies.store import Job, Result, jobs_of
from metrics.executors import HERE

MINUTES = 2.0
"""The recorded processor time of all runs that are drawn, unless another one is asked for."""

DRAW = 1
"""The seed of the draw, unless another one is asked for."""

Place = tuple[str, float | None]
"""The title of a number, and its moment or what it is counted by; None = it is a single one."""


class Chosen(Struct, frozen=True):
    """A recorded run that is made again."""

    job: Job
    recorded: Result


class Drawn(Struct, frozen=True):
    """A record, and those of its runs that are made again, in the order of the draw."""

    record: Record
    chosen: tuple[Chosen, ...]


class Compared(Struct, frozen=True):
    """A run that was made again.

    Attributes:
        at: its point.
        seed: its seed.
        numbers: how many numbers were compared.
        differences: the numbers that are not equal, as texts.
    """

    at: dict[str, Cell]
    seed: int
    numbers: int
    differences: tuple[str, ...]

    @property
    def where(self) -> str:
        """The point and the seed, as text."""
        return describe_point({**self.at, "seed": self.seed})

    def __str__(self) -> str:
        if not self.differences:
            return f"{self.where}: all {self.numbers} numbers are equal"
        return f"{self.where}: {len(self.differences)} of {self.numbers} numbers differ: {'; '.join(self.differences)}"


def draw_runs(path: Path, study: Study, folder: Path, *, minutes: float = MINUTES, draw: int = DRAW) -> Drawn:
    """Read a record, which may lack seeds and points of its study, and draw the runs that are made again.

    Args:
        path: the record.
        study: the study as its file says.
        folder: the folder of the study's file.
        minutes: the limit of their recorded processor times together. See ``choose_runs``.
        draw: the seed of the draw.

    Raises:
        ExperimentError: there is no record, or no run is within the limit.
        StaleRecord: the record is not one of the study as it is now.
    """
    try:
        record = read_record(path, study, partial=True)
    except OSError as error:
        raise ExperimentError(str(path), error.strerror or str(error)) from None
    if not (chosen := choose_runs(study, record, folder, cpu_s=60 * minutes, draw=draw)):
        raise ExperimentError(str(path), f"no simulated run took at most {minutes:g} minutes")
    return Drawn(record, tuple(chosen))


def choose_runs(study: Study, record: Record, folder: Path, *, cpu_s: float, draw: int) -> list[Chosen]:
    """Draw recorded runs as long as their recorded processor times are within a limit together.

    A run that would exceed the limit is passed over, so that only runs within the limit can be drawn. Runs of real
    peers are not drawn, since no two of them are equal. Points with the same experiment share a run.

    Args:
        study: the study as its file says.
        record: its record.
        folder: the folder of the study's file.
        cpu_s: the limit.
        draw: the seed of the draw.

    Returns:
        The runs in the order of the draw; empty if none is within the limit.
    """
    jobs = {(tuple(job.at.items()), job.seed): job for job in jobs_of(study, folder)}
    recorded = [Chosen(jobs[tuple(result.at.items()), result.seed], result) for result in record.results]
    Random(draw).shuffle(recorded)
    chosen: dict[str, Chosen] = {}
    for each in recorded:
        unseen = each.job.key not in chosen and is_simulated(each.job.experiment)
        if unseen and each.recorded.cpu_s <= cpu_s:
            chosen[each.job.key] = each
            cpu_s -= each.recorded.cpu_s
    return list(chosen.values())


def make_again(study: Study, drawn: Drawn) -> Iterator[Compared]:
    """Make recorded runs again, one after the other in this process, and yield what differs in each.

    What the record has of no run, such as measures that the study has got since, is not compared.

    Raises:
        ExperimentError: a run fails.
    """
    kept = Kept(study)
    titles = {title for result in drawn.record.results for title, _ in _numbers(kept.columns(result))}
    for each in drawn.chosen:
        outcomes: list[Outcome] = []
        execute([each.job], HERE, outcomes.append)
        for outcome in outcomes:
            if isinstance(outcome, Failure):
                where = describe_point({**each.job.at, "seed": each.job.seed})
                raise ExperimentError(study.name, f"{where}: {outcome.words.strip().splitlines()[-1]}")
            before = _numbers(kept.columns(each.recorded))
            now = _numbers(kept.columns(outcome.result))
            yield _compare(each.job, before, {place: now[place] for place in now if place[0] in titles})


def _compare(job: Job, before: Mapping[Place, float], now: Mapping[Place, float]) -> Compared:
    places = sorted(before.keys() | now.keys(), key=str)
    differences = [
        f"{_name(place)}: recorded {_show(before.get(place))}, now {_show(now.get(place))}"
        for place in places
        if before.get(place) != now.get(place)
    ]
    return Compared(job.at, job.seed, len(places), tuple(differences if places else ["the record has none of them"]))


def _numbers(columns: Columns) -> dict[Place, float]:
    """Return every number of a run, except its cost."""
    found: dict[Place, float] = {(title, None): value for title, value in columns.values.items()}
    for title, values in (*columns.moments.items(), *columns.counts.items()):
        found |= {(title, place): value for place, value in values.items()}
    return found


def _name(place: Place) -> str:
    title, at = place
    return title if at is None else f"{title} at {at:g}"


def _show(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"
