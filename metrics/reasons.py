"""The sentences of a verdict's reasons: how a process ended, and which check failed.

Whoever watches a run imports this module, so it imports little.
"""

from collections.abc import Iterable

from metrics.rundir import Check, FinalState, Timeline


def describe_end(state: FinalState, timeline: Timeline, problems: Iterable[tuple[str, str]]) -> str | None:
    """Return the end of a process as a clause if it was not expected; None if it was.

    Args:
        state: how the process ended.
        timeline: of the run.
        problems: the running stage's own; None is returned if one of them is about the process.
    """
    cooldown, at_ns = timeline.phase("cooldown"), state.at_ns
    early = cooldown is not None and at_ns is not None and state.expected == "exited" and at_ns < cooldown.end_ns
    if state.state == state.expected and not state.status and not early:
        return None
    if any(text.startswith(f"{state.process} ") for _, text in problems):
        return None
    when = "" if at_ns is None else f" at {(at_ns - timeline.zero_ns) / 1e9:.1f} s"
    how = {
        "signalled": f"was killed by signal {state.status}",
        "exited": f"exited with status {state.status}" + (", before the plan's end" if early else ""),
        "running": "was still running",
        "missing": "left no record of its end",
    }.get(state.state, f"ended as {state.state}")
    detail = f" ({state.detail})" if state.detail else ""
    return f"{state.process} {how}{when}, expected {state.expected}{detail}"


def describe(check: Check) -> str:
    """Return a failed check as one sentence with its numbers."""
    name = check.name.replace("_", " ")
    worst = f"worst {check.worst:.4g} {check.unit}, tolerance {check.tolerance:.4g}".replace(" ,", ",")
    counted = f"{check.failed:,} of {check.tested:,} failed, " if check.tested > 1 and check.failed > 1 else ""
    detail = f": {check.detail}" if check.detail else ""
    return f"Check {name} failed ({counted}{worst}){detail}"
