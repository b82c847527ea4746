"""Copies of a recorded run whose traces say something else: what the checks of an analysis must find.

Each mutation edits the trace files of a run directory in place; ``copy_run`` makes the copy that it may edit. All take
the run directory first, draw nothing, and return how many lines they changed, so that a caller can see that the fault
was there at all.
"""

import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec import json, structs

from peer.files import TRACE_FOLDER, trace_file
from peer.trace import TraceEvent

_MS = 1_000_000

Edit = Callable[[TraceEvent], Iterable[TraceEvent]]
"""From a line to the lines that take its place."""


def copy_run(recorded: Path, target: Path) -> Path:
    """Copy what was recorded of a run, without results of an analysis."""
    results = shutil.ignore_patterns("tables", "report", "summary.json", "analysis.log")
    shutil.copytree(recorded, target, ignore=results)
    return target


def nodes_of(run_dir: Path) -> list[int]:
    """The nodes that have a trace."""
    return sorted(int(path.stem) for path in (run_dir / TRACE_FOLDER).glob("*.jsonl"))


def edit_trace(run_dir: Path, node: int, edit: Edit) -> int:
    """Edit a node's trace, sort it by time, and correct the count in its last line.

    Returns:
        How many lines were changed, removed or added.
    """
    path = run_dir / trace_file(node)
    before = [json.decode(line, type=TraceEvent) for line in path.read_bytes().splitlines()]
    stop = before.pop() if before and before[-1].event == "stop" else None
    changed, after = 0, []
    for event in before:
        events = list(edit(event))
        changed += events != [event]
        after += events
    after.sort(key=lambda event: event.ts_ns)
    if stop is not None:
        after.append(structs.replace(stop, records=len(after)))
    path.write_bytes(b"".join(json.encode(event) + b"\n" for event in after))
    return changed


def _everywhere(run_dir: Path, edit: Edit) -> int:
    return sum(edit_trace(run_dir, node, edit) for node in nodes_of(run_dir))


def _others_delivery(event: TraceEvent) -> bool:
    """Whether it is the delivery of another node's message."""
    return event.event == "deliver" and event.peer is not None


def _every(count: int, wanted: Callable[[TraceEvent], bool]) -> Callable[[TraceEvent], bool]:
    """Of the events that are wanted every so many-th one."""
    seen = 0

    def is_chosen(event: TraceEvent) -> bool:
        nonlocal seen
        seen += wanted(event)
        return wanted(event) and seen % count == 0

    return is_chosen


def half_of_delivers(run_dir: Path, node: int) -> int:
    """The node leaves out every second delivery."""
    is_chosen = _every(2, _others_delivery)
    return edit_trace(run_dir, node, lambda event: [] if is_chosen(event) else [event])


def no_duplicates(run_dir: Path) -> int:
    """No node traces a copy after the first."""
    return _everywhere(run_dir, lambda event: [] if event.event == "duplicate" else [event])


def relays_as_delivers(run_dir: Path) -> int:
    """All nodes call what they only pass on a delivery."""

    def edit(event: TraceEvent) -> Iterator[TraceEvent]:
        yield structs.replace(event, event="deliver") if event.event == "relay" else event

    return _everywhere(run_dir, edit)


def repeated_delivers(run_dir: Path, of: int = 10) -> int:
    """All nodes trace every ``of``-th delivery twice."""
    is_chosen = _every(of, _others_delivery)
    return _everywhere(run_dir, lambda event: [event, event] if is_chosen(event) else [event])


def links_left_out(run_dir: Path, of: int) -> int:
    """Traces leave out every so many-th logical link."""
    count = itertools.count(1)

    def leave_out(event: TraceEvent) -> Iterator[TraceEvent]:
        if event.event != "graft":
            yield event
        elif kept := tuple(topic for topic in event.topics or () if next(count) % of):
            yield structs.replace(event, topics=kept)

    return _everywhere(run_dir, leave_out)


def deliveries_later(run_dir: Path, ms: float) -> int:
    """All nodes deliver other nodes' messages later than they do."""
    return _everywhere(run_dir, _shift(_others_delivery, ms))


def node_reads_late(run_dir: Path, node: int, ms: float) -> int:
    """The node reads its frames later, and does later what follows from them."""
    after_reading = ("receive", "deliver", "relay", "duplicate")
    return edit_trace(run_dir, node, _shift(lambda event: event.event in after_reading and event.peer is not None, ms))


def node_sends_late(run_dir: Path, node: int, ms: float) -> int:
    """What the node writes leaves its host later: it claims to have written everything so much earlier."""
    return edit_trace(run_dir, node, _shift(lambda event: event.event == "send", -ms))


def clock_moved(run_dir: Path, node: int, ms: float) -> int:
    """All instants of the node are by so much later."""
    return edit_trace(run_dir, node, _shift(lambda event: True, ms))


def no_trace(run_dir: Path, node: int) -> int:
    """The node's trace is lost."""
    (run_dir / trace_file(node)).unlink()
    return 1


def _shift(wanted: Callable[[TraceEvent], bool], ms: float) -> Edit:
    def edit(event: TraceEvent) -> Iterator[TraceEvent]:
        yield structs.replace(event, ts_ns=event.ts_ns + round(ms * _MS)) if wanted(event) else event

    return edit
