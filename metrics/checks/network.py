"""Were publications, round trips, packets and first packets what was asked for?"""

from collections.abc import Callable
from functools import wraps

from msgspec.structs import replace

from metrics.checks.evidence import Emulation, Publications, Timed, Transits, WrongLinks
from metrics.checks.rule import Absent, Judgement, Limit, Rules, few_late, none_of
from metrics.intervals import binomial_tails
from metrics.recorded.first_packets import RULES as COMPARED
from metrics.recorded.first_packets import Contrast, Name, standing
from metrics.recorded.offsets import OFFSET_MS
from metrics.recorded.probing import JITTER_SIGMAS, PAIR_FACTOR, PHASES, QUANTILES, Sweep
from metrics.recorded.stalls import Late
from metrics.rundir import INVALID, SUSPECT
from metrics.rundir.files import FIRST_PACKETS_FILE
from metrics.rundir.phases import IDLE_PHASES

RULES = Rules()

PUBLISH_LAG_P99 = Limit(20.0, "ms")
PROBES_LOST = Limit(0.001, "ratio")
JITTER = Limit(JITTER_SIGMAS, "standard deviations")

PAIR_ERROR = Limit(PAIR_FACTOR, "times the limit")
"""The largest error of a pair in a sweep of the idle network, compared with the limit for the 99th percentile."""

PAIR_OFFSET = Limit(OFFSET_MS, "ms")

_FEWEST_HOSTS = 3
"""With two hosts, the only pair is the median of all pairs, so no delay would be found wrong."""

HOST_ERROR = Limit(1.0, "of the limit")
"""The median error of a host's pairs, compared with the limit for the median of all pairs."""

LOSS_P = Limit(0.001, "")
"""The probability below which chance does not explain a number of lost packets."""

LOSS_TOLERANCE = Limit(0.1, "ratio")
"""How far a loss may differ from the loss asked for without a test: the table of losses has 65,536 entries."""

PACKETS_LOST = Limit(0.0001, "ratio")
QUEUE_ERRORS = Limit(0.001, "ratio")

JITTER_BIAS = Limit(0.15, "ms")
"""Limit for the mean: an idle data plane is late by 0.06 ms."""

JITTER_SPREAD = Limit(0.02, "ratio")
JITTER_NOISE = Limit(0.05, "ms")
"""Limit for the standard deviation, besides a share of it: a sound data plane adds this to a small jitter."""

FEWEST_JITTERED = 100

FEWEST_LOSSES = 10
"""Too few lost packets can be found only if so many are expected: with fewer, no loss at all is no surprise."""


@RULES.add("overload", SUSPECT, PUBLISH_LAG_P99, grave=True, things="publications")
def publish_lag(publications: Publications) -> Judgement | Absent:
    """Fails if more than 1 % of the publications came more than {0} later than scheduled.

    A late publication shows an event loop that does not keep up. Publications during a pause of their peer, or in the
    second after it, do not count. Programs of gossipsub-interop count the instants of their script from their own
    start, and print no publications: the lag of theirs is how much later than the warm-up their process was started.

    Late: a publication; scheduled, published.
    """
    lag = publications.lag
    if isinstance(lag, Absent):
        return lag
    detail = f"publications came later than scheduled: p99 {lag.p99:.3g} ms, latest {lag.max:.3g} ms"
    allowed, scheduled = lag.samples // 100, publications.scheduled
    return few_late(PUBLISH_LAG_P99, lag.p99, lag.samples, detail, lag.late, allowed, scheduled)


@RULES.add("certificate", INVALID)
def certificate(emulation: Emulation) -> Judgement:
    """Fails if an emulated run has no ``achieved.parquet``.

    No pair of hosts was probed.
    """
    missing = emulation.sweeps is None
    return none_of(1, int(missing), "", "achieved.parquet is missing: no pair of hosts was probed" * missing)


def _find_sweep(emulation: Emulation, phase: str) -> Sweep | Absent:
    if emulation.sweeps is None:
        return Absent("no pair of hosts was probed", due=True)
    if phase not in emulation.sweeps:
        return Absent(f"the experiment asks for no probes {phase} the workload", due=phase in emulation.asked_sweeps)
    return emulation.sweeps[phase]


