"""Find logical links by the captures alone: by the frames that begin and end their topics (``ObservedLinks``).

Each end of a connection is read at its own host: the node's own frames when they left, other frames when they arrived.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from metrics.checks.consistency import BROKEN, TOLD
from metrics.checks.evidence import LinkFrames
from metrics.rundir import RunDir
from metrics.tables.agreement import compare_ends
from metrics.tables.columns import find, numbers, valid
from metrics.tables.schemas import schema_of
from metrics.tables.timespans import Grid, on_grid
from peer import wire
from peer.core.frames import Bye, Frame, Hello
from peer.core.observed_links import ObservedLinks
from peer.protocols.registry import observe_links

OBSERVED: Final = schema_of("""
    node int, peer int, topic bigint, conn string, from_ns bigint, to_ns bigint, sure_from_ns bigint,
    sure_to_ns bigint, maybe_from_ns bigint, maybe_to_ns bigint
""")
_PAIR: Final = ("node", "peer")
READ_ENDS: Final = schema_of("node int, peer int, is_read boolean")


def observer_of(run: RunDir) -> type[ObservedLinks] | None:
    """Return the class that reads the logical links of a run's nodes from their frames; None = there is none."""
    node = run.overlay[0]
    try:
        overlay = msgspec.json.decode(node.overlay, type=dict[str, Any])
    except msgspec.ValidationError:
        return None
    return observe_links(overlay, node.interests)


def observed_kinds(run: RunDir) -> tuple[int, ...]:
    """Return the kinds of all frames from which links are read; none if they cannot be read."""
    observer = observer_of(run)
    frames: tuple[type[Frame], ...] = () if observer is None else (Hello, Bye, *observer.frames)
    return tuple(frame.kind for frame in frames)


class _Closing(NamedTuple):
    """The end of a connection at a host."""

    at_ns: int  # its first FIN or RST; without one its last packet
    broke: bool  # whether it had neither


def observe(
    controls: pa.Table, conns: pa.Table, nodes: pa.Table, observer: type[ObservedLinks]
) -> tuple[pa.Table, pa.Table]:
    """Return the logical links at all ends of connections, and which ends could be read.

    Columns of the first table (``OBSERVED``): node, peer, topic, conn, from_ns, to_ns, and

    * sure_from_ns, sure_to_ns: in between, the node must know the link: ``TOLD`` after its first frame until ``TOLD``
      before its last one. The end is null if nothing closed the connection: its node may have vanished;
    * maybe_from_ns, maybe_to_ns: the node cannot know the link before or after: by ``TOLD``, or ``BROKEN`` if nothing
      closed the connection.

    Columns of the second table (``READ_ENDS``): node, peer, and is_read: whether the captures have all frames about
    topics.

    Args:
        controls: ``metrics.pcap.schemas.CONTROLS``, of whole connections.
        conns: ``metrics.pcap.schemas.CONNS``, a row per connection and host.
        nodes: node and ip of every node, for ends whose ``Hello`` was not captured.
        observer: reads the frames.
    """
    at_ends = zip(*(conns[name].to_pylist() for name in ("uid", "vantage_host")), strict=True)
    last_ns = pc.add(conns["ts_ns"], conns["duration_ns"])
    closings = zip(conns["closed_ns"].to_pylist(), last_ns.to_pylist(), strict=True)
    closed = {
        end: _Closing(last if at_ns is None else at_ns, at_ns is None)
        for end, (at_ns, last) in zip(at_ends, closings, strict=True)
    }
    by_ip = dict(zip(nodes["ip"].to_pylist(), nodes["node"].to_pylist(), strict=True))
    order = [(name, "ascending") for name in ("uid", "vantage_host", "at_ns", "off")]
    rows: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    for key, frames in groupby(controls.sort_by(order).to_pylist(), lambda row: (row["uid"], row["vantage_host"])):
        end = _End(observer())
        for frame in frames:
            end.take(frame)
        node, peer = (
            by_ip.get(ip) if said is None else said for said, ip in zip(end.nodes, end.addresses, strict=True)
        )
        ends.append({"node": node, "peer": peer, "is_read": end.is_read})
        if end.is_read and key in closed:
            known = {"node": node, "peer": peer, "conn": end.conn}
            rows += [known | {"topic": topic} | bounds for topic, bounds in end.links(closed[key])]
    return pa.Table.from_pylist(rows, OBSERVED), pa.Table.from_pylist(ends, READ_ENDS)


@lru_cache(1 << 14)
def _decode(frame: bytes) -> Frame | None:
    """Return a frame's value; None if a peer would refuse it."""
    found = wire.Decoder().feed(frame)
    return found[0][2] if found else None


