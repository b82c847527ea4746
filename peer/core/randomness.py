"""Random draws from one seed: every node and purpose has its own substream."""

import hashlib
from random import Random

NETWORK = 2**31 - 1
"""A number that no node has. Its substreams draw what belongs to the whole network."""


def substream(seed: int, node_id: int, purpose: str) -> Random:
    """Return a generator for one node and purpose, so that the draws of one part never change those of another.

    The same arguments give the same draws on every machine and under any PYTHONHASHSEED.

    Args:
        seed: the seed.
        node_id: the node's number, or ``NETWORK``.
        purpose: names what is drawn.
    """
    digest = hashlib.sha256(f"{seed}/{node_id}/{purpose}".encode()).digest()
    return Random(int.from_bytes(digest, "big"))
