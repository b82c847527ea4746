"""``trellis replay``: replay the recorded peers of a run and compare every effect."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from harness.errors import ExperimentError
from peer.runtime.recording import Replay, replay
from peer.runtime.spec import NodeSpec, OverlayDocument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("run", type=Path, help="directory of a run with peer.record = true")
    parser.add_argument("--node", type=int, help="replay one node (default: every recorded node)")


def run(arguments: argparse.Namespace) -> int:
    """Replay one node or every recorded node.

    Returns:
        0 if every effect equals the recorded effect, otherwise 1.

    Raises:
        ExperimentError: there is no recording, or it cannot be read.
    """
    specs = _read_specs(arguments.run)
    nodes = sorted(specs) if arguments.node is None else [arguments.node]
    recorded = [node for node in nodes if (arguments.run / "record" / f"{node}.msgpack").exists()]
    if not recorded:
        what = "recording" if arguments.node is None else f"recording of node {arguments.node}"
        raise ExperimentError(str(arguments.run), f"no {what}; run the experiment with --set peer.record=true")
    outcomes = {node: _replay(arguments.run, specs[node]) for node in recorded}
    for node, outcome in outcomes.items():
        print(_sentence(node, outcome))
    return 1 if any(outcome.difference for outcome in outcomes.values()) else 0


def _read_specs(run_dir: Path) -> dict[int, NodeSpec]:
    try:
        overlay = msgspec.json.decode((run_dir / "overlay.json").read_bytes(), type=OverlayDocument)
    except OSError as error:
        raise ExperimentError(str(error.filename), error.strerror or "cannot be read") from None
    except msgspec.DecodeError as error:
        raise ExperimentError(str(run_dir / "overlay.json"), str(error)) from None
    return {spec.node: spec for spec in overlay.nodes}


def _replay(run_dir: Path, spec: NodeSpec) -> Replay:
    path = run_dir / "record" / f"{spec.node}.msgpack"
    try:
        return replay(path, spec)
    except (OSError, ValueError) as error:
        raise ExperimentError(str(path), str(error)) from None


def _sentence(node: int, outcome: Replay) -> str:
    lives = f" in {outcome.lives} instances" if outcome.lives != 1 else ""
    if (found := outcome.difference) is None:
        return f"node {node}: {outcome.events:,} events{lives}, every effect as recorded"
    return (
        f"node {node}: event {found.place:,}{lives} at {found.now_ns} ns: the effects differ from the recorded ones\n"
        f"  event:   {found.event!r}\n"
        f"  effects: {found.effects!r}"
    )