for _phase in PHASES:
    _severity = SUSPECT if _phase == "during" else INVALID
    for _name in QUANTILES:

        @RULES.add("certificate", _severity, JITTER, name=f"rtt_error_{_name}_{_phase}", things="probes", floor=0.9)
        def rtt_error(emulation: Emulation, phase: str = _phase, name: str = _name) -> Judgement | Absent:
            """Fails if, before, during or after the workload, more probes are beyond the limit of their pair than the
            percentile XX allows. The limit of a pair is max(``verdict.rtt_error_pXX_ms``, ``rtt_error_pXX_ratio`` x its
            asked RTT). Under jitter, only the part of an error beyond {0} counts. During the workload, a probe may take
            longer by the lengths of the queues of links with a rate, and a probe counts as late only if packets of its
            pair were late, lost or absent. ``worst`` is the percentile of error / limit, ``detail`` has the raw
            milliseconds.

            During the workload the prober waits for a processor, too. So a late probe does not count if the captures
            show that the pair's packets were on time.

            Late: a probe; sent, answered; one of its due instants must lie in a stall, too.
            """
            sweep = _find_sweep(emulation, phase)
            if isinstance(sweep, Absent):
                return sweep
            errors = sweep.errors[name]
            allowed_for = [f"{JITTER} of the jitter asked for"] * sweep.jittered
            allowed_for += ["the lengths of the queues asked for"] * sweep.queued
            beyond = f", beyond {' and '.join(allowed_for)}," if allowed_for else ""
            limit = f"max({errors.limit_ms:g} ms, {errors.limit_ratio:.2%} of the pair's RTT)"
            detail = f"RTT error{beyond} {name} {errors.ms:.3g} ms over {errors.probes:,} probes, limit {limit}"
            if errors.cleared:
                detail += f"; of {errors.cleared:,} late probes the captures show the pair's packets in time"
            detail, allowed = "; ".join((detail, *sweep.repeats)), int((1 - QUANTILES[name]) * errors.probes)
            limit_ = Limit(1.0, "of the limit")
            return few_late(limit_, errors.of_limit, errors.probes, detail, errors.late, allowed, sweep.expected)

    @RULES.add("certificate", SUSPECT, PROBES_LOST, name=f"probes_returned_{_phase}", grave=True, floor=0.9)
    def probes_returned(emulation: Emulation, phase: str = _phase) -> Judgement | Absent:
        """Fails if more than {0} of the probes were lost. Only probes between hosts without a loss asked for count, and
        during the workload only probes that pass no queue that may be full. ``packet_loss`` and ``access_queue`` judge
        the losses of the other probes.

        The emulated network loses no packet unless the experiment asks for loss.
        """
        sweep = _find_sweep(emulation, phase)
        if isinstance(sweep, Absent):
            return sweep
        sent, lost, asked = sweep.sent, sweep.sent - sweep.received, sweep.asked_loss_ratio
        causes = [f"loss was asked for (up to {asked:.2%} per round trip)"] if asked else []
        causes += ["queues may have been full"] if sweep.queued else []
        exposed = f"{sweep.exposed_lost:,} of {sweep.exposed:,} probes lost where {' or '.join(causes)}"
        if sweep.exposed and not sent:
            return Absent(exposed)
        ratio = lost / max(sent, 1)
        parts = [f"{lost:,} of {sent:,} probes did not come back"] if lost else []
        detail = "; ".join([*parts, *([exposed] if sweep.exposed else [])])
        return Judgement(sent, lost if ratio > PROBES_LOST.value else 0, ratio, PROBES_LOST, detail)


