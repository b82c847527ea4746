"""Find what checks, summary and report need of messages, deliveries and copies; each task evaluates one bucket.

Counts are added; quantiles are exact (``metrics.tables.runs``). So no process reads a whole table.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metrics.adversaries import of_nodes
from metrics.changes import PairChanges
from metrics.checks.consistency import DELAY_AGREEMENT_P99
from metrics.checks.evidence import Outcome, Spread
from metrics.checks.network import PUBLISH_LAG_P99
from metrics.executors import Executor
from metrics.measures.measure import Values
from metrics.pcap.walk import Bools, Ints
from metrics.recorded.stalls import Late, Stalls
from metrics.storage import Place
from metrics.storage.parquet import read_parquet
from metrics.tables.buckets import read_bucket
from metrics.tables.columns import Column, find, holds, numbers, valid
from metrics.tables.condensed import TRANSMISSIONS
from metrics.tables.hop_evidence import spread_runs
from metrics.tables.runs import LabelledRun, SortedRun, SortedRuns, find_label, write_labelled_run, write_run
from metrics.tables.shares import Share, written_shares
from metrics.tables.standouts import TYPICAL, Found, find_standouts, merge_standouts
from metrics.tables.tallies import Tally, add_counts, add_outcomes, add_tallies, tally
from metrics.tables.timespans import SECOND_NS
from metrics.totals import CopyCounts, DeliveryCounts, MessageTotals, RowCount, Standouts

Milliseconds = npt.NDArray[np.float64]

_KEPT: Final = {"latency_ms": 1e6, "least_latency_ms": 1.0, "direct_delay_ms": 1.0, "stretch": 1.0, "hops": 1.0}
"""The distributions of ``MessageTotals``, and the divisors of the values of their runs."""

_MESSAGES: Final = ("message_id", "scheduled_ns", "publish_ns", "n_subscribers", "t50_ms")
_COPIES: Final = ("message_id", "src_node", "dst_node", "log_send_ns", "tap_tx_ns", "d_tcp_ns")
_LEAVING: Final = ("tap_tx_ns", "log_send_ns")
"""The order in which copies leave their sender's host; without captures, the order in which they are handed over."""
_FLAGS: Final = ("is_dup", "is_relay", "at_relay")


@dataclass(frozen=True)
class MessageSources:
    """What is evaluated, and what is needed for it."""

    messages: Place  # the table, one part per bucket
    deliveries: Place  # the table, likewise
    transmissions: Place  # ``TRANSMISSIONS``, in as many buckets
    adversaries: frozenset[int]
    zero_ns: int
    stalls: Stalls
    may_wait: bool  # whether publishers' first copies may wait for other nodes
    changes: PairChanges  # changes of pairs of nodes: paused publishers and subscribers are late


class RowCounts(NamedTuple):
    """Rows of the two tables."""

    messages: int
    with_schedule: int  # messages that the schedule asks for
    subscribers: int  # (message, subscriber) pairs by the table ``messages``
    deliveries: int


class Weighed(NamedTuple):
    """What a task finds about its messages, deliveries and copies."""

    counts: RowCounts
    attacked: DeliveryCounts
    repeated: int
    order: Outcome
    late: dict[str, Late]  # late samples of the runs that checks judge
    runs: dict[str, SortedRun]  # the runs of ``_KEPT``, ``lag`` and ``inside``
    tallies: dict[str, Tally[Any]]  # the tallies of ``MessageTotals``
    lag_ms_max: dict[int, float]
    found: Found
    halves: LabelledRun  # t50_ms of the messages that have one


class MessageEvidence(NamedTuple):
    """What is known about messages and deliveries: for checks, and the totals."""

    counts: RowCounts
    lag: Spread  # published - scheduled
    delays: Outcome  # see ``metrics.checks.evidence.Evidence``
    inside: Spread  # likewise
    totals: MessageTotals


