"""Measures the round trips between all addresses of a run, by a prober on each machine."""

import secrets
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Meta, Struct

from harness.deployment.answers import StepError
from harness.deployment.fleet import Deployment
from harness.deployment.script import Script
from harness.deployment.session import MachineSession
from harness.experiment.inventory import PROBE_PORT
from metrics.recorded.round_trips import SCHEMA
from metrics.rundir import ClockOffset, Placement
from metrics.rundir.parquet import labelled

APART_S = 0.2
"""Time between two requests of a pair in a sweep."""

RATE_PER_S = 1000.0
"""Requests of a machine per second in a sweep."""

GRACE_S = 2.0
"""Time after which a request without an answer counts as lost."""

PATIENCE_S = 60.0
ANSWER_BYTES = 64 << 20

_PROBER = resources.files(__package__).joinpath("prober.py").read_bytes()

Pair = tuple[str, str]
"""The addresses of the asker and of the asked."""

Nanoseconds = Annotated[int, Meta(ge=0, le=2**62)]


class Exchanged(Struct, frozen=True):
    """A prober's answer; 0 = not sent, not answered."""

    sent_ns: tuple[Nanoseconds, ...]
    rtt_ns: tuple[Nanoseconds, ...]


class Schedule(Struct, frozen=True):
    """What a prober is asked for; ``due_ns`` are from its arrival on."""

    pairs: list[Pair]
    due_ns: list[int]
    grace_ns: int = round(GRACE_S * 1e9)

    @property
    def length_s(self) -> float:
        return (max(self.due_ns, default=0) + self.grace_ns) / 1e9


def pairs_of(placement: Sequence[Placement]) -> dict[str, list[Pair]]:
    """Return each machine's pairs: its addresses with all addresses. An address that nodes share is its own pair."""
    machines = {place.wan_ip: place.machine for place in placement}
    shared = {address for address in machines if sum(place.wan_ip == address for place in placement) > 1}
    found: dict[str, list[Pair]] = {}
    for source, machine in machines.items():
        own = [(source, other) for other in machines if other != source or source in shared]
        found.setdefault(machine, []).extend(own)
    return found


def sweep_schedule(pairs: Sequence[Pair], packets: int, random: np.random.Generator) -> Schedule:
    """Return a schedule with every pair as often as ``packets``: all of them once, then all again."""
    order = random.permutation(len(pairs))
    turn_s = max(APART_S, len(pairs) / RATE_PER_S)
    due_s = np.add.outer(np.arange(packets) * turn_s, np.arange(len(pairs)) / RATE_PER_S).ravel()
    return Schedule([pairs[place] for place in order] * packets, (due_s * 1e9).astype(np.int64).tolist())


def sample_schedule(pairs: Sequence[Pair], rate_per_s: float, length_s: float, random: np.random.Generator) -> Schedule:
    """Return a schedule with random pairs at equal intervals."""
    count = int(rate_per_s * length_s)
    chosen = random.integers(len(pairs), size=count)
    due_s = (np.arange(count) + 0.5) / max(rate_per_s, 1e-9)
    return Schedule([pairs[place] for place in chosen], (due_s * 1e9).astype(np.int64).tolist())


