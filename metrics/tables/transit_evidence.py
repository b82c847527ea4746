"""Find what checks need of the transits of all packets: each task evaluates a bucket of destinations; sums are added.

``metrics.tables.transits`` defines a transit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from math import sqrt
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from metrics.asked import Access, find_asked
from metrics.changes import PairChanges
from metrics.checks.evidence import Jitter, Losses, Outcome, Spread, Timed, Transits, WrongLinks
from metrics.checks.network import is_no_chance
from metrics.checks.rule import Absent
from metrics.executors import Executor
from metrics.pcap.walk import Bools, Ints
from metrics.recorded.stalls import Late, Stalls
from metrics.storage import Place
from metrics.tables.bottlenecks import Crossed
from metrics.tables.buckets import read_bucket
from metrics.tables.columns import conform, group_rows, numbers, valid
from metrics.tables.hop_evidence import spread_runs
from metrics.tables.moments import Moments
from metrics.tables.runs import SortedRun, SortedRuns, write_run
from metrics.tables.schemas import arrow_schema, schema_of
from metrics.tables.shares import Share, all_shares, write_share
from metrics.tables.tallies import add_counts
from metrics.tables.transits import TRANSITS, pass_link, transmission_ns
from topologies.jitter import TAIL
from topologies.model import DOWN, UP

Floats = npt.NDArray[np.float64]

KINDS: Final = ("steady", "jittered", "rated", "overtaken")
"""Kinds of packets: of pairs without jitter, of pairs with jitter, through a link with a rate, and, whatever else is
true for them, packets that a fault lets later ones overtake."""

GRACE_NS: Final = 500_000_000
"""A packet that was due this long before the end of the judged span has arrived within it."""

_LOSSES: Final = schema_of("src_node int, dst_node int, sent bigint, lost bigint, asked double")
"""By directed pair with loss: packets that met no full queue, the packets among them that were lost, and the mean loss
asked for."""

FEWEST_OF_LINK: Final = 100
"""Packets that a link must have passed to be judged by itself."""

LINK_LATE_RATIO: Final = 0.05
"""The share of a link's packets that may be late. For all links together, one in a hundred may be."""

LINK_QUEUE_RATIO: Final = 0.01
"""The share of a link's packets that may be dropped or kept against its queue."""

_MS: Final = 1e6
_HUNDRED: Final = 100


@dataclass(frozen=True)
class TransitRules:
    """What is needed to judge the transits of a run."""

    pairs: Place  # what was asked of pairs of nodes, and of their access links
    judged_ns: tuple[int, int]
    limit_ms: float  # ``verdict.wire_error_p99_ms``
    stalls: Stalls
    crossed: Crossed


class Counts(NamedTuple):
    """Packets of the judged span; they add up over tasks."""

    sent: int
    plain_sent: int  # packets of pairs without loss, through no link with a rate
    plain_lost: int
    invented: int  # packets that arrived and never left
    steady: int  # packets that arrived, by ``KINDS``
    jittered: int
    rated: int
    overtaken: int
    lossy_sent: int  # packets of pairs with loss, without packets that met a full queue
    lossy_lost: int
    through: int  # packets through a link with a rate
    wrongly_queued: int  # such packets that were dropped, or kept, against the queue's length
    rated_jittered: int  # such packets with jitter


class _Weighed(NamedTuple):
    """What a task finds about its packets."""

    counts: Counts
    expected: tuple[float, float]  # lost packets expected from the loss asked for, and the variance of their number
    runs: dict[str, SortedRun]  # errors in ms, by ``KINDS``
    late: dict[str, Late]
    bias_ms: Moments  # deviations from the delays asked for, under jitter
    drawn_ms: Moments  # the delays asked for of the same packets, less their mean
    found_ms: Moments  # the delays of the same packets, less the same mean
    jitter_ms: Moments  # the jitter asked for, for the same packets
    losses: pa.Table  # ``_LOSSES``
    links: Ints  # (4, 2 n + m) packets of each link with a rate: see ``_by_link``


