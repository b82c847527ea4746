"""Read ``stalls.jsonl``: when the machine's processors, or the data plane, stood still, and what that explains.

A late sample is *explained* by the host if it would have been in time without the stalls of the host: its interval,
from the instant at which it was due to the instant at which it came, less the part that stalls cover, is within the
limit. So a stall of a millisecond does not explain a lateness of a hundred.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct, json

from metrics.rundir.documents import Check, PlanOutline, Stall
from metrics.rundir.files import PLAN_FILE, STALLS_FILE
from metrics.rundir.reading import read_document, read_lines
from metrics.storage import Place

_STALLS = json.Decoder(Stall)
_PLAN = json.Decoder(PlanOutline)

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

SLACK_NS = 1_000_000
"""A stall of the host may have begun this long before the recorded instant, and what it delayed may run this long after
its end, in ns of real time: the watchdog looks once a millisecond, and all that a stall delayed runs at once."""


class Late(NamedTuple):
    """Samples that are later than a limit, and how many of them stalls of the host explain."""

    samples: int
    explained: int


class Stalls(Struct, frozen=True):
    """The stalls of a run, in ns of virtual time."""

    host: Ints  # (n, 2) beginnings and ends, sorted and disjoint: at least one processor stood still
    plane: Ints  # (n, 2) likewise: the data plane did nothing although something was due
    slack_ns: int = SLACK_NS  # ``SLACK_NS`` in virtual time

    def explain(self, instants_ns: Ints) -> Bools:
        """Return which instants lie inside a stall of the host, widened by the slack at both ends."""
        starts, ends = self._widened().T
        at = np.asarray(instants_ns, np.int64)
        before = np.searchsorted(starts, at, side="right")
        return np.asarray((before > 0) & (np.append(ends, 0)[before - 1] >= at), np.bool_)

    def covered_ns(self, due_ns: Ints, came_ns: Ints) -> Ints:
        """Return the part of each interval that stalls of the host explain: what they cover, and the slack at each end.

        The slack counts once for any number of stalls, otherwise many short ones would explain any lateness.
        """
        noted_ns = covered_ns(self.host, due_ns, came_ns)
        return np.minimum(noted_ns + 2 * self.slack_ns, covered_ns(self._widened(), due_ns, came_ns))

    def excuse(self, due_ns: Ints, came_ns: Ints, limit_ns: Ints | int) -> Bools:
        """Return which samples the host explains: samples beyond the limit that would not be so without its stalls.

        Args:
            due_ns: (n,) when each sample was due.
            came_ns: (n,) when it came.
            limit_ns: how late a sample may be; one limit, or (n,).
        """
        late_ns = np.asarray(came_ns, np.int64) - np.asarray(due_ns, np.int64)
        return np.asarray((late_ns > limit_ns) & (late_ns - self.covered_ns(due_ns, came_ns) <= limit_ns))

    def tally(self, due_ns: Ints, came_ns: Ints, limit_ns: Ints | int) -> Late:
        """Count the samples that are later than the limit, and the samples among them that the host explains.

        Args:
            due_ns: (n,) when each sample was due.
            came_ns: (n,) when it came.
            limit_ns: how late a sample may be; one limit, or (n,).
        """
        late = np.asarray(came_ns, np.int64) - np.asarray(due_ns, np.int64) > limit_ns
        return Late(int(late.sum()), int(self.excuse(due_ns, came_ns, limit_ns).sum()))

    def _widened(self) -> Ints:
        return merge(self.host + np.array([-self.slack_ns, self.slack_ns]))


def is_the_hosts(check: Check) -> bool:
    """Return whether a check failed that would have passed without the samples that stalls of the host explain."""
    if not check.failed or check.late is None or check.explained is None or check.allowed is None:
        return False
    return check.explained > 0 and check.late > check.allowed >= check.late - check.explained


def read_stalls(run_dir: Place) -> Stalls:
    """Read the run's stalls, none if the file is missing."""
    path = run_dir / PLAN_FILE
    dilation = read_document(path, _PLAN.decode).experiment["time_dilation"] if path.exists() else 1
    return join_stalls(read_lines(run_dir / STALLS_FILE, _STALLS.decode), dilation)


def join_stalls(lines: Iterable[Stall], dilation: float) -> Stalls:
    """Return the stalls of some lines of ``stalls.jsonl``; ``dilation``: real seconds per virtual second."""
    found: dict[str, list[tuple[int, int]]] = {"host": [], "plane": []}
    for stall in lines:
        found.setdefault(stall.source, []).append((stall.start_ns, stall.end_ns))
    host, plane = (merge(np.array(found[source], np.int64).reshape(-1, 2)) for source in ("host", "plane"))
    return Stalls(host, plane, round(SLACK_NS / dilation))


def merge(intervals: Ints) -> Ints:
    """Return (n, 2) intervals in any order as sorted and disjoint ones; intervals that touch become one."""
    if not len(intervals):
        return intervals
    starts, ends = intervals[np.argsort(intervals[:, 0], kind="stable")].T
    reached = np.maximum.accumulate(ends)
    first = np.append(True, starts[1:] > reached[:-1])
    last = np.append(first[1:], True)
    return np.column_stack([starts[first], reached[last]])


def covered_ns(intervals: Ints, due_ns: Ints, came_ns: Ints) -> Ints:
    """Return how much of each span of time is inside intervals.

    Args:
        intervals: (n, 2) sorted and disjoint intervals.
        due_ns: the begin of each span.
        came_ns: the end of each span.
    """
    passed = np.append(0, np.cumsum(intervals[:, 1] - intervals[:, 0]))

    def covered_until(instants_ns: Ints) -> Ints:
        before = np.searchsorted(intervals[:, 0], instants_ns, side="right")
        unfinished = np.append(intervals[:, 1], 0)[before - 1] - instants_ns
        return np.asarray(passed[before] - np.where(before > 0, np.maximum(unfinished, 0), 0), np.int64)

    due_ns, came_ns = np.asarray(due_ns, np.int64), np.asarray(came_ns, np.int64)
    return np.asarray(np.maximum(covered_until(came_ns) - covered_until(due_ns), 0), np.int64)
