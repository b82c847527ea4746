"""Find whether first packets of flows take longer, by matched pairs of probes from ``first_packets.parquet``.

A *slot* is two probes sent 50 us apart in random order: the first packet between two hosts that have exchanged no
packet before, and a *control* between two hosts that have, with nearly the same delays asked for in each direction. A
stall of the machine meets both. If something delays only first packets, there are slots in which only the first packet
is late. If nothing does, it is as likely that only the control is late: the sign test (McNemar's, exact) needs no model
of the stalls. docs/verdict.md has the rule, its reasons and its error rates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from metrics.recorded.probing import MOST_ATTEMPTS, met_stall
from metrics.recorded.stalls import Bools, Stalls
from metrics.rundir.files import FIRST_PACKETS_FILE
from metrics.rundir.parquet import read_recorded
from metrics.storage import Place
from metrics.tables.schemas import schema_of

SCHEMA = schema_of("""
    attempt int, host_first boolean, src int, dst int, at_ns bigint, asked_there_ms double, asked_rtt_ms double,
    rtt_ms double, control_src int, control_dst int, control_at_ns bigint, control_asked_there_ms double,
    control_asked_rtt_ms double, control_rtt_ms double
""")
"""One row per slot; docs/results.md explains the columns."""

LATE_MS = 1.0
"""A probe is late if its RTT error exceeds the controls' median by more than this."""

_Floats = npt.NDArray[np.float64]


class Rule(Struct, frozen=True):
    """The rule by which first packets count as late."""

    share: float  # (only the first late - only the control late) / slots compared must exceed this
    p_value: float  # ... and the sign test's p value must be below this
    apart_ms: float  # largest difference between the delays asked of a slot's two probes, in either direction

    @property
    def fewest(self) -> int:
        """With fewer slots nothing can be found, even if the first packet is late in all of them."""
        return math.floor(-math.log2(self.p_value)) + 1


Name = Literal["pairs", "hosts"]
RULES: dict[Name, Rule] = {"pairs": Rule(0.01, 1e-3, 8.0), "hosts": Rule(0.25, 1e-2, 60.0)}
"""``pairs``: every slot. ``hosts``: slots whose first packet is the first that one of its hosts exchanges with any."""

SUSPICIOUS_P = 0.1
"""An attempt is suspicious if its share exceeds the rule's and its p value is below this: new pairs then decide."""


class SlotTally(Struct, frozen=True):
    """Slots compared, slots with only the first packet late, and slots with only the control late."""

    compared: int
    first_only: int
    control_only: int

    @property
    def share(self) -> float:
        """How much more often first packets are late."""
        return (self.first_only - self.control_only) / max(self.compared, 1)

    @property
    def p_value(self) -> float:
        """The p value of the sign test."""
        return sign_test(self.first_only, self.control_only)

    def is_late(self, share: float, p_value: float) -> bool:
        """Return whether first packets are later by more than the share, and less likely by chance than the p value."""
        return self.first_only - self.control_only > share * self.compared and self.p_value < p_value


class Contrast(Struct, frozen=True):
    """First packets against controls, over the slots of one attempt or of several."""

    name: Name  # the name of its rule
    slots: int  # slots of that kind; slots without a control or with a lost probe give no evidence
    tally: SlotTally  # counts of the slots that give evidence
    calm: SlotTally  # counts of such slots that no stall of the host met
    attempts: int = 1  # number of attempts with these slots; it divides the limit of the p value

    @property
    def rule(self) -> Rule:
        """The rule by which the contrast is judged."""
        return RULES[self.name]

    @property
    def telling(self) -> bool:
        """Whether there are enough slots to find late first packets."""
        return self.tally.compared >= self.rule.fewest

    @property
    def suspicious(self) -> bool:
        """Whether first packets look late."""
        return self.tally.is_late(self.rule.share, SUSPICIOUS_P)

    @property
    def found(self) -> bool:
        """Whether first packets are late by the rule."""
        return self._is_late(self.tally)

    @property
    def explained(self) -> int:
        """The number of slots with only the first packet late that a stall of the host met."""
        return self.tally.first_only - self.calm.first_only

    @property
    def allowed(self) -> int:
        """How many other slots with only the first packet late are allowed by the rule."""
        rest = (SlotTally(self.calm.compared, most + 1, self.calm.control_only) for most in count())
        return next(most for most, tally in enumerate(rest) if self._is_late(tally))

    @property
    def by_stalls(self) -> bool:
        """Whether first packets are found late, but not without the slots that a stall of the host met."""
        return self.found and not self._is_late(self.calm)

    def _is_late(self, tally: SlotTally) -> bool:
        return tally.is_late(self.rule.share, self.rule.p_value / self.attempts)


class IntroductionAttempt(Struct, frozen=True):
    """One introduction of hosts and pairs to each other. Later ones use pairs that no earlier one has used."""

    number: int
    contrasts: tuple[Contrast, ...]


def read(run_dir: Place) -> pa.Table | None:
    """Read the slots of a run, None if none were recorded."""
    path = run_dir / FIRST_PACKETS_FILE
    return read_recorded(path, SCHEMA) if path.exists() else None


