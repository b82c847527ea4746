"""Makes some recorded runs of a study again with this code, and compares every number that the record has of them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from msgspec import Struct

from harness.errors import ExperimentError
from harness.studies.executor import Failure, Outcome, execute
from harness.studies.form import Cell, Study
from harness.studies.kept import Columns, Kept
from harness.studies.points import describe_point, is_simulated
from harness.studies.record import Record
from harness.studies.store import Job, Result, jobs_of
from metrics.executors import HERE


class Chosen(Struct, frozen=True):
    """A recorded run that is made again."""

    job: Job
    recorded: Result


class Compared(Struct, frozen=True):
    """A run that was made again.

    Attributes:
        at: its point.
        seed: its seed.
        numbers: how many numbers the record has of it.
        differences: the numbers that are not equal, as texts.
    """

    at: dict[str, Cell]
    seed: int
    numbers: int
    differences: tuple[str, ...]

    def __str__(self) -> str:
        where = describe_point({**self.at, "seed": self.seed})
        if not self.differences:
            return f"{where}: all {self.numbers} numbers are equal"
        return f"{where}: {len(self.differences)} of {self.numbers} numbers differ: {'; '.join(self.differences)}"


def choose_runs(study: Study, record: Record, folder: Path, *, cpu_s: float, draw: int) -> list[Chosen]:
    """Draw recorded runs as long as their recorded processor times are within a limit together.

    A run that would exceed the limit is passed over, so that only runs within the limit can be drawn. Runs of real
    peers are not drawn, since no two of them are equal. Points with the same experiment share a run.

    Args:
        study: the study as its file says.
        record: its record, which may lack seeds and points.
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


def make_again(study: Study, chosen: Sequence[Chosen]) -> Iterator[Compared]:
    """Make recorded runs again, one after the other in this process, and yield what differs in each.

    Numbers that the record does not have, such as those of measures that the study has got since, are not compared.

    Raises:
        ExperimentError: a run fails.
    """
    kept = Kept(study)
    for each in chosen:
        outcomes: list[Outcome] = []
        execute([each.job], HERE, outcomes.append)
        for outcome in outcomes:
            if isinstance(outcome, Failure):
                last = outcome.words.strip().splitlines()[-1]
                raise ExperimentError(study.name, f"{describe_point({**each.job.at, 'seed': each.job.seed})}: {last}")
            before, now = (dict(_numbers(kept.columns(result))) for result in (each.recorded, outcome.result))
            differences = (
                f"{title}: recorded {was:.6g}, now {_show(now.get(title))}"
                for title, was in before.items()
                if now.get(title) != was
            )
            yield Compared(each.job.at, each.job.seed, len(before), tuple(differences))


def _numbers(columns: Columns) -> Iterator[tuple[str, float]]:
    """Yield each number of a run, except its cost, with a title."""
    yield from columns.values.items()
    for title, places in (*columns.moments.items(), *columns.counts.items()):
        for place, value in places.items():
            yield f"{title} at {place:g}", value


def _show(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"
