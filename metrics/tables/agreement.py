"""Find links in the captures, and compare them with the links that the nodes traced."""

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.checks.consistency import BROKEN, IDLE, INTRODUCED, SETTLE, TOLD
from metrics.checks.evidence import Matching, Outcome
from metrics.pcap.flows import factorise
from metrics.pcap.frames import DIRECTIONS
from metrics.pcap.walk import Bools
from metrics.tables.columns import Column, Groups, conform, find, group_rows, numbers, valid
from metrics.tables.schemas import schema_of
from metrics.tables.timespans import (
    FOREVER,
    Grid,
    Spans,
    common_keys,
    compare_lasting,
    contained,
    first_since,
    latest_end,
    on_grid,
)

ENDS: Final = schema_of("""
    node int, peer int, conn string, incarnation int, from_ns bigint, to_ns bigint, sure_from_ns bigint,
    sure_to_ns bigint, maybe_to_ns bigint
""")
CONNECTED: Final = schema_of("""
    node int, peer int, from_ns bigint, to_ns bigint, sure_from_ns bigint, sure_to_ns bigint, maybe_to_ns bigint
""")
PROVEN: Final = schema_of("""
    node int, peer int, topic bigint, conn string, log_send_ns bigint, tap_rx_ns bigint, log_recv_ns bigint,
    told boolean
""")


def wire_connections(staged: pa.Table, nodes: pa.Table) -> pa.Table:
    """Return the two ends of every connection, by the captures alone: from both SYNs to the first FIN or RST.

    A connection that nothing closed ends with its last packet. A UDP flow begins when both sides have sent. Columns
    (``CONNECTED``): node, peer, from_ns, to_ns, and

    * sure_from_ns: from then on the node knows a link that lasts, or has refused it;
    * sure_to_ns: until then the node knows the link; a ``Bye`` may have come ``TOLD`` before the first FIN, which was
      lost. Null if nothing closed the connection: its node may have vanished;
    * maybe_to_ns: from then on the node cannot know the link; ``BROKEN`` later if nothing closed the connection.

    Args:
        staged: ``metrics.pcap.schemas.CONNS``, a row per connection and host that saw it.
        nodes: node and ip of every node.
    """
    seen = staged.filter(pc.is_valid(staged["opened_ns"]))
    orig, resp = (nodes["node"].take(pc.index_in(seen[f"id_{side}_h"], nodes["ip"])) for side in ("orig", "resp"))
    at_orig = pc.equal(seen["orig_tap"], "tx")
    last_ns = pc.add(seen["ts_ns"], seen["duration_ns"])
    to_ns = pc.coalesce(seen["closed_ns"], last_ns)
    columns = {
        "node": pc.if_else(at_orig, orig, resp),
        "peer": pc.if_else(at_orig, resp, orig),
        "from_ns": seen["opened_ns"],
        "to_ns": to_ns,
        "sure_from_ns": pc.add(seen["opened_ns"], INTRODUCED.ns),
        "sure_to_ns": pc.subtract(seen["closed_ns"], TOLD.ns),
        "maybe_to_ns": pc.add(to_ns, pc.if_else(pc.is_valid(seen["closed_ns"]), TOLD.ns, BROKEN.ns)),
    }
    rows = conform(columns, CONNECTED)
    return rows.filter(pc.and_(pc.is_valid(rows["node"]), pc.is_valid(rows["peer"])))