class RoundTrips:
    """The probers of a run, and what they have measured."""

    def __init__(self, deployment: Deployment, placement: Sequence[Placement], seed: int) -> None:
        self._deployment = deployment
        self._pairs = pairs_of(placement)
        self._addresses = {machine: sorted({source for source, _ in pairs}) for machine, pairs in self._pairs.items()}
        self._random = np.random.default_rng([seed, 0x727474])
        self._scripts: dict[str, Script] = {}
        self._sampled: dict[str, Schedule] = {}
        self._found: list[tuple[str, str, Schedule, Exchanged]] = []

    def start(self) -> None:
        """Start the probers.

        Raises:
            DeploymentError: one cannot listen on its address.
        """
        secret = secrets.token_hex(16)  # 16 bytes in the probers' packets
        self._deployment.each("start the prober", lambda session: self._start(session, secret))

    def _start(self, session: MachineSession, secret: str) -> None:
        name = session.machine.name
        said = {"secret": secret, "port": PROBE_PORT, "addresses": self._addresses[name]}
        script = session.start_script(_PROBER)
        self._scripts[name] = script
        script.tell(msgspec.json.encode(said))
        script.read_line()

    def sweep(self, phase: str, packets: int) -> None:
        """Probe every pair.

        Args:
            phase: of the rows.
            packets: requests per pair.

        Raises:
            DeploymentError: a prober gave no answer.
        """
        schedules = {name: sweep_schedule(pairs, packets, self._random) for name, pairs in self._pairs.items()}
        self._order(schedules)
        self._hear(phase, schedules)

    def start_sampling(self, rate_per_s: float, length_s: float) -> None:
        """Start to probe random pairs, at a rate over all machines."""
        total = sum(map(len, self._pairs.values()))
        self._sampled = {
            name: sample_schedule(pairs, rate_per_s * len(pairs) / total, length_s, self._random)
            for name, pairs in self._pairs.items()
        }
        self._order(self._sampled)

    def stop_sampling(self, phase: str) -> None:
        """End the sampling.

        Raises:
            DeploymentError: a prober gave no answer.
        """
        self._deployment.each("end the probes", lambda session: self._scripts[session.machine.name].tell(b""))
        self._hear(phase, self._sampled)

    def silent(self) -> dict[str, list[str]]:
        """Return the addresses that have answered none of a machine's requests, by machine."""
        found: dict[str, list[str]] = {}
        for machine, _, schedule, each in self._found:
            answered = {pair for pair, rtt_ns in zip(schedule.pairs, each.rtt_ns, strict=True) if rtt_ns}
            if missing := sorted({destination for _, destination in set(schedule.pairs) - answered}):
                found[machine] = missing
        return found

    def lost(self) -> dict[str, str]:
        """Return the probers that have ended."""
        return {f"the prober on {name}": "ended" for name, each in self._scripts.items() if each.has_ended}

    def write(self, path: Path, machine_of: Mapping[str, ClockOffset], epoch_offset_ns: int) -> None:
        """Write ``round_trips.parquet``.

        Args:
            path: the file.
            machine_of: the clocks of the machines that have their own.
            epoch_offset_ns: CLOCK_REALTIME - CLOCK_MONOTONIC of this machine.
        """
        tables = [SCHEMA.empty_table()]
        for machine, phase, schedule, found in self._found:
            ahead_ns = epoch_offset_ns + (machine_of[machine].realtime_ns if machine in machine_of else 0)
            tables.append(_rows(phase, schedule, found, ahead_ns))
        pq.write_table(labelled(pa.concat_tables(tables)), path)

    def _order(self, schedules: Mapping[str, Schedule]) -> None:
        lines = {name: msgspec.json.encode(schedule) for name, schedule in schedules.items()}
        self._deployment.each(
            "ask for probes", lambda session: self._scripts[session.machine.name].tell(lines[session.machine.name])
        )

    def _hear(self, phase: str, schedules: Mapping[str, Schedule]) -> None:
        decode = msgspec.json.Decoder(Exchanged).decode

        def hear_one(session: MachineSession) -> Exchanged:
            name = session.machine.name
            timeout_s = schedules[name].length_s + PATIENCE_S
            found = decode(self._scripts[name].read_line(timeout_s, ANSWER_BYTES))
            if not len(found.sent_ns) == len(found.rtt_ns) == len(schedules[name].pairs):
                raise StepError("the prober answered for other requests than it was asked for")
            return found

        found = self._deployment.each("hear of the probes", hear_one)
        self._found += [(name, phase, schedules[name], each) for name, each in found.items()]


def _rows(phase: str, schedule: Schedule, found: Exchanged, ahead_ns: int) -> pa.Table:
    """Return the requests that were sent; ``ahead_ns``: the asker's CLOCK_REALTIME minus our CLOCK_MONOTONIC."""
    sent_ns, rtt_ns = (np.array(each, np.int64) for each in (found.sent_ns, found.rtt_ns))
    source, destination = zip(*schedule.pairs, strict=True) if schedule.pairs else ((), ())
    columns: dict[str, Sequence[str] | npt.NDArray[np.int64] | pa.Array] = {
        "src_ip": source,
        "dst_ip": destination,
        "phase": [phase] * len(sent_ns),
        "at_ns": sent_ns - ahead_ns,
        "rtt_ms": pa.array(rtt_ns / 1e6, mask=rtt_ns == 0),
    }
    rows = pa.table([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)
    return rows.filter(pa.array(sent_ns > 0))
