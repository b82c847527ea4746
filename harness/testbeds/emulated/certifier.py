"""The schedule of probes: the introduction of hosts before the workload, the sweeps, and repetitions.

A probe is repeated only if a stall of the host explains its error. All attempts are recorded.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from harness.testbeds.base import Moment
from harness.testbeds.emulated.introduction import Introduction, Slots
from harness.testbeds.emulated.probes import APART_MS, AskedOfProbes, Prober
from metrics import first_packets
from metrics.probing import MOST_ATTEMPTS, PAIR_FACTOR, explained, last_attempts, limits_ms, measure_sweep
from metrics.rundir.files import FIRST_PACKETS_FILE
from metrics.rundir.parquet import labelled
from metrics.stalls import read_stalls
from peer.runtime.clock import UNDILATED, Clock
from topologies.network import Network

AGAIN_MS = 0.4
"""The most error with which a pair is not probed again. Errors of an idle machine are around 0.15 ms, so a pair that is
off by ``metrics.offsets.OFFSET_MS`` is probed again."""

SLOT_NS = 50_000
"""Real time between the two probes of a slot."""


class Certifier:
    """Probes the idle network through the prober, and records the results."""

    def __init__(self, prober: Prober, network: Network, run_dir: Path, seed: int, clock: Clock = UNDILATED) -> None:
        """Plan the introduction of hosts.

        Args:
            prober: sends the probes and keeps the rows of sweeps.
            network: what is asked of packets.
            run_dir: has ``stalls.jsonl`` and gets ``first_packets.parquet``.
            seed: seed of the order in which hosts are introduced.
            clock: the clock of the run.
        """
        self._prober = prober
        self._run_dir = run_dir
        self._clock = clock
        self._asked = AskedOfProbes.of(network)
        self._random = np.random.default_rng([seed, 0x666972])
        self._introduction = Introduction(self._asked.there_ms, self._asked.rtt_ms, self._random)

    def introduce(self, rate_per_s: float) -> pa.Table:
        """Let hosts exchange their first packets, and repeat with new pairs if ``first_packets.another_due``.

        Args:
            rate_per_s: probes per second that the data plane carries.

        Returns:
            The rows of ``first_packets.parquet``, which it also writes.
        """
        settle_s = self._clock.dilation * (self._asked.rtt_ms + APART_MS) / 1e3
        tables = [first_packets.SCHEMA.empty_table()]
        while (slots := self._introduction.next_attempt(rate_per_s, settle_s)) is not None:
            tables.append(self._fill(len(tables), slots))
            if not first_packets.another_due(first_packets.judge(pa.concat_tables(tables), read_stalls(self._run_dir))):
                break
        rows = pa.concat_tables(tables)
        pq.write_table(labelled(rows), self._run_dir / FIRST_PACKETS_FILE)
        return rows

    def sweep(self, moment: Moment, packets: int, pace: Callable[[], float], limits: Mapping[str, float]) -> pa.Table:
        """Probe every pair of hosts, and repeat pairs whose error exceeds a limit because of a stall of the host.

        Args:
            moment: the phase of the rows.
            packets: the most requests to a pair in an attempt; one is enough if its error is at most the
                limit of the median and ``AGAIN_MS``.
            pace: see ``Prober.sweep``.
            limits: limits on the RTT errors, from the experiment's ``[verdict]``.

        Returns:
            The rows of each pair's last attempt.
        """
        limit_ms = np.minimum(limits_ms(self._asked.rtt_ms, "p50", limits), AGAIN_MS)
        swept = self._prober.sweep(moment, packets, pace, limit_ms)
        counting = swept
        for attempt in range(2, MOST_ATTEMPTS + 1):
            found = measure_sweep(counting, limits, read_stalls(self._run_dir))
            broken = [name for name, each in found.errors.items() if each.of_limit > 1]
            factors = dict.fromkeys(broken, 1.0)
            if found.worst_pair.late.samples:
                factors.setdefault("p99", PAIR_FACTOR)
            if found.worst_host.late.samples:
                factors.setdefault("p50", 1.0)
            spoilt = self._spoilt(swept, factors, limits)
            if not spoilt.num_rows:
                break
            pairs = np.column_stack([spoilt["src"].to_numpy(), spoilt["dst"].to_numpy()])
            swept = self._prober.sweep(moment, packets, pace, limit_ms, pairs, attempt)
            counting = last_attempts(pa.concat_tables([counting, swept]))
        return counting

    def _spoilt(self, rows: pa.Table, factors: Mapping[str, float], limits: Mapping[str, float]) -> pa.Table:
        """Return the rows with an error beyond an exceeded limit that stalls of the host explain.

        Args:
            rows: of the last sweep.
            factors: of each limit that was exceeded, how many times it may be.
            limits: see ``sweep``.
        """
        if not factors:
            return rows.slice(0, 0)
        asked_ms = rows["asked_rtt_ms"].to_numpy()
        limit_ms = np.min([factor * limits_ms(asked_ms, name, limits) for name, factor in factors.items()], axis=0)
        return rows.filter(pa.array(explained(rows, limit_ms, read_stalls(self._run_dir))))

    def _fill(self, attempt: int, slots: Slots) -> pa.Table:
        """Send an attempt's probes and return its rows."""
        paired = slots.control[:, 0] >= 0
        start_ns = (slots.due_s * 1e9).astype(np.int64)
        control_leads = self._random.random(len(paired)) < 0.5
        pairs = np.concatenate([slots.first, slots.control[paired]])
        due_ns = np.concatenate(
            [start_ns + SLOT_NS * (control_leads & paired), (start_ns + SLOT_NS * ~control_leads)[paired]]
        )
        order = np.argsort(due_ns, kind="stable")
        instants = np.empty((2, len(pairs)), np.int64)
        instants[:, order] = self._prober.exchange(pairs[order], due_ns[order])
        controls = np.zeros((2, len(paired)), np.int64)
        controls[:, paired] = instants[:, len(paired) :]
        columns = {"attempt": np.full(len(paired), attempt), "host_first": slots.host_first}
        columns |= self._columns("", slots.first, instants[:, : len(paired)])
        columns |= self._columns("control_", slots.control, controls)
        return pa.table(
            [pa.array(columns[field.name], field.type) for field in first_packets.SCHEMA], first_packets.SCHEMA
        )

    def _columns(self, who: str, pairs: npt.NDArray[np.int64], instants: npt.NDArray[np.int64]) -> dict[str, pa.Array]:
        """Return the columns of one probe per slot: its pair and its (2, m) instants; null = no probe, or no reply."""
        absent = pairs[:, 0] < 0
        sent_ns, received_ns = instants
        found = {
            "src": pairs[:, 0],
            "dst": pairs[:, 1],
            "at_ns": sent_ns,
            "asked_there_ms": self._asked.there_ms[*pairs.T],
            "asked_rtt_ms": self._asked.rtt_ms[*pairs.T],
        }
        rtt_ms = pa.array((received_ns - sent_ns) / 1e6, mask=absent | (received_ns == 0))
        return {who + name: pa.array(values, mask=absent) for name, values in found.items()} | {f"{who}rtt_ms": rtt_ms}
