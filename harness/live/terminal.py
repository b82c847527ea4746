"""Snapshots on a terminal: a picture that is drawn again each second. If the output is no terminal, a line for each."""

from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Final

from msgspec.json import Decoder
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from harness.live.snapshot import LATEST_S, FaultSpan, Messages, PhaseSpan, PlaneNow, Snapshot
from harness.terminal import printable, say

MOST_REASONS: Final = 6
_COLOURS: Final = {"valid so far": "green", "valid": "green", "suspect": "yellow", "invalid": "red"}
_UNKNOWN: Final = "-"
_LEVELS: Final = "▁▂▃▄▅▆▇█"
_CHART_S: Final = 60


def read_snapshots(lines: IO[bytes]) -> Iterator[Snapshot]:
    """Yield the snapshots that ``harness.live.stream`` prints."""
    yield from map(Decoder(Snapshot).decode, lines)


def show(snapshots: Iterable[Snapshot], console: Console) -> Snapshot | None:
    """Show snapshots as they come, and return the last one; None if there was none.

    Args:
        snapshots: one a second.
        console: the terminal, or another output.
    """
    return _draw(snapshots, console) if console.is_terminal else _print(snapshots, console.file)


def _draw(snapshots: Iterable[Snapshot], console: Console) -> Snapshot | None:
    last = None
    with Live(console=console, auto_refresh=False) as live:
        for last in snapshots:
            live.update(render(last), refresh=True)
    return last


def _print(snapshots: Iterable[Snapshot], file: IO[str]) -> Snapshot | None:
    last = None
    for snapshot in snapshots:
        known = () if last is None else last.reasons
        say(describe(snapshot), *(f"  - {each.text}" for each in snapshot.reasons if each not in known), file=file)
        last = snapshot
    return last


# ------------------------------------------------------------------------------------------------------- one line


def describe(snapshot: Snapshot) -> str:
    """Return a snapshot as a line: the clock, the verdict so far and the most important numbers."""
    parts = [_clock(snapshot), verdict_of(snapshot), *(f"{name} {value}" for name, value in _numbers(snapshot))]
    return "; ".join(parts)


def verdict_of(snapshot: Snapshot) -> str:
    """Return the verdict of a run that is over, otherwise the verdict so far."""
    ended = snapshot.ended
    if ended is None:
        return snapshot.verdict
    return ended.verdict or {"failed": "the running stage failed", "not analysed": "not analysed yet"}[ended.state]


def _clock(snapshot: Snapshot) -> str:
    if snapshot.ended is not None:
        return "the run is over"
    phase = (snapshot.phase or "waiting").replace("_", " ")
    now = "" if snapshot.now_s is None else f"{snapshot.now_s:.0f} s, "
    left = "" if snapshot.phase_left_s is None else f", {snapshot.phase_left_s:.0f} s left"
    return f"{now}{phase}{left}"


