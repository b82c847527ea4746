"""Random streams of the workload: one for each node and purpose, for drawing single numbers or whole arrays."""

from __future__ import annotations

import numpy as np

from peer.core.randomness import NETWORK, substream

__all__ = ["NETWORK", "generator"]


def generator(seed: int, node: int, purpose: str) -> np.random.Generator:
    """The NumPy counterpart of ``substream``: the same arguments give the same stream on every machine."""
    return np.random.Generator(np.random.PCG64(substream(seed, node, purpose).getrandbits(128)))
