"""The fidelity certificate: the RTT of every directed pair asked for against the one measured.

One process probes for all hosts (``echo``), beside the running stage, so that waiting for replies holds nothing up.
*Sweeps* before and after the workload send to every directed pair; jitter is switched off for them, so that what
they show is the emulation's own error and not the randomness that was asked for. *Sampling* during the workload
sends to random pairs with everything on; its rows carry the asked jitter.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from harness.errors import TestbedError
from harness.testbeds.emulated.echo import PACKET_BYTES, EchoSockets, Instants
from peer.runtime.clock import UNDILATED, Clock
from topologies.model import Underlay

GRACE_MS = 1000.0
"""How long after its asked RTT a reply may still come before the probe counts as lost."""

APART_MS = 50.0
"""What lies between a request's due answer and its pair's next request."""

FEELERS = 2_000, 30_000
"""A sweep's requests after which the pace of the others is found: the first ones cost more, for all that they meet is
used for the first time, so after many more it is found again."""

SCHEMA = pa.schema(
    [
        ("src", pa.int32()),
        ("dst", pa.int32()),
        ("phase", pa.string()),
        ("at_ns", pa.int64()),
        ("asked_rtt_ms", pa.float64()),
        ("asked_jitter_ms", pa.float64()),
        ("first_rtt_ms", pa.float64()),
        ("next_rtt_ms", pa.float64()),
        ("rtt_ms", pa.float64()),
        ("sent", pa.int32()),
        ("received", pa.int32()),
    ]
)
"""``achieved.parquet``; docs/results.md explains the columns."""

Matrix = npt.NDArray[np.float64]
Columns = dict[str, npt.NDArray[Any]]


def asked_rtt_ms(underlay: Underlay) -> Matrix:
    """(n, n) RTT that a probe should see: both directions' delays, and its four passages through an access link."""
    with np.errstate(divide="ignore"):
        passage_ms = np.where(underlay.rate_mbit > 0, PACKET_BYTES * 8 / 1000 / underlay.rate_mbit, 0.0)
    return np.asarray(underlay.rtt_ms + 2 * (passage_ms[:, None] + passage_ms[None, :]))


def asked_jitter_ms(underlay: Underlay) -> Matrix:
    """(n, n) standard deviation asked for a pair's RTT: two independent one-way delays."""
    return np.hypot(underlay.jitter_ms, underlay.jitter_ms.T)


def interleave(pairs: int, packets: int, rate_per_s: float, apart_ns: float) -> tuple[Instants, Instants]:
    """Which request goes when, for packets to as many pairs.

    Args:
        pairs: how many pairs.
        packets: how many to each, equally many a second of the first, the second and so on.
        rate_per_s: requests a second, when all are under way.
        apart_ns: between two requests of a pair.

    Returns:
        The requests, ``packet * pairs + pair``, in the order of their instants, and these, ns from the start.
    """
    turn_ns = np.arange(pairs) * (packets * 1e9 / rate_per_s)
    due_ns = np.add.outer(np.arange(packets) * apart_ns, turn_ns).ravel().astype(np.int64)
    order = np.argsort(due_ns, kind="stable")
    return order, due_ns[order]