def wire_ends(streams: pa.Table, conns: pa.Table) -> pa.Table:
    """Return the two ends of every connection over which both nodes sent a ``Hello``, as the taps saw the frames.

    Columns (``ENDS``): node, peer, conn, incarnation, and

    * from_ns: the other side's ``Hello`` had reached the node's host;
    * to_ns: the node's ``Bye`` had left its host, or the other side's ``Bye`` had reached it; without a ``Bye`` (the
      connection broke), the connection's last packet;
    * sure_from_ns, sure_to_ns: in between, the node must know the link. The first is the first frame that it sends
      after its ``Hello``, or a while after both ``Hello``. The second is the instant at which a ``Bye`` is inside its
      host, or the node's last frame on a connection that broke;
    * maybe_to_ns: from then on the node cannot know the link; a minute later if the connection broke, since nothing
      shows when a node notices this.

    An end that neither sent nor read a ``Bye`` broke, even if a ``Bye`` reached its host: a node whose host has
    vanished knows no link, while the other side ends the link in order a little later.

    Args:
        streams: ``condensed.condense_streams``.
        conns: the ``conns`` table.
    """
    said = streams.filter(pc.is_valid(streams["hello_tx_ns"])).combine_chunks()
    side = pc.index_in(said["direction"], pa.array(DIRECTIONS))
    key = [pc.index_in(said["conn"], said["conn"].unique()), said["incarnation"]]
    place = find([*key, side], [*key, pc.subtract(1, side)])
    heard = said["hello_rx_ns"].take(place)
    both = pa.array(valid(place, heard))
    own, other = said.filter(both), said.take(place.filter(both))
    columns = {"node": own["src_node"], "peer": own["dst_node"], "conn": own["conn"], "incarnation": own["incarnation"]}
    columns |= {"from_ns": other["hello_rx_ns"]}
    return conform(columns | _bounds(own, other, _last_packets(conns, own["conn"])), ENDS)


def _last_packets(conns: pa.Table, names: pa.ChunkedArray) -> Column:
    """Return when the last packet of each named connection was seen; null if several connections had the name."""
    group, found = group_rows(conns, "conn")
    groups = Groups(group, len(found))
    last_ns = groups.most(pc.add(conns["ts_ns"], conns["duration_ns"]))
    single = pa.array(np.bincount(group, minlength=len(found)) == 1)
    place = pc.index_in(names, found["conn"].combine_chunks().filter(single))
    return last_ns.filter(single).take(place.combine_chunks())


def _bounds(own: pa.Table, other: pa.Table, last_ns: Column) -> dict[str, Column]:
    """Return the columns of ``wire_ends`` for each end, from its own stream and the other one."""
    left = pc.coalesce(own["bye_tx_ns"], own["bye_log_ns"])
    broke = pc.is_null(pc.coalesce(left, other["bye_rx_ns"]))
    broke_here = pc.is_null(pc.coalesce(left, other["bye_read_ns"]))
    last_seen = pc.coalesce(last_ns, pc.max_element_wise(own["last_seen_ns"], other["last_seen_ns"]))
    # What a node does after reading a Bye comes after the read; what it does when sending a Bye comes after the send.
    gone = pc.min_element_wise(pc.max_element_wise(own["bye_tx_ns"], own["bye_log_ns"]), other["bye_read_ns"])
    last_sign = pc.max_element_wise(own["last_send_ns"], other["last_recv_ns"])
    idle = pc.add(pc.max_element_wise(other["hello_read_ns"], own["hello_tx_ns"]), IDLE.ns)
    return {
        "to_ns": pc.if_else(broke, last_seen, pc.min_element_wise(own["bye_tx_ns"], other["bye_rx_ns"])),
        "sure_from_ns": pc.min_element_wise(own["first_send_ns"], idle),
        "sure_to_ns": pc.if_else(broke_here, last_sign, pc.min_element_wise(own["bye_log_ns"], other["bye_rx_ns"])),
        "maybe_to_ns": pc.if_else(
            broke_here, pc.add(last_seen, BROKEN.ns), pc.coalesce(pc.add(gone, SETTLE.ns), pa.scalar(FOREVER))
        ),
    }


