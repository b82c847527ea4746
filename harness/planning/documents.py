"""The plan's files in the run directory, and their hashes."""

from pathlib import Path

import msgspec

from harness.errors import ExperimentError
from harness.experiment.form import resolve
from harness.experiment.shadow import is_shadow
from harness.planning.plan import Plan, PlannedRun
from metrics.rundir import read_document
from metrics.rundir.files import CHANGES_FILE, EXPERIMENT_FILE, PLAN_FILE, SHADOW_FILE, UNDERLAY_FILE
from metrics.rundir.hashes import digest, indented
from peer.core.schedule import decode_schedule, encode_schedule
from peer.files import OVERLAY_FILE, SCHEDULE_FILE
from peer.instances.spec import OverlayDocument
from topologies.model import Underlay
from topologies.timeline import decode_changes, encode_changes


def write_plan(planned: PlannedRun, run_dir: Path) -> None:
    """Write the experiment file, the plan, the underlay, the overlay, the schedule, and the network's changes if any.

    The directory is made if necessary; existing files are never overwritten.

    Raises:
        ExperimentError: the directory already has a plan, or cannot be written.
    """
    documents = {
        (SHADOW_FILE if is_shadow(planned.source) else EXPERIMENT_FILE): [planned.source.read_bytes()],
        PLAN_FILE: [encode_plan(planned.plan)],
        UNDERLAY_FILE: planned.underlay.to_json(),
        OVERLAY_FILE: [encode_overlay(planned.overlay)],
        SCHEDULE_FILE: [encode_schedule(planned.schedule)],
    }
    if planned.changes:
        documents[CHANGES_FILE] = [encode_changes(planned.changes)]
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        for name, parts in documents.items():
            with (run_dir / name).open("xb") as file:
                file.writelines(parts)
    except OSError as error:
        raise ExperimentError(str(error.filename or run_dir), error.strerror or "cannot be written") from None


def read_plan(run_dir: Path) -> PlannedRun:
    """Read what ``write_plan`` wrote.

    Raises:
        RunDirError: a file is missing or invalid.
    """
    plan = read_document(run_dir / PLAN_FILE, msgspec.json.Decoder(Plan).decode)
    faulty = bool(plan.experiment.faults)
    return PlannedRun(
        plan=plan,
        underlay=read_document(run_dir / UNDERLAY_FILE, Underlay.from_json),
        overlay=read_document(run_dir / OVERLAY_FILE, msgspec.json.Decoder(OverlayDocument).decode),
        schedule=tuple(read_document(run_dir / SCHEDULE_FILE, decode_schedule)),
        source=run_dir / EXPERIMENT_FILE,
        changes=tuple(read_document(run_dir / CHANGES_FILE, decode_changes)) if faulty else (),
    )


def hash_documents(planned: PlannedRun) -> dict[str, str]:
    """Return the SHA-256 of each document as it is written; ``plan`` is hashed with empty ``hashes``."""
    plan = planned.plan
    contents = {
        "plan": [encode_plan(msgspec.structs.replace(plan, hashes={}))],
        "underlay": planned.underlay.to_json(),
        "placement": [indented(msgspec.to_builtins(plan.placement))],
        "overlay": [encode_overlay(planned.overlay)],
        "schedule": [encode_schedule(planned.schedule)],
    }
    if planned.changes:
        contents["changes"] = [encode_changes(planned.changes)]
    return {name: digest(parts) for name, parts in contents.items()}


def encode_plan(plan: Plan) -> bytes:
    """Return the bytes of ``plan.json``, indented for readers."""
    return indented(msgspec.to_builtins(plan) | {"experiment": resolve(plan.experiment)})


def encode_overlay(overlay: OverlayDocument) -> bytes:
    """Return the bytes of ``overlay.json``."""
    return msgspec.json.encode(overlay) + b"\n"
