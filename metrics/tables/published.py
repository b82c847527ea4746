"""Find what was published: the messages that the schedule asks for, and the messages in the traces."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from metrics.storage import Place
from metrics.tables.buckets import BucketParts, divide, of_messages, read_bucket
from metrics.tables.columns import Column, conform, find, group_rows, numbers
from metrics.tables.schemas import arrow_schema, schema_of
from metrics.tables.shares import Rows, Share
from metrics.tables.traces import MENTIONS, TOLD

_MESSAGES: Final = arrow_schema("messages")
PUBLISHED: Final = pa.schema([_MESSAGES.field(index) for index in range(6)]).append(pa.field("expression", pa.string()))
"""What is known of a message without its copies. ``expression`` is null if it has none."""

PLANNED: Final = schema_of(
    "at_ns bigint, action string, message_id bigint, topics array<bigint>, payload_bytes bigint, expression string"
)
"""An action of the schedule, as far as it is about a message."""

CONTENTS: Final = schema_of("message_id bigint, topics array<bigint>, payload_bytes bigint")
"""What hops need of a message."""


_ACTIONS: Final = 50_000
"""The number of actions in memory at a time."""


@dataclass(frozen=True)
class PublishedSources:
    """What is known about publications, as Parquet files in buckets of messages."""

    planned: Place  # ``stage_schedule``
    told: Place  # ``traces.TOLD``
    mentions: Place  # ``traces.MENTIONS``


def stage_schedule(schedule: Iterable[dict[str, Any]], folder: Place, buckets: int) -> None:
    """Stage the publications that were asked for as ``PLANNED``, some thousands of actions at a time.

    Args:
        schedule: the run's (``RunDir.schedule``).
        folder: where they are staged; it must exist.
        buckets: how many there are.
    """
    parts = BucketParts(folder, 0, PLANNED, buckets)
    publications = (action for action in schedule if action["action"] == "publish")
    while some := list(islice(publications, _ACTIONS)):
        rows = pa.Table.from_pylist(some, PLANNED)
        parts.add(rows, of_messages(rows["message_id"], buckets))
    parts.close()


def build_published(sources: PublishedSources, zero_ns: int, share: Share) -> dict[str, Rows]:
    """Return every message that was published, from its publisher's trace or, if that is lost, from a receiver's.

    Also return ``contents`` (``CONTENTS``) for the tasks that make hops: each message in all buckets of connections
    that have frames of it.

    Args:
        sources: what is known about publications.
        zero_ns: the instant from which the schedule counts.
        share: a share of the messages, by their number.
    """
    asked = read_bucket(sources.planned, PLANNED, share)
    said = ["event", "message_id", "ts_ns", "topics", "len_bytes"]
    words = read_bucket(sources.told, TOLD, share, said, pc.field("message_id").is_valid())
    is_publish = pc.equal(words["event"], "publish")
    publishes = words.filter(is_publish)
    received = words.filter(pc.equal(words["event"], "deliver"))["message_id"]
    known = pa.chunked_array([*asked["message_id"].chunks, *publishes["message_id"].chunks], pa.int64()).unique()
    plan, word = (
        asked.take(find([asked["message_id"]], [known])),
        publishes.take(find([publishes["message_id"]], [known])),
    )
    columns: dict[str, Column] = {
        "message_id": known,
        "topics": pc.coalesce(word["topics"], plan["topics"]),
        "publisher": pc.shift_right(known, 32).cast(pa.int32()),
        "scheduled_ns": pc.add(plan["at_ns"], zero_ns),
        "publish_ns": word["ts_ns"],
        "payload_bytes": pc.coalesce(word["len_bytes"], plan["payload_bytes"]),
        "expression": plan["expression"],
    }
    happened = pc.or_(pc.is_valid(word["ts_ns"]), pc.is_in(known, received.combine_chunks()))
    published = conform(columns, PUBLISHED).filter(happened)
    return {"published": published, "contents": _send_contents(published, sources.mentions, share)}


def _send_contents(published: pa.Table, mentions: Place, share: Share) -> list[pa.Table]:
    """Return ``CONTENTS`` by bucket of connections."""
    contents = published.select(CONTENTS.names)
    if share.count == 1:
        return [contents]
    _, wanted = group_rows(read_bucket(mentions, MENTIONS, share), *MENTIONS.names)
    place = find([contents["message_id"]], [wanted["message_id"]])
    known = pc.is_valid(place)
    rows = contents.take(place.filter(known))
    return divide(rows, numbers(wanted["bucket"].filter(known)), share.count)