def judge(slots: pa.Table, stalls: Stalls) -> list[IntroductionAttempt]:
    """Return every attempt's contrasts, in order.

    Args:
        slots: rows of ``SCHEMA``.
        stalls: the stalls of the run.
    """
    attempts = []
    for number in sorted(slots["attempt"].unique().to_pylist()):
        own = slots.filter(pc.equal(slots["attempt"], number))
        attempts.append(IntroductionAttempt(number, tuple(_contrast(name, own, stalls) for name in RULES)))
    return attempts


def standing(attempts: Sequence[IntroductionAttempt], name: Name) -> Contrast | None:
    """Return the contrast by which a run is judged, None if no attempt had enough slots.

    The last attempt with enough slots clears an earlier suspicion that it does not confirm, if it has at least half as
    many slots as any attempt. If it has fewer, or is suspicious too, the slots of all attempts count together.
    """
    every = [contrast for attempt in attempts for contrast in attempt.contrasts if contrast.name == name]
    telling = [contrast for contrast in every if contrast.telling]
    if not telling:
        return None
    last = telling[-1]
    if not last.suspicious and 2 * last.tally.compared >= max(each.tally.compared for each in telling):
        return last
    tally, calm = (
        SlotTally(*(sum(getattr(each, field) for each in tallies) for field in SlotTally.__struct_fields__))
        for tallies in ([each.tally for each in telling], [each.calm for each in telling])
    )
    return Contrast(name, sum(contrast.slots for contrast in telling), tally, calm, len(telling))


def another_due(attempts: Sequence[IntroductionAttempt]) -> bool:
    """Return whether to continue with new pairs: late first packets count only if they are late again.

    Another attempt is due after the first attempt if first packets are late in it. It is due after the second, which
    leaves no new hosts, if first packets of pairs are late again, and either too few were compared to find this, or
    stalls of the host explain it.
    """
    suspects = {name: found for name in RULES if (found := standing(attempts, name)) is not None and found.suspicious}
    if len(attempts) < MOST_ATTEMPTS - 1:
        return bool(suspects)
    pairs = suspects.get("pairs")
    return len(attempts) < MOST_ATTEMPTS and pairs is not None and (pairs.by_stalls or not pairs.found)


def sign_test(first_only: int, control_only: int) -> float:
    """Return P[Bin(a + b, 1/2) >= a] for a = ``first_only``, b = ``control_only``: exact."""
    trials = first_only + control_only
    term, tail = 1, 0
    for successes in range(trials, first_only - 1, -1):  # term = number of ways to choose as many
        tail += term
        term = term * successes // (trials - successes + 1)
    return tail / (1 << trials)


@dataclass(frozen=True)
class _Probes:
    """One probe of each slot, as columns (n,) of the file."""

    at_ns: npt.NDArray[np.int64]
    there_ms: _Floats
    asked_ms: _Floats
    rtt_ms: _Floats

    def apart_ms(self, others: _Probes) -> _Floats:
        """Return the larger difference between the delays asked there and back."""
        back_ms = (self.asked_ms - self.there_ms) - (others.asked_ms - others.there_ms)
        return np.maximum(np.abs(self.there_ms - others.there_ms), np.abs(back_ms))


def _probes(slots: pa.Table, who: str) -> _Probes:
    """Return the columns of the first packets (``who`` is empty) or the controls; a missing probe has no RTT."""
    names = {"at_ns": 0, "asked_there_ms": 0.0, "asked_rtt_ms": 0.0, "rtt_ms": np.nan}
    return _Probes(*(slots[f"{who}{name}"].fill_null(missing).to_numpy() for name, missing in names.items()))


def _contrast(name: Name, slots: pa.Table, stalls: Stalls) -> Contrast:
    rule = RULES[name]
    firsts, controls = _probes(slots, ""), _probes(slots, "control_")
    answered = ~np.isnan(firsts.rtt_ms) & ~np.isnan(controls.rtt_ms)
    # All controls of the attempt show what is usual: the controls of hosts' first packets may be few.
    usual_ms = (controls.rtt_ms - controls.asked_ms)[answered]
    late_from_ms = LATE_MS + (float(np.median(usual_ms)) if len(usual_ms) else 0.0)
    first_late, control_late = (probes.rtt_ms - probes.asked_ms > late_from_ms for probes in (firsts, controls))
    kind = slots["host_first"].to_numpy() if name == "hosts" else np.ones(len(answered), bool)
    compared = kind & answered & (firsts.apart_ms(controls) <= rule.apart_ms)
    first_met, control_met = (
        met_stall(probes.at_ns, probes.there_ms, probes.asked_ms, stalls) for probes in (firsts, controls)
    )
    calm = compared & ~first_met & ~control_met
    all_slots, calm_slots = (_tally(which, first_late, control_late) for which in (compared, calm))
    return Contrast(name, int(kind.sum()), all_slots, calm_slots)


def _tally(compared: Bools, first_late: Bools, control_late: Bools) -> SlotTally:
    only = (first_late & ~control_late, control_late & ~first_late)
    return SlotTally(int(compared.sum()), *(int((compared & late).sum()) for late in only))
