"""``trellis replay``: show how messages of a run spread, or replay its recorded peers and compare every effect."""

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
    parser.add_argument(
        "run", type=local_path, help="directory of an analysed run; without --out, of a run with peer.record = true"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write a page (HTML) that shows how messages spread over the network"
    )
    parser.add_argument(
        "--message",
        type=int,
        metavar="ID",
        help="the message of the page, as in the run's tables (default: those of the slowest deliveries)",
    )
    parser.add_argument("--node", type=int, help="without --out: replay one node (default: every recorded node)")


def run(arguments: argparse.Namespace) -> int:
    """Write the page of messages, or replay one node or every recorded node.

    Returns:
        0 if the page is written, or every effect equals the recorded effect, otherwise 1.

    Raises:
        ExperimentError: the run has no such message or no recording, or a file cannot be read or written.
        RunDirError: a document of the run is missing or damaged, or the run was not analysed.
    """
    if arguments.out is None:
        if arguments.message is not None:
            raise ExperimentError("--message", "is written into a page; name it with --out FILE.html")
        return _compare(arguments.run, arguments.node)
    if arguments.node is not None:
        raise ExperimentError("--node", "replays a recorded peer; leave it out to write a page with --out")
    _write_page(arguments.run, arguments.message, arguments.out)
    return 0


def _write_page(run_dir: Path, message_id: int | None, out: Path) -> None:
    from metrics.report.replay import choose_messages, render_replay
    from metrics.report.run import Run
    from metrics.report.spread import read_spreads

    analysed = Run(run_dir)
    reasons = choose_messages(analysed) if message_id is None else {}
    wanted = [*reasons] if message_id is None else [message_id]
    spreads = read_spreads(analysed, wanted)
    if not spreads:
        what = "no message was delivered" if message_id is None else f"{run_dir} has no message {message_id}"
        raise ExperimentError("--message", f"{what}; the column message_id of the table messages has all numbers")
    try:
        out.write_text(render_replay(analysed, spreads, reasons), encoding="utf-8")
    except OSError as error:
        raise ExperimentError(str(out), error.strerror or str(error)) from None
    say(f"written: {out}")


def _compare(run_dir: Path, node: int | None) -> int:
    """Replay one recorded node, or all of them, and return 1 if an effect differs."""
    require_plain(run_dir)
    overlay = read_document(run_dir / OVERLAY_FILE, msgspec.json.Decoder(OverlayDocument).decode)
    specs = {spec.node: spec for spec in overlay.nodes}
    nodes = sorted(specs) if node is None else [node]
    recorded = [each for each in nodes if (run_dir / record_file(each)).exists()]
    if not recorded:
        what = "recording" if node is None else f"recording of node {node}"
        raise ExperimentError(str(run_dir), f"no {what}; run the experiment with --set peer.record=true")
    outcomes = {each: _replay(run_dir, specs[each]) for each in recorded}
    for each, outcome in outcomes.items():
        say(_sentence(each, outcome))
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
