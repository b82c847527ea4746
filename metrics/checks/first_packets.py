"""Do flows' first packets take longer? ``metrics.first_packets`` compares them with their controls."""

from __future__ import annotations

from collections.abc import Sequence

from metrics.checks.documents import FirstPackets
from metrics.checks.rule import CheckRule, Judgement, Limit, Samples, none_of, rule
from metrics.first_packets import FILE, LATE_MS, RULES, Attempt, Contrast, Name, standing
from metrics.rundata import SUSPECT
from metrics.stalls import Late

_LATE = Limit(LATE_MS, "ms")
_SLOTS = Samples(
    "first packets",
    "a slot with only the first packet late",
    "explained if one of its two probes was due somewhere (sent, at the destination, the reply at the source) in a "
    "stall; slots with only the control late are left out by the same rule",
)


def _share(name: Name) -> Limit:
    return Limit(RULES[name].share, "ratio")


@rule(
    "first packets between two hosts are late more often than their controls, by more than {0} of the slots and by "
    "more than chance: see [below](#first-packets). Late is a probe whose RTT error is more than {1} above the "
    "controls' median",
    SUSPECT,
    "certificate",
    limits=(_share("pairs"), _LATE),
    samples=_SLOTS,
)
def first_packet(first_packets: FirstPackets) -> Judgement:
    """A network that is set up while it is used delays the first packet between two hosts."""
    if first_packets.attempts is None:
        return none_of(1, 1, "", f"{FILE} is missing: no first packets were compared")
    return _judge(first_packets.attempts, "pairs")


@rule(
    "the same of the first packet that each host exchanges with any other, by more than {0} of the slots",
    SUSPECT,
    "certificate",
    limits=(_share("hosts"),),
    samples=_SLOTS,
)
def first_packet_hosts(first_packets: FirstPackets) -> Judgement | None:
    """What is set up once per host delays only that host's first packet."""
    return None if first_packets.attempts is None else _judge(first_packets.attempts, "hosts")


COMPARED: dict[Name, tuple[CheckRule, str]] = {
    "pairs": (first_packet, "all"),
    "hosts": (first_packet_hosts, "first packets of a host,"),
}
"""By the names of ``metrics.first_packets.RULES``: the check, and which slots it compares."""


def _judge(attempts: Sequence[Attempt], name: Name) -> Judgement:
    decisive, share = standing(attempts, name), _share(name)
    details = [
        f"attempt {attempt.number}: {_words(contrast)}"
        for attempt in attempts
        for contrast in attempt.contrasts
        if contrast.name == name and contrast.slots
    ]
    if decisive is None:
        details.append(f"nothing can be found in fewer than {RULES[name].fewest}")
        return Judgement(0, 0, 0, share, "; ".join(details))
    tally = decisive.tally
    failed = tally.first_only if decisive.found else 0
    late = Late(tally.first_only, decisive.explained)
    return Judgement(tally.compared, failed, tally.share, share, "; ".join(details), late, decisive.allowed)


def _words(contrast: Contrast) -> str:
    tally, unpaired = contrast.tally, contrast.slots - contrast.tally.compared
    return (
        f"of {tally.compared:,} first packets and their controls only the first packet was late "
        f"{tally.first_only:,} times, only the control {tally.control_only:,} times (p = {tally.p_value:.2g})"
        + (f", {unpaired:,} without a control or lost" if unpaired else "")
    )
