"""The files of a sweep: its specification, and the result of every run. Each is written whole or not at all."""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harness.experiment.data import data_path
from harness.experiment.form import Experiment, resolve
from harness.studies.code_hash import ROOT, code_of
from harness.studies.form import Cell, RunSpec, Study
from harness.studies.point_run import Row
from harness.studies.points import points_of, seeds_of
from metrics.rundir import write_document, write_file


class Job(Struct, frozen=True):
    """One run: a point with a seed.

    ``key``: a hash of the resolved experiment with its seed, of the files that it reads, of the run's settings and of
    the measures.
    ``code``: the hash of the code that determines its result.
    ``cost``: relative run time.
    """

    key: str
    code: str
    at: dict[str, Cell]
    seed: int
    experiment: Experiment
    run: RunSpec
    measures: tuple[str, ...]
    folder: str
    cost: float


class Result(Struct, frozen=True):
    """The result of a run. ``code``: the hash of the code that determined it; empty = not known, as in a record."""

    key: str
    at: dict[str, Cell]
    seed: int
    code: str
    cpu_s: float
    peak_mib: int
    rows: tuple[Row, ...]


class SweepSpec(Struct, frozen=True):
    """``sweep.json``: the study with every override applied, the path of its file, the code, and the options.

    ``code``: the hash of the code that determines the results of all its runs.
    """

    study: Study
    source: str
    code: str
    options: tuple[str, ...]
    versions: dict[str, str]
    any_code: bool = False

    @property
    def command(self) -> str:
        """Return the command that computes the same results."""
        source = Path(self.source)
        shown = source.relative_to(ROOT) if source.is_relative_to(ROOT) else Path(source.name)
        return " ".join(["./trellis sweep", str(shown), *self.options])


def jobs_of(study: Study, folder: Path) -> tuple[Job, ...]:
    """Return every run of a study. ``folder``: the folder of its file."""
    measures = tuple(sorted(study.measures))
    made = []
    for point in points_of(study):
        for seed in seeds_of(study):
            experiment = replace(point.experiment, seed=seed)
            inputs = _digest_inputs(experiment, folder)
            content = msgspec.json.encode((resolve(experiment), study.run, measures, *inputs), order="deterministic")
            key = hashlib.sha256(content).hexdigest()[:24]
            cost = _cost(experiment, study.run)
            code = code_of([experiment], measures)
            made.append(Job(key, code, point.at, seed, experiment, study.run, measures, str(folder), cost))
    return tuple(made)


def study_code(study: Study) -> str:
    """Return the hash of the code that determines the results of any run of a study."""
    return code_of((point.experiment for point in points_of(study)), study.measures)


def _digest_inputs(experiment: Experiment, folder: Path) -> list[str]:
    """Return the SHA-256 of every existing file that an experiment reads, including each file of a folder."""
    sections = (experiment.underlay, experiment.interests, experiment.churn)
    named = [path for spec in sections if (path := data_path(spec, folder)) is not None]
    files = [file for path in named for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    return [_digest(file) for file in files if file.is_file()]


@cache
def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _cost(experiment: Experiment, run: RunSpec) -> float:
    """Estimate the cost as nodes times seconds."""
    return (experiment.underlay.hosts or 1) * (run.length_s or experiment.workload.length_s)


class Store:
    """The results in a sweep's folder.

    Args:
        folder: the folder of the sweep.
        any_code: whether results of other code than their jobs' count.
    """

    def __init__(self, folder: Path, *, any_code: bool = False) -> None:
        self._folder = folder / "runs"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._any_code = any_code
        self._judged: dict[Path, tuple[int, bool]] = {}

    def read(self, job: Job) -> Result | None:
        """Return the result of a job; None = it has none. Points with the same experiment share a result."""
        try:
            result = msgspec.json.decode(self._path(job.key).read_bytes(), type=Result)
        except (OSError, msgspec.DecodeError):
            return None
        return replace(result, at=job.at) if self._any_code or result.code == job.code else None

    def write(self, result: Result) -> None:
        """Write a result. If the process is killed meanwhile, the old state remains."""
        write_file(self._path(result.key), msgspec.json.encode(result) + b"\n")

    def count(self, jobs: Sequence[Job]) -> int:
        """Count the jobs with a result. A file is read again only if it has changed."""
        return sum(self._has(job) for job in jobs)

    def _has(self, job: Job) -> bool:
        path = self._path(job.key)
        try:
            changed_ns = path.stat().st_mtime_ns
        except OSError:
            return False
        if self._judged.get(path, (0, False))[0] != changed_ns:
            self._judged[path] = changed_ns, self.read(job) is not None
        return self._judged[path][1]

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"


def write_spec(folder: Path, spec: SweepSpec) -> None:
    """Write ``sweep.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    write_document(folder / "sweep.json", spec)


def read_spec(folder: Path) -> SweepSpec:
    """Read ``sweep.json``."""
    return msgspec.json.decode((folder / "sweep.json").read_bytes(), type=SweepSpec)
