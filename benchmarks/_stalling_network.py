"""A network whose machine stalls at random: what the prober would see of it, without any process or clock."""

import tempfile
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from harness.planes.userspace.defects import Firsts, LateFirsts
from harness.testbeds.emulated.certifier import Certifier
from harness.testbeds.emulated.probes import Prober
from metrics.recorded import first_packets
from metrics.recorded.first_packets import IntroductionAttempt
from metrics.recorded.stalls import merge, read_stalls
from metrics.rundir import Stall
from metrics.rundir.files import STALLS_FILE
from topologies.network import Network

RATE_PER_S = 8000.0
LONGEST_S = 40.0
PAUSE_NS = 10**9
MS = 1_000_000

Ints = npt.NDArray[np.int64]


class StallingNetwork:
    """Answers as ``Prober.exchange`` does. Whatever is due in a stall of the machine happens at the stall's end."""

    def __init__(self, network: Network, stalls_ns: Ints, defect: LateFirsts | None, seed: int) -> None:
        """Begin with hosts that have exchanged nothing.

        Args:
            network: what is asked, and what happens but for stalls and the defect.
            stalls_ns: (n, 2) sorted and disjoint.
            defect: of first frames; None = there is none.
            seed: of the errors of an idle machine.
        """
        self._delay_ns = (network.asked_of_pairs().delay_ms * MS).astype(np.int64)
        self._stalls_ns = stalls_ns
        self._firsts = defect and Firsts(defect)
        self._random = np.random.default_rng(seed)
        self._now_ns = 0

    def exchange(self, pairs: Ints, due_ns: Ints) -> tuple[Ints, Ints]:
        """Instants of sending and of the replies; the next exchange begins a second later."""
        there, back = self._delay_ns[*pairs.T], self._delay_ns[*pairs.T[::-1]]
        extra = np.array([[self._extra_ns(*pair), self._extra_ns(*pair[::-1])] for pair in pairs.tolist()]).T
        sent = self._release(self._now_ns + due_ns)
        arrived = self._release(sent + there + extra[0])
        received = self._release(arrived + back + extra[1]) + self._random.integers(50_000, 150_000, len(pairs))
        self._now_ns += int(due_ns[-1]) + PAUSE_NS
        return sent, received

    def _extra_ns(self, source: int, destination: int) -> int:
        return self._firsts.extra_ns(source, destination) if self._firsts else 0

    def _release(self, at_ns: Ints) -> Ints:
        """When what is due at these instants happens."""
        before = np.searchsorted(self._stalls_ns[:, 0], at_ns, side="right")
        ends = np.append(self._stalls_ns[:, 1], 0)[before - 1]
        return np.where(before > 0, np.maximum(ends, at_ns), at_ns)


def draw_stalls(rate_per_s: float, shortest_ms: float, longest_ms: float, random: np.random.Generator) -> Ints:
    """(n, 2) stalls that begin at a steady rate, of lengths between the two, over ``LONGEST_S``."""
    count = random.poisson(rate_per_s * LONGEST_S)
    starts = np.sort(random.uniform(0, LONGEST_S * 1e9, count)).astype(np.int64)
    return merge(np.column_stack([starts, starts + (random.uniform(shortest_ms, longest_ms, count) * MS).astype(int)]))


def introduce(
    network: Network, stalls_ns: Ints, defect: LateFirsts | None, seed: int, *, watched: bool = False
) -> list[IntroductionAttempt]:
    """The attempts that the certificate makes in such a network. ``watched``: the stalls are in ``stalls.jsonl``."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder)
        if watched:
            lines = [Stall("host", start, end, 0).line() for start, end in stalls_ns.tolist()]
            (run_dir / STALLS_FILE).write_bytes(b"".join(lines))
        prober = cast(Prober, StallingNetwork(network, stalls_ns, defect, seed))
        rows = Certifier(prober, network, run_dir, seed).introduce(RATE_PER_S)
        return first_packets.judge(rows, read_stalls(run_dir))
