"""Were the round trips of a network that is not emulated measured, and do the captures show the same?"""

from collections.abc import Iterable, Sequence

from metrics.checks.evidence import MeasuredNetwork
from metrics.checks.rule import Absent, Judgement, Limit, Rules
from metrics.recorded.probing import PHASES
from metrics.recorded.round_trips import Pair, PhaseTrips
from metrics.rundir import SUSPECT

RULES = Rules()

CHANGE = Limit(0.2, "ratio")
CHANGE_FLOOR = Limit(1.0, "ms")
"""How far round trips that should be the same may differ: the larger of the two limits holds."""

_LISTED = 3


for _phase in PHASES:

    @RULES.add("measured", SUSPECT, name=f"round_trips_{_phase}", floor=0.9)
    def round_trips(measured: MeasuredNetwork, phase: str = _phase) -> Judgement | Absent:
        """Fails if a pair of addresses answered none of at least 2 requests before, during or after the workload.

        Nothing is known about the network between such addresses. A single lost request is a property of the network,
        and `detail` counts it.
        """
        if measured.phases is None:
            return Absent("round_trips.parquet is missing: no round trip was measured", due=True)
        if phase not in measured.phases:
            return Absent(f"the experiment asks for no probes {phase} the workload", due=phase in measured.asked_phases)
        found, material = measured.phases[phase], measured.pairs
        detail = f"round trips of {found.pairs:,} pairs: p50 {found.p50_ms:.3g} ms, p99 {found.p99_ms:.3g} ms"
        detail += f"; {found.sent - found.received:,} of {found.sent:,} requests were lost"
        if found.silent:
            detail += f"; no answer: {_list(found.silent)}"
        if phase == "during":
            material = found.pairs  # random pairs
        return Judgement(
            found.pairs, len(found.silent), len(found.silent), Limit(0, "pairs"), detail, material=material
        )


@RULES.add("measured", SUSPECT, CHANGE, CHANGE_FLOOR, floor=0.9)
def round_trips_kept(measured: MeasuredNetwork) -> Judgement | Absent:
    """Fails if the shortest round trip of a pair after the workload differs from the shortest one before it by more
    than {0}, and by more than {1}.

    The path changed meanwhile, so no single round trip describes the pair.
    """
    phases = measured.phases or {}
    if "before" not in phases or "after" not in phases:
        return Absent("round trips were not measured both before and after the workload", due=True)
    before, after = phases["before"].least_ms, phases["after"].least_ms
    changes = {pair: after[pair] - before[pair] for pair in before.keys() & after.keys()}
    changed = [pair for pair, change_ms in sorted(changes.items()) if _is_beyond(change_ms, before[pair])]
    worst_ms = max(map(abs, changes.values()), default=0.0)
    detail = f"largest change {worst_ms:.3g} ms" + (f"; {_list(changed)}" if changed else "")
    return Judgement(len(changes), len(changed), worst_ms, CHANGE_FLOOR, detail, material=measured.pairs)


@RULES.add("measured", SUSPECT, CHANGE, CHANGE_FLOOR)
def captured_round_trips(measured: MeasuredNetwork) -> Judgement | Absent:
    """Fails if, by the captures, the shortest delays of frames between two nodes, there and back, add up to less than
    the shortest round trip measured between the nodes, by more than {0} and by more than {1}.

    The offsets of two machines' clocks cancel each other in this sum, so it needs no synchronised clocks. Frames are
    not faster than probes.
    """
    wire_ms = measured.wire_ms
    if isinstance(wire_ms, Absent):
        return wire_ms
    if measured.phases is None:
        return Absent("no round trip was measured", due=True)
    least_ms = _least(measured.phases.values())
    both = {
        pair: wire_ms[pair] + wire_ms[pair[::-1]] for pair in wire_ms if pair[0] < pair[1] and pair[::-1] in wire_ms
    }
    early_ms = {pair: least_ms[pair] - sum_ms for pair, sum_ms in both.items() if pair in least_ms}
    wrong = [pair for pair, early in sorted(early_ms.items()) if early > 0 and _is_beyond(early, least_ms[pair])]
    worst_ms = max(early_ms.values(), default=0.0)
    detail = f"{len(early_ms):,} pairs with frames in both directions; shortest sum {-worst_ms:+.3g} ms from the probes"
    if wrong:
        detail += f"; too short: {_list(wrong)}"
    return Judgement(len(early_ms), len(wrong), max(worst_ms, 0.0), CHANGE_FLOOR, detail, material=len(both))


def _least(phases: Iterable[PhaseTrips]) -> dict[Pair, float]:
    """Return the shortest round trip of each pair in any phase."""
    least_ms: dict[Pair, float] = {}
    for phase in phases:
        for pair, rtt_ms in phase.least_ms.items():
            least_ms[pair] = min(rtt_ms, least_ms.get(pair, rtt_ms))
    return least_ms


def _is_beyond(change_ms: float, rtt_ms: float) -> bool:
    return abs(change_ms) > max(CHANGE.value * rtt_ms, CHANGE_FLOOR.value)


def _list(pairs: Sequence[Pair]) -> str:
    """Name the first pairs."""
    names = ", ".join(f"{source} to {destination}" for source, destination in pairs[:_LISTED])
    return names + (f" and {len(pairs) - _LISTED} more" if len(pairs) > _LISTED else "")
