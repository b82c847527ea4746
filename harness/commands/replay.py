"""``trellis replay``: live a recorded peer's lives again, and see whether it answers every event as it did."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from harness.errors import ExperimentError
from metrics.rundir import read_document
from peer.files import OVERLAY_FILE, record_file
from peer.runtime.recording import Replay, replay
from peer.runtime.spec import NodeSpec, OverlayDocument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what ``replay`` takes."""
    parser.add_argument("run", type=Path, help="a run directory whose experiment had peer.record = true")
    parser.add_argument("--node", type=int, help="one node; default: every recorded one")


def run(arguments: argparse.Namespace) -> int:
    """Replay one node or all.

    Returns:
        0 when every effect was the recorded one, otherwise 1.

    Raises:
        ExperimentError: there is no recording, or it cannot be read.
        RunDirError: the overlay document is missing or damaged.
    """
    overlay = read_document(arguments.run / OVERLAY_FILE, msgspec.json.Decoder(OverlayDocument).decode)
    specs = {spec.node: spec for spec in overlay.nodes}
    nodes = sorted(specs) if arguments.node is None else [arguments.node]
    recorded = [node for node in nodes if (arguments.run / record_file(node)).exists()]
    if not recorded:
        what = "recording" if arguments.node is None else f"recording of node {arguments.node}"
        raise ExperimentError(str(arguments.run), f"has no {what}: run the experiment with --set peer.record=true")
    outcomes = {node: _replay(arguments.run, specs[node]) for node in recorded}
    for node, outcome in outcomes.items():
        print(_sentence(node, outcome))
    return 1 if any(outcome.difference for outcome in outcomes.values()) else 0


def _replay(run_dir: Path, spec: NodeSpec) -> Replay:
    path = run_dir / record_file(spec.node)
    try:
        return replay(path, spec)
    except (OSError, ValueError) as error:
        raise ExperimentError(str(path), str(error)) from None


def _sentence(node: int, outcome: Replay) -> str:
    lives = f" in {outcome.lives} lives" if outcome.lives != 1 else ""
    if (found := outcome.difference) is None:
        return f"node {node}: {outcome.events:,} events{lives}, every effect as recorded"
    return (
        f"node {node}: event {found.place:,}{lives} at {found.now_ns} ns is answered otherwise than recorded\n"
        f"  event:   {found.event!r}\n"
        f"  effects: {found.effects!r}"
    )
