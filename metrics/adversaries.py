"""Which nodes of a run misbehaved on purpose: measures look at honest nodes, and at these apart."""

from __future__ import annotations

import json

from metrics.rundata import RunDir


def read_adversaries(run: RunDir) -> frozenset[int]:
    """The nodes to which ``overlay.json`` gives a behaviour."""
    nodes = json.loads((run.path / "overlay.json").read_bytes())["nodes"]
    return frozenset(node["node"] for node in nodes if node.get("behaviour"))
