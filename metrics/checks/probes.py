"""Was the network what was asked for, by probes of the idle network and during the workload?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from metrics.checks.documents import Probes
from metrics.checks.rule import CheckRule, Judgement, Limit, Samples, allowed_beyond, at_most, none_of, rule
from metrics.probing import JITTER_SIGMAS, QUANTILES
from metrics.rundata import INVALID, SUSPECT

Phase: TypeAlias = Literal["before", "during", "after"]
"""Of the workload."""

PROBES_LOST = Limit(0.001, "ratio")

_JITTER = Limit(JITTER_SIGMAS, "standard deviations")
_OF_LIMIT = Limit(1, "of the limit")


@rule("an emulated run has no `achieved.parquet`", INVALID, "certificate")
def certificate(probes: Probes) -> Judgement | None:
    """No pair of hosts was probed. Where the file is there, the table `checks` does not have this check."""
    if probes.sweeps is not None:
        return None
    return none_of(1, 1, "", "achieved.parquet is missing: no pair of hosts was probed")


def _rtt_error(phase: Phase, quantile: str) -> CheckRule:
    """The quantile of error / limit over the pairs, each pair's limit being max(ms, ratio x its asked RTT)."""

    @rule(
        f"with each pair's limit = max(`verdict.rtt_error_{quantile}_ms`, `rtt_error_{quantile}_ratio` x its asked "
        f"RTT), the {quantile} of error / limit over all pairs exceeds {_OF_LIMIT.value:g}. Of errors under jitter "
        "only what exceeds {0} counts. `detail` has the raw milliseconds",
        SUSPECT if phase == "during" else INVALID,
        "certificate",
        limits=(_JITTER,),
        samples=Samples("probes", "a probe", "sent, answered; one of its due instants must lie in a stall, too"),
        name=f"rtt_error_{quantile}_{phase}",
        row=f"rtt_error_{quantile}_*",
    )
    def judge(probes: Probes) -> Judgement | None:
        """During the workload the prober itself waits for a processor: a sign of load, not an error of the network."""
        sweep = (probes.sweeps or {}).get(phase)
        if sweep is None:
            return None
        errors = sweep.errors[quantile]
        beyond = f", beyond {_JITTER} of the jitter asked for," if sweep.jittered else ""
        limit = f"max({errors.limit_ms:g} ms, {errors.limit_ratio:.2%} of the pair's RTT)"
        detail = f"RTT error{beyond} {quantile} {errors.ms:.3g} ms over {errors.probes:,} probes, limit {limit}"
        detail = "; ".join((detail, *sweep.repeats))
        allowed = allowed_beyond(errors.probes, QUANTILES[quantile])
        return at_most(_OF_LIMIT, errors.of_limit, errors.probes, detail, errors.late, allowed)

    return judge


def _probes_returned(phase: Phase) -> CheckRule:
    @rule(
        "more than {0} of the probes were lost although no loss was asked for",
        SUSPECT,
        "certificate",
        limits=(PROBES_LOST,),
        grave=True,
        name=f"probes_returned_{phase}",
        row="probes_returned_*",
    )
    def judge(probes: Probes) -> Judgement | None:
        """The emulated network loses no packet of its own accord."""
        sweep = (probes.sweeps or {}).get(phase)
        if sweep is None:
            return None
        lost, asked = sweep.sent - sweep.received, probes.asked_loss_ratio
        if asked:
            detail = f"{lost:,} of {sweep.sent:,} probes lost; loss was asked for (up to {asked:.2%} a round trip)"
            return none_of(0, 0, "probes", detail, lost)
        ratio = lost / max(sweep.sent, 1)
        detail = f"{lost:,} of {sweep.sent:,} probes did not come back" if lost else ""
        failed = lost if ratio > PROBES_LOST.value else 0
        return Judgement(sweep.sent, failed, ratio, PROBES_LOST, detail)

    return judge


def _sweep_rules(phase: Phase) -> Iterator[CheckRule]:
    yield from (_rtt_error(phase, quantile) for quantile in QUANTILES)
    yield _probes_returned(phase)


SWEEP_RULES: tuple[CheckRule, ...] = (*_sweep_rules("before"), *_sweep_rules("during"), *_sweep_rules("after"))
"""In the order of the phases."""