def _numbers(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Yield what is known of a snapshot: names, and values with their units."""
    peers = snapshot.peers
    yield "peers up", f"{_count(peers.up)} of {peers.expected}"
    if peers.ended:
        yield "peers ended", str(peers.ended)
    yield "published", _count(snapshot.messages.published)
    yield "delivered", _delivered(snapshot.messages)
    if delay := snapshot.delay_ms:
        words = f"p50 {delay.p50:.1f} ms, p99 {delay.p99:.1f} ms"
        yield f"delay of the last {LATEST_S:g} s", f"{words} ({delay.deliveries:,} deliveries)"
    if plane := snapshot.plane:
        yield from _plane(plane)
    if load := snapshot.pressure:
        some = load.cpu_some_ratio
        name, value = ("CPU busy", load.cpu_busy_ratio) if some is None else ("CPU pressure", some)
        yield name, _percent(value)


def _plane(plane: PlaneNow) -> Iterator[tuple[str, str]]:
    yield "lateness p99", f"{_ms(plane.lateness_p99_ms)} (workload {_ms(plane.lateness_run_p99_ms)})"
    if plane.frames_per_s is not None:
        yield "frames", f"{plane.frames_per_s:,.0f} per s"
    if plane.drops:
        yield "drops", ", ".join(f"{cause.replace('_', ' ')} {count:,}" for cause, count in plane.drops.items())


def _delivered(messages: Messages) -> str:
    if messages.expected is None:
        return _count(messages.delivered)
    share = "" if messages.ratio is None else f" ({_percent(messages.ratio)})"
    return f"{_count(messages.delivered)} of {messages.expected:,}{share}"


def _count(value: int | None) -> str:
    return _UNKNOWN if value is None else f"{value:,}"


def _ms(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.3g} ms"


def _percent(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{100 * value:.1f} %"


# ------------------------------------------------------------------------------------------------------- a picture


def render(snapshot: Snapshot) -> Group:
    """Return the picture of a snapshot."""
    run = snapshot.run
    title = printable(f"{run.experiment}: {run.protocol}, testbed {run.testbed}, seed {run.seed} ({run.id})")
    verdict, reasons = verdict_of(snapshot), snapshot.reasons
    parts: list[Text | Table] = [
        Text(title, style="bold"),
        Text(verdict, style=f"bold {_COLOURS.get(verdict, 'red')}"),
        *(Text(f"  - {printable(each.text)}", style=_COLOURS[each.severity]) for each in reasons[:MOST_REASONS]),
        *([Text(f"  - {len(reasons) - MOST_REASONS} more reasons")] if len(reasons) > MOST_REASONS else []),
        Text(""),
        Text(_clock(snapshot)),
        _bars(snapshot.phases, snapshot.now_s),
        Text(""),
        _table(_numbers(snapshot)),
        _charts(snapshot),
        *(Text(_describe_fault(fault)) for fault in snapshot.faults if _holds(fault, snapshot.now_s)),
        *(Text(printable(remark), style="dim") for remark in snapshot.remarks),
    ]
    return Group(*parts)


def _describe_fault(fault: FaultSpan) -> str:
    until = "the end of the run" if fault.end_s is None else f"{fault.end_s:g} s"
    return f"fault: {fault.kind} from {fault.begin_s:g} s to {until}"


def _holds(fault: FaultSpan, now_s: float | None) -> bool:
    return now_s is not None and fault.begin_s <= now_s and (fault.end_s is None or now_s < fault.end_s)


def _bars(phases: Iterable[PhaseSpan], now_s: float | None) -> Table:
    """Return a bar for each phase whose end is planned."""
    table = Table.grid(padding=(0, 1))
    for phase in phases:
        begin_s, end_s = phase.begin_s, phase.end_s
        if now_s is None or begin_s is None or end_s is None or phase.name not in ("warmup", "workload", "cooldown"):
            continue
        length_s = max(end_s - begin_s, 1e-9)
        done_s = min(max(now_s - begin_s, 0.0), length_s)
        table.add_row(phase.name, ProgressBar(total=length_s, completed=done_s, width=40), f"{length_s:g} s")
    return table


def _table(rows: Iterable[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        table.add_row(Text(name, style="dim"), Text(printable(value)))
    return table


def _charts(snapshot: Snapshot) -> Table:
    """Return the last seconds of some numbers as rows of bars, with the largest value of each."""
    seconds = snapshot.history[-_CHART_S:]
    columns: dict[str, tuple[list[float | None], str]] = {
        "delivered per s": ([each.delivered for each in seconds], ""),
        "delay p99": ([each.delay_p99_ms for each in seconds], " ms"),
        "lateness p99": ([each.lateness_p99_ms for each in seconds], " ms"),
    }
    table = Table.grid(padding=(0, 2))
    for name, (values, unit) in columns.items():
        known = [value for value in values if value is not None]
        if known:
            table.add_row(Text(name, style="dim"), Text(bars(values)), Text(f"at most {max(known):.3g}{unit}"))
    return table


def bars(values: Sequence[float | None]) -> str:
    """Return a character for each value, as high as its share of the largest one; a space = not known."""
    largest = max((value for value in values if value is not None), default=0) or 1
    steps = len(_LEVELS) - 1
    return "".join(" " if value is None else _LEVELS[round(value / largest * steps)] for value in values)