for _phase in IDLE_PHASES:

    @RULES.add("certificate", INVALID, PAIR_ERROR, name=f"rtt_error_pairs_{_phase}", things="pairs", floor=0.9)
    def rtt_error_pairs(emulation: Emulation, phase: str = _phase) -> Judgement | Absent:
        """Fails if, in a sweep of the idle network, the error of any pair exceeds {0} for the 99th percentile.

        A percentile over all pairs would let one pair in a hundred have any delay at all.

        Late: a pair; its best probe sent, answered; one of its due instants must lie in a stall, too.
        """
        sweep = _find_sweep(emulation, phase)
        if isinstance(sweep, Absent):
            return sweep
        worst = sweep.worst_pair
        detail = f"largest error {worst.error_ms:.3g} ms of {worst.asked_ms:.4g} ms, {worst.name}"
        return few_late(PAIR_ERROR, worst.of_limit, sweep.errors["p99"].probes, detail, worst.late, 0, sweep.expected)

    @RULES.add("certificate", INVALID, name=f"rtt_error_hosts_{_phase}", things="hosts")
    def rtt_error_hosts(emulation: Emulation, phase: str = _phase) -> Judgement | Absent:
        """Fails if, in such a sweep, the median error of any host's pairs exceeds the limit for the median of all
        pairs.

        If one of 246 hosts is wrong towards all others, it affects less than 1 % of the pairs. With fewer than 3 hosts,
        this check is the same as the check of pairs.

        Late: a host; of each of its pairs the best probe sent, answered; one of its due instants must lie in a stall,
        too. The host is explained if its median is within the limit without the errors that stalls explain.
        """
        sweep = _find_sweep(emulation, phase)
        if isinstance(sweep, Absent):
            return sweep
        worst = sweep.worst_host
        detail = f"largest median {worst.error_ms:.3g} ms, {worst.name}"
        return few_late(HOST_ERROR, worst.of_limit, sweep.hosts, detail, worst.late, 0, emulation.hosts)


@RULES.add("certificate", SUSPECT, PAIR_OFFSET, floor=0.9)
def rtt_offset_pairs(emulation: Emulation) -> Judgement | Absent:
    """Fails if, in both sweeps of the idle network, the RTT error of a pair differs from the median error of all pairs
    by more than {0} in the same direction. If the pairs' errors differ much from each other, the limit is 6 times their
    median absolute deviation.

    A wrong delay of a single pair is small beside the limits of the other checks. A busy machine delays probes at
    random and seldom all probes of a pair in both sweeps.
    """
    offsets = emulation.offsets
    if offsets is None:
        return Absent("there are not two sweeps of the idle network")
    if emulation.hosts < _FEWEST_HOSTS:
        return Absent("two hosts are one pair, and no others are there to compare it with")
    detail = f"largest offset {offsets.worst_ms:.3g} ms, {offsets.name}"
    limit = Limit(offsets.limit_ms, PAIR_OFFSET.unit)
    material = emulation.hosts * (emulation.hosts - 1) // 2
    return Judgement(offsets.pairs, offsets.beyond, abs(offsets.worst_ms), limit, detail, material=material)


_JudgeTransits = Callable[[Transits], Judgement | Absent]


def also_degraded(judge: _JudgeTransits) -> _JudgeTransits:
    """Let a rule also judge, separately, the packets that left while a fault had changed their link; both must pass.

    Among all packets, errors of a fault on some pairs, or in some seconds, would not show.
    """

    @wraps(judge)
    def judge_both(transits: Transits) -> Judgement | Absent:
        plain = judge(transits)
        degraded = Absent("") if transits.degraded is None else judge(transits.degraded)
        if isinstance(degraded, Absent):
            return plain
        degraded = replace(degraded, detail=f"while faults changed links: {degraded.detail or 'as asked for'}")
        return degraded if isinstance(plain, Absent) else _join(plain, degraded)

    return judge_both


def _join(one: Judgement, other: Judgement) -> Judgement:
    """Join two judgements of the same rule. If one failed, the result has its figures, and stalls must explain it."""
    decisive = [each for each in (one, other) if each.failed] or [one, other]
    worst = max(decisive, key=lambda each: each.worst / (each.limit.value or 1.0))
    late = [each.late for each in decisive if each.late is not None]
    return Judgement(
        one.tested + other.tested,
        one.failed + other.failed,
        worst.worst,
        worst.limit,
        "; ".join(each.detail for each in (one, other) if each.detail),
        Late(sum(each.samples for each in late), sum(each.explained for each in late)) if late else None,
        sum(each.allowed for each in decisive),
        sum(each.tested if each.material is None else each.material for each in (one, other)),
    )


