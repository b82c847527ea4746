"""Links as the captures show them, and whether they are the links that the nodes traced."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from metrics.checks.consistency import BROKEN, IDLE, SETTLE, TOLD
from metrics.checks.evidence import Matching, Outcome
from metrics.tables.links import present

_FOREVER = 2**63 - 1


def wire_ends(streams: DataFrame, conns: DataFrame) -> DataFrame:
    """The two ends of every connection over which both nodes said hello, as the taps saw the frames.

    Columns: node, peer, conn, incarnation, and

    * from_ns: the other side's ``Hello`` had reached the node's host;
    * to_ns: the node's ``Bye`` had left its host or the other side's had reached it; without one (the connection
      broke) the connection's last packet;
    * sure_from_ns, sure_to_ns: in between, the node must know the link: from the first frame that it sends after its
      ``Hello``, or when it has had both for a while; no more once a ``Bye`` is inside its host, or after its last frame
      on a connection that broke;
    * maybe_to_ns: from then on it can know it no more; a minute later where the connection broke, since nothing tells
      when a node notices that.

    At an end that sent no ``Bye`` and read none, the connection broke, even if one reached its host: a node whose host
    has vanished no longer knows of the link, whose other side gives it up in order a little later.

    Args:
        streams: ``condensed.condense_streams``.
        conns: the ``conns`` table.
    """
    streams = streams.where(F.col("hello_tx_ns").isNotNull())
    own, other = streams.alias("own"), streams.alias("other")
    same = (F.col("own.conn") == F.col("other.conn")) & (F.col("own.incarnation") == F.col("other.incarnation"))
    ends = own.join(other, same & (F.col("own.direction") != F.col("other.direction")))
    packets = conns.groupBy("conn").agg(
        F.max(F.col("ts_ns") + F.col("duration_ns")).alias("last_ns"), F.count("*").alias("incarnations")
    )
    single = packets.where("incarnations = 1").select(F.col("conn").alias("named"), "last_ns")
    known = ends.join(F.broadcast(single), F.col("own.conn") == F.col("named"), "left")
    return known.where(F.col("other.hello_rx_ns").isNotNull()).select(
        F.col("own.src_node").alias("node"),
        F.col("own.dst_node").alias("peer"),
        F.col("own.conn").alias("conn"),
        F.col("own.incarnation").alias("incarnation"),
        F.col("other.hello_rx_ns").alias("from_ns"),
        *(column.alias(name) for name, column in _bounds().items()),
    )


def _bounds() -> dict[str, Column]:
    broke = F.coalesce("own.bye_tx_ns", "own.bye_log_ns", "other.bye_rx_ns").isNull()
    broke_here = F.coalesce("own.bye_tx_ns", "own.bye_log_ns", "other.bye_read_ns").isNull()
    last_seen = F.coalesce("last_ns", F.greatest("own.last_seen_ns", "other.last_seen_ns"))
    # What a node does on reading a Bye comes after the reading, what it does on sending one after the sending.
    gone = F.least(F.greatest("own.bye_tx_ns", "own.bye_log_ns"), F.col("other.bye_read_ns"))
    last_sign = F.greatest("own.last_send_ns", "other.last_recv_ns")
    return {
        "to_ns": F.when(broke, last_seen).otherwise(F.least("own.bye_tx_ns", "other.bye_rx_ns")),
        "sure_from_ns": F.least("own.first_send_ns", F.greatest("other.hello_read_ns", "own.hello_tx_ns") + IDLE.ns),
        "sure_to_ns": F.when(broke_here, last_sign).otherwise(F.least("own.bye_log_ns", "other.bye_rx_ns")),
        "maybe_to_ns": F.when(broke_here, last_seen + BROKEN.ns).otherwise(
            F.coalesce(gone + SETTLE.ns, F.lit(_FOREVER))
        ),
    }


def compare_physical(
    ends: DataFrame, physical: DataFrame, incomplete: list[int], grid: tuple[int, int, int]
) -> Matching:
    """Physical links at every instant of the grid, by the traces against the wire.

    A (node, neighbour) pair that the wire is sure of must be in the node's trace, and one in the trace must not be
    impossible on the wire. The two bounds differ only while a ``Hello`` or ``Bye`` is inside the node's host.

    Args:
        ends: ``wire_ends``.
        physical: the ``physical_links`` table.
        incomplete: nodes whose trace is missing or cut off: their word is not compared.
        grid: see ``build_sharing``.
    """
    spans = {
        "traced": physical.select("node", "peer", "from_ns", "to_ns"),
        "sure": ends.select("node", "peer", F.col("sure_from_ns").alias("from_ns"), F.col("sure_to_ns").alias("to_ns")),
        "maybe": ends.select("node", "peer", "from_ns", F.col("maybe_to_ns").alias("to_ns")),
    }
    rows = None
    for name, intervals in spans.items():
        whole = intervals.where(~F.col("node").isin(incomplete) & F.col("to_ns").isNotNull())
        marked = present(whole, grid).select("k", "node", "peer", F.lit(name).alias("word"))
        rows = marked if rows is None else rows.unionByName(marked)
    assert rows is not None
    words = rows.groupBy("k", "node", "peer").agg(
        *(F.max(F.col("word") == name).alias(name) for name in spans)  # whether any of them says so
    )
    found = words.agg(
        F.count_if(F.col("traced") | F.col("sure")).alias("tested"),
        F.count_if(F.col("sure") & ~F.col("traced")).alias("only_on_wire"),
        F.count_if(F.col("traced") & ~F.col("maybe")).alias("only_traced"),
        F.count_if(F.col("traced") & F.col("maybe") & ~F.col("sure")).alias("changing"),
    )
    return Matching(**found.collect()[0].asDict())


def proven_links(copies: DataFrame, interests: DataFrame) -> DataFrame:
    """Copies that show a logical link of their sender: both ends subscribe to just one of the copy's topics.

    A copy with several such topics shows that there is one of several links, not which. ``copies`` are the first and
    the last of those with the same topics on a connection (``condensed.condense_copies``).
    Columns: node (the sender), peer, topic, conn, log_send_ns, tap_rx_ns, log_recv_ns.
    """
    instants = ["log_send_ns", "tap_rx_ns", "log_recv_ns"]
    keys = ["conn", "incarnation", "src_node", "dst_node", "topics"]
    offered = copies.select("*", F.explode("topics").alias("topic"))
    for side, at in (("src_node", "log_send_ns"), ("dst_node", "log_recv_ns")):
        own = interests.select(
            F.col("node").alias("who"), F.col("topic").alias("what"), F.col("from_ns").alias("since"), "to_ns"
        )
        instant = F.coalesce(at, "tap_rx_ns")
        subscribed = (F.col("since") <= instant) & (instant < F.col("to_ns"))
        wanted = (F.col("who") == F.col(side)) & (F.col("what") == F.col("topic")) & subscribed
        offered = offered.join(F.broadcast(own), wanted, "left_semi")
    shown = offered.groupBy(*keys, *instants).agg(
        F.count_distinct("topic").alias("shared"), F.min("topic").alias("topic")
    )
    nodes = [F.col("src_node").alias("node"), F.col("dst_node").alias("peer")]
    return shown.where("shared = 1").select(*nodes, "topic", "conn", *instants)


def wire_links(proven: DataFrame, links: DataFrame) -> DataFrame:
    """Those traced logical links over which the captures saw a copy, in either direction, from the first one on.

    A logical link is a node's word, and data runs both ways along it: the wire alone cannot tell whose it is, only that
    it is in use. ``compare_logical`` counts the copies that no link explains.
    Columns: node, peer, topic, from_ns, to_ns.
    """
    ends = (("node", "peer"), ("peer", "node"))
    views = [proven.select(F.col(a).alias("node"), F.col(b).alias("peer"), "topic", "tap_rx_ns") for a, b in ends]
    seen = views[0].unionByName(views[1]).join(links, ["node", "peer", "topic"])
    during = seen.where((F.col("from_ns") <= F.col("tap_rx_ns")) & (F.col("tap_rx_ns") < F.col("to_ns")))
    first = during.groupBy("node", "peer", "topic", "from_ns", "to_ns").agg(F.min("tap_rx_ns").alias("used_ns"))
    return first.select("node", "peer", "topic", F.col("used_ns").alias("from_ns"), "to_ns")


def compare_logical(proven: DataFrame, links: DataFrame, incomplete: list[int]) -> Outcome:
    """Logical links that the captures show in use, against the traced ones.

    A copy agrees if its sender had the link when it sent it, or its receiver had one back: by the time it had read the
    copy, and not given up so long ago that the sender had heard of it.
    """
    whole = ~F.col("node").isin(incomplete) & ~F.col("peer").isin(incomplete)
    used = proven.where(whole & F.col("log_send_ns").isNotNull()).withColumn("copy", F.monotonically_increasing_id())
    used = used.localCheckpoint()  # the numbers stay what they are
    read_ns = F.coalesce("log_recv_ns", "tap_rx_ns")
    words = (("node", "peer", F.col("log_send_ns"), 0), ("peer", "node", read_ns + SETTLE.ns, TOLD.ns))
    agreed = None
    for node, peer, known_ns, late_ns in words:
        word = links.select(
            F.col("node").alias(node), F.col("peer").alias(peer), "topic", F.col("from_ns").alias("since"), "to_ns"
        )
        within = (F.col("since") <= known_ns) & (F.col("log_send_ns") <= F.col("to_ns") + late_ns)
        known = used.join(word, ["node", "peer", "topic"]).where(within).select("copy")
        agreed = known if agreed is None else agreed.unionByName(known)
    assert agreed is not None
    wrong = used.join(agreed, "copy", "left_anti")
    shown = used.agg(F.count_distinct("node", "peer", "topic").alias("tested")).collect()[0]["tested"]
    failed = wrong.agg(F.count_distinct("node", "peer", "topic").alias("failed")).collect()[0]["failed"]
    return Outcome(shown, failed)
