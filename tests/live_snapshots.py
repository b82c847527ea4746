"""Fabricated snapshots of a run, and what does not change in it."""

from typing import Any

from harness.live import snapshot as live

CITIES = (
    ("Madrid", -3.7, 40.4), ("Halifax", -63.6, 44.6), ("Manila", 121.0, 14.6), ("Christchurch", 172.6, -43.5),
    ("Dar es Salaam", 39.3, -6.8), ("Brasília", -47.9, -15.8), ("Edinburgh", -3.2, 55.9), ("Vancouver", -123.1, 49.3),
)  # fmt: skip

RUN = live.RunFacts("20260101T120000", "fabricated", "random", "emulated", 7)

STAGE = live.Stage(
    run=RUN,
    nodes=tuple(
        live.StageNode(node, f"peer-{node}", city, longitude, latitude, node, "emulated")
        for node, (city, longitude, latitude) in enumerate(CITIES)
    ),
    topics=4,
    duration_s=30.0,
    limits=(
        live.Limit("plane_lateness", 5.0, "ms", "invalid"),
        live.Limit("cpu_busy", 0.95, "ratio", "suspect"),
    ),
)

PHASES = (
    ("boot", -20, -15), ("deploy", -15, -8), ("probe_before", -8, -5), ("warmup", -5, 0), ("workload", 0, 30),
    ("cooldown", 30, 33), ("stop", None, None), ("collect", None, None), ("analysis", None, None),
)  # fmt: skip


def make_snapshot(now_s: int, **others: Any) -> live.Snapshot:
    """Return the run at a second of its workload; other fields replace those that are given here."""
    history = tuple(
        live.Second(
            second, published=4, delivered=24 + second % 5, delay_p50_ms=80.0 + second % 7,
            delay_p99_ms=210.0 + 3 * (second % 11), lateness_p99_ms=0.4 + 0.05 * (second % 6),
            cpu_ratio=0.1 + 0.01 * (second % 9),
        )
        for second in range(max(now_s, 0))
    )  # fmt: skip
    published, delivered = 4 * now_s, sum(each.delivered or 0 for each in history)
    known: dict[str, Any] = {
        "run": RUN,
        "now_s": float(now_s),
        "phase": "workload",
        "phase_left_s": 30.0 - now_s,
        "run_left_s": 33.0 - now_s,
        "phases": tuple(live.PhaseSpan(name, begin, end, _state(begin, end, now_s)) for name, begin, end in PHASES),
        "verdict": "valid so far",
        "reasons": (),
        "peers": live.Peers(8, ready=8, up=8, ended=0),
        "messages": live.Messages(published, delivered, 28 * now_s, delivered / (28 * now_s) if now_s else None),
        "delay_ms": live.DelayNow(83.2, 231.7, 255, float(now_s)),
        "plane": live.PlaneNow(0.46, 0.52, {"loss": 3, "queue": 0}, 0, 1432.0, 0.21),
        "pressure": live.PressureNow(0.12, 0.43, 0.0),
        "faults": (live.FaultSpan("cut", 10.0, 14.0),),
        "links": tuple(live.LinkUse(a, b, 900 * (a + b + 1)) for a in range(8) for b in range(a + 1, 8) if (a + b) % 3),
        "history": history,
        "ended": None,
    }
    return live.Snapshot(**known | others)


def _state(begin: int | None, end: int | None, now_s: int) -> Any:
    if begin is None or end is None or begin > now_s:
        return "planned"
    return "running" if now_s < end else "over"
