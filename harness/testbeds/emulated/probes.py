"""The fidelity certificate: the measured and the configured RTT of every pair of hosts.

A separate process probes for all hosts (``echo``), so that waiting for replies does not delay the running stage.
*Sweeps* before and after the workload probe every pair once, from one of its hosts: the RTT has the delays of both
directions, whichever host asks. A pair whose error is beyond its limit is probed again, since the machine may have
delayed the probe; a delay that is wrong stays wrong. Jitter is switched off for sweeps, so that they show the
emulation's own error. *Sampling* during the workload sends to random pairs with jitter; its rows have the configured
jitter. ``certifier`` schedules the probes.
"""

import contextlib
import gc
import multiprocessing
import os
import signal
import socket
import struct
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from harness.errors import TestbedError, describe_status
from harness.testbeds.emulated.echo import PACKET_BYTES, EchoSockets, Instants
from metrics.rundir.parquet import labelled
from peer.runtime.clock import UNDILATED, Clock
from topologies.model import Matrix
from topologies.network import Network

GRACE_MS = 1000.0
"""Time after the configured RTT after which a probe without a reply counts as lost."""

APART_MS = 50.0
"""Time between the due answer to a request and the next request of the pair."""

PATIENCE_S = 60.0
"""Additional time for an answer of the probing process, which a loaded machine delays."""

FEELERS = 2_000, 10_000
"""Numbers of requests of a sweep after which the rate of the next ones is estimated. The first requests cost more,
since everything is used for the first time, so it is estimated again after many more."""

SCHEMA = pa.schema(
    [
        ("src", pa.int32()),
        ("dst", pa.int32()),
        ("phase", pa.string()),
        ("attempt", pa.int32()),
        ("at_ns", pa.int64()),
        ("asked_there_ms", pa.float64()),
        ("asked_rtt_ms", pa.float64()),
        ("asked_jitter_ms", pa.float64()),
        ("first_rtt_ms", pa.float64()),
        ("rtt_ms", pa.float64()),
        ("rtt_at_ns", pa.int64()),
        ("sent", pa.int32()),
        ("received", pa.int32()),
    ]
)
"""``achieved.parquet``; docs/results.md explains the columns."""

Columns = dict[str, npt.NDArray[Any]]


class AskedOfProbes(NamedTuple):
    """What is asked of the probes of every directed pair of hosts, as (n, n) matrices.

    Attributes:
        there_ms: configured one-way delays of a request, with the time to send it over access links.
        rtt_ms: configured RTTs: the delays of both directions.
        jitter_ms: configured standard deviations of RTTs: of two independent one-way delays.
    """

    there_ms: Matrix
    rtt_ms: Matrix
    jitter_ms: Matrix

    @classmethod
    def of(cls, network: Network) -> Self:
        """Return what a network asks of them."""
        there_ms, jitter_ms = network.crossings_ms(PACKET_BYTES), network.asked_of_pairs().jitter_ms
        return cls(there_ms, there_ms + there_ms.T, np.hypot(jitter_ms, jitter_ms.T))