def weigh_transits(
    executor: Executor, rules: TransitRules, transits: Place, pairs: Place, folder: Place, buckets: int
) -> Transits:
    """Judge the transits, one bucket per task, and write the table ``pairs``.

    Args:
        executor: runs the tasks.
        rules: what is needed to judge the transits.
        transits: ``TRANSITS``, in buckets.
        pairs: the folder of the table.
        folder: where the tasks write sorted values; all workers see it.
        buckets: how many there are.
    """
    folder.mkdir()
    pairs.mkdir()
    found = executor.map(partial(_weigh, rules, transits, pairs, folder), all_shares(buckets))
    plain, *degraded = (_sum_up(rules, list(several)) for several in zip(*found, strict=True))
    return replace(plain, degraded=degraded[0] if degraded else None)


def _sum_up(rules: TransitRules, weighed: list[_Weighed]) -> Transits:
    """Return what the tasks found together."""
    counts = add_counts(*(each.counts for each in weighed))
    late = {kind: Late(*add_counts(*(each.late[kind] for each in weighed))) for kind in KINDS}
    spreads = {kind: spread_few(SortedRuns(each.runs[kind] for each in weighed), late[kind]) for kind in KINDS}
    expected, variance = (sum(each.expected[which] for each in weighed) for which in (0, 1))
    reasons = {
        "steady": "every packet has jitter, or passes a link with a rate",
        "jittered": "every packet with jitter passes a link with a rate"
        if counts.rated_jittered
        else "the experiment asks for no jitter",
        "rated": "no link has a rate",
        "overtaken": "no fault asks for packets that later ones overtake",
    }
    arrived = {kind: getattr(counts, kind) for kind in KINDS}
    no_packet = Absent("no packet of the workload arrived", due=True)
    timed: dict[str, Any] = {
        kind: Timed(arrived[kind], spreads[kind])
        if arrived[kind]
        else Absent(reasons[kind])
        if any(arrived.values())
        else no_packet
        for kind in KINDS
    }
    timed_of, late_of, queued_of, wrong_of = np.sum([each.links for each in weighed], axis=0)
    name = partial(_name_link, rules.crossed, len(timed_of) - len(rules.crossed.bottlenecks))
    queues: Outcome | Absent = Absent(reasons["rated"])
    if counts.through:
        queues = Outcome(counts.through, counts.wrongly_queued, total=counts.through)
    return Transits(
        sent=counts.sent,
        limit_ms=rules.limit_ms,
        plain_sent=counts.plain_sent,
        plain_lost=counts.plain_lost,
        invented=counts.invented,
        losses=judge_losses(counts, expected, variance, pa.concat_tables(each.losses for each in weighed)),
        jitter=_jitter(weighed) if arrived["jittered"] else Absent(reasons["jittered"]),
        queues=queues,
        wrong_rates=find_links(late_of, timed_of, LINK_LATE_RATIO, name),
        wrong_queues=find_links(wrong_of, queued_of, LINK_QUEUE_RATIO, name),
        **timed,
    )


def spread_few(runs: SortedRuns, late: Late) -> Spread:
    """Return the quantiles of errors. With fewer than a hundred, the p99 is the second largest error."""
    found = spread_runs(runs, late)
    if not 1 < runs.count < _HUNDRED:
        return found
    return Spread(found.samples, found.p50, runs.at_rank(runs.count - 2), found.max, late)


