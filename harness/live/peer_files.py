"""The files that peers and agents write during a run on this machine: traces, logs, and how peers ended.

They are in the work folder of the run, until they are collected into the run directory under the same names.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from msgspec.json import Decoder

from harness.live.following import MOST_BYTES, Followed, read_tail
from harness.live.traces import TraceLine
from metrics.rundir import FinalState, Record, read_document
from metrics.rundir.files import DEPLOYMENT_FILE, WORK_FOLDER, exits_file
from peer.files import EXITS_FILE, TRACE_FOLDER, log_file, trace_file

LOG_BYTES: Final = 64 << 10
"""The length of the end of a log that is shown."""

_FOLDER = re.compile(r"[0-9a-f]{1,64}\Z")
_TRACE, _END = Decoder(TraceLine), Decoder(FinalState)


def find_work_folder(run_dir: Path) -> Path | None:
    """Return the folder in which the peers of a run on this machine work; None = it is not known yet, or not here."""
    record = _read_record(run_dir)
    if record is None:
        return None
    folder = run_dir / WORK_FOLDER / record.folder
    return folder if _FOLDER.match(record.folder) and folder.is_dir() else None


def _read_record(run_dir: Path) -> Record | None:
    path = run_dir / DEPLOYMENT_FILE
    return read_document(path, Decoder(Record).decode) if path.exists() else None


def count_traces(folder: Path) -> int:
    """Return how many traces there are in a work folder: a peer that has begun has one."""
    return sum(1 for _ in (folder / TRACE_FOLDER).glob("*.jsonl"))


def read_log(run_dir: Path, node: int) -> bytes | None:
    """Return the end of the log of a node's peer; None = there is none here.

    Peers that share a process have one log, which has the name of the first one's node.
    """
    record = _read_record(run_dir)
    first = next((nodes[0] for nodes in record.shared if node in nodes), node) if record is not None else node
    for folder in (find_work_folder(run_dir), run_dir):
        if folder is not None:
            try:
                return read_tail(folder / log_file(first), LOG_BYTES)
            except OSError:
                continue
    return None


class PeerFiles:
    """The files of a run whose peers are up, or have ended.

    Args:
        run_dir: the run directory.
        nodes: those of the plan.
        machines: on which they run.

    Attributes:
        ends: how peers have ended so far.
        is_behind: whether the last call of ``read_traces`` has left something to read.
    """

    def __init__(self, run_dir: Path, nodes: Iterable[int], machines: Iterable[str]) -> None:
        work = find_work_folder(run_dir)
        here = [] if work is None else [work]
        folders = [*here, run_dir]
        self._traces = [Followed([folder / trace_file(node) for folder in folders], _TRACE.decode) for node in nodes]
        self._exits = [
            Followed([*(folder / EXITS_FILE for folder in here), run_dir / exits_file(machine)], _END.decode)
            for machine in machines
        ]
        self._next = 0
        self.ends: dict[str, FinalState] = {}
        self.is_behind = False

    @property
    def begun(self) -> int:
        """How many peers have a trace."""
        return sum(each.exists for each in self._traces)

    def read_ends(self) -> None:
        """Read which peers have ended."""
        for file in self._exits:
            for state in file.read_all():
                self.ends[state.process] = state

    def read_traces(self, most_bytes: int) -> Iterator[TraceLine]:
        """Yield the lines of all traces that were added since the last call.

        Args:
            most_bytes: how much is read, about; the next call goes on where this one stops.
        """
        left_bytes, self.is_behind = most_bytes, False
        for number in range(len(self._traces)):
            if left_bytes <= 0:
                self._next, self.is_behind = (self._next + number) % len(self._traces), True
                return
            file = self._traces[(self._next + number) % len(self._traces)]
            before = file.offset
            yield from file.read()
            left_bytes -= file.offset - before
            self.is_behind |= file.offset - before > MOST_BYTES // 2