class _End:
    """One end of a connection, whose frames come in the order in which its node sent and received them."""

    def __init__(self, observed: ObservedLinks) -> None:
        self.is_read = True
        self.conn = ""
        self.nodes: list[int | None] = [None, None]  # of this end and of the other one, by their ``Hello``
        self.addresses = ["", ""]
        self._observed = observed
        self._begun: dict[int, int] = {}
        self._ended: list[tuple[int, int, int]] = []
        self._bye_ns: int | None = None

    def take(self, row: dict[str, Any]) -> None:
        """Read a row of ``CONTROLS``."""
        own = row["tap"] == "tx"
        self._name(row["conn"], opened=own == (row["direction"] == "orig"))
        if row["kind"] is None:
            self.is_read = False
        elif self._bye_ns is not None:
            return
        elif row["kind"] == Bye.kind:
            self._bye_ns = row["at_ns"]
        elif row["frame"] is None:
            self.is_read = False
        elif isinstance(frame := _decode(row["frame"]), Hello):
            self.nodes[not own] = frame.node
        elif frame is not None:
            self._observed.take(frame, own=own)
            self._follow(row["at_ns"])

    def _name(self, conn: str, *, opened: bool) -> None:
        if not self.conn:
            self.conn = conn
            orig, resp = (address.rpartition(":")[0] for address in conn.split("-"))
            self.addresses = [orig, resp] if opened else [resp, orig]

    def _follow(self, at_ns: int) -> None:
        topics = self._observed.topics
        for topic in self._begun.keys() - topics:
            self._ended.append((topic, self._begun.pop(topic), at_ns))
        for topic in topics - self._begun.keys():
            self._begun[topic] = at_ns

    def links(self, closing: _Closing) -> Iterator[tuple[int, dict[str, int | None]]]:
        """Yield every topic with its bounds (``OBSERVED``)."""
        broke = closing.broke and self._bye_ns is None
        last_ns = closing.at_ns if self._bye_ns is None else min(self._bye_ns, closing.at_ns)
        lasting = [(topic, from_ns, max(last_ns, from_ns)) for topic, from_ns in self._begun.items()]
        for place, (topic, from_ns, to_ns) in enumerate([*self._ended, *lasting]):
            open_end = broke and place >= len(self._ended)
            yield (
                topic,
                {
                    "from_ns": from_ns,
                    "to_ns": to_ns,
                    "sure_from_ns": from_ns + TOLD.ns,
                    "sure_to_ns": None if open_end else to_ns - TOLD.ns,
                    "maybe_from_ns": from_ns - TOLD.ns,
                    "maybe_to_ns": to_ns + (BROKEN if open_end else TOLD).ns,
                },
            )


def unread_nodes(ends: pa.Table) -> list[int]:
    """Return the nodes with an end that could not be read: how many logical links they have is not known."""
    found: list[int] = ends.filter(pc.invert(ends["is_read"]))["node"].drop_null().unique().to_pylist()
    return found


def compare_observed(
    observed: pa.Table, ends: pa.Table, links: pa.Table, excluded: list[int], vanished: list[int], grid: Grid
) -> LinkFrames:
    """Compare logical links at every instant of the grid, by the traces and by the frames on the wire.

    A link that is sure by the frames must be in the node's trace, and a link in the trace must be possible by the
    frames.

    Args:
        observed: ``OBSERVED``.
        ends: ``READ_ENDS``. Links of pairs of nodes with an end that could not be read are not compared.
        links: the ``links`` table.
        excluded: nodes whose links are not compared, nor the links that others have with them.
        vanished: nodes that crashed silently: no packet shows when they stopped to know a link.
        grid: the instants.
    """
    unread = ends.filter(pc.invert(ends["is_read"]))
    traced, known = _without(links, excluded), _without(observed, excluded)
    hidden, shown = (valid(find([unread[it] for it in _PAIR], [rows[it] for it in _PAIR])) for rows in (traced, known))
    passed, traced, known = (
        traced.filter(pa.array(hidden)),
        traced.filter(pa.array(~hidden)),
        known.filter(pa.array(~shown)),
    )
    sure = known.filter(pc.invert(pc.is_in(known["node"], pa.array(vanished, pa.int32()))))
    matching = compare_ends(
        {
            "traced": (traced, "from_ns", "to_ns"),
            "sure": (sure, "sure_from_ns", "sure_to_ns"),
            "maybe": (known, "maybe_from_ns", "maybe_to_ns"),
        },
        (*_PAIR, "topic"),
        [],
        grid,
    )
    _, begin, end = on_grid(numbers(passed["node"]), numbers(passed["from_ns"]), numbers(passed["to_ns"]), grid)
    return LinkFrames(matching, matching.tested + int((end - begin).sum()), len(ends), len(unread))


def _without(rows: pa.Table, excluded: list[int]) -> pa.Table:
    """Return the links between other nodes."""
    theirs = pa.array(excluded, pa.int32())
    return rows.filter(pc.invert(pc.or_(*(pc.is_in(rows[end], theirs) for end in ("node", "peer")))))
