"""Compare the copies that nodes read with their traces: every copy has one event, of the right kind.

A task takes the messages of a bucket, or of a piece of it. Copies and events are counted by account: a message at an
instance of a node. An instance lasts from a join to the next one, since nothing is left of it afterwards.
"""

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.changes import PairChanges
from metrics.checks.consistency import CHURN_MARGIN, SETTLE
from metrics.checks.evidence import Accounts, LateCounts
from metrics.executors import Executor
from metrics.pcap.flows import factorise
from metrics.pcap.walk import Bools, Ints
from metrics.recorded.stalls import Stalls
from metrics.storage import Place
from metrics.storage.parquet import read_parquet
from metrics.tables.buckets import read_bucket
from metrics.tables.columns import Groups, find, is_own, numbers, says, valid
from metrics.tables.condensed import TRANSMISSIONS
from metrics.tables.deliveries import first_deliveries
from metrics.tables.hop_evidence import count_late
from metrics.tables.interests import INTERESTS, UPTIMES, had_interest
from metrics.tables.links import PHYSICAL
from metrics.tables.message_evidence import of_piece
from metrics.tables.published import PUBLISHED
from metrics.tables.shares import Share, written_shares
from metrics.tables.tallies import Tally, add_tallies
from metrics.tables.timespans import FOREVER, common_keys, latest_end
from metrics.tables.traces import FURTHER, TOLD

_KINDS: Final = ("deliver", "relay", "duplicate", "reject")
_LACKING, _EXCESS, _AGAIN, _UNBEGUN, _UNASKED, _UNDELIVERED = (
    "copies were read without an event",
    "events are about a copy that was not read",
    "first copies are traced again",
    "duplicates have no first copy",
    "messages were delivered without a subscription",
    "messages were relayed in spite of a subscription",
)


@dataclass(frozen=True)
class AccountSources:
    """What is compared, and with what."""

    messages: Place  # the table, one part per bucket
    published: Place  # ``PUBLISHED``, likewise
    transmissions: Place  # ``TRANSMISSIONS``, in as many buckets
    told: Place  # ``TOLD``, likewise
    further: Place  # ``FURTHER``, likewise
    interests: Place  # ``INTERESTS``
    uptimes: Place  # ``UPTIMES``
    physical: Place  # ``physical_links``
    silent: tuple[int, ...]  # nodes whose trace is missing, cut off, or without frames: they are not compared
    processing_ns: dict[int, int]  # how long nodes wait on purpose before they handle a frame; absent = no wait
    approximate: bool  # whether a node may rightly deliver messages to whose topics it does not subscribe
    stalls: Stalls
    changes: PairChanges  # changes of pairs of nodes: deliveries of paused nodes come late

    def waits_ns(self, node: Ints) -> Ints:
        """Return how long each of the nodes waits on purpose before it handles a frame."""
        by_node = [self.processing_ns.get(each, 0) for each in range(int(node.max(initial=-1)) + 1)]
        return np.array(by_node, np.int64)[node]


class AccountEvidence(NamedTuple):
    """The result of a task."""

    accounts: Accounts
    handling: Tally[LateCounts]  # of deliveries, by node: from the reading of the first copy to the delivery


def weigh_accounts(executor: Executor, sources: AccountSources, buckets: int) -> AccountEvidence:
    """Compare the copies that nodes read with the events in their traces.

    Args:
        executor: runs the tasks.
        sources: what is compared.
        buckets: how many there are.
    """
    found = executor.map(partial(_weigh, sources), written_shares(sources.messages, buckets))
    deviations: Counter[str] = Counter()
    for each in found:
        deviations.update(each.accounts.deviations)
    tested = sum(each.accounts.tested for each in found)
    return AccountEvidence(Accounts(tested, dict(deviations)), add_tallies(each.handling for each in found))


def _weigh(sources: AccountSources, share: Share) -> AccountEvidence:
    where = of_piece(sources.messages, share)
    names = ["message_id", "src_node", "dst_node", "log_recv_ns"]
    copies = read_bucket(sources.transmissions, TRANSMISSIONS, share, names, where)
    copies = copies.filter(pc.is_valid(copies["log_recv_ns"])).rename_columns(["message_id", "peer", "node", "ts_ns"])
    told = read_bucket(sources.told, TOLD, share, where=where).filter(pc.field("event") != "publish")
    further = read_bucket(sources.further, FURTHER, share, where=where)
    copies, told, further = (_comparable(rows, sources.silent) for rows in (copies, told, further))
    told = told.filter(pa.array(~(is_own(told) & says(told["event"], "deliver"))))
    uptimes = read_parquet(sources.uptimes, schema=UPTIMES)
    events = pa.concat_tables([told.select(FURTHER.names), further])
    tested, deviations = _compare_counts(sources, copies, events, uptimes)
    published = read_bucket(sources.published, PUBLISHED, share, ["message_id", "expression"], where)
    deviations |= _compare_interests(sources, told, published)
    return AccountEvidence(Accounts(tested, deviations), _handling(sources, copies, told))


def _comparable(rows: pa.Table, silent: tuple[int, ...]) -> pa.Table:
    """Return the rows that are of a known message, and of a node whose trace says what it read."""
    known = valid(rows["message_id"], rows["node"]) & ~np.isin(numbers(rows["node"], -1), silent)
    return rows.filter(pa.array(known))