def judge_losses(counts: Counts, expected: float, variance: float, pairs: pa.Table) -> Losses | Absent:
    """Judge the losses of all pairs together, of pairs with the same loss asked for, and of each pair (``_LOSSES``).

    Args:
        counts: packets of the judged span.
        expected: lost packets expected from the loss asked for.
        variance: the variance of their number.
        pairs: ``_LOSSES``.
    """
    if not counts.lossy_sent:
        return Absent("the experiment asks for no loss")
    sent, lost, asked = (pairs[name].to_numpy() for name in ("sent", "lost", "asked"))
    expected_ = sent * asked
    unlikely = np.flatnonzero(np.abs(lost - expected_) > 2 * np.sqrt(expected_)).tolist()
    wrong = [row for row in unlikely if is_no_chance(lost[row], sent[row], asked[row], len(pairs))]
    worst = max(
        wrong, key=lambda row: abs(lost[row] - sent[row] * asked[row]) / sqrt(sent[row] * asked[row]), default=-1
    )
    name = ""
    if wrong:
        src, dst = (pairs[end][worst].as_py() for end in ("src_node", "dst_node"))
        name = f"node {src} to node {dst}: {lost[worst]:,} of {sent[worst]:,} lost, {asked[worst]:.3%} asked for"
    values, wrong_values, worst_value = _losses_by_value(sent, lost, asked)
    return Losses(
        counts.lossy_sent,
        counts.lossy_lost,
        expected,
        variance,
        len(pairs),
        len(wrong),
        name,
        values,
        wrong_values,
        worst_value,
    )


def _losses_by_value(sent: Ints, lost: Ints, asked: Floats) -> tuple[int, int, str]:
    """Judge pairs with the same loss asked for together. Return how many losses, and wrong ones, and the worst."""
    values, of_value = np.unique(asked, return_inverse=True)
    sums = [np.bincount(of_value, counts).astype(np.int64).tolist() for counts in (sent, lost)]
    found = list(zip(values.tolist(), *sums, strict=True))
    wrong = [each for each in found if is_no_chance(each[2], each[1], each[0], len(found))]
    text = ""
    if wrong:
        loss, out, gone = max(wrong, key=lambda each: abs(each[2] - each[1] * each[0]) / sqrt(each[1] * each[0]))
        text = f"{gone:,} of {out:,} packets lost where {loss:.3%} was asked for"
    return len(found), len(wrong), text


def find_links(failed: Ints, tested: Ints, share: float, name: Callable[[int], str]) -> WrongLinks:
    """Find the links with more than a share of failed packets.

    Args:
        failed: (n,) failed packets of each link.
        tested: (n,) tested packets of each link; links with fewer than ``FEWEST_OF_LINK`` are not judged.
        share: the share of the packets that may fail.
        name: returns the name of a link for people, by its index.
    """
    wrong = np.flatnonzero((tested >= FEWEST_OF_LINK) & (failed > share * tested)).tolist()
    if not wrong:
        return WrongLinks()
    link = max(wrong, key=lambda at: failed[at] / tested[at])
    return WrongLinks(len(wrong), f"{name(link)}: {failed[link]:,} of {tested[link]:,} packets")


