"""The names of libp2p's draft specification of metrics for GossipSub (libp2p/specs, pull request 695), and ours.

Prometheus records series of peers under these names, so that dashboards for other implementations show our peers.
"""

from typing import Any

PREFIX = "gossipsub_"
"""The beginning of all these names, and of no name of ours."""

MESSAGE_TYPES = {
    "data": "publish",
    "subscriptions": "subscribe",
    "graft": "graft",
    "prune": "prune",
    "ihave": "ihave",
    "iwant": "iwant",
    "idontwant": "idontwant",
}
"""The draft's names of the frames of GossipSub, by ours."""

RECORDED = {
    "gossipsub_message_published_total": "trellis_publications_total",
    "gossipsub_message_delivered_total": "trellis_deliveries_total",
    "gossipsub_message_duplicate_total": "trellis_duplicates_total",
    "gossipsub_mesh_peers_total": "trellis_logical_links",
}
"""Series of peers under the names of libp2p's draft specification of metrics (libp2p/specs, pull request 695)."""


def recording_rules() -> dict[str, Any]:
    """Return the group of Prometheus's recording rules for these names."""
    rules: list[dict[str, Any]] = [{"record": name, "expr": ours} for name, ours in RECORDED.items()]
    for way in ("sent", "received"):
        for kind, type_ in MESSAGE_TYPES.items():
            expression = f'sum without (kind) (trellis_{way}_frames_total{{kind="{kind}"}})'
            labels = {"message_type": type_}
            rules.append({"record": f"gossipsub_rpc_{way}_total", "expr": expression, "labels": labels})
    return {"name": "gossipsub", "rules": rules}
