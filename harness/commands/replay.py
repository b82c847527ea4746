"""``trellis replay``: replay the recorded peers of a run and compare every effect."""

import argparse
from pathlib import Path

import msgspec

from harness.errors import ExperimentError
from harness.terminal import say
from metrics.rundir import read_document, require_plain
from metrics.storage import local_path
from peer.files import OVERLAY_FILE, record_file
from peer.instances.spec import NodeSpec, OverlayDocument
from peer.runtime.recording import Replay, replay


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=local_path, help="directory of a run with peer.record = true")
    parser.add_argument("--node", type=int, help="replay one node (default: every recorded node)")


def run(arguments: argparse.Namespace) -> int:
    """Replay one node or every recorded node.

    Returns:
        0 if every effect equals the recorded effect, otherwise 1.

    Raises:
        ExperimentError: there is no recording, or it cannot be read.
        RunDirError: the overlay document is missing or damaged.
    """
    require_plain(arguments.run)
    overlay = read_document(arguments.run / OVERLAY_FILE, msgspec.json.Decoder(OverlayDocument).decode)
    specs = {spec.node: spec for spec in overlay.nodes}
    nodes = sorted(specs) if arguments.node is None else [arguments.node]
    recorded = [node for node in nodes if (arguments.run / record_file(node)).exists()]
    if not recorded:
        what = "recording" if arguments.node is None else f"recording of node {arguments.node}"
        raise ExperimentError(str(arguments.run), f"no {what}; run the experiment with --set peer.record=true")
    outcomes = {node: _replay(arguments.run, specs[node]) for node in recorded}
    for node, outcome in outcomes.items():
        say(_sentence(node, outcome))
    return 1 if any(outcome.difference for outcome in outcomes.values()) else 0


def _replay(run_dir: Path, spec: NodeSpec) -> Replay:
    path = run_dir / record_file(spec.node)
    try:
        return replay(path, spec)
    except (OSError, ValueError) as error:
        raise ExperimentError(str(path), str(error).removeprefix(f"{path}: ")) from None


def _sentence(node: int, outcome: Replay) -> str:
    among = f" in {outcome.instances} instances" if outcome.instances != 1 else ""
    if (found := outcome.difference) is None:
        return f"node {node}: {outcome.events:,} events{among}, every effect as recorded"
    return (
        f"node {node}: event {found.place:,}{among} at {found.now_ns} ns: the effects differ from the recorded ones\n"
        f"  event:   {found.event!r}\n"
        f"  effects: {found.effects!r}"
    )
