"""Do flows' first packets take longer? Judged by matched pairs of probes, from ``first_packets.parquet``.

A *slot* is two probes sent 50 us apart in random order: the first packet between two hosts that have exchanged none
before, and a *control* between two hosts that have, with nearly the same delays asked in each direction. A stall of the
machine meets both alike; what delays only first packets shows as slots of which only the first packet is late. Where
nothing delays first packets, it is as likely that only the control is late: the sign test (McNemar's, exact) needs no
model of the stalls. docs/verdict.md has the rule, its reasons and its error rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from metrics.probing import Explain, due_in_stall

FILE = "first_packets.parquet"
SCHEMA = pa.schema(
    [
        ("attempt", pa.int32()),
        ("host_first", pa.bool_()),
        ("src", pa.int32()),
        ("dst", pa.int32()),
        ("at_ns", pa.int64()),
        ("asked_there_ms", pa.float64()),
        ("asked_rtt_ms", pa.float64()),
        ("rtt_ms", pa.float64()),
        ("control_src", pa.int32()),
        ("control_dst", pa.int32()),
        ("control_at_ns", pa.int64()),
        ("control_asked_there_ms", pa.float64()),
        ("control_asked_rtt_ms", pa.float64()),
        ("control_rtt_ms", pa.float64()),
    ]
)
"""A row per slot; docs/results.md explains the columns."""

LATE_MS = 1.0
"""A probe is late when its RTT error exceeds the controls' median by more than this."""

MOST_ATTEMPTS = 3

_Mask = npt.NDArray[np.bool_]
_Floats = npt.NDArray[np.float64]


class Rule(Struct, frozen=True):
    """When a contrast is found to be a fault.

    Attributes:
        share: (only the first late - only the control late) / slots compared must exceed this ...
        p_value: ... and the sign test's p value must be below this.
        apart_ms: largest difference between the delays asked of a slot's two probes, in either direction.
    """

    share: float
    p_value: float
    apart_ms: float


Name = Literal["pairs", "hosts"]
RULES: dict[Name, Rule] = {"pairs": Rule(0.01, 1e-3, 8.0), "hosts": Rule(0.25, 1e-2, 60.0)}
"""``pairs``: every slot. ``hosts``: slots whose first packet is the first that one of its hosts exchanges with any."""


class Contrast(Struct, frozen=True):
    """First packets against controls, over the slots of one attempt.

    Attributes:
        name: of its rule.
        slots: of that kind; those without a control or with a lost probe give no evidence.
        compared: slots that give evidence.
        first_only, control_only: of these, how many had only one late probe.
        p_value: of the sign test over these two.
        late: late probes among the compared slots.
        explained: of these, how many a stall of the host explains.
        found: whether the rule calls it a fault.
        telling: whether there are enough slots for a fault to be found.
        by_stalls: found, but not without the slots that a stall of the host met.
    """

    name: Name
    slots: int
    compared: int
    first_only: int
    control_only: int
    p_value: float
    late: int
    explained: int
    found: bool
    telling: bool
    by_stalls: bool

    @property
    def share(self) -> float:
        """By how much more often first packets are late."""
        return (self.first_only - self.control_only) / max(self.compared, 1)


class Attempt(Struct, frozen=True):
    """One introduction of hosts and pairs to each other. Later ones use pairs that no earlier one has used."""

    number: int
    contrasts: tuple[Contrast, ...]


def read(run_dir: Path) -> pa.Table | None:
    """The slots of a run, None where none were recorded."""
    path = run_dir / FILE
    return pq.read_table(path) if path.exists() else None


def judge(slots: pa.Table, explain: Explain) -> list[Attempt]:
    """Every attempt's contrasts, in order.

    Args:
        slots: rows of ``SCHEMA``.
        explain: which instants lie in a stall of the host.
    """
    attempts = []
    for number in sorted(slots["attempt"].unique().to_pylist()):
        own = slots.filter(pc.equal(slots["attempt"], number))
        attempts.append(Attempt(number, tuple(_contrast(name, own, explain) for name in RULES)))
    return attempts


def standing(attempts: Sequence[Attempt], name: Name) -> Contrast | None:
    """A contrast of the last attempt with slots enough to find a fault: what the run is judged by; None = none had."""
    contrasts = [contrast for attempt in attempts for contrast in attempt.contrasts if contrast.name == name]
    return next((contrast for contrast in reversed(contrasts) if contrast.telling), None)


