"""Randomness from one seed: every node and purpose draws from a stream of its own."""

import hashlib
from random import Random

NETWORK = 2**31 - 1
"""The number, which no node has, whose random streams draw what belongs to the network as a whole."""


def substream(seed: int, node_id: int, purpose: str) -> Random:
    """A generator of its own for a node and a purpose, so that one part's draws never shift another's.

    The same arguments give the same stream on every machine and under any PYTHONHASHSEED.
    """
    digest = hashlib.sha256(f"{seed}/{node_id}/{purpose}".encode()).digest()
    return Random(int.from_bytes(digest, "big"))
