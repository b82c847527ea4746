"""The ``group_links`` table: the links between nodes that messages with expressions crossed, with counts of groups."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.facts.groups import count_expressions
from metrics.pcap.flows import factorise
from metrics.pcap.walk import Bools, Ints
from metrics.storage import Place
from metrics.storage.parquet import read_parquet
from metrics.tables.columns import find, numbers, valid
from metrics.tables.hops import HOPS
from metrics.tables.schemas import GROUP_LINKS, arrow_schema
from metrics.tables.staged import read_staged
from peer.core.frames import Data

SCHEMA = arrow_schema(GROUP_LINKS)


def build_group_links(published: Place, hops: Place, adversaries: frozenset[int], *, on_wire: bool) -> pa.Table:
    """Return a row per pair of nodes between which copies of messages with expressions went, in either direction.

    Args:
        published: the table of ``published.build_published``: message_id and expression.
        hops: the ``hops`` table. Copies that honest nodes handled count.
        adversaries: the nodes that misbehave.
        on_wire: whether the run has captures; without, the columns of the wire are null.
    """
    messages = read_parquet(published, columns=["message_id", "expression"])
    messages = messages.filter(pc.is_valid(messages["expression"]))
    copies = read_staged(
        hops,
        HOPS,
        ["message_id", "src_node", "dst_node", "tap_rx_ns"],
        (pc.field("kind") == Data.kind) & pc.field("at_relay").is_valid() & pc.field("src_node").is_valid(),
    )
    place = find([messages["message_id"]], [copies["message_id"]])
    honest = ~np.isin(numbers(copies["dst_node"]), sorted(adversaries))
    chosen = valid(place) & honest
    copies, places = copies.filter(pa.array(chosen)), numbers(place.filter(pa.array(chosen)))
    texts = messages["expression"].combine_chunks().dictionary_encode().indices
    expression = numbers(texts)[places]
    ends = np.sort(np.stack([numbers(copies["src_node"]), numbers(copies["dst_node"])]), axis=0)
    link, count = factorise(*ends)
    one = np.empty(count, np.int64)
    one[link] = np.arange(len(link))  # any copy of each link
    columns = {"node": ends[0][one], "peer": ends[1][one]}
    seen = valid(copies["tap_rx_ns"])
    columns |= _count(link, count, expression, np.ones(len(link), np.bool_), "")
    columns |= _count(link, count, expression, seen, "_on_wire") if on_wire else {}
    order = np.lexsort((columns["peer"], columns["node"]))
    nothing = pa.nulls(count)
    return pa.table(
        {field.name: pa.array(columns[field.name][order]) if field.name in columns else nothing for field in SCHEMA}
    ).cast(SCHEMA)


def _count(link: Ints, count: int, expression: Ints, among: Bools, suffix: str) -> dict[str, Ints]:
    """Return for each link its copies, and the number of different expressions of their messages."""
    return {
        f"copies{suffix}": np.bincount(link[among], minlength=count),
        f"expressions{suffix}": count_expressions(link[among], expression[among], count),
    }
