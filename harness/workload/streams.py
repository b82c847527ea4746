"""Random streams of the workload: one per node and purpose, for numbers and arrays."""

from __future__ import annotations

import numpy as np

from peer.core.randomness import NETWORK, substream

__all__ = ["NETWORK", "generator"]


def generator(seed: int, node: int, purpose: str) -> np.random.Generator:
    """Return NumPy's counterpart of ``substream``: equal arguments give equal streams on every machine."""
    return np.random.Generator(np.random.PCG64(substream(seed, node, purpose).getrandbits(128)))
