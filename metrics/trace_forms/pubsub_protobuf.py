"""Writes a run as delimited protobuf in gzip, one file per node, as ``traced`` writes it and ``tracestat`` reads it."""

from pathlib import Path

from metrics.rundir import RunDir
from metrics.trace_forms.protobuf import delimited
from metrics.trace_forms.pubsub import PubsubEvent, to_protobuf, write_nodes


def write_files(run: RunDir, folder: Path) -> list[str]:
    """Write ``<node>.pb.gz``, and return a sentence for everything that the form cannot hold."""
    return write_nodes(run, folder, ".pb.gz", _encode)


def _encode(event: PubsubEvent) -> bytes:
    return delimited(to_protobuf(event))