class Prober:
    """The probing process, and the rows that it has brought in so far."""

    def __init__(
        self,
        underlay: Underlay,
        netns: Sequence[str],
        addresses: Sequence[str],
        epoch_offset_ns: int,
        seed: int,
        clock: Clock = UNDILATED,
    ) -> None:
        """Start the process. Call it before any thread is started: it forks.

        The process itself works in real time; this side asks and answers in virtual time, but for the sweeps' pace,
        which is the machine's.

        Raises:
            TestbedError: the process could not open its sockets.
        """
        self._asked_rtt_ms = asked_rtt_ms(underlay)
        self._asked_jitter_ms = asked_jitter_ms(underlay)
        self._epoch_offset_ns = epoch_offset_ns
        self._clock = clock
        self._random = np.random.default_rng(seed)
        self._tables: list[pa.Table] = []
        self._connection, theirs = multiprocessing.Pipe()
        fork = multiprocessing.get_context("fork")
        self._process = fork.Process(target=_serve, args=(theirs, netns, addresses), daemon=True, name="prober")
        self._process.start()
        theirs.close()
        self._await_ready()

    def sweep(self, phase: str, packets_per_pair: int, pace: Callable[[], float]) -> pa.Table:
        """Probe every directed pair. A pair's next request goes when its last one should have been answered.

        So in a sweep that takes much longer than a round trip (some 100 hosts or more), first, second and further
        requests are under way side by side, and what befalls the machine befalls them alike: what remains between
        them is what makes a flow's first packet different.

        Args:
            phase: the rows' phase.
            packets_per_pair: how many, at least 2.
            pace: the requests a second to go on with, asked at the beginning and after each of ``FEELERS``.

        Returns:
            The phase's rows (they are also kept for ``write``).
        """
        pairs = np.argwhere(~np.eye(len(self._asked_rtt_ms), dtype=bool))
        order = self._random.permutation(len(pairs))
        parts = np.split(order, np.array(FEELERS) // packets_per_pair)
        instants = [self._repeat(pairs[part], packets_per_pair, pace()) for part in parts if len(part)]
        sent, received = (np.concatenate(rows, axis=1) for rows in zip(*instants, strict=True))
        back = np.argsort(order)
        return self._keep(phase, pairs, np.zeros_like(self._asked_jitter_ms), sent[:, back], received[:, back])

    def start_sampling(self, rate_per_s: float, duration_s: float) -> None:
        """Begin to probe random pairs, at equal distances in time, until ``stop_sampling`` or the duration's end."""
        hosts = len(self._asked_rtt_ms)
        count = max(int(rate_per_s * duration_s), 0)
        source = self._random.integers(hosts, size=count)
        destination = (source + self._random.integers(1, hosts, size=count)) % hosts
        self._sampled = np.column_stack([source, destination])
        distance_s = self._clock.real_s(1 / max(rate_per_s, 1e-9))
        due_ns = ((np.arange(count) + 0.5) * distance_s * 1e9).astype(np.int64)
        self._connection.send((self._sampled.tolist(), due_ns, self._grace_ns(jittered=True)))

    def stop_sampling(self, phase: str) -> pa.Table:
        """End the sampling and take its rows in; every row is one packet."""
        self._connection.send(None)
        sent, received = self._instants()
        asked = sent > 0
        pairs, sent, received = self._sampled[asked], sent[asked][None], received[asked][None]
        return self._keep(phase, pairs, self._asked_jitter_ms, sent, received)

    def write(self, path: Path) -> None:
        """Write all rows, in the order of their phases."""
        pq.write_table(pa.concat_tables([SCHEMA.empty_table(), *self._tables]), path)

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.kill()
        self._process.join()

    def _repeat(self, pairs: npt.NDArray[Any], packets: int, rate_per_s: float) -> tuple[Instants, Instants]:
        """Send each pair its packets; the instants are ``(packets, pairs)``."""
        apart_ns = self._clock.real_s(self._asked_rtt_ms.max() + APART_MS) * 1e6
        order, due_ns = interleave(len(pairs), packets, rate_per_s, apart_ns)
        self._connection.send((np.tile(pairs, (packets, 1))[order].tolist(), due_ns, self._grace_ns(jittered=False)))
        sent, received = self._instants()
        back = np.argsort(order)
        return sent[back].reshape(packets, -1), received[back].reshape(packets, -1)

    def _grace_ns(self, *, jittered: bool) -> int:
        longest_ms = (self._asked_rtt_ms + (6 * self._asked_jitter_ms if jittered else 0)).max()
        return int(self._clock.real_s(longest_ms + GRACE_MS) * 1e6)

    def _await_ready(self) -> None:
        problem = self._answer()
        if problem:
            raise TestbedError("start the prober", str(problem))

    def _instants(self) -> tuple[Instants, Instants]:
        """When each request of the last exchange was sent and answered: virtual instants; 0 = it was not."""
        sent, received = self._answer()
        return self._virtual(sent), self._virtual(received)

    def _virtual(self, epoch_ns: Instants) -> Instants:
        clock, offset_ns = self._clock, self._epoch_offset_ns
        return np.array([clock.virtual_ns(at - offset_ns) if at else 0 for at in epoch_ns.tolist()], np.int64)

    def _answer(self) -> Any:  # noqa: ANN401 - a pipe carries anything; the two callers say what they expect
        try:
            return self._connection.recv()
        except EOFError:
            raise TestbedError("probe the emulated network", "the prober ended") from None

    def _keep(
        self,
        phase: str,
        pairs: npt.NDArray[Any],
        jitter_ms: Matrix,
        sent: Instants,
        received: Instants,
    ) -> pa.Table:
        """Keep rows of ``(packets, pairs)`` instants; where there was but one packet, it is no flow's first."""
        source, destination = pairs[:, 0], pairs[:, 1]
        rtt_ms = _rtt_ms(sent, received)
        single = len(rtt_ms) == 1
        first_ms, next_ms = np.full((2, len(pairs)), np.nan) if single else rtt_ms[:2]
        columns: Columns = {
            "src": source,
            "dst": destination,
            "phase": np.full(len(pairs), phase),
            "at_ns": sent[0],
            "asked_rtt_ms": self._asked_rtt_ms[source, destination],
            "asked_jitter_ms": jitter_ms[source, destination],
            "first_rtt_ms": first_ms,
            "next_rtt_ms": next_ms,
            "rtt_ms": _least(rtt_ms if single else rtt_ms[1:]),
            "sent": (sent > 0).sum(axis=0),
            "received": (received > 0).sum(axis=0),
        }
        arrays = [pa.array(columns[field.name], field.type, from_pandas=True) for field in SCHEMA]
        table = pa.table(arrays, schema=SCHEMA)
        self._tables.append(table)
        return table


def _rtt_ms(sent: Instants, received: Instants) -> Matrix:
    """Round-trip times; NaN = lost."""
    return np.where(received > 0, (received - sent) / 1e6, np.nan)


def _least(rtt_ms: Matrix) -> Matrix:
    """The least of each column; NaN where the whole column is."""
    return np.asarray(np.fmin.reduce(rtt_ms, axis=0))


# ------------------------------------------------------------------------------------------ the probing process


def _serve(connection: Connection, netns: Sequence[str], addresses: Sequence[str]) -> None:
    """Answer each (pairs, due_ns, grace_ns) with (sent, received). A message that comes meanwhile stops the sending."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the running stage's to handle
    gc.disable()  # a collection would walk all that was inherited, and hold a probe up
    with contextlib.suppress(PermissionError):  # so that nobody comes between a stamp and its sending
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(os.sched_get_priority_min(os.SCHED_FIFO)))
    try:
        sockets = EchoSockets(netns, addresses)
    except TestbedError as error:
        connection.send(str(error))
        return
    connection.send("")
    while True:
        asked = connection.recv()
        if asked is not None:
            pairs, due_ns, grace_ns = asked
            connection.send(sockets.exchange(pairs, due_ns, grace_ns, stopped=connection.poll))