@RULES.add("certificate", INVALID, things="packets", floor=0.9)
@also_degraded
def wire_delay(transits: Transits) -> Judgement | Absent:
    """Fails if more than 1 % of the packets without jitter, through no link with a rate, took more than
    ``verdict.wire_error_p99_ms`` longer or shorter than the delay asked for. With fewer than 100 packets, one may.

    The captures have each packet twice, where it left and where it arrived. ``worst`` is the 99th percentile. Packets
    that left while a fault had changed their link are judged separately, in the same way
    ([faults.md](faults.md#what-the-checks-make-of-faults)).

    Late: a packet; due, arrived.
    """
    return _judge_packets(transits.steady, transits.limit_ms)


@RULES.add("certificate", INVALID, things="packets", floor=0.9)
@also_degraded
def wire_delay_jittered(transits: Transits) -> Judgement | Absent:
    """Fails if the same is true for packets with jitter. Their delay asked for is the delay that was drawn for the
    instant at which they entered.

    The delays of a pair are a function of time and of the seed ([below](#jitter)).

    Late: a packet; due, arrived.
    """
    return _judge_packets(transits.jittered, transits.limit_ms)


@RULES.add("certificate", INVALID, things="packets", floor=0.9)
@also_degraded
def wire_delay_overtaken(transits: Transits) -> Judgement | Absent:
    """Fails if the same is true for packets that faults let later packets overtake. Their delay asked for includes
    `reorder_ms`, and what links with a rate add. They are in no other check of delays.

    Which packets are overtaken follows from the seed. Among all packets, few of them would not show.

    Late: a packet; due, arrived.
    """
    return _judge_packets(transits.overtaken, transits.limit_ms)


@RULES.add("certificate", INVALID, things="packets", floor=0.9)
@also_degraded
def access_rate(transits: Transits) -> Judgement | Absent:
    """Fails if the same is true for packets through links with a rate: access links, and links of a graph. Their delay
    asked for includes what these links add: the queues are replayed from the instants at which packets entered them, at
    the rates of those instants. Also fails if, in one direction of a single link with at least 100 packets, more than 5
    % of the packets are beyond the limit.

    The experiment asks for rates, too. A single host of 246 has less than 1 % of the packets.

    Late: a packet; due behind the queue, arrived.
    """
    return _with_links(_judge_packets(transits.rated, transits.limit_ms), transits.wrong_rates)


def _with_links(found: Judgement | Absent, wrong: WrongLinks) -> Judgement | Absent:
    """Let a judgement of all packets fail if single links are wrong."""
    if isinstance(found, Absent) or not wrong.links:
        return found
    detail = f"{found.detail}; {wrong.links:,} links are wrong, first {wrong.worst}".removeprefix("; ")
    return replace(found, failed=found.failed + wrong.links, detail=detail)


