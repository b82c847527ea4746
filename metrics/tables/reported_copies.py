"""Find the copies of messages in the reports of programs, for runs whose frames are not known."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.pcap.walk import Bools
from metrics.storage import Place
from metrics.storage.parquet import read_parquet
from metrics.tables.buckets import divide, of_messages, read_bucket
from metrics.tables.columns import conform, find, is_own, numbers, says
from metrics.tables.condensed import TRANSMISSIONS
from metrics.tables.interests import INTERESTS, had_interest
from metrics.tables.published import PUBLISHED
from metrics.tables.shares import Rows, Share
from metrics.tables.traces import FURTHER, TOLD


def build_reported(staging: Place, share: Share) -> dict[str, Rows]:
    """Return ``TRANSMISSIONS`` in buckets of messages, from the programs' reports of a share of the messages.

    A first copy is a delivery, or a relay at a node that does not subscribe, except a publisher's delivery of its own
    message. A duplicate there is a copy that came back, which is one in runs whose frames are known, too. The sender is
    null if the report does not name it.
    """
    first = read_bucket(staging / "told", TOLD, share, where=pc.field("event").isin(["deliver", "relay"]))
    first = first.filter(pa.array(~is_own(first)))
    later = read_bucket(staging / "further", FURTHER, share, where=pc.field("event") == "duplicate")
    relayed = says(first["event"], "relay")
    rows = pa.concat_tables([first.select(FURTHER.names), later])
    is_dup = np.arange(len(rows)) >= len(first)
    columns = {
        "message_id": rows["message_id"],
        "src_node": rows["peer"],
        "dst_node": rows["node"],
        "log_recv_ns": rows["ts_ns"],
        "is_dup": pa.array(is_dup),
        "is_relay": pa.array(np.concatenate((relayed, np.zeros(len(later), np.bool_)))),
        "at_relay": pa.array(np.concatenate((relayed, _are_at_relays(staging, share, first, later)))),
    }
    nothing = {field.name: pa.nulls(len(rows), field.type) for field in TRANSMISSIONS}
    copies = conform(nothing | columns, TRANSMISSIONS)
    return {"reported": divide(copies, of_messages(copies["message_id"], share.count), share.count)}


def _are_at_relays(staging: Place, share: Share, first: pa.Table, later: pa.Table) -> Bools:
    """Return which duplicates are at nodes that did not subscribe when they had the first copy, or published, (n,).

    The report of the first copy says so. If there is none, the subscriptions do, at the publication by the node, or at
    the duplicate: some programs do not report the first copy of a topic to which they do not subscribe.
    """
    key = ("message_id", "node")
    earliest = first.sort_by("ts_ns")
    place = find([earliest[name] for name in key], [later[name] for name in key])
    event = earliest["event"].take(place)
    published = read_bucket(staging / "published", PUBLISHED, share, ["message_id", "topics", "publish_ns"])
    message = published.take(find([published["message_id"]], [later["message_id"]]))
    at_ns = pc.if_else(pa.array(is_own(later)), pc.coalesce(message["publish_ns"], later["ts_ns"]), later["ts_ns"])
    rows = pa.table([later["node"], message["topics"]], ["node", "topics"])
    interests = read_parquet(staging / "interests", schema=INTERESTS)
    subscribed = had_interest(interests, rows, numbers(at_ns), numbers(at_ns))
    unsaid = pc.is_null(event).to_numpy()
    found: Bools = says(event, "relay") | (unsaid & ~subscribed)
    return found
