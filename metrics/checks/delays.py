"""Do traces and captures agree on delays, and is a hop's wire part the delay that was asked for?"""

from __future__ import annotations

from metrics.checks.documents import VerdictLimits
from metrics.checks.evidence import ClockErrors, DelayAgreement, HopErrors, WireErrors
from metrics.checks.rule import Judgement, Limit, Samples, allowed_beyond, at_most, none_of, rule
from metrics.probing import JITTER_SIGMAS
from metrics.rundata import INVALID, SUSPECT

DELAY_AGREEMENT_P99 = Limit(10.0, "ms")

_JITTER = Limit(JITTER_SIGMAS, "standard deviations")
_HOPS = Samples(
    "hops", "a hop", f"`tap_tx_last_ns` + the delay asked for (+ {_JITTER} where there is jitter), `tap_rx_ns`"
)


@rule("a delay by the traces is shorter than the delay by the captures, or negative", INVALID, "consistency")
def delay_order(agreement: DelayAgreement) -> Judgement:
    """The captures see a part of the way that the traces see."""
    failed = agreement.negative + agreement.before_publication
    return none_of(agreement.both, failed, "ms", worst=agreement.most_negative_ms)


@rule(
    "the 99th percentile of their difference exceeds {0}",
    SUSPECT,
    "consistency",
    limits=(DELAY_AGREEMENT_P99,),
    samples=Samples(
        "deliveries",
        "a delivery",
        "the publication, and before the delivery: the time inside the first and the last host, whose shares are not "
        "known",
    ),
)
def delay_agreement(agreement: DelayAgreement) -> Judgement:
    """It is the time inside the first and last host, the hosts' whole share in a delivery's delay."""
    p50, p99 = agreement.difference_ms_p50, agreement.difference_ms_p99
    detail = f"delay by the traces less delay by the captures: median {p50:.3g} ms, p99 {p99:.3g} ms"
    allowed = allowed_beyond(agreement.both)
    return at_most(DELAY_AGREEMENT_P99, p99, agreement.both, detail, agreement.late, allowed)


@rule(
    "the 99th percentile of |wire delay - delay asked for| exceeds `verdict.wire_error_p99_ms`, over hops without "
    "jitter. Of fewer than 100 hops all but the worst must be within it",
    INVALID,
    "certificate",
    samples=_HOPS,
)
def wire_delay(wire: WireErrors, limits: VerdictLimits) -> Judgement:
    """One of 58 hops is more than 1 %, and one stall of the machine is not an error of the emulation."""
    if not wire.steady.tested:
        return _judge_hops(wire.steady, limits, "no hop without retransmission, jitter and access rate")
    return _judge_hops(wire.steady, limits, _figures(wire.steady))


@rule("the same for pairs with jitter, of what exceeds {0}", INVALID, "certificate", limits=(_JITTER,), samples=_HOPS)
def wire_delay_jittered(wire: WireErrors, limits: VerdictLimits) -> Judgement | None:
    """Where jitter was asked for, a single delay has no exact right value."""
    if not wire.jittered.tested:
        return None
    detail = f"{_figures(wire.jittered)} beyond {_JITTER} of the jitter asked for"
    if wire.jitter_sigmas_std is not None:
        detail += f"; the deviations' own spread is {wire.jitter_sigmas_std:.2f} of it"
    return _judge_hops(wire.jittered, limits, detail)


def _figures(errors: HopErrors) -> str:
    return f"p50 {errors.ms_p50:.3g} ms, p99 {errors.ms_p99:.3g} ms, largest {errors.ms_max:.3g} ms"


def _judge_hops(errors: HopErrors, limits: VerdictLimits, detail: str) -> Judgement:
    limit = Limit(limits.wire_error_p99_ms, "ms")
    allowed = max(allowed_beyond(errors.tested), int(errors.tested > 1))
    return at_most(limit, errors.ms_p99, errors.tested, detail, errors.late, allowed)


@rule(
    "(`remote`) frames between two machines took no longer than their clocks are unsure. `worst` is the largest "
    "uncertainty, by which any delay between machines may be wrong ([remote-testbed.md](remote-testbed.md))",
    SUSPECT,
    "certificate",
)
def clocks(clocks: ClockErrors) -> Judgement:
    """Such delays say nothing."""
    worst_ms = clocks.worst_ns / 1e6
    detail = f"delays between machines, and latencies, are known to within {worst_ms:.3g} ms by their clocks"
    if clocks.unresolved:
        detail += f"; {clocks.unresolved:,} of {clocks.tested:,} frames between machines took no longer than that"
    return none_of(clocks.tested, clocks.unresolved, "ms", detail, worst_ms)