def weigh_messages(executor: Executor, sources: MessageSources, folder: Place, buckets: int) -> MessageEvidence:
    """Evaluate the tables ``messages`` and ``deliveries``, one bucket, or a piece of it, per task.

    Args:
        executor: runs the tasks.
        sources: what is evaluated.
        folder: where the tasks write sorted values; all workers see it.
        buckets: how many there are.
    """
    folder.mkdir()
    weighed = executor.map(partial(_weigh, sources, folder), written_shares(sources.messages, buckets))
    runs = {name: SortedRuns(each.runs[name] for each in weighed) for name in (*_KEPT, "lag", "inside")}
    late = {name: Late(*add_counts(*(each.late[name] for each in weighed))) for name in ("lag", "inside")}
    counts = add_counts(*(each.counts for each in weighed))
    lags_ms: dict[int, float] = {}
    for each in weighed:
        lags_ms |= {at: max(lag_ms, lags_ms.get(at, lag_ms)) for at, lag_ms in each.lag_ms_max.items()}
    kept: dict[str, Any] = {name: runs[name].distribution(unit) for name, unit in _KEPT.items()}
    kept |= {name: add_tallies(each.tallies[name] for each in weighed) for name in weighed[0].tallies}
    attacked = add_counts(*(each.attacked for each in weighed))
    found = merge_standouts(each.found for each in weighed)
    typical = find_label((each.halves for each in weighed), TYPICAL)
    kept["standouts"] = Standouts(found.slowest, found.undelivered, typical, found.by_node)
    return MessageEvidence(
        counts=counts,
        lag=spread_runs(runs["lag"], late["lag"], 1e6),
        delays=add_outcomes([each.order for each in weighed]),
        inside=spread_runs(runs["inside"], late["inside"]),
        totals=MessageTotals(
            counts.messages, attacked, sum(each.repeated for each in weighed), lag_ms_max=lags_ms, **kept
        ),
    )


def _weigh(sources: MessageSources, folder: Place, share: Share) -> Weighed:
    part = f"part-{share.name}.parquet"
    messages = read_parquet(sources.messages / part, columns=list(_MESSAGES))
    deliveries = read_parquet(sources.deliveries / part)
    where = of_piece(sources.messages, share)
    copies = read_bucket(sources.transmissions, TRANSMISSIONS, share, [*_COPIES, *_FLAGS], where)
    aside_ms = _waits_ms(copies, deliveries, may_wait=sources.may_wait)
    order, inside_ms, late_inside = compare_delays(sources.stalls, deliveries, aside_ms)
    if sources.changes:
        awake = ~_meets_pause(sources.changes, deliveries, "publish_ns", "delivered_ns", also_at="node")
        _, inside_ms, late_inside = compare_delays(sources.stalls, deliveries.filter(pa.array(awake)), aside_ms[awake])
    awake = ~_meets_pause(sources.changes, messages, "scheduled_ns", "publish_ns")
    due_ns, lag_ns, late = publication_lags(sources.stalls, messages.filter(pa.array(awake)))
    honest = of_nodes(deliveries, "node", sources.adversaries, others=True)
    attacked = of_nodes(deliveries, "node", sources.adversaries)
    unknown = _count_unknown(attacked)
    halves = messages.select(["message_id", "t50_ms"]).drop_null()
    values = {
        "latency_ms": numbers(pc.subtract(honest["delivered_ns"], honest["publish_ns"]).drop_null()),
        "hops": numbers(honest["hops"].drop_null()),
        "lag": lag_ns,
        "inside": inside_ms,
        **{name: honest[name].drop_null().to_numpy() for name in ("least_latency_ms", "direct_delay_ms", "stretch")},
    }
    return Weighed(
        counts=RowCounts(
            len(messages),
            len(messages) - messages["scheduled_ns"].null_count,
            pc.sum(messages["n_subscribers"]).as_py() or 0,
            len(deliveries),
        ),
        attacked=DeliveryCounts(len(attacked), len(attacked) - attacked["delivered_ns"].null_count, unknown),
        repeated=pc.sum(honest["repeats"]).as_py() or 0,
        order=order,
        late={"lag": late, "inside": late_inside},
        runs={name: write_run(folder / f"{name}-{share.name}.npy", each) for name, each in values.items()},
        tallies=_count_deliveries(honest, sources.zero_ns) | _count_copies(copies, messages, sources),
        lag_ms_max=_most_by_second(due_ns, lag_ns, sources.zero_ns),
        found=find_standouts(honest),
        halves=write_labelled_run(
            folder / f"half-{share.name}.npy", halves["t50_ms"].to_numpy(), numbers(halves["message_id"])
        ),
    )


