"""Were publications, round trips and first packets what was asked for?"""

from metrics.checks.consistency import JITTER
from metrics.checks.evidence import Emulation, Publications
from metrics.checks.rule import Judgement, Limit, Rules, at_most, none_of
from metrics.first_packets import RULES as COMPARED
from metrics.first_packets import Contrast, Name, standing
from metrics.probing import PHASES, QUANTILES
from metrics.rundir import INVALID, SUSPECT
from metrics.rundir.files import FIRST_PACKETS_FILE
from metrics.stalls import Late

RULES = Rules()

PUBLISH_LAG_P99 = Limit(20.0, "ms")
PROBES_LOST = Limit(0.001, "ratio")


@RULES.add("overload", SUSPECT, PUBLISH_LAG_P99, grave=True, things="publications")
def publish_lag(publications: Publications) -> Judgement:
    """Fails if the 99th percentile of (published - scheduled) exceeds {0}.

    A late publication is an event loop that does not keep up.

    Late: a publication; scheduled, published.
    """
    lag, tested = publications.lag, publications.with_schedule
    detail = f"publications came later than scheduled: p99 {lag.p99:.3g} ms, latest {lag.max:.3g} ms"
    return at_most(PUBLISH_LAG_P99, lag.p99, tested, detail, lag.late, tested // 100)


@RULES.add("certificate", INVALID)
def certificate(emulation: Emulation) -> Judgement | None:
    """Fails if an emulated run has no ``achieved.parquet``.

    No pair of hosts was probed. With the file, the table ``checks`` does not have this check.
    """
    detail = "achieved.parquet is missing: no pair of hosts was probed"
    return none_of(1, 1, "", detail) if emulation.sweeps is None else None


for _phase in PHASES:
    _severity = SUSPECT if _phase == "during" else INVALID
    for _name in QUANTILES:

        @RULES.add("certificate", _severity, JITTER, name=f"rtt_error_{_name}_{_phase}", things="probes")
        def rtt_error(emulation: Emulation, phase: str = _phase, name: str = _name) -> Judgement | None:
            """Fails if, with each pair's limit = max(``verdict.rtt_error_pXX_ms``, ``rtt_error_pXX_ratio`` x its asked
            RTT), the percentile of error / limit over all pairs exceeds 1, before, during or after the workload. Of
            errors under jitter only what exceeds {0} counts. ``detail`` has the raw milliseconds.

            During the workload the prober too waits for a processor.

            Late: a probe; sent, answered; one of its due instants must lie in a stall, too.
            """
            sweep = (emulation.sweeps or {}).get(phase)
            if sweep is None:
                return None
            errors = sweep.errors[name]
            beyond = f", beyond {JITTER} of the jitter asked for," if sweep.jittered else ""
            limit = f"max({errors.limit_ms:g} ms, {errors.limit_ratio:.2%} of the pair's RTT)"
            detail = f"RTT error{beyond} {name} {errors.ms:.3g} ms over {errors.probes:,} probes, limit {limit}"
            detail, allowed = "; ".join((detail, *sweep.repeats)), int((1 - QUANTILES[name]) * errors.probes)
            return at_most(Limit(1.0, "of the limit"), errors.of_limit, errors.probes, detail, errors.late, allowed)

    @RULES.add("certificate", SUSPECT, PROBES_LOST, name=f"probes_returned_{_phase}", grave=True)
    def probes_returned(emulation: Emulation, phase: str = _phase) -> Judgement | None:
        """Fails if more than {0} of the probes were lost although no loss was asked for.

        The emulated network loses no packet of its own accord.
        """
        sweep = (emulation.sweeps or {}).get(phase)
        if sweep is None:
            return None
        sent, lost, asked = sweep.sent, sweep.sent - sweep.received, sweep.asked_loss_ratio
        if asked:
            detail = f"{lost:,} of {sent:,} probes lost; loss was asked for (up to {asked:.2%} per round trip)"
            return none_of(0, 0, "probes", detail, lost)
        ratio = lost / max(sent, 1)
        detail = f"{lost:,} of {sent:,} probes did not come back" if lost else ""
        return Judgement(sent, lost if ratio > PROBES_LOST.value else 0, ratio, PROBES_LOST, detail)


@RULES.add("certificate", SUSPECT, things="first packets")
def first_packet(emulation: Emulation) -> Judgement | None:
    """Fails if first packets between two hosts are late more often than their controls: see [below](#first-packets).

    A network that is set up while it is used delays them.

    Late: a slot with only the first packet late; explained if one of its two probes was due somewhere (sent, at the
    destination, the reply at the source) in a stall; slots with only the control late are left out by the same rule.
    """
    if emulation.sweeps is not None and emulation.first_packets is None:
        return none_of(1, 1, "", f"{FIRST_PACKETS_FILE} is missing: no first packets were compared")
    return _compare(emulation, "pairs")


@RULES.add("certificate", SUSPECT, things="first packets")
def first_packet_hosts(emulation: Emulation) -> Judgement | None:
    """Fails if the same is true of the first packet that each host exchanges with any other.

    What is set up once per host delays only that one.

    Late: a slot; as for ``first_packet``.
    """
    return _compare(emulation, "hosts")


def _compare(emulation: Emulation, name: Name) -> Judgement | None:
    """Judge the attempts; None if none were recorded, or no pair of hosts was probed."""
    attempts, share = emulation.first_packets, Limit(COMPARED[name].share, "ratio")
    if emulation.sweeps is None or attempts is None:
        return None
    decisive = standing(attempts, name)
    details = [
        f"attempt {attempt.number}: {_describe(contrast)}"
        for attempt in attempts
        for contrast in attempt.contrasts
        if contrast.name == name and contrast.slots
    ]
    if decisive is None:
        details.append(f"fewer than {COMPARED[name].fewest} comparisons cannot show a fault")
        return Judgement(0, 0, 0, share, "; ".join(details))
    tally = decisive.tally
    failed, late = tally.first_only if decisive.found else 0, Late(tally.first_only, decisive.explained)
    return Judgement(tally.compared, failed, tally.share, share, "; ".join(details), late, decisive.allowed)


def _describe(contrast: Contrast) -> str:
    tally, unpaired = contrast.tally, contrast.slots - contrast.tally.compared
    return (
        f"of {tally.compared:,} first packets and their controls only the first packet was late "
        f"{tally.first_only:,} times, only the control {tally.control_only:,} times (p = {tally.p_value:.2g})"
        + (f", {unpaired:,} without a control or lost" if unpaired else "")
    )