def another_due(attempts: Sequence[Attempt]) -> bool:
    """Whether to repeat on fresh pairs.

    A fault counts when a second attempt finds it too. A third is made when a stall of the host explains a failure.
    """
    latest = [standing(attempts, name) for name in RULES]
    explained = any(contrast.by_stalls for attempt in attempts for contrast in attempt.contrasts)
    most = MOST_ATTEMPTS if explained else MOST_ATTEMPTS - 1
    return len(attempts) < most and any(contrast is not None and contrast.found for contrast in latest)


def sign_test(first_only: int, control_only: int) -> float:
    """P[Bin(a + b, 1/2) >= a] for a = ``first_only``, b = ``control_only``: exact."""
    trials = first_only + control_only
    term, tail = 1, 0
    for successes in range(trials, first_only - 1, -1):  # term = number of ways to choose that many
        tail += term
        term = term * successes // (trials - successes + 1)
    return tail / (1 << trials)


@dataclass(frozen=True)
class _Probes:
    """One probe of each slot: columns (n,) of the file."""

    at_ns: npt.NDArray[np.int64]
    there_ms: _Floats
    asked_ms: _Floats
    rtt_ms: _Floats

    @property
    def error_ms(self) -> _Floats:
        return self.rtt_ms - self.asked_ms

    def pick(self, which: _Mask) -> _Probes:
        return _Probes(self.at_ns[which], self.there_ms[which], self.asked_ms[which], self.rtt_ms[which])

    def apart_ms(self, others: _Probes) -> _Floats:
        """The larger difference between the delays asked there and back."""
        back_ms = (self.asked_ms - self.there_ms) - (others.asked_ms - others.there_ms)
        return np.maximum(np.abs(self.there_ms - others.there_ms), np.abs(back_ms))

    def stalled(self, explain: Explain) -> _Mask:
        return due_in_stall(self.at_ns, self.there_ms, self.asked_ms, explain)


def _probes(slots: pa.Table, who: str) -> _Probes:
    at_ns = slots[f"{who}at_ns"].fill_null(0).to_numpy()
    names = ("asked_there_ms", "asked_rtt_ms", "rtt_ms")
    return _Probes(at_ns, *(slots[f"{who}{name}"].fill_null(np.nan).to_numpy() for name in names))


def _contrast(name: Name, slots: pa.Table, explain: Explain) -> Contrast:
    rule = RULES[name]
    firsts, controls = _probes(slots, ""), _probes(slots, "control_")
    answered = ~np.isnan(firsts.rtt_ms) & ~np.isnan(controls.rtt_ms)
    # What is usual, all controls of the attempt tell: those of hosts' first packets may be a handful.
    late_from_ms = LATE_MS + (float(np.median(controls.error_ms[answered])) if answered.any() else 0.0)
    kind = slots["host_first"].to_numpy() if name == "hosts" else np.ones(len(answered), bool)
    compared = kind & answered & (firsts.apart_ms(controls) <= rule.apart_ms)
    first_late, control_late = (probes.error_ms[compared] > late_from_ms for probes in (firsts, controls))
    first_stalled, control_stalled = (probes.pick(compared).stalled(explain) for probes in (firsts, controls))
    calm = ~(first_stalled | control_stalled)
    tally = _tally(first_late, control_late)
    found = _is_found(rule, *tally)
    return Contrast(
        name=name,
        slots=int(kind.sum()),
        compared=tally[0],
        first_only=tally[1],
        control_only=tally[2],
        p_value=sign_test(*tally[1:]),
        late=int(first_late.sum() + control_late.sum()),
        explained=int((first_late & first_stalled).sum() + (control_late & control_stalled).sum()),
        found=found,
        telling=0.5 ** tally[0] < rule.p_value,
        by_stalls=found and not _is_found(rule, *_tally(first_late[calm], control_late[calm])),
    )


def _tally(first_late: _Mask, control_late: _Mask) -> tuple[int, int, int]:
    """Slots compared, slots with only the first packet late, slots with only the control late."""
    return len(first_late), int((first_late & ~control_late).sum()), int((control_late & ~first_late).sum())


def _is_found(rule: Rule, compared: int, first_only: int, control_only: int) -> bool:
    return first_only - control_only > rule.share * compared and sign_test(first_only, control_only) < rule.p_value