def _compare_counts(
    sources: AccountSources, copies: pa.Table, events: pa.Table, uptimes: pa.Table
) -> tuple[int, dict[str, int]]:
    """Count the accounts, and the copies and events in them that do not match."""
    both = pa.concat_tables([rows.select(["node", "message_id", "ts_ns"]) for rows in (copies, events)])
    node, message = numbers(both["node"]), numbers(both["message_id"])
    account, count = factorise(node, message, number_instances(uptimes, node, numbers(both["ts_ns"])))
    read, told = account[: len(copies)], account[len(copies) :]
    reads = np.bincount(read, minlength=count)
    kinds = {kind: np.bincount(told[says(events["event"], kind)], minlength=count) for kind in _KINDS}
    handled = np.sum(list(kinds.values()), axis=0)
    owed = reads.copy()  # the copies that a node must have handled
    short = handled < reads
    if short.any():
        unsure = _is_unsure(sources, copies.filter(pa.array(short[read])))
        owed -= np.bincount(read[short[read]][unsure], minlength=count)
    firsts = kinds["deliver"] + kinds["relay"]
    owned = np.zeros(count, np.bool_)
    owned[account] = is_own(both)
    again = np.maximum(kinds["deliver"] - 1, 0) + np.maximum(kinds["relay"] - 1, 0)
    return count, {
        _LACKING: int(np.maximum(owed - handled, 0).sum()),
        _EXCESS: int(np.maximum(handled - reads, 0).sum()),
        _AGAIN: int(again.sum()),
        _UNBEGUN: int(((firsts == 0) & (kinds["duplicate"] > 0) & ~owned).sum()),
    }


def number_instances(uptimes: pa.Table, node: Ints, at_ns: Ints) -> Ints:
    """Return how often each node had joined during the run by an instant.

    Args:
        uptimes: ``UPTIMES``.
        node: (n,) the nodes.
        at_ns: (n,) the instants.
    """
    joins = uptimes.filter(pc.field("from_ns") > 0)
    if not len(joins):
        return np.zeros(len(node), np.int64)
    instants, rank = np.unique(np.concatenate((numbers(joins["from_ns"]), at_ns)), return_inverse=True)
    place = np.sort(numbers(joins["node"]) * len(instants) + rank[: len(joins)])
    first = np.searchsorted(place, node * len(instants))
    return np.asarray(np.searchsorted(place, node * len(instants) + rank[len(joins) :], "right") - first, np.int64)


def _is_unsure(sources: AccountSources, copies: pa.Table) -> Bools:
    """Return which copies a node may have ignored: it read them before its link began, or close to the link's end.

    A copy that still waits to be handled when the node leaves is never handled.
    """
    links = read_parquet(sources.physical, schema=PHYSICAL)
    ends = ("node", "peer")
    link, asked = common_keys(*([rows[end] for end in ends] for rows in (links, copies)))
    read_ns = numbers(copies["ts_ns"])
    until_ns = latest_end(link, numbers(links["from_ns"]), numbers(links["to_ns"]), asked, read_ns)
    handled_ns = read_ns + sources.waits_ns(numbers(copies["node"]))
    unsure: Bools = numbers(until_ns, -FOREVER) <= handled_ns + SETTLE.ns
    return unsure


def _compare_interests(sources: AccountSources, told: pa.Table, published: pa.Table) -> dict[str, int]:
    """Count the first copies whose events contradict the node's subscriptions.

    A subscription that begins or ends at about the same instant allows both events. Whether a node satisfies an
    expression does not follow from its subscription to one of the topics.
    """
    told = told.combine_chunks()
    subscribed, maybe = _subscribed(read_parquet(sources.interests, schema=INTERESTS), told)
    delivered = says(told["event"], "deliver")
    expression = published["expression"].take(find([published["message_id"]], [told["message_id"]]))
    unasked = delivered & ~maybe & (not sources.approximate)
    undelivered = ~delivered & subscribed & ~valid(expression)
    return {_UNASKED: int(unasked.sum()), _UNDELIVERED: int(undelivered.sum())}


def _subscribed(interests: pa.Table, told: pa.Table) -> tuple[Bools, Bools]:
    """Return whether the node of each event surely subscribed to one of its topics, and whether it may have."""
    earlier_ns, later_ns = (numbers(told["ts_ns"]) + margin_ns for margin_ns in (-CHURN_MARGIN.ns, CHURN_MARGIN.ns))
    surely = had_interest(interests, told, earlier_ns - 1, later_ns)
    return surely, had_interest(interests, told, later_ns, earlier_ns - 1)


def _handling(sources: AccountSources, copies: pa.Table, told: pa.Table) -> Tally[LateCounts]:
    """Count the deliveries of each node: all, late after the first copy's reading, and explained by stalls."""
    key = ("message_id", "node")
    group, count = factorise(*(numbers(copies[name]) for name in key))
    one = np.empty(count, np.int64)
    one[group] = np.arange(len(group))
    read_ns = Groups(group, count).least(copies["ts_ns"])
    firsts = copies.select(list(key)).take(pa.array(one))
    delivered, _ = first_deliveries(told, [firsts[name] for name in key])
    known = valid(delivered["ts_ns"])
    node = numbers(firsts["node"])[known]
    due_ns = numbers(read_ns)[known] + sources.waits_ns(node)
    came_ns = numbers(delivered["ts_ns"])[known]
    awake = ~sources.changes.paused(node, due_ns, came_ns)
    return count_late(sources.stalls, node[awake], due_ns[awake], came_ns[awake])
