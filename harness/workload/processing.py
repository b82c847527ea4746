"""How long each node takes to handle a frame."""

from __future__ import annotations

from harness.experiment import ProcessingSpec
from peer.core.randomness import substream

LONGEST_MS = 60_000.0


def draw_processing_ns(spec: ProcessingSpec, node: int, seed: int) -> int:
    """A node's processing delay, in ns; 0 = none.

    Source: Topiary section II-A, which leaves the distribution of delta_v open.
    """
    draws = substream(seed, node, "processing")
    delay_ms = {
        "none": lambda: 0.0,
        "constant": lambda: spec.mean_ms,
        "uniform": lambda: draws.uniform(0, 2 * spec.mean_ms),
        "exponential": lambda: draws.expovariate(1 / spec.mean_ms),
    }[spec.kind]()
    return round(min(delay_ms, LONGEST_MS) * 1e6)
