"""The tasks that make tables of links and connections: what each task reads, and the buckets of its results.

Traces have links by node, captures have them by connection. So one task per share of the nodes makes the tables of the
traces; one task per share of the connections finds what the captures show, and writes it in buckets of nodes; one task
per share of the nodes compares both.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import astuple

from metrics.changes import PairChanges
from metrics.checks.evidence import LinkFrames, Links, Matching
from metrics.executors import Executor
from metrics.pcap.datagrams import PROTO_UDP
from metrics.pcap.schemas import CONNS as CAPTURED
from metrics.pcap.schemas import CONTROLS
from metrics.reported import FRAME, GRAFT, Missing, hide_columns
from metrics.storage import Place
from metrics.storage.parquet import read_parquet
from metrics.tables import agreement, conns, dimensions, interests, links, observed_links
from metrics.tables.buckets import divide, of_nodes, read_bucket
from metrics.tables.columns import conform
from metrics.tables.halts import before_halts, loosen
from metrics.tables.schemas import arrow_schema
from metrics.tables.shares import Rows, Share, all_shares, of_share
from metrics.tables.staging import STARTERS_FILE
from metrics.tables.tallies import add_outcomes
from metrics.tables.timespans import Grid
from metrics.tables.traces import CHANGES
from peer.core.observed_links import ObservedLinks

WIRE_LINKS: Final = arrow_schema("wire_links")


@dataclass(frozen=True)
class LinkSources:
    """What is known about links, from traces and captures."""

    staging: Place
    links: Place  # the table
    physical: Place  # ``physical_links``
    conns: Place  # the table
    settle_ns: int  # ``RunDir.settle_ns``
    span_ns: tuple[int, int]  # the span of the run
    grid: Grid
    incomplete: tuple[int, ...]  # nodes whose trace is missing or cut off
    vanished: tuple[int, ...]  # nodes that crashed silently
    captured: bool
    shown: bool  # whether copies use logical links only
    observer: type[ObservedLinks] | None  # reads links from frames; None = no capture, or no frame reports links
    adversaries: tuple[int, ...]
    missing: Missing  # what the peers do not report

    def observed(self, share: Share) -> tuple[pa.Table, pa.Table]:
        """Return ``observed_links.observe`` of a share of the nodes."""
        schemas = {"observed": observed_links.OBSERVED, "read_ends": observed_links.READ_ENDS}
        links, ends = (self.of_nodes(name, schema, share) for name, schema in schemas.items())
        return links, ends

    def of_nodes(self, name: str, schema: pa.Schema, share: Share) -> pa.Table:
        """Return the rows of a staged table that is in buckets of nodes.

        Args:
            name: the name of the table.
            schema: the schema of its rows.
            share: a share of the nodes.
        """
        return read_bucket(self.staging / name, schema, share)


def build_links(sources: LinkSources, share: Share) -> dict[str, Rows]:
    """Make, for a share of the nodes, ``UPTIMES`` and ``INTERESTS``, and the tables made of them and of the links.

    It also makes ``opposite``: the links in buckets of the nodes at their other ends.
    """
    said = sources.of_nodes("changes", CHANGES, share)
    starters = of_share(read_parquet(sources.staging / STARTERS_FILE), "node", share)
    uptimes = interests.build_uptimes(starters, said)
    subscribed = interests.build_interests(starters, said, sources.settle_ns)
    physical = links.build_physical_links(said, sources.span_ns[1])
    logical = links.build_links(said, physical, sources.span_ns[1])
    return {
        "uptimes": uptimes,
        "interests": subscribed,
        "instances": dimensions.build_instances(uptimes, *sources.span_ns),
        "subscriptions": dimensions.build_subscriptions(subscribed, *sources.span_ns),
        "physical_links": physical,
        "links": logical,
        "opposite": divide(logical, of_nodes(logical["peer"], share.count), share.count),
    }


def build_conns(staging: Place, missing: Missing, share: Share) -> dict[str, Rows]:
    """Make a share of the table ``conns``.

    Args:
        staging: has what was read of the captures.
        missing: what the peers do not report.
        share: a share of the connections.
    """
    captured = read_bucket(staging / "wire" / "conns", CAPTURED, share)
    nodes = read_parquet(staging / "nodes.parquet")
    streams, carried = (_read_part(staging / name, share) for name in ("streams", "carried"))
    subscribed = read_parquet(staging / "interests", columns=["node", "topic"])
    return {"conns": hide_columns(conns.build_conns(captured, nodes, streams, carried, subscribed), missing)}


def _read_part(folder: Place, share: Share) -> pa.Table:
    """Read what the task of the same share wrote of a table."""
    return read_bucket(folder, None, share)


def show_links(sources: LinkSources, share: Share) -> dict[str, Rows]:
    """Find what captures show of a share of the connections, in buckets of nodes.

    ``ends`` are ``agreement.wire_ends``, ``connected`` are ``agreement.wire_connections``, ``proven`` and
    ``proven_opposite`` are ``agreement.proven_links`` by their node and by their peer, ``observed`` and ``read_ends``
    are ``observed_links.observe``.
    """
    ends = agreement.wire_ends(_read_part(sources.staging / "streams", share), _read_part(sources.conns, share))
    arrivals = _read_part(sources.staging / "arrivals", share)
    proven = agreement.proven_links(arrivals, read_parquet(sources.staging / "interests"))
    staged = read_bucket(sources.staging / "wire" / "conns", CAPTURED, share)
    if FRAME not in sources.missing:  # links of Python peers are TCP connections
        staged = staged.filter(pc.not_equal(staged["proto"], PROTO_UDP))
    nodes = read_parquet(sources.staging / "nodes.parquet").combine_chunks()
    by_node = {
        "ends": (ends, "node"),
        "connected": (agreement.wire_connections(staged, nodes), "node"),
        "proven": (proven, "node"),
        "proven_opposite": (proven, "peer"),
    }
    if sources.observer is not None:
        controls = read_bucket(sources.staging / "wire" / "controls", CONTROLS, share)
        observed, read_ends = observed_links.observe(controls, staged, nodes, sources.observer)
        by_node |= {"observed": (observed, "node"), "read_ends": (read_ends, "node")}
    count = share.count
    return {name: divide(rows, of_nodes(rows[end], count), count) for name, (rows, end) in by_node.items()}


def build_sharing(sources: LinkSources, share: Share) -> dict[str, Rows]:
    """Make a share of the nodes of the tables ``sharing`` and ``wire_links``."""
    logical, physical = _read_part(sources.links, share), _read_part(sources.physical, share)
    uptimes = _read_part(sources.staging / "uptimes", share)
    traced = links.build_sharing("trace", logical, physical, uptimes, sources.grid)
    rows = [hide_columns(traced, sources.missing)]
    if sources.captured:
        proven = pa.concat_tables(
            [sources.of_nodes(name, agreement.PROVEN, share) for name in ("proven", "proven_opposite")]
        )
        used, connected = (
            agreement.wire_links(proven, logical),
            sources.of_nodes("connected", agreement.CONNECTED, share),
        )
        shown = links.build_sharing("wire", used, connected, uptimes, sources.grid)
        # Packets show connections, frames on them show logical links.
        rows.append(hide_columns(shown, frozenset({GRAFT}) if FRAME in sources.missing else frozenset()))
    observed = WIRE_LINKS.empty_table()
    if sources.observer is not None:
        seen, ends = sources.observed(share)
        unread = observed_links.unread_nodes(ends)
        rows.append(links.build_sharing("frames", seen, connected, uptimes, sources.grid, unread))
        observed = conform({name: seen[name] for name in WIRE_LINKS.names}, WIRE_LINKS)
    return {"sharing": pa.concat_tables(rows), "wire_links": observed}


def compare_links(executor: Executor, sources: LinkSources, count: int) -> Links:
    """Compare the links of the traces with the links of the captures.

    Args:
        executor: runs the tasks.
        sources: what is known about links.
        count: the number of shares of the nodes.
    """
    found = executor.map(partial(_compare_links, sources), all_shares(count))
    physical, connected = ([astuple(getattr(each, name)) for each in found] for name in ("physical", "connected"))
    logical = [each.logical for each in found if each.logical is not None]
    both = [Matching(*map(sum, zip(*several, strict=True))) for several in (physical, connected)]
    frames = [each.frames for each in found if each.frames is not None]
    return Links(both[0], both[1], add_outcomes(logical) if logical else None, _add_frames(frames) if frames else None)


def _add_frames(several: list[LinkFrames]) -> LinkFrames:
    matching = Matching(*map(sum, zip(*(astuple(each.matching) for each in several), strict=True)))
    return LinkFrames(matching, *map(sum, zip(*(astuple(each)[1:] for each in several), strict=True)))


def _compare_links(sources: LinkSources, share: Share) -> Links:
    incomplete = list(sources.incomplete)
    changes = PairChanges.staged(sources.staging / "pairs")
    ends = loosen(sources.of_nodes("ends", agreement.ENDS, share), changes)
    physical = _read_part(sources.physical, share)
    connected = loosen(sources.of_nodes("connected", agreement.CONNECTED, share), changes)
    matching = agreement.compare_physical(ends, before_halts(physical, changes), incomplete, sources.grid)
    open_ones = agreement.compare_connected(connected, physical, incomplete, list(sources.vanished), sources.grid)
    logical = None
    if sources.shown:
        traced = pa.concat_tables([_read_part(sources.links, share), sources.of_nodes("opposite", links.LINKS, share)])
        proven = sources.of_nodes("proven", agreement.PROVEN, share)
        logical = agreement.compare_logical(proven, traced, incomplete)
    frames = None
    if sources.observer is not None:
        traced = before_halts(_read_part(sources.links, share), changes)
        excluded = [*incomplete, *sources.adversaries]
        observed, ends = sources.observed(share)
        observed = loosen(observed, changes)
        vanished = list(sources.vanished)
        frames = observed_links.compare_observed(observed, ends, traced, excluded, vanished, sources.grid)
    return Links(matching, open_ones, logical, frames)
