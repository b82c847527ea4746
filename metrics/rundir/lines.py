"""The lines of a run's files of records, as objects of known keys; other keys are left out."""

from collections.abc import Callable
from typing import Any, Final, Literal, Required, TypedDict

from msgspec.json import Decoder

from metrics.rundir.bounds import Count, Instant, MessageNumber, NodeNumber, Number, Text, TopicNumber, Whole
from metrics.rundir.files import DATAPLANE_FILE, FAULTS_FILE, PRESSURE_FILE, STALLS_FILE
from peer.files import SCHEDULE_FILE


class ScheduledAction(TypedDict, total=False):
    """A line of ``schedule.jsonl``."""

    at_ns: Required[Instant]
    node: Required[NodeNumber]
    action: Required[Literal["publish", "join", "leave", "crash", "vanish", "subscribe", "unsubscribe"]]
    message_id: MessageNumber
    topics: Required[list[TopicNumber]]
    payload_bytes: Count
    expression: Text


class PlaneLine(TypedDict, total=False):
    """A line of ``dataplane.jsonl``."""

    at_ns: Required[Instant]
    frames_in: Count
    frames_out: Count
    bytes_in: Count
    bytes_out: Count
    frames_doubled: Count
    frames_late: Count
    frames_waited: Count
    records_written: Count
    records_dropped: Count
    drops: dict[Text, Count]
    lateness_ns: dict[Text, Count]
    lateness_counts: list[tuple[Count, Whole]]
    intake_ns: dict[Text, Count]
    intake_counts: list[tuple[Count, Whole]]
    late: list[tuple[Instant, Instant, Count]]
    waits: list[tuple[Instant, Instant, Count]]
    busy_ratio: Number | None


class PressureLine(TypedDict, total=False):
    """A line of ``pressure.jsonl``."""

    at_ns: Required[Instant]
    cpu_some_ratio: Number | None
    cpu_busy_ratio: Number | None
    steal_ratio: Number | None
    throttled_periods: Count
    throttled_us: Count


class StallLine(TypedDict, total=False):
    """A line of ``stalls.jsonl`` (``metrics.rundir.Stall``)."""

    source: Required[Text]
    start_ns: Required[Instant]
    end_ns: Required[Instant]
    cpu: Count | None


class AppliedLine(TypedDict):
    """A line of ``faults.jsonl`` (``metrics.rundir.AppliedChange``)."""

    asked_ns: Instant
    applied_ns: Instant


_FORMS: Final[dict[str, Any]] = {
    SCHEDULE_FILE: ScheduledAction,
    DATAPLANE_FILE: PlaneLine,
    PRESSURE_FILE: PressureLine,
    STALLS_FILE: StallLine,
    FAULTS_FILE: AppliedLine,
}


def line_decoder(name: str) -> Callable[[bytes], dict[str, Any]]:
    """Return the reader of the lines of a file; it raises ``ValueError`` if a line does not have the file's form."""
    return Decoder(_FORMS[name]).decode
