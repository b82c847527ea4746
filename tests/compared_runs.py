"""Made-up runs that tests compare: deliveries that share their messages' delays, and headline numbers alone."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import to_builtins

from harness.experiment.loader import decode_experiment
from metrics.comparison.rows import DeliveryRows
from metrics.measures.registry import HEADLINE

EXPERIMENT: dict[str, Any] = to_builtins(decode_experiment({"name": "x", "underlay": {"hosts": 30}}))


def make_rows(random: np.random.Generator, messages: int = 150, factor: float = 1.0) -> DeliveryRows:
    """Deliveries whose delay is the sum of a message's, which all its deliveries share, and one of their own."""
    subscribers = random.integers(4, 12, messages)
    ids = np.repeat(np.arange(messages), subscribers)
    own = random.normal(100, 8, messages)[ids] + random.normal(0, 8, len(ids))
    missing = random.random(len(ids)) < 0.03
    deliveries = pa.table(
        {
            "message_id": ids,
            "node": random.integers(0, 30, len(ids)),
            "delivered_ns": pa.array(np.zeros(len(ids), np.int64), mask=missing),
            "known": np.ones(len(ids), np.bool_),
            "latency_ms": pa.array(own * factor, mask=missing),
            "hops": pa.array(random.integers(1, 5, len(ids)), mask=missing),
        }
    )
    copies = np.repeat(ids, 2)
    at_relay = random.random(len(copies)) < 0.2
    received = pa.table(
        {
            "message_id": copies,
            "dst_node": random.integers(0, 30, len(copies)),
            "is_dup": np.arange(len(copies)) % 2 == 1,
            "is_relay": at_relay & (np.arange(len(copies)) % 2 == 0),
            "at_relay": at_relay,
        }
    )
    return DeliveryRows(messages, deliveries, received)


def headline_runs(random: np.random.Generator, runs: int, shift: float = 0.0, first_seed: int = 1) -> Any:
    """Runs that have headline numbers alone: of many kinds, some of them small integers."""
    named = {name: random.normal(100, 5, runs) for name in HEADLINE[:12]}
    named |= {name: random.lognormal(0, 1, runs) for name in HEADLINE[12:18]}
    named |= {name: random.integers(2, 4, runs).astype(float) for name in HEADLINE[18:24]}
    named[HEADLINE[0]] += shift
    rows = [dict(zip(named, values, strict=True)) for values in zip(*named.values(), strict=True)]
    return tuple(
        SimpleNamespace(
            summary=SimpleNamespace(headline=row, verdict="valid"),
            plan=SimpleNamespace(seed=first_seed + place),
            experiment=EXPERIMENT,
            manifest=SimpleNamespace(has_ability=lambda _: False),
        )
        for place, row in enumerate(rows)
    )