def compare_physical(ends: pa.Table, physical: pa.Table, incomplete: list[int], grid: Grid) -> Matching:
    """Compare physical links at every instant of the grid, by the traces and by the wire.

    A (node, neighbour) pair that is sure on the wire must be in the node's trace, and a pair in the trace must be
    possible on the wire. The two bounds differ only while a ``Hello`` or ``Bye`` is inside the node's host.

    Args:
        ends: ``wire_ends``.
        physical: the ``physical_links`` table.
        incomplete: nodes whose trace is missing or cut off: they are not compared.
        grid: the instants.
    """
    return compare_ends(
        {
            "traced": (physical, "from_ns", "to_ns"),
            "sure": (ends, "sure_from_ns", "sure_to_ns"),
            "maybe": (ends, "from_ns", "maybe_to_ns"),
        },
        ("node", "peer"),
        incomplete,
        grid,
    )


def compare_connected(
    connected: pa.Table, physical: pa.Table, incomplete: list[int], vanished: list[int], grid: Grid
) -> Matching:
    """Compare links by the captures alone: a traced link needs an open connection, and a lasting one must be traced.

    Args:
        connected: ``wire_connections``.
        physical: the ``physical_links`` table.
        incomplete: see ``compare_physical``.
        vanished: nodes that crashed silently: no packet shows when they stopped to know a link.
        grid: the instants.
    """
    told = connected.filter(pa.array(_others(connected["node"], vanished)))
    return compare_ends(
        {
            "traced": (physical, "from_ns", "to_ns"),
            "sure": (told, "sure_from_ns", "sure_to_ns"),
            "maybe": (connected, "from_ns", "maybe_to_ns"),
        },
        ("node", "peer"),
        incomplete,
        grid,
    )


def compare_ends(
    words: dict[str, tuple[pa.Table, str, str]], key: tuple[str, ...], incomplete: list[int], grid: Grid
) -> Matching:
    """Compare what is traced, what is sure and what is possible at each instant of the grid.

    Args:
        words: rows by ``traced``, ``sure`` and ``maybe``, and the columns with their beginning and end.
        key: the columns that identify what lasts; ``node`` is one of them.
        incomplete: nodes whose rows are not compared.
        grid: the instants.
    """
    judged = {}
    for word, (rows, since, until) in words.items():
        chosen = _others(rows["node"], incomplete) & valid(rows[since], rows[until])
        judged[word] = rows.filter(pa.array(chosen)).select([*key, since, until])
    keys = common_keys(*([rows[name] for name in key] for rows in judged.values()))
    spans: dict[str, Spans] = {}
    for (word, rows), numbered in zip(judged.items(), keys, strict=True):
        spans[word] = on_grid(numbered, numbers(rows[-2]), numbers(rows[-1]), grid)
    found = compare_lasting(spans)

    def count(of: str, without: str) -> int:
        return sum(counted for words, counted in found.items() if of in words and without not in words)

    return Matching(
        tested=sum(counted for words, counted in found.items() if words & {"traced", "sure"}),
        only_traced=count("traced", "maybe"),
        only_on_wire=count("sure", "traced"),
        changing=found.get(frozenset(("traced", "maybe")), 0),
    )


def _others(nodes: Column, incomplete: Iterable[int]) -> Bools:
    """Return where a node is known and is not one of the incomplete ones."""
    theirs: Bools = np.isin(numbers(nodes), list(incomplete))
    return valid(nodes) & ~theirs


