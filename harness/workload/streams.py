"""Random streams of the workload: one for each node and purpose, for drawing single numbers or whole arrays."""

from __future__ import annotations

import numpy as np

from peer.core.randomness import substream

NETWORK = 2**31 - 1
"""The number, which no node has, whose random streams draw what belongs to the network as a whole."""


def generator(seed: int, node: int, purpose: str) -> np.random.Generator:
    """The NumPy counterpart of ``substream``: the same arguments give the same stream on every machine."""
    return np.random.Generator(np.random.PCG64(substream(seed, node, purpose).getrandbits(128)))
