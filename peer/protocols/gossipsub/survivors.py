"""Which peers stay when a mesh has too many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from peer.core.contract import NodeId


def choose_survivors(
    peers: Sequence[NodeId],
    keep: int,
    by_score: int,
    outbound: int,
    score: Callable[[NodeId], float],
    is_outbound: Callable[[NodeId], bool],
    draws: Random,
) -> list[NodeId]:
    """``keep`` of the peers: the ``by_score`` best, the others drawn uniformly, at least ``outbound`` of them outbound.

    Where too few are outbound, outbound ones take the place of the random and lower scoring ones. Equal scores are put
    into a random order.

    Source: gossipsub v1.1, Heartbeat Maintenance and Outbound Mesh Quotas.
    """
    ranked = sorted(draws.sample(peers, len(peers)), key=score, reverse=True)
    best, rest = ranked[:by_score], ranked[by_score:]
    draws.shuffle(rest)
    ranked = best + rest
    kept, others = ranked[:keep], ranked[keep:]
    missing = outbound - sum(map(is_outbound, kept))
    for newcomer in [peer for peer in others if is_outbound(peer)][: max(missing, 0)]:
        place = max((index for index, peer in enumerate(kept) if not is_outbound(peer)), default=None)
        if place is None:
            break
        kept[place] = newcomer
    return kept
