"""Copies the record of a finished sweep to its place among the pages."""

from pathlib import Path

import msgspec

from harness.errors import ExperimentError
from harness.studies.loader import load_study
from harness.studies.record import RECORD_FILE, StaleRecord, read_record
from harness.studies.store import SweepSpec, read_spec
from playbooks.reproduction.papers import HERE, Paper, Place, paper_of


def publish(folder: Path, place: Place = HERE) -> tuple[Paper, Path]:
    """Record the results of a sweep of a whole study, and return the paper and the path of the record.

    Args:
        folder: the folder of the sweep.
        place: where the pages and the study files are.

    Raises:
        ExperimentError: it is no such folder, or the sweep had options, or no paper lists the study.
        StaleRecord: the sweep has not ended, or the study has changed since.
    """
    spec = _read(folder)
    if spec.options or spec.any_code:
        asked = " ".join([*spec.options, *(["--any-code"] if spec.any_code else [])])
        raise ExperimentError(str(folder), f"expected a sweep of the study as its file says, got one with {asked}")
    source = Path(spec.source)
    if source.resolve().parent != place.studies.resolve():
        raise ExperimentError(str(folder), f"expected a sweep of a study in {place.studies}, got one of {source}")
    name = spec.study.name
    paper = paper_of(name, place)
    path = folder / RECORD_FILE
    if not path.exists() or read_record(path, load_study(source)).source.code != spec.code:
        raise StaleRecord(f"{folder}: the sweep has not ended; complete it: {spec.command}")
    record = place.record(paper, name)
    record.parent.mkdir(exist_ok=True)
    record.write_bytes(path.read_bytes())
    return paper, record


def _read(folder: Path) -> SweepSpec:
    try:
        return read_spec(folder)
    except (OSError, msgspec.MsgspecError) as error:
        raise ExperimentError(str(folder), f"expected the folder of a sweep: {error}") from None
