"""What checks ask of the transits of all packets: a task weighs each bucket of destinations, and all is added up.

``metrics.tables.transits`` says what a transit is.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from math import erf, exp, pi, sqrt
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metrics.asked import Access, find_asked
from metrics.checks.evidence import Jitter, Losses, Outcome, Spread, Timed, Transits
from metrics.checks.network import is_no_chance
from metrics.checks.rule import Absent
from metrics.executors import Executor
from metrics.pcap.walk import Bools, Ints
from metrics.probing import JITTER_SIGMAS
from metrics.stalls import Late, Stalls
from metrics.storage import Place
from metrics.storage.parquet import read_parquet
from metrics.tables.buckets import read_bucket
from metrics.tables.columns import conform, group_rows, numbers, valid
from metrics.tables.hop_evidence import spread_runs
from metrics.tables.moments import Moments
from metrics.tables.runs import SortedRun, SortedRuns, write_run
from metrics.tables.schemas import arrow_schema
from metrics.tables.shares import Share, all_shares, write_share
from metrics.tables.tallies import add_counts
from metrics.tables.transits import TRANSITS, pass_link

Floats = npt.NDArray[np.float64]

KINDS: Final = ("steady", "jittered", "rated")
"""Of packets: of pairs without jitter, with it, and through an access link with a rate."""

APART_SIGMAS: Final = 8.0
"""A packet that left so many standard deviations of the jitter after its predecessor was not held back by it."""

GRACE_NS: Final = 500_000_000
"""A packet that was due so long before the end of the judged span has arrived within it."""

_MS: Final = 1e6
_HUNDRED: Final = 100


@dataclass(frozen=True)
class TransitRules:
    """By what the transits of a run are judged."""

    pairs: Place  # matrices of what was asked of pairs of nodes
    access: Access
    judged_ns: tuple[int, int]
    limit_ms: float  # ``verdict.wire_error_p99_ms``
    stalls: Stalls


class Counts(NamedTuple):
    """Packets of the judged span; they add up over tasks."""

    sent: int
    plain_sent: int  # of pairs without loss, between hosts without access rate
    plain_lost: int
    invented: int  # arrived, and never left
    steady: int  # arrived, by ``KINDS``
    jittered: int
    rated: int
    lossy_sent: int  # of pairs with loss; without those that met a full queue
    lossy_lost: int
    queued: int  # through a link with a rate whose state is known
    wrongly_queued: int  # those dropped, or not dropped, against the queue's length
    uncertain: int  # through a link whose state is not known, since packets reached it with jitter


class _Weighed(NamedTuple):
    """What a task says of its packets."""

    counts: Counts
    expected: tuple[float, float]  # lost packets by the loss asked for, and their variance
    runs: dict[str, SortedRun]  # errors in ms, by ``KINDS``
    late: dict[str, Late]
    bias_ms: Moments  # of deviations from the mean delay asked for, under jitter
    sigmas: Moments  # of deviations / jitter asked for
    jitter_ms: Moments  # asked for, of the same packets


def weigh_transits(
    executor: Executor, rules: TransitRules, transits: Place, pairs: Place, folder: Place, buckets: int
) -> Transits:
    """Judge the transits, and write the table ``pairs``, each bucket by a task.

    Args:
        executor: runs the tasks.
        rules: see there.
        transits: ``TRANSITS``, in buckets.
        pairs: the folder of the table.
        folder: where the tasks write sorted values; all workers see it.
        buckets: how many there are.
    """
    folder.mkdir()
    pairs.mkdir()
    weighed = executor.map(partial(_weigh, rules, transits, pairs, folder), all_shares(buckets))
    counts = add_counts(*(each.counts for each in weighed))
    late = {kind: Late(*add_counts(*(each.late[kind] for each in weighed))) for kind in KINDS}
    spreads = {kind: spread_few(SortedRuns(each.runs[kind] for each in weighed), late[kind]) for kind in KINDS}
    expected, variance = (sum(each.expected[which] for each in weighed) for which in (0, 1))
    reasons = {
        "steady": "every packet has jitter, or passes an access link with a rate",
        "jittered": "the experiment asks for no jitter",
        "rated": "under jitter the state of a queue is not known" if counts.uncertain else "no host has an access rate",
    }
    arrived = {kind: getattr(counts, kind) for kind in KINDS}
    no_packet = Absent("no packet of the workload arrived", due=True)
    timed = {
        kind: Timed(arrived[kind], spreads[kind])
        if arrived[kind]
        else Absent(reasons[kind])
        if counts.uncertain or any(arrived.values())
        else no_packet
        for kind in KINDS
    }
    queues = Outcome(counts.queued, counts.wrongly_queued) if counts.queued else Absent(reasons["rated"])
    return Transits(
        sent=counts.sent,
        limit_ms=rules.limit_ms,
        plain_sent=counts.plain_sent,
        plain_lost=counts.plain_lost,
        invented=counts.invented,
        losses=_losses(counts, expected, variance, read_parquet(pairs)),
        jitter=_jitter(weighed) if arrived["jittered"] else Absent(reasons["jittered"]),
        queues=queues,
        **timed,
    )


def spread_few(runs: SortedRuns, late: Late) -> Spread:
    """The quantiles of errors; the p99 of fewer than a hundred is the second largest: one is more than one in 100."""
    found = spread_runs(runs, late)
    if not 1 < runs.count < _HUNDRED:
        return found
    return Spread(found.samples, found.p50, runs.at_rank(runs.count - 2), found.max, late)


def _losses(counts: Counts, expected: float, variance: float, pairs: pa.Table) -> Losses | Absent:
    """Losses of all pairs together, and of each pair with enough packets."""
    if not counts.lossy_sent:
        return Absent("the experiment asks for no loss")
    sent, lost, asked = numbers(pairs["packets"]), numbers(pairs["lost"]), pairs["asked_loss_ratio"].to_numpy()
    expected_ = sent * asked
    lossy = np.flatnonzero(asked > 0)
    unlikely = lossy[np.abs(lost - expected_)[lossy] > 2 * np.sqrt(expected_[lossy])].tolist()
    wrong = [row for row in unlikely if is_no_chance(lost[row], sent[row], asked[row], len(lossy))]
    worst = max(
        wrong, key=lambda row: abs(lost[row] - sent[row] * asked[row]) / sqrt(sent[row] * asked[row]), default=-1
    )
    name = ""
    if wrong:
        src, dst = (pairs[end][worst].as_py() for end in ("src_node", "dst_node"))
        name = f"node {src} to node {dst}: {lost[worst]:,} of {sent[worst]:,} lost, {asked[worst]:.3%} asked for"
    return Losses(counts.lossy_sent, counts.lossy_lost, expected, variance, len(lossy), len(wrong), name)


def _jitter(weighed: list[_Weighed]) -> Jitter:
    bias = sum((each.bias_ms for each in weighed), Moments())
    sigmas = sum((each.sigmas for each in weighed), Moments())
    asked = sum((each.jitter_ms for each in weighed), Moments())
    return Jitter(bias.count, bias.mean, asked.mean, sigmas.std, sigmas.count)


def clamped_mean_ms(mean_ms: Floats, sigma_ms: Floats) -> Floats:
    """(n,) mean of normal delays of which negative ones are 0: mean Phi(z) + sigma phi(z), z = mean / sigma."""
    z, place = np.unique(mean_ms / sigma_ms, return_inverse=True)
    below = np.array([(1 + erf(each / sqrt(2))) / 2 for each in z])[place]
    density = np.array([exp(-each * each / 2) / sqrt(2 * pi) for each in z])[place]
    return np.asarray(mean_ms * below + sigma_ms * density)


class JudgedTransits:
    """The transits of a bucket by their due instants, with what was asked of them. All arrays are (n,)."""

    def __init__(self, rules: TransitRules, rows: pa.Table) -> None:
        self.rows = rows
        self.rules = rules
        self.src, self.dst = numbers(rows["src_node"]), numbers(rows["dst_node"])
        ends = rows["src_node"], rows["dst_node"]
        self.delay_ms, self.jitter_ms, self.loss = (
            find_asked(rules.pairs, name, *ends).to_numpy(zero_copy_only=False)
            for name in ("delay_ms", "jitter_ms", "loss_ratio")
        )
        self.left, self.came = valid(rows["sent_ns"]), valid(rows["came_ns"])
        self.sent_ns, self.came_ns = numbers(rows["sent_ns"]), numbers(rows["came_ns"])
        self.rated = rules.access.limits(self.src) | rules.access.limits(self.dst)
        self.due_ns, self.full, self.uncertain = self._arrive()

    def _arrive(self) -> tuple[Ints, Bools, Bools]:
        """When packets are due in their hosts, whether they met a full queue, and where that is not known."""
        rows, access = self.rows, self.rules.access
        due_ns, full = numbers(rows["due_ns"]).copy(), _flags(rows, "is_full").copy()
        uncertain = np.zeros(len(rows), np.bool_)
        reached = self.left & (self.came | ~full)
        for node in np.unique(self.dst[access.limits(self.dst)]).tolist():
            own = np.flatnonzero((self.dst == node) & reached)
            if self.jitter_ms[own].any():
                uncertain[own] = True
                continue
            sizes = numbers(rows["wire_bytes"])[own]
            due_ns[own], below = pass_link(due_ns[own], sizes, self.came[own], *access.link(node), lost_later=False)
            full[own] |= below
        return due_ns, full, uncertain

    @cached_property
    def tolerance_ns(self) -> Ints:
        """By how much jitter may move a packet."""
        return np.asarray(JITTER_SIGMAS * self.jitter_ms * _MS).astype(np.int64)

    @cached_property
    def judged(self) -> Bools:
        """Packets that left in the judged span, early enough to arrive in it."""
        since_ns, until_ns = self.rules.judged_ns
        in_time = self.due_ns + 2 * self.tolerance_ns + GRACE_NS <= until_ns
        return np.asarray(self.left & (self.sent_ns >= since_ns) & in_time)

    def arrived(self, kind: str) -> Bools:
        """Those of ``KINDS`` that arrived. Behind a queue in an uncertain state a packet is of none."""
        chosen = {
            "rated": self.rated,
            "jittered": ~self.rated & (self.jitter_ms > 0),
            "steady": ~self.rated & (self.jitter_ms == 0),
        }
        return np.asarray(self.judged & self.came & ~self.uncertain & chosen[kind])

    @cached_property
    def timed(self) -> Bools:
        """Those whose delay is known, and what it should be."""
        return np.asarray(self.judged & self.came & ~self.uncertain & _flags(self.rows, "is_clear"))

    @cached_property
    def deviation_ms(self) -> Floats:
        return np.asarray((self.came_ns - self.due_ns) / _MS)

    @cached_property
    def error_ms(self) -> Floats:
        """Return |deviation|, under jitter what exceeds ``JITTER_SIGMAS`` of it."""
        return np.asarray(np.maximum(np.abs(self.deviation_ms) - JITTER_SIGMAS * self.jitter_ms, 0))

    @cached_property
    def late(self) -> Bools:
        """Those whose error is beyond the limit."""
        limit_ns = round(self.rules.limit_ms * _MS)
        return np.asarray(self.timed & (np.rint(self.error_ms * _MS) > limit_ns))

    @cached_property
    def excused(self) -> Bools:
        """Those of them that stalls of the host explain."""
        limit_ns, latest_ns = round(self.rules.limit_ms * _MS), self.due_ns + self.tolerance_ns
        return np.asarray(self.late & self.rules.stalls.excuse(latest_ns, self.came_ns, limit_ns))

    def of_kind(self, kind: str) -> Bools:
        """Those of ``KINDS`` whose delay is known."""
        return self.arrived(kind) & self.timed

    @property
    def lost(self) -> Bools:
        """Packets that did not arrive, and met no full queue."""
        return np.asarray(self.judged & ~self.came & ~self.full)

    @property
    def invented(self) -> Bools:
        """Packets that never left, and arrived in the judged span, too late for having left before the capture."""
        since_ns, until_ns = self.rules.judged_ns
        longest_ns = (self.delay_ms * _MS).astype(np.int64) + 2 * self.tolerance_ns + GRACE_NS
        late_enough = since_ns + longest_ns <= self.came_ns
        return np.asarray(~self.left & late_enough & (self.came_ns <= until_ns))

    @property
    def alone(self) -> Bools:
        """Packets under jitter that no predecessor held back."""
        apart_ns = numbers(self.rows["apart_ns"], np.iinfo(np.int64).max)
        return np.asarray(self.of_kind("jittered") & (apart_ns > APART_SIGMAS * self.jitter_ms * _MS))


def _flags(rows: pa.Table, name: str) -> Bools:
    found: Bools = pc.fill_null(rows[name], False).to_numpy()
    return found


def _weigh(rules: TransitRules, transits: Place, pairs: Place, folder: Place, share: Share) -> _Weighed:
    rows = read_bucket(transits, TRANSITS, share).sort_by([("due_ns", "ascending"), ("sent_ns", "ascending")])
    found = JudgedTransits(rules, rows)
    write_share({"pairs": _count_pairs(found)}, {"pairs": pairs}, share)
    kinds = {kind: found.of_kind(kind) for kind in KINDS}
    lossy = found.judged & (found.loss > 0) & (found.came | ~found.full)
    alone = found.alone
    jitter_ms, deviation_ms = found.jitter_ms[alone], found.deviation_ms[alone]
    shift_ms = clamped_mean_ms(found.delay_ms[alone], jitter_ms) - found.delay_ms[alone]
    unclamped = found.delay_ms[alone] >= JITTER_SIGMAS * jitter_ms
    return _Weighed(
        counts=_count(found, lossy),
        expected=(float(found.loss[lossy].sum()), float((found.loss * (1 - found.loss))[lossy].sum())),
        runs={kind: write_run(folder / f"{kind}-{share.name}.npy", found.error_ms[own]) for kind, own in kinds.items()},
        late={kind: Late(_sum(found.late & own), _sum(found.excused & own)) for kind, own in kinds.items()},
        bias_ms=Moments.of(deviation_ms - shift_ms),
        sigmas=Moments.of((deviation_ms / jitter_ms)[unclamped]),
        jitter_ms=Moments.of(jitter_ms),
    )


def _count(found: JudgedTransits, lossy: Bools) -> Counts:
    plain = found.judged & (found.loss == 0) & ~found.rated
    queued = found.judged & found.rated & ~found.uncertain
    wrongly = (found.full & found.came) | (found.lost & (found.loss == 0))
    return Counts(
        sent=_sum(found.judged),
        plain_sent=_sum(plain),
        plain_lost=_sum(plain & ~found.came),
        invented=_sum(found.invented),
        **{kind: _sum(found.arrived(kind)) for kind in KINDS},
        lossy_sent=_sum(lossy),
        lossy_lost=_sum(lossy & ~found.came),
        queued=_sum(queued),
        wrongly_queued=_sum(queued & wrongly),
        uncertain=_sum(found.judged & found.uncertain),
    )


def _count_pairs(found: JudgedTransits) -> pa.Table:
    """A bucket of the table ``pairs``: what became of the packets of each directed pair in the judged span."""
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
