"""Makes the report's tables of probing: round trips that machines measured, first packets, and sweeps by attempt."""

from typing import Any

import pyarrow.compute as pc

from metrics.measures.measure import quantile
from metrics.recorded import first_packets
from metrics.recorded.probing import read_achieved, rtt_errors_ms
from metrics.recorded.round_trips import measure_phases, read_round_trips
from metrics.recorded.stalls import read_stalls
from metrics.rundir import RunDir


def round_trip_rows(run: RunDir) -> list[dict[str, Any]]:
    """Return a row per phase in which machines measured their network: pairs, requests, and quantiles of RTTs in ms."""
    rows = read_round_trips(run.path)
    return [
        {
            "phase": phase,
            "pairs": found.pairs,
            "sent": found.sent,
            "unanswered": found.sent - found.received,
            "p50_ms": found.p50_ms if found.received else None,
            "p99_ms": found.p99_ms if found.received else None,
        }
        for phase, found in ({} if rows is None else measure_phases(rows)).items()
    ]


def first_packet_rows(run: RunDir) -> list[dict[str, Any]]:
    """Return a row per attempt and contrast; none if no first packets were recorded."""
    slots = first_packets.read(run.path)
    attempts = [] if slots is None else first_packets.judge(slots, read_stalls(run.path))
    return [
        {
            "attempt": attempt.number,
            "of": contrast.name,
            "slots": contrast.slots,
            "compared": contrast.tally.compared,
            "first_only": contrast.tally.first_only,
            "control_only": contrast.tally.control_only,
            "p_value": contrast.tally.p_value,
            "outcome": _outcome(contrast),
        }
        for attempt in attempts
        for contrast in attempt.contrasts
        if contrast.slots
    ]


def _outcome(contrast: first_packets.Contrast) -> str:
    if contrast.by_stalls:
        return "late, by stalls of the host"
    if contrast.found:
        return "late"
    if not contrast.telling:
        return "too few to tell"
    return "perhaps late" if contrast.suspicious else "not late"


def sweep_rows(run: RunDir) -> list[dict[str, Any]]:
    """Return a row per sweep of the idle network and attempt: pairs probed, and quantiles of their RTT errors in ms."""
    achieved = read_achieved(run.path)
    if achieved is None:
        return []
    swept = achieved.filter(pc.not_equal(achieved["phase"], "during"))
    groups = sorted(set(zip(swept["phase"].to_pylist(), swept["attempt"].to_pylist(), strict=True)))
    rows = []
    for phase, attempt in sorted(groups, key=lambda group: (group[0] != "before", group[1])):
        own = swept.filter(pc.and_(pc.equal(swept["phase"], phase), pc.equal(swept["attempt"], attempt)))
        answered = own.filter(pc.is_valid(own["rtt_ms"]))
        errors_ms = rtt_errors_ms(answered)
        quantiles = {"p50_ms": quantile(errors_ms, 0.5), "p99_ms": quantile(errors_ms, 0.99)}
        rows.append({"phase": phase, "attempt": attempt, "pairs": own.num_rows} | quantiles)
    return rows