def _name_link(crossed: Crossed, access_links: int, link: int) -> str:
    """Return the name of a link for people, in the order of ``_by_link``."""
    if link >= access_links:
        return crossed.name(link - access_links)
    side, node = divmod(link, access_links // 2)
    return f"node {node} {('up', 'down')[side]}"


def _jitter(weighed: list[_Weighed]) -> Jitter:
    bias, drawn, found, asked = (
        sum((getattr(each, name) for each in weighed), Moments())
        for name in ("bias_ms", "drawn_ms", "found_ms", "jitter_ms")
    )
    return Jitter(bias.count, bias.mean, asked.mean, drawn.std or 0.0, found.std or 0.0)


class JudgedTransits:
    """The transits of a bucket by their due instants, with what was asked of them. All arrays are (n,).

    Args:
        rules: what is needed to judge them.
        rows: ``TRANSITS``.
        degraded: whether to judge the packets that met a link that a fault had changed, or the other packets.
    """

    def __init__(self, rules: TransitRules, rows: pa.Table, *, degraded: bool = False) -> None:
        self.rows = rows
        self.rules = rules
        self.is_degraded = degraded
        self.src, self.dst = numbers(rows["src_node"]), numbers(rows["dst_node"])
        ends = rows["src_node"], rows["dst_node"], rows["sent_ns"]
        self.delay_ms, self.jitter_ms, self.loss = (
            find_asked(rules.pairs, name, *ends).to_numpy(zero_copy_only=False)
            for name in ("delay_ms", "jitter_ms", "loss_ratio")
        )
        self.left, self.came = valid(rows["sent_ns"]), valid(rows["came_ns"])
        self.sent_ns, self.came_ns = numbers(rows["sent_ns"]), numbers(rows["came_ns"])
        self.due_ns, self.full = numbers(rows["due_ns"]).copy(), _flags(rows, "is_full").copy()
        self.access = Access.staged(rules.pairs)
        self.ways = (UP, self.src, self.sent_ns), (DOWN, self.dst, numbers(rows["due_ns"]))
        self.limited = tuple(self.access.rates_mbit(*way) > 0 for way in self.ways)
        self._arrive()

    def _arrive(self) -> None:
        """Pass the access links of the destinations."""
        takes_ns = transmission_ns(numbers(self.rows["wire_bytes"]), self.access.rates_mbit(*self.ways[DOWN]))
        reached = self.left & (self.came | ~self.full)
        for node in np.unique(self.dst[takes_ns > 0]).tolist():
            own, queue_ns = np.flatnonzero((self.dst == node) & reached), self.access.queue_ns(DOWN, node)
            entries = self.due_ns[own], takes_ns[own], self.came[own]
            self.due_ns[own], below = pass_link(*entries, queue_ns, lost_later=False)
            self.full[own] |= below

    @cached_property
    def rated(self) -> Bools:
        """Packets through a link with a rate, and packets that met a queue that was still full from an earlier rate."""
        return np.asarray(self.limited[UP] | self.limited[DOWN] | self.full | _flags(self.rows, "is_through"))

    @property
    def overtaken(self) -> Bools:
        """Packets that a fault lets later ones overtake."""
        return np.asarray(numbers(self.rows["reorder_ns"]) > 0)

    @cached_property
    def judged(self) -> Bools:
        """Packets that left in the judged span, early enough to arrive in it."""
        since_ns, until_ns = self.rules.judged_ns
        in_time = self.due_ns + GRACE_NS <= until_ns
        return np.asarray(self.left & (self.sent_ns >= since_ns) & in_time & self._of_state & ~self._disturbed)

    @property
    def _changes(self) -> PairChanges:
        return self.access.changes

    @cached_property
    def _of_state(self) -> Bools:
        """Packets of links that faults had changed, or had not changed, as ``degraded`` says."""
        altered = self._changes.alters(self.src, self.dst, self.sent_ns)
        for way in self.ways:
            altered |= self.access.alters(*way)
        return np.asarray(altered == self.is_degraded)

    @property
    def _disturbed(self) -> Bools:
        """Packets that met a cut, or the begin or the end of a change of their pair's link."""
        changes, way = self._changes, (self.src, self.dst, self.sent_ns, np.maximum(self.due_ns, self.sent_ns))
        if not changes:
            return np.zeros(len(self.rows), np.bool_)
        delay_ms = find_asked(self.rules.pairs, "delay_ms", self.rows["src_node"], self.rows["dst_node"])
        unsettled = changes.unsettled(*way, delay_ms.to_numpy(zero_copy_only=False))
        return changes.meet(*way, which="cut") | unsettled

    def arrived(self, kind: str) -> Bools:
        """Return the packets of one of ``KINDS`` that arrived."""
        chosen = {
            "overtaken": self.overtaken,
            "rated": self.rated & ~self.overtaken,
            "jittered": ~self.rated & ~self.overtaken & (self.jitter_ms > 0),
            "steady": ~self.rated & ~self.overtaken & (self.jitter_ms == 0),
        }
        return np.asarray(self.judged & self.came & chosen[kind])

    @cached_property
    def timed(self) -> Bools:
        """Packets whose delay is known, and also what it should be."""
        return np.asarray(self.judged & self.came & _flags(self.rows, "is_clear"))

    @cached_property
    def deviation_ms(self) -> Floats:
        """How long after they were due packets came."""
        return np.asarray((self.came_ns - self.due_ns) / _MS)

    @cached_property
    def error_ms(self) -> Floats:
        """Return |deviation|."""
        return np.abs(self.deviation_ms)

    @cached_property
    def late(self) -> Bools:
        """Packets whose error is beyond the limit."""
        limit_ns = round(self.rules.limit_ms * _MS)
        return np.asarray(self.timed & (np.rint(self.error_ms * _MS) > limit_ns))

    @cached_property
    def excused(self) -> Bools:
        """Late packets that stalls of the host explain."""
        limit_ns = round(self.rules.limit_ms * _MS)
        return np.asarray(self.late & self.rules.stalls.excuse(self.due_ns, self.came_ns, limit_ns))

    def of_kind(self, kind: str) -> Bools:
        """Return the packets of one of ``KINDS`` whose delay is known."""
        return self.arrived(kind) & self.timed

    @property
    def lost(self) -> Bools:
        """Packets that did not arrive, and met no full queue."""
        return np.asarray(self.judged & ~self.came & ~self.full)

    @property
    def queued(self) -> Bools:
        """Packets through a link with a rate."""
        return np.asarray(self.judged & self.rated)

    @property
    def wrongly_queued(self) -> Bools:
        """Packets through a link with a rate that were dropped, or kept, against the length of a queue."""
        return np.asarray(self.queued & ((self.full & self.came) | (self.lost & (self.loss == 0))))

    @property
    def invented(self) -> Bools:
        """Packets that never left and arrived in the judged span, too late to have left before the capture began."""
        since_ns, until_ns = self.rules.judged_ns
        longest_ns = ((self.delay_ms + TAIL * self.jitter_ms) * _MS).astype(np.int64) + GRACE_NS
        late_enough = since_ns + longest_ns <= self.came_ns
        return np.asarray(~self.left & late_enough & (self.came_ns <= until_ns) & self._of_state)


def _flags(rows: pa.Table, name: str) -> Bools:
    found: Bools = pc.fill_null(rows[name], False).to_numpy()
    return found


def _weigh(rules: TransitRules, transits: Place, pairs: Place, folder: Place, share: Share) -> list[_Weighed]:
    """Judge the packets of links that no fault had changed, and the other packets, if faults change links."""
    rows = read_bucket(transits, TRANSITS, share).sort_by([("due_ns", "ascending"), ("sent_ns", "ascending")])
    plain = JudgedTransits(rules, rows)
    write_share({"pairs": _count_pairs(plain)}, {"pairs": pairs}, share)
    weighed = [_weigh_some(plain, f"{share.name}", folder)]
    if PairChanges.staged(rules.pairs).degrades:
        weighed.append(_weigh_some(JudgedTransits(rules, rows, degraded=True), f"degraded-{share.name}", folder))
    return weighed


def _weigh_some(found: JudgedTransits, name: str, folder: Place) -> _Weighed:
    kinds = {kind: found.of_kind(kind) for kind in KINDS}
    lossy = found.judged & (found.loss > 0) & (found.came | ~found.full)
    jittered = kinds["jittered"] & ~found.excused
    deviation_ms = found.deviation_ms[jittered]
    drawn_ms = (found.due_ns - found.sent_ns)[jittered] / _MS - found.delay_ms[jittered]
    return _Weighed(
        counts=_count(found, lossy),
        expected=(float(found.loss[lossy].sum()), float((found.loss * (1 - found.loss))[lossy].sum())),
        runs={kind: write_run(folder / f"{kind}-{name}.npy", found.error_ms[own]) for kind, own in kinds.items()},
        late={kind: Late(_sum(found.late & own), _sum(found.excused & own)) for kind, own in kinds.items()},
        bias_ms=Moments.of(deviation_ms),
        drawn_ms=Moments.of(drawn_ms),
        found_ms=Moments.of(drawn_ms + deviation_ms),
        jitter_ms=Moments.of(found.jitter_ms[jittered]),
        losses=_count_losses(found, lossy),
        links=_by_link(found),
    )


def _count_losses(found: JudgedTransits, lossy: Bools) -> pa.Table:
    """Count for each pair with loss the packets that met no full queue (``_LOSSES``)."""
    pair, ends = group_rows(found.rows.filter(pa.array(lossy)), "src_node", "dst_node")
    lost = np.bincount(pair[~found.came[lossy]], minlength=len(ends))
    columns = {name: ends[name] for name in ("src_node", "dst_node")}
    columns |= {"sent": pa.array(np.bincount(pair, minlength=len(ends))), "lost": pa.array(lost)}
    columns["asked"] = pa.array(
        np.round(np.bincount(pair, found.loss[lossy], len(ends)) / np.bincount(pair, minlength=len(ends)), 9)
    )
    return conform(columns, _LOSSES)


def _by_link(found: JudgedTransits) -> Ints:
    """Count the packets of each link with a rate: (4, 2 n + m), access links of nodes up and down, then bottlenecks.

    The four counts are: packets whose delay is known, and the late ones among them; all packets, and the ones among
    them that were dropped, or kept, against the length of a queue.
    """
    rated, sides = found.of_kind("rated"), list(zip((found.src, found.dst), found.limited, strict=True))
    through, nodes = _flags(found.rows, "is_through"), found.access.nodes
    return np.array(
        [
            np.concatenate(
                [
                    *(np.bincount(ends[chosen & limited], minlength=nodes) for ends, limited in sides),
                    found.rules.crossed.count(found.src[chosen & through], found.dst[chosen & through]),
                ]
            )
            for chosen in (rated, rated & found.late, found.queued, found.wrongly_queued)
        ]
    )


def _count(found: JudgedTransits, lossy: Bools) -> Counts:
    plain = found.judged & (found.loss == 0) & ~found.rated
    return Counts(
        sent=_sum(found.judged),
        plain_sent=_sum(plain),
        plain_lost=_sum(plain & ~found.came),
        invented=_sum(found.invented),
        **{kind: _sum(found.arrived(kind)) for kind in KINDS},
        lossy_sent=_sum(lossy),
        lossy_lost=_sum(lossy & ~found.came),
        through=_sum(found.queued),
        wrongly_queued=_sum(found.wrongly_queued),
        rated_jittered=_sum(found.queued & (found.jitter_ms > 0)),
    )


def _count_pairs(found: JudgedTransits) -> pa.Table:
    """Return a bucket of the table ``pairs``: what became of the packets of each directed pair in the judged span."""
    judged = found.rows.filter(pa.array(found.judged))
    pair, ends = group_rows(judged, "src_node", "dst_node")
    timed, count = found.timed[found.judged], len(ends)

    def total(values: Floats | Bools) -> Floats:
        return np.asarray(np.bincount(pair, values[found.judged].astype(np.float64), count), np.float64)

    worst_ms = np.zeros(count)
    np.maximum.at(worst_ms, pair[timed], np.abs(found.deviation_ms[found.judged][timed]))
    n_timed = total(found.timed)
    mean_ms = total(np.where(found.timed, found.deviation_ms, 0)) / np.maximum(n_timed, 1)
    columns = {
        "src_node": ends["src_node"],
        "dst_node": ends["dst_node"],
        "packets": pa.array(np.bincount(pair, minlength=count)),
        "lost": pa.array(total(found.lost).astype(np.int64)),
        "queue_drops": pa.array(total(found.full & ~found.came).astype(np.int64)),
        "late": pa.array(total(found.late).astype(np.int64)),
        "error_ms_mean": pa.array(mean_ms, mask=n_timed == 0),
        "error_ms_max": pa.array(worst_ms, mask=n_timed == 0),
    }
    asked = {"asked_delay_ms": "delay_ms", "asked_jitter_ms": "jitter_ms", "asked_loss_ratio": "loss_ratio"}
    for column, name in asked.items():
        columns[column] = find_asked(found.rules.pairs, name, ends["src_node"], ends["dst_node"])
    return conform(columns, arrow_schema("pairs"))


def _sum(chosen: Bools) -> int:
    return int(np.count_nonzero(chosen))