class Prober:
    """The probing process, and its rows so far."""

    def __init__(
        self,
        network: Network,
        netns: Sequence[str],
        addresses: Sequence[str],
        epoch_offset_ns: int,
        seed: int,
        clock: Clock = UNDILATED,
    ) -> None:
        """Start the process. Call it before any thread is started, because it forks.

        The process works in real time. This side converts to virtual time, except the rate of sweeps, which depends on
        the machine.

        Raises:
            TestbedError: the process could not open its sockets.
        """
        self._asked = AskedOfProbes.of(network)
        self._epoch_offset_ns = epoch_offset_ns
        self._clock = clock
        self._random = np.random.default_rng(seed)
        self._tables: list[pa.Table] = []
        self._connection, theirs = multiprocessing.Pipe()
        fork = multiprocessing.get_context("fork")
        self._process = fork.Process(target=_serve, args=(theirs, netns, addresses), daemon=True, name="prober")
        self._process.start()
        theirs.close()
        _bound(self._connection, PATIENCE_S)
        if problem := self._answer(0):
            raise TestbedError("start the prober", str(problem))

    def sweep(
        self,
        phase: str,
        most_packets: int,
        pace: Callable[[], float],
        limit_ms: Matrix,
        pairs: npt.NDArray[np.int64] | None = None,
        attempt: int = 1,
    ) -> pa.Table:
        """Probe pairs of hosts once each, and again while the least error is beyond the pair's limit or unknown.

        Args:
            phase: the phase of the rows.
            most_packets: the most requests to a pair.
            pace: returns the next rate in requests per second; called at the start, after each of ``FEELERS``, and
                before pairs are probed again.
            limit_ms: (n, n) limits of |RTT - RTT asked for|.
            pairs: (m, 2) sources and destinations; None = every pair, from one of its hosts.
            attempt: the attempt of the rows.

        Returns:
            The rows, which are also kept for ``write``.
        """
        if pairs is None:
            pairs = self._draw_pairs()
        asked_ms, most_ms = self._asked.rtt_ms[*pairs.T], limit_ms[*pairs.T]
        sent, received = np.zeros((2, most_packets, len(pairs)), np.int64)
        open_ = self._random.permutation(len(pairs))
        for packet in range(most_packets):
            for part in np.split(open_, FEELERS if packet == 0 else ()):
                if len(part):
                    due_ns = (np.arange(len(part)) * (1e9 / pace())).astype(np.int64)
                    sent[packet, part], received[packet, part] = self.exchange(pairs[part], due_ns)
            least_ms = np.fmin.reduce(np.abs(_rtt_ms(sent[:, open_], received[:, open_]) - asked_ms[open_]))
            open_ = open_[~(least_ms <= most_ms[open_])]
        return self._keep(phase, pairs, np.zeros_like(self._asked.jitter_ms), sent, received, attempt)

    def exchange(self, pairs: npt.NDArray[np.int64], due_ns: Instants) -> tuple[Instants, Instants]:
        """Send single requests with jitter off.

        Args:
            pairs: (m, 2) source and destination of each.
            due_ns: (m,) when to send each, in real ns from now, ascending.

        Returns:
            (m,) virtual instants at which each was sent and answered; 0 = not sent, or no answer.
        """
        grace_ns = self._grace_ns(jittered=False)
        self._tell((pairs.tolist(), due_ns, grace_ns))
        return self._instants((int(due_ns[-1]) + grace_ns) / 1e9)

    def start_sampling(self, rate_per_s: float, duration_s: float) -> None:
        """Start to probe random pairs at equal intervals, until ``stop_sampling`` or the end of the duration."""
        hosts = len(self._asked.rtt_ms)
        count = max(int(rate_per_s * duration_s), 0)
        source = self._random.integers(hosts, size=count)
        destination = (source + self._random.integers(1, hosts, size=count)) % hosts
        self._sampled = np.column_stack([source, destination])
        distance_s = self._clock.real_s(1 / max(rate_per_s, 1e-9))
        due_ns = ((np.arange(count) + 0.5) * distance_s * 1e9).astype(np.int64)
        self._tell((self._sampled.tolist(), due_ns, self._grace_ns(jittered=True)))

    def stop_sampling(self, phase: str) -> pa.Table:
        """Stop the sampling and keep its rows; each row is one packet."""
        self._tell(None)
        sent, received = self._instants(self._grace_ns(jittered=True) / 1e9)
        asked = sent > 0
        pairs, sent, received = self._sampled[asked], sent[asked][None], received[asked][None]
        return self._keep(phase, pairs, self._asked.jitter_ms, sent, received)

    def write(self, path: Path) -> None:
        """Write all rows, in order of their phases."""
        pq.write_table(labelled(pa.concat_tables([SCHEMA.empty_table(), *self._tables])), path)

    def lost(self) -> dict[str, str]:
        """Return the prober and how it ended, if it ended."""
        status = self._process.exitcode
        return {} if status is None else {"the prober": describe_status(status)}

    def close(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.join()

    def _draw_pairs(self) -> npt.NDArray[np.int64]:
        """Return every pair of hosts once; chance decides which of the two asks."""
        pairs = np.column_stack(np.triu_indices(len(self._asked.rtt_ms), 1))
        return np.where(self._random.random((len(pairs), 1)) < 0.5, pairs, pairs[:, ::-1])

    def _grace_ns(self, *, jittered: bool) -> int:
        longest_ms = (self._asked.rtt_ms + (6 * self._asked.jitter_ms if jittered else 0)).max()
        return int(self._clock.real_s(longest_ms + GRACE_MS) * 1e6)

    def _instants(self, within_s: float) -> tuple[Instants, Instants]:
        """Return the virtual instants at which the last exchange's requests were sent and answered; 0 = never."""
        sent, received = self._answer(within_s)
        return self._virtual(sent), self._virtual(received)

    def _virtual(self, epoch_ns: Instants) -> Instants:
        clock, offset_ns = self._clock, self._epoch_offset_ns
        return np.array([clock.virtual_ns(at - offset_ns) if at else 0 for at in epoch_ns.tolist()], np.int64)

    def _tell(self, message: object) -> None:
        """Send a command to the process. It reads at once, unless it hangs or has ended."""
        try:
            self._connection.send(message)
        except OSError as error:
            raise self._failure("read no command" if isinstance(error, BlockingIOError) else "ended") from None

    def _answer(self, within_s: float) -> Any:  # noqa: ANN401 - a pipe carries anything; the two callers say what they expect
        """Return the answer of the process; wait at most ``PATIENCE_S`` longer than it should take."""
        try:
            if self._connection.poll(within_s + PATIENCE_S):
                return self._connection.recv()
        except (EOFError, OSError):
            raise self._failure("ended") from None
        raise self._failure(f"gave no answer within {within_s + PATIENCE_S:.0f} s")

    def _failure(self, what: str) -> TestbedError:
        """End the process, since a late answer would not fit a later command, and return the error."""
        self._process.kill()
        return TestbedError("probe the emulated network", f"the prober {what}")

    def _keep(
        self,
        phase: str,
        pairs: npt.NDArray[Any],
        jitter_ms: Matrix,
        sent: Instants,
        received: Instants,
        attempt: int = 1,
    ) -> pa.Table:
        """Keep rows of ``(packets, pairs)`` instants. ``rtt_ms`` is that of the packet with the least error."""
        source, destination = pairs[:, 0], pairs[:, 1]
        rtt_ms = _rtt_ms(sent, received)
        asked_ms = self._asked.rtt_ms[source, destination]
        error_ms = np.abs(rtt_ms - asked_ms)
        least = np.where(np.isnan(error_ms), np.inf, error_ms).argmin(axis=0), np.arange(len(pairs))
        columns: Columns = {
            "src": source,
            "dst": destination,
            "phase": np.full(len(pairs), phase),
            "attempt": np.full(len(pairs), attempt),
            "at_ns": sent[0],
            "asked_there_ms": self._asked.there_ms[source, destination],
            "asked_rtt_ms": asked_ms,
            "asked_jitter_ms": jitter_ms[source, destination],
            "first_rtt_ms": rtt_ms[0],
            "rtt_ms": rtt_ms[least],
            "rtt_at_ns": sent[least],
            "sent": (sent > 0).sum(axis=0),
            "received": (received > 0).sum(axis=0),
        }
        arrays = [pa.array(columns[field.name], field.type, from_pandas=True) for field in SCHEMA]
        table = pa.table(arrays, schema=SCHEMA)
        self._tables.append(table)
        return table


def _bound(connection: Connection, seconds: float) -> None:
    """Set a timeout for reads and writes within a message, which may be larger than the pipe."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            same.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6)))


def _rtt_ms(sent: Instants, received: Instants) -> Matrix:
    """Return round-trip times; NaN = lost."""
    return np.where(received > 0, (received - sent) / 1e6, np.nan)


# ------------------------------------------------------------------------------------------ the probing process


def _serve(connection: Connection, netns: Sequence[str], addresses: Sequence[str]) -> None:
    """Answer each (pairs, due_ns, grace_ns) with (sent, received). A message during an exchange stops the sending."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the running stage handles Ctrl-C
    gc.disable()  # a collection would visit all inherited objects and delay a probe
    with contextlib.suppress(PermissionError):  # so that no process runs between a timestamp and its request
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
