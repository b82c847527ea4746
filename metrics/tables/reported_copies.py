"""Find the copies of messages in the reports of programs, for runs whose frames are not known."""

import pyarrow as pa
import pyarrow.compute as pc

from metrics.storage import Place
from metrics.tables.buckets import divide, of_messages, read_bucket
from metrics.tables.columns import conform, numbers
from metrics.tables.condensed import TRANSMISSIONS
from metrics.tables.shares import Rows, Share
from metrics.tables.traces import FURTHER, TOLD


def build_reported(staging: Place, share: Share) -> dict[str, Rows]:
    """Return ``TRANSMISSIONS`` in buckets of messages, from the programs' reports of a share of the messages.

    A delivery or a duplicate is a copy, except a publisher's delivery of its own message. A duplicate there is a copy
    that came back, which is one in runs whose frames are known, too. Its sender is null if its report does not name
    it. Programs do not report which nodes are relays.
    """
    nothing = {field.name: pa.scalar(None, field.type) for field in TRANSMISSIONS}
    parts = []
    for name, schema, event in (("told", TOLD, "deliver"), ("further", FURTHER, "duplicate")):
        rows = read_bucket(staging / name, schema, share, where=pc.field("event") == event)
        if event == "deliver":
            rows = rows.filter(pa.array(numbers(rows["message_id"], -1) >> 32 != numbers(rows["node"], -1)))
        known = {"message_id": rows["message_id"], "src_node": rows["peer"], "dst_node": rows["node"]}
        known["log_recv_ns"] = rows["ts_ns"]
        flags = {"is_dup": pa.scalar(event == "duplicate"), "is_relay": pa.scalar(False), "at_relay": pa.scalar(False)}
        filled = {field: pa.repeat(value, len(rows)) for field, value in (nothing | flags).items()}
        parts.append(conform(filled | known, TRANSMISSIONS))
    copies = pa.concat_tables(parts)
    return {"reported": divide(copies, of_messages(copies["message_id"], share.count), share.count)}