def proven_links(copies: pa.Table, interests: pa.Table) -> pa.Table:
    """Return copies that show a logical link of their sender: both ends subscribe to exactly one of the copy's topics.

    A copy with several such topics shows one of several links, but not which. ``copies`` are the first and the last
    copy with the same topics on a connection (``condensed.condense_arrivals``). Columns (``PROVEN``): node (the
    sender), peer, topic, conn, log_send_ns, tap_rx_ns, log_recv_ns, and told: whether the peer's subscription began
    ``TOLD`` before the copy was sent. An earlier copy may be meant for an earlier subscription, of a peer that has left
    and joined again since.
    """
    copies = copies.combine_chunks()
    copy, topic = numbers(pc.list_parent_indices(copies["topics"])), pc.list_flatten(copies["topics"])
    offered = copies.take(pa.array(copy))
    shared = np.ones(len(offered), np.bool_)
    since, until = numbers(interests["from_ns"]), numbers(interests["to_ns"])
    sent_ns, read_ns = (
        numbers(pc.coalesce(offered[at], offered["tap_rx_ns"])) for at in ("log_send_ns", "log_recv_ns")
    )
    for side, instant in (("src_node", sent_ns), ("dst_node", read_ns)):
        theirs, asked = common_keys([interests["node"], interests["topic"]], [offered[side], topic])
        shared &= contained(theirs, since, until, asked, instant) & valid(offered[side])
    told = numbers(latest_end(theirs, since, until, asked, sent_ns - TOLD.ns), -FOREVER) > read_ns  # of the receiver
    pair, count = factorise(copy[shared], numbers(topic)[shared])
    one = np.empty(count, np.int64)
    one[pair] = np.flatnonzero(shared)
    alone = one[np.bincount(copy[one], minlength=len(copies))[copy[one]] == 1]
    columns = {name: offered[name] for name in ("conn", "log_send_ns", "tap_rx_ns", "log_recv_ns")}
    columns |= {"node": offered["src_node"], "peer": offered["dst_node"], "topic": topic, "told": pa.array(told)}
    return conform(columns, PROVEN).take(pa.array(alone))


def wire_links(proven: pa.Table, links: pa.Table) -> pa.Table:
    """Return the traced logical links over which the captures saw a copy, in either direction, from the first copy on.

    Only nodes report logical links, and data runs both ways along a link: the wire alone shows only that a link is in
    use, not which of the two nodes has it. ``compare_logical`` counts the copies that no link explains.
    Columns: node, peer, topic, from_ns, to_ns.
    """
    ends = (("node", "peer"), ("peer", "node"))
    views = [[proven[end], proven[opposite], proven["topic"]] for end, opposite in ends]
    *seen, link = common_keys(*views, [links[name] for name in ("node", "peer", "topic")])
    at_ns, from_ns, to_ns = numbers(proven["tap_rx_ns"]), numbers(links["from_ns"]), numbers(links["to_ns"])
    first_ns = numbers(first_since(np.concatenate(seen), np.concatenate((at_ns, at_ns)), link, from_ns), FOREVER)
    used = links.set_column(links.column_names.index("from_ns"), "from_ns", pa.array(first_ns))
    return used.filter(pa.array(first_ns < to_ns))


def compare_logical(proven: pa.Table, links: pa.Table, incomplete: list[int]) -> Outcome:
    """Compare the logical links that the captures show in use with the traced links.

    A copy agrees if its sender had the link when it sent the copy, or if its receiver had the reverse link. The
    receiver must have had it by the time it had read the copy, and must not have ended it so early that the sender had
    heard of the end.

    Args:
        proven: ``proven_links``; only the rows with ``told`` are compared.
        links: the ``links`` table.
        incomplete: nodes whose trace is missing or cut off: their copies are not compared.
    """
    told = proven.filter(proven["told"])
    judged = _others(told["node"], incomplete) & _others(told["peer"], incomplete) & valid(told["log_send_ns"])
    used = told.filter(pa.array(judged))
    sent_ns = numbers(used["log_send_ns"])
    read_ns = numbers(pc.coalesce(used["log_recv_ns"], used["tap_rx_ns"]))
    since, until = numbers(links["from_ns"]), numbers(links["to_ns"])
    agreed = np.zeros(len(used), np.bool_)
    for ends, known_ns, late_ns in ((("node", "peer"), sent_ns, 0), (("peer", "node"), read_ns + SETTLE.ns, TOLD.ns)):
        link, asked = common_keys(
            [links[end] for end in ("node", "peer", "topic")], [used[end] for end in (*ends, "topic")]
        )
        agreed |= numbers(latest_end(link, since, until, asked, known_ns), -FOREVER) >= sent_ns - late_ns
    pair, shown = factorise(*(numbers(used[name]) for name in ("node", "peer", "topic")))
    return Outcome(shown, len(np.unique(pair[~agreed])))
