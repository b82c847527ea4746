"""Simulates one point with one seed in memory: no run directory, no trace files, no matrix of delays."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from msgspec import Struct

from harness.experiment import Experiment
from harness.planning.making import make_overlay
from harness.studies.form import RunSpec
from harness.studies.measuring import measure_interests, measure_snapshot
from harness.studies.networks import make_network
from harness.studies.snapshots import share_slots, take_snapshot
from harness.studies.watching import Watch, measure_deliveries, measure_scores
from harness.testbeds.simulated.enactment import Enactment
from harness.testbeds.simulated.simulation import Simulation
from harness.testbeds.simulated.testbed import START_NS
from harness.workload.churn import Span
from harness.workload.drawing import Workload, draw_membership, draw_workload
from harness.workload.membership import first_population
from metrics.disclosure import disclosed_ratio, measure_disclosure
from peer.core.bitset import bitset, members
from peer.core.frames import Bye, Data, Hello
from peer.protocols.registry import background_kinds

SECOND_NS = 1_000_000_000

STEP_NS = SECOND_NS
"""How often it is looked whether the overlay has settled."""

BACKGROUND = {Hello.kind, Bye.kind} | background_kinds()
"""Frames that no join or leave causes: heartbeats, and what opens and closes a link, whoever wants it."""


class Row(Struct, frozen=True, array_like=True):
    """A value of a run.

    ``moment``: the snapshot's instant (s after the nodes' start) or the epoch's number; None = the whole run.
    ``by``: what the measure is counted by; None = it is a single number.
    """

    measure: str
    moment: float | None
    by: float | None
    value: float


class Traffic(Struct, frozen=True):
    """What honest nodes sent up to an instant, by frame kind, and how many had joined, left or crashed."""

    at_ns: int
    frames: dict[int, int]
    sizes_bytes: dict[int, int]
    changes: int


class PointRun:
    """One run in progress.

    Args:
        experiment: with the run's seed.
        run: how it is simulated.
        measures: what is wanted; anything else is not computed.
        folder: the paths in the experiment are relative to it.
    """

    def __init__(self, experiment: Experiment, run: RunSpec, measures: Collection[str], folder: Path) -> None:
        self._run = run
        self._measures = measures
        network, nodes = make_network(experiment.underlay, folder, experiment.seed)
        self._times = _times(experiment, run)
        workload = _draw_workload(experiment, nodes, folder, self._times)
        self._topics = experiment.workload.topics
        overlay = make_overlay(experiment, workload)
        self._adversaries = bitset(spec.node for spec in overlay.nodes if spec.behaviour is not None)
        self._askers = tuple(spec.node for spec in overlay.nodes if (spec.behaviour or {}).get("name") == "asker")
        self._honest_interests = tuple(
            topics for node, topics in enumerate(workload.interests) if not self._adversaries >> node & 1
        )
        population = first_population(workload.up, workload.interests)
        self._watch = Watch(population, self._adversaries, run.epoch_messages, run.skip_messages)
        cost_ns = round(experiment.simulator.processing_ms * 1e6)
        self._simulation = Simulation(
            network,
            self._watch,
            seed=experiment.seed,
            run_number=overlay.run,
            processing_ns=(lambda node: cost_ns) if cost_ns else None,
            encode=experiment.simulator.encode_frames,
            uncounted=self._adversaries,
        )
        times = self._times
        Enactment(
            self._simulation,
            overlay,
            workload.schedule,
            start_ns=START_NS,
            zero_ns=times.zero_ns,
            stop_ns=times.end_ns,
        )
        self._traffic: list[Traffic] = []
        self._simulation.at(times.counted_from_ns, self._count_traffic)
        self._simulation.at(times.counted_to_ns, self._count_traffic)

    def perform(self) -> list[Row]:
        """Simulate, measure on the way and at the end."""
        values = measure_interests(self._honest_interests, self._topics, self._measures)
        rows = [Row(name, None, by, value) for name, by, value in values]
        for at_ns in _instants(self._run, self._times.end_ns):
            settled = self._advance(at_ns)
            rows += self._snapshot_rows()
            if settled:
                break
        rows += self._delivery_rows()
        rows += self._score_rows()
        rows += self._control_rows()
        rows += self._disclosure_rows()
        return [row for row in rows if row.measure in self._measures]

    def _advance(self, until_ns: int) -> bool:
        """Let time pass; whether it ended early because the overlay has settled."""
        simulation, settled_s = self._simulation, self._run.settled_s
        if settled_s is None:
            simulation.run(until_ns)
            return False
        while simulation.now_ns < until_ns:
            simulation.run(min(simulation.now_ns + STEP_NS, until_ns))
            quiet_ns = simulation.now_ns - max(self._watch.changed_ns, START_NS)
            if quiet_ns >= settled_s * SECOND_NS and simulation.now_ns > self._times.counted_from_ns:
                return True
        return False

    def _snapshot_rows(self) -> list[Row]:
        now_ns = self._simulation.now_ns
        newest_ns = now_ns - self._run.newcomers_s * SECOND_NS
        newcomers = {node for node, joined_ns in self._watch.joined_ns.items() if joined_ns > newest_ns}
        snapshot = take_snapshot(self._simulation, newcomers, list(members(self._adversaries)))
        values = measure_snapshot(snapshot, self._measures)
        if (share := share_slots(self._simulation, self._adversaries)) is not None:
            values.append(("adversary_slots_ratio", None, share))
        at_s = (now_ns - START_NS) / SECOND_NS
        return [Row(name, at_s, by, value) for name, by, value in values]

    def _delivery_rows(self) -> Iterator[Row]:
        batches = self._watch.batches
        yield from (Row(name, None, by, value) for name, by, value in measure_deliveries(batches))
        if self._run.epoch_messages is not None:
            for epoch, batch in enumerate(batches):
                yield from (Row(name, epoch, by, value) for name, by, value in measure_deliveries([batch]))

    def _score_rows(self) -> Iterator[Row]:
        """Epochs count from the first one that any node scored: those before it had no messages."""
        scores = self._watch.scores
        for epoch in sorted(scores):
            yield from (Row(name, epoch - min(scores), by, value) for name, by, value in measure_scores(scores[epoch]))
        if scores:
            everything = [score for of_epoch in scores.values() for score in of_epoch]
            yield from (Row(name, None, by, value) for name, by, value in measure_scores(everything))

    def _disclosure_rows(self) -> Iterator[Row]:
        concluded = {asker: self._watch.concluded.get(asker, {}) for asker in self._askers}
        share = disclosed_ratio(measure_disclosure(concluded, self._watch.ever, members(self._adversaries)))
        if share is not None:
            yield Row("disclosure_ratio", None, None, share)

    def _count_traffic(self) -> None:
        simulation = self._simulation
        frames = {kind: number for kind, number in enumerate(simulation.sent_frames) if number}
        sizes_bytes = {kind: number for kind, number in enumerate(simulation.sent_bytes) if number}
        self._traffic.append(Traffic(simulation.now_ns, frames, sizes_bytes, self._watch.changes))

    def _control_rows(self) -> Iterator[Row]:
        if len(self._traffic) < 2:  # settled before the window's end
            self._count_traffic()
        before, after = self._traffic
        frames = _less(after.frames, before.frames)
        for kind, count in sorted(frames.items()):
            yield Row("frames", None, kind, count)
        sizes_bytes = _less(after.sizes_bytes, before.sizes_bytes)
        peer_seconds = len(self._honest_interests) * (after.at_ns - before.at_ns) / SECOND_NS
        if peer_seconds:
            yield Row("control_frames_per_peer_per_s", None, None, _control(frames) / peer_seconds)
            yield Row("control_bytes_per_peer_per_s", None, None, _control(sizes_bytes) / peer_seconds)
        if changes := after.changes - before.changes:
            yield Row("control_frames_per_change", None, None, _control(frames, BACKGROUND) / changes)
            for kind, count in sorted(frames.items()):
                yield Row("frames_per_change", None, kind, count / changes)


def simulate_point(experiment: Experiment, run: RunSpec, measures: Collection[str], folder: Path) -> list[Row]:
    """Simulate one experiment in memory. The same arguments give the same rows on any machine.

    Args:
        experiment: valid, with the run's seed.
        run: how it is simulated.
        measures: names of ``MEASURES``.
        folder: the paths in the experiment are relative to it.

    Raises:
        ExperimentError: a file is missing or wrong, or the experiment cannot be.
    """
    return PointRun(experiment, run, measures, folder).perform()


class _Times(Struct, frozen=True):
    """The virtual instants of a run; control traffic is counted between the last two."""

    zero_ns: int
    end_ns: int
    counted_from_ns: int
    counted_to_ns: int
    publishes: bool


def _times(experiment: Experiment, run: RunSpec) -> _Times:
    if run.length_s is not None:
        end_ns = START_NS + round(run.length_s * SECOND_NS)
        return _Times(START_NS, end_ns, START_NS + round(run.control_from_s * SECOND_NS), end_ns, publishes=False)
    workload = experiment.workload
    zero_ns = START_NS + round(workload.warmup_s * SECOND_NS)
    published_ns = zero_ns + round(workload.duration_s * SECOND_NS)
    end_ns = published_ns + round(workload.cooldown_s * SECOND_NS)
    return _Times(zero_ns, end_ns, zero_ns, published_ns, publishes=True)


def _draw_workload(experiment: Experiment, nodes: int, folder: Path, times: _Times) -> Workload:
    if times.publishes:
        return draw_workload(experiment, nodes, folder)
    membership = draw_membership(experiment, nodes, folder, Span(0, times.end_ns - START_NS))
    return Workload(membership.up, membership.interests, membership.changes)


def _instants(run: RunSpec, end_ns: int) -> list[int]:
    """When to take snapshots; the end is the last one."""
    instants = {START_NS + round(at_s * SECOND_NS) for at_s in run.snapshots_s}
    if run.snapshot_every_s is not None:
        every_ns = round(run.snapshot_every_s * SECOND_NS)
        instants.update(range(START_NS + every_ns, end_ns, every_ns))
    return [*sorted(at_ns for at_ns in instants if at_ns < end_ns), end_ns]


def _less(after: dict[int, int], before: dict[int, int]) -> dict[int, int]:
    return {kind: count - before.get(kind, 0) for kind, count in after.items()}


def _control(counts: dict[int, int], without: Collection[int] = ()) -> int:
    """Everything but data, and but those kinds."""
    return sum(count for kind, count in counts.items() if kind != Data.kind and kind not in without)