def of_piece(messages: Place, share: Share) -> pc.Expression | None:
    """Return which copies belong to a piece of a bucket: copies of its messages; the first piece also has the rest."""
    siblings = [each for each in written_shares(messages, share.count) if each.number == share.number]
    if len(siblings) == 1:
        return None
    others = [each for each in siblings if each.piece != 0] if share.piece == 0 else [share]
    known = [read_parquet(messages / f"part-{each.name}.parquet", columns=["message_id"]) for each in others]
    named = pc.field("message_id").isin(pa.concat_tables(known)["message_id"].combine_chunks())
    return ~named if share.piece == 0 else named


def _count_deliveries(honest: pa.Table, zero_ns: int) -> dict[str, Tally[Any]]:
    delivered, published = valid(honest["delivered_ns"]), valid(honest["publish_ns"])
    unknown = ~holds(honest["known"])
    seconds = _seconds(honest["publish_ns"], zero_ns)
    return {
        "by_second": tally(DeliveryCounts, seconds[published], delivered[published], unknown[published]),
        "by_topic": tally(DeliveryCounts, numbers(honest["topic"]), delivered, unknown),
        "by_copies": tally(RowCount, numbers(honest["copies"])[delivered & valid(honest["copies"])]),
    }


def _count_unknown(deliveries: pa.Table) -> int:
    return int(np.count_nonzero(~holds(deliveries["known"])))


def _count_copies(copies: pa.Table, messages: pa.Table, sources: MessageSources) -> dict[str, Tally[Any]]:
    """Count the copies that honest nodes received and handled."""
    handled = copies.filter(pc.is_valid(copies["at_relay"]))
    rows = of_nodes(handled, "dst_node", sources.adversaries, others=True)
    publish_ns = messages["publish_ns"].take(find([messages["message_id"]], [rows["message_id"]]))
    flags = [holds(rows[name]) for name in CopyCounts._fields[1:]]
    published, sent = valid(publish_ns), valid(rows["src_node"])
    seconds = _seconds(publish_ns, sources.zero_ns)
    return {
        "copies_by_second": tally(CopyCounts, seconds[published], *(each[published] for each in flags)),
        "copies_by_node": tally(CopyCounts, numbers(rows["dst_node"]), *flags),
        "copies_by_sender": tally(RowCount, numbers(rows["src_node"])[sent]),
    }


def _seconds(instants_ns: Column, zero_ns: int) -> Ints:
    return (numbers(instants_ns) - zero_ns) // SECOND_NS