def _judge_packets(found: Timed | Absent, limit_ms: float) -> Judgement | Absent:
    if isinstance(found, Absent):
        return found
    errors = found.errors
    detail = f"p50 {errors.p50:.3g} ms, p99 {errors.p99:.3g} ms, largest {errors.max:.3g} ms"
    allowed = max(errors.samples // 100, int(errors.samples > 1))
    return few_late(Limit(limit_ms, "ms"), errors.p99, errors.samples, detail, errors.late, allowed, found.arrived)


@RULES.add("certificate", SUSPECT, QUEUE_ERRORS, grave=True)
@also_degraded
def access_queue(transits: Transits) -> Judgement | Absent:
    """Fails if more than {0} of the packets through links with a rate were dropped although the queue had room, or were
    kept although the queue was full. Also fails if, in one direction of a single link with at least 100 packets, this
    is true for more than 1 % of the packets.

    The experiment asks for lengths of queues, too. The state of a queue before the capture is not known.
    """
    queues = transits.queues
    if isinstance(queues, Absent):
        return queues
    ratio = queues.failed / max(queues.tested, 1)
    failed = queues.failed if ratio > QUEUE_ERRORS.value else 0
    judgement = Judgement(queues.tested, failed, ratio, QUEUE_ERRORS, material=queues.total)
    return _with_links(judgement, transits.wrong_queues)


@RULES.add("certificate", SUSPECT, PACKETS_LOST, grave=True, floor=0.9)
@also_degraded
def packets_arrive(transits: Transits) -> Judgement | Absent:
    """Fails if a packet left its host and never arrived although no loss was asked for, or arrived and never left. A
    packet that faults let arrive twice counts as two: it fails if it arrives only once. Any other packet that arrives
    twice fails, too.

    The captures show this independently of the counts of the data plane. ``worst`` is the share of such packets. A
    share of {0} or less changes no percentile.
    """
    wrong, tested = transits.plain_lost + transits.invented, transits.plain_sent
    if not tested and transits.sent and not transits.invented:
        return Absent("packets may be lost on every path that was used: loss or rates were asked for")
    detail = f"{transits.plain_lost:,} of {tested:,} packets did not arrive, {transits.invented:,} never left"
    ratio = transits.plain_lost / max(tested, 1) + transits.invented / max(transits.sent, 1)
    return Judgement(tested, wrong, ratio, PACKETS_LOST, detail if wrong else "")


@RULES.add("certificate", INVALID, LOSS_P, LOSS_TOLERANCE)
@also_degraded
def packet_loss(transits: Transits) -> Judgement | Absent:
    """Fails if, where loss was asked for, the number of lost packets is less likely than {0} (binomial; one-sided, in
    either direction), even for a loss that differs by {1} from the loss asked for. The same is tested for each pair,
    and for all pairs with the same loss asked for. The probability is then divided by the number of pairs, or of
    different losses. Too few lost packets count only if at least 10 are expected.

    The experiment asks for losses, too.
    """
    losses = transits.losses
    if isinstance(losses, Absent):
        return losses
    asked, found = losses.expected / losses.sent, losses.lost / losses.sent
    wrong = is_no_chance(losses.lost, losses.sent, asked)
    if not (wrong or losses.wrong_pairs or losses.wrong_values) and losses.expected < FEWEST_LOSSES:
        few = f"only {losses.expected:.3g} of {losses.sent:,} packets are expected to be lost"
        return Absent(f"{few}: too few to find a loss that is too small, and {losses.lost:,} are not too many")
    detail = f"{losses.lost:,} of {losses.sent:,} packets were lost ({found:.3%}), {losses.expected:.1f} expected"
    detail += f" ({asked:.3%}); {losses.pairs:,} pairs judged one by one"
    if losses.wrong_pairs:
        detail += f", {losses.wrong_pairs:,} of them wrong, first {losses.worst_pair}"
    if losses.wrong_values:
        detail += f"; {losses.wrong_values:,} of {losses.values:,} losses wrong, first {losses.worst_value}"
    return Judgement(
        losses.sent,
        int(wrong) + losses.wrong_pairs + losses.wrong_values,
        abs(found / asked - 1),
        LOSS_TOLERANCE,
        detail,
    )


def is_no_chance(lost: int, sent: int, asked: float, tests: int = 1) -> bool:
    """Return whether so many lost packets are too unlikely, given the loss asked for and its tolerance.

    Args:
        lost: how many of the packets were lost.
        sent: how many packets there are.
        asked: the probability that each is lost.
        tests: how many such tests are made: the probability is divided by it (Bonferroni).
    """
    tolerance = LOSS_TOLERANCE.value
    few, _ = binomial_tails(lost, sent, asked * (1 - tolerance))
    _, many = binomial_tails(lost, sent, min(asked * (1 + tolerance), 1.0))
    least = min(few, many) if sent * asked >= FEWEST_LOSSES else many
    return least < LOSS_P.value / tests


@RULES.add("certificate", INVALID, JITTER_BIAS, JITTER_SPREAD, JITTER_NOISE)
@also_degraded
def jitter(transits: Transits) -> Judgement | Absent:
    """Fails if, under jitter, the mean of the packets' delays differs by more than {0} from the mean of the delays
    drawn for them, or if the standard deviation of the delays differs from the standard deviation of the delays drawn
    by more than {1} of the latter plus {2}. Delays whose error a stall of the host explains do not count.

    A limit for the error of each packet does not show a small bias. Chance needs no tolerance, since the delays drawn
    are known.
    """
    found = transits.jitter
    if isinstance(found, Absent):
        return found
    if found.packets < FEWEST_JITTERED:
        few = f"the delays of {found.packets:,} packets with jitter are known"
        arrived = 0 if isinstance(transits.jittered, Absent) else transits.jittered.arrived
        return Absent(f"{few}: fewer than {FEWEST_JITTERED} cannot show a bias", due=arrived >= FEWEST_JITTERED)
    allowed_ms = JITTER_NOISE.value + JITTER_SPREAD.value * found.drawn_ms
    # each as a share of what is allowed, so that the worse of the two is the check's value
    beyond = [abs(found.bias_ms) / JITTER_BIAS.value, abs(found.found_ms - found.drawn_ms) / allowed_ms]
    detail = f"mean {found.bias_ms:+.3g} ms from the one drawn, standard deviation {found.found_ms:.4g} ms where "
    detail += f"{found.drawn_ms:.4g} ms was drawn ({found.asked_ms:.3g} ms asked for on average)"
    limit = Limit(1.0, "of what is allowed")
    return Judgement(found.packets, sum(each > 1 for each in beyond), max(beyond), limit, detail)


@RULES.add("certificate", SUSPECT, things="first packets")
def first_packet(emulation: Emulation) -> Judgement | Absent:
    """Fails if first packets between two hosts are late more often than their controls: see [below](#first-packets).

    A network that is set up while it is in use delays first packets.

    Late: a slot with only the first packet late; explained if one of its two probes was due somewhere (sent, at the
    destination, the reply at the source) in a stall. Slots with only the control late are left out by the same rule.
    """
    if emulation.sweeps is not None and emulation.first_packets is None:
        return none_of(1, 1, "", f"{FIRST_PACKETS_FILE} is missing: no first packets were compared")
    return _compare(emulation, "pairs")


@RULES.add("certificate", SUSPECT, things="first packets")
def first_packet_hosts(emulation: Emulation) -> Judgement | Absent:
    """Fails if the same is true for the first packet that each host exchanges with any other host.

    A set-up that happens once per host delays only this packet.

    Late: a slot; as for ``first_packet``.
    """
    return _compare(emulation, "hosts")


def _compare(emulation: Emulation, name: Name) -> Judgement | Absent:
    """Judge the attempts to introduce hosts to each other."""
    attempts, share = emulation.first_packets, Limit(COMPARED[name].share, "ratio")
    if emulation.sweeps is None or attempts is None:
        return Absent("no first packets were compared", due=True)
    decisive = standing(attempts, name)
    those = [
        (attempt.number, contrast)
        for attempt in attempts
        for contrast in attempt.contrasts
        if contrast.name == name and contrast.slots
    ]
    details = "; ".join(f"attempt {number}: {_describe(contrast)}" for number, contrast in those)
    if decisive is None:
        fewest, slots = COMPARED[name].fewest, sum(contrast.slots for _, contrast in those)
        few = f"{slots:,} first packets of so few hosts: fewer than {fewest} comparisons cannot show a fault"
        return Absent("; ".join(part for part in (few, details) if part), due=slots >= 2 * fewest)
    tally = decisive.tally
    failed, late = tally.first_only if decisive.found else 0, Late(tally.first_only, decisive.explained)
    return Judgement(tally.compared, failed, tally.share, share, details, late, decisive.allowed)


def _describe(contrast: Contrast) -> str:
    tally, unpaired = contrast.tally, contrast.slots - contrast.tally.compared
    return (
        f"of {tally.compared:,} first packets and their controls only the first packet was late "
        f"{tally.first_only:,} times, only the control {tally.control_only:,} times (p = {tally.p_value:.2g})"
        + (f", {unpaired:,} without a control or lost" if unpaired else "")
    )
