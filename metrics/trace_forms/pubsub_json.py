"""Writes a run as lines of JSON, one file per node, in the form of ``NewJSONTracer`` of go-libp2p-pubsub."""

from pathlib import Path

from metrics.rundir import RunDir
from metrics.trace_forms.pubsub import to_json, write_nodes


def write_files(run: RunDir, folder: Path) -> list[str]:
    """Write ``<node>.json``, and return a sentence for everything that the form cannot hold."""
    return write_nodes(run, folder, ".json", to_json)