def _most_by_second(due_ns: Ints, lag_ns: Ints, zero_ns: int) -> dict[int, float]:
    """Return the largest lag of each second, in ms."""
    seconds, place = np.unique((due_ns - zero_ns) // SECOND_NS, return_inverse=True)
    most = np.full(len(seconds), np.iinfo(np.int64).min)
    np.maximum.at(most, place, lag_ns)
    return dict(zip(seconds.tolist(), (most / 1e6).tolist(), strict=True))


def _meets_pause(changes: PairChanges, rows: pa.Table, since: str, until: str, also_at: str | None = None) -> Bools:
    """Return which messages or deliveries met a pause of their publisher, or of another node, (n,).

    Args:
        changes: the changes of pairs of nodes.
        rows: with message_id.
        since: the column with the first instants.
        until: the column with the last instants.
        also_at: the column with the other nodes.
    """
    span_ns = numbers(rows[since], -1), numbers(rows[until], -1)
    met = changes.paused(numbers(rows["message_id"], -1) >> 32, *span_ns)
    return met if also_at is None else met | changes.paused(numbers(rows[also_at], -1), *span_ns)


def publication_lags(stalls: Stalls, messages: pa.Table) -> tuple[Ints, Ints, Late]:
    """Return when messages were to be published, how much later they were (ns), and which were late.

    Args:
        stalls: the stalls of the run.
        messages: scheduled_ns and publish_ns; messages that lack one of them are left out.
    """
    both = messages.select(["scheduled_ns", "publish_ns"]).drop_null()
    due_ns, published_ns = numbers(both["scheduled_ns"]), numbers(both["publish_ns"])
    return due_ns, published_ns - due_ns, stalls.tally(due_ns, published_ns, PUBLISH_LAG_P99.ns)


def compare_delays(stalls: Stalls, rows: pa.Table, aside_ms: Milliseconds) -> tuple[Outcome, Values, Late]:
    """Compare latencies by the logs with those by the captures.

    Args:
        stalls: the stalls of the run.
        rows: the rows of the deliveries.
        aside_ms: for each row, how long after the publication the first copy waited for the network or other nodes.

    Returns:
        The comparison of their order; by how much they differ in ms, for deliveries with both; and the late ones.
    """
    latency_ms = rows["latency_ms"].drop_null().to_numpy()
    begun_ns = pc.add(rows["publish_ns"], pa.array((aside_ms * 1e6).astype(np.int64)))
    inside_ms = pc.subtract(pc.subtract(rows["latency_ms"], rows["wire_latency_ms"]), pa.array(aside_ms))
    spans = pa.table([begun_ns, rows["delivered_ns"], inside_ms], ["begun_ns", "delivered_ns", "inside_ms"])
    spans = spans.filter(pc.is_valid(inside_ms))
    difference_ms = spans["inside_ms"].to_numpy()
    failed = int((difference_ms < 0).sum() + (latency_ms < 0).sum())
    order = Outcome(len(difference_ms), failed, abs(float(difference_ms.min(initial=0.0))))
    return order, difference_ms, _late_inside(stalls, spans)


def _late_inside(stalls: Stalls, rows: pa.Table) -> Late:
    """Count the deliveries that were too long inside the first and the last host, and how many stalls explain.

    The time in the first host begins with the publication, or when the first copy need not wait for others any more.
    The time in the last host ends with the delivery. How the sum divides between them is not known, so a stall counts
    if it lies within the sum, after the begin or before the end.
    """
    begun_ns, delivered_ns = numbers(rows["begun_ns"]), numbers(rows["delivered_ns"])
    inside_ns = (rows["inside_ms"].to_numpy() * 1e6).astype(np.int64)
    first_ns = stalls.covered_ns(begun_ns, begun_ns + inside_ns)
    last_ns = stalls.covered_ns(delivered_ns - inside_ns, delivered_ns)
    stalled_ns = np.minimum(first_ns + last_ns, stalls.covered_ns(begun_ns, delivered_ns))
    late = inside_ns > DELAY_AGREEMENT_P99.ns
    return Late(int(late.sum()), int((late & (inside_ns - stalled_ns <= DELAY_AGREEMENT_P99.ns)).sum()))


def _waits_ms(copies: pa.Table, deliveries: pa.Table, *, may_wait: bool) -> Milliseconds:
    """Return how long reasons outside the publisher's host kept all copies of each delivery from leaving it.

    The wait ends when TCP lets the copy go that was the first to leave. It begins with the first copy that the
    publisher handed over, which may be another copy: a connection that is cut keeps its copy, and a neighbour that
    learns of the message asks for one later. If copies may wait for other nodes, the wait begins with the publication.
    """
    own = copies.filter(pc.equal(pc.shift_right(copies["message_id"], 32), copies["src_node"]))
    handed, left = (own.sort_by([(name, "ascending") for name in names]) for names in (("log_send_ns",), _LEAVING))
    released_ns = pc.add(left["log_send_ns"], pc.fill_null(left["d_tcp_ns"], 0))
    begun_ns = deliveries["publish_ns"] if may_wait else _of_messages(handed, handed["log_send_ns"], deliveries)
    waited_ns = pc.subtract(_of_messages(left, released_ns, deliveries), begun_ns)
    return pc.fill_null(pc.divide(waited_ns.cast(pa.float64()), 1e6), 0.0).to_numpy()  # type: ignore[no-any-return]


def _of_messages(copies: pa.Table, values: Column, deliveries: pa.Table) -> Column:
    """Return for each delivery the value of the first copy of its message."""
    return values.take(find([copies["message_id"]], [deliveries["message_id"]]))
