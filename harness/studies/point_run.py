"""Simulates one point with one seed in memory: no run directory, no trace files, no matrix of delays."""

from collections.abc import Collection, Sequence
from functools import cache, cached_property, partial
from pathlib import Path

import numpy as np
from msgspec import Struct, to_builtins

import metrics.measures.registry  # noqa: F401  adds the measures of plugins to their families
from harness.experiment.form import Experiment, section_of
from harness.planning.planner import make_overlay
from harness.planning.underlays import make_network
from harness.simulator.enactment import START_NS, Enactment
from harness.simulator.network import SimulatedNetwork
from harness.simulator.simulation import Simulation
from harness.studies.carried import sum_up_carried
from harness.studies.form import RunSpec
from harness.studies.groups import count_newcomers, measure_paths, sum_up_groups
from harness.studies.observer import Batch, Watch, sum_up
from harness.studies.snapshots import count_slots, take_snapshot
from harness.workload.churn import Span
from harness.workload.membership import first_population
from harness.workload.workload import Workload, draw_membership, draw_workload
from metrics.facts.crossings import Through, count_links_between
from metrics.facts.groups import Rate
from metrics.measures.attacks import DISCLOSURE, SLOTS
from metrics.measures.deliveries import DELIVERIES
from metrics.measures.groups import BOUNDED, GROUPS, NEWCOMERS
from metrics.measures.interests import INTERESTS, Interests
from metrics.measures.learning import SCORES
from metrics.measures.measure import Facts, Family
from metrics.measures.snapshots import measure_snapshot
from metrics.measures.steiner import Matrix
from metrics.measures.traffic import TRAFFIC, Traffic
from metrics.measures.underlay import UNDERLAY
from metrics.rundir.phases import SECOND_NS, Timeline
from peer.core.bitset import bitset, members
from peer.core.randomness import NETWORK, substream
from peer.core.schedule import Publish
from peer.protocols.registry import PROTOCOLS

STEP_NS = SECOND_NS
"""Interval at which the run checks whether the overlay has settled."""


class Row(Struct, frozen=True, array_like=True):
    """A value of a run.

    ``moment``: the snapshot's instant or the window's beginning (s after the nodes' start), or the epoch's number;
    None = the whole run.
    ``by``: the item that the measure is counted by; None = a single number.
    """

    measure: str
    moment: float | None
    by: float | None
    value: float


class Sent(Struct, frozen=True):
    """Frames of honest nodes up to an instant, by kind, and the numbers of joins, leaves and crashes."""

    at_ns: int
    frames: dict[int, int]
    sizes_bytes: dict[int, int]
    changes: int


class PointRun:
    """One run in progress.

    Args:
        experiment: a valid experiment with the run's seed.
        run: how it is simulated.
        measures: names of ``MEASURES``; anything else is not computed.
        folder: the folder to which paths in the experiment are relative.

    Attributes:
        simulation: the simulated network, all of whose events are scheduled.
    """

    def __init__(self, experiment: Experiment, run: RunSpec, measures: Collection[str], folder: Path) -> None:
        self._run = run
        self._measures = measures
        asked = make_network(experiment, folder)
        draws = substream(experiment.seed, NETWORK, "network")
        network, nodes = SimulatedNetwork(asked, draws, seed=experiment.seed), asked.size
        self._through = None
        if asked.bottlenecks.graph.links and not set(measures).isdisjoint(UNDERLAY.names):
            self._through = Through(asked.bottlenecks.graph, np.array(asked.bottlenecks.routers))
        self._times = _times(experiment, run)
        workload = _draw_workload(experiment, nodes, folder, self._times)
        self._topics = experiment.workload.topics
        delay_ns = network.delay_ns
        overlay = make_overlay(experiment, workload, lambda one, other: delay_ns(one, other) + delay_ns(other, one))
        self._adversaries = bitset(spec.node for spec in overlay.nodes if spec.behaviour is not None)
        self._askers = tuple(spec.node for spec in overlay.nodes if (spec.behaviour or {}).get("name") == "asker")
        self._honest_interests = tuple(
            topics for node, topics in enumerate(workload.interests) if not self._adversaries >> node & 1
        )
        population = first_population(workload.up, workload.interests)
        self._watch = Watch(
            population,
            self._adversaries,
            run.epoch_messages,
            run.skip_messages,
            settle_ns=round(experiment.workload.settle_s * SECOND_NS),
            window_ns=None if run.window_s is None else round(run.window_s * SECOND_NS),
            zero_ns=self._times.zero_ns,
            expressions={
                action.message_id: action.expression
                for action in workload.schedule
                if isinstance(action, Publish) and action.expression
            },
            delay_ns=network.delay_ns,
            false_positive_rate=_predicted_rate(experiment),
            carries=self._through is not None,
        )
        self._hosts = nodes
        cost_ns = round(experiment.simulator.processing_ms * 1e6)
        self.simulation = Simulation(
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
            self.simulation, overlay, workload.schedule, start_ns=START_NS, zero_ns=times.zero_ns, stop_ns=times.end_ns
        )
        self._sent: list[Sent] = []
        self.simulation.at(times.counted_from_ns, self._count_traffic)
        self.simulation.at(times.counted_to_ns, self._count_traffic)

    def perform(self) -> list[Row]:
        interests = Interests(self._honest_interests, self._topics)
        rows = self._rows(INTERESTS, interests) if self._honest_interests else []
        for at_ns in _instants(self._run, self._times.end_ns):
            settled = self._advance(at_ns)
            rows += self._snapshot_rows()
            if settled:
                break
        rows += self._delivery_rows()
        rows += self._score_rows()
        rows += self._control_rows()
        return rows + self._disclosure_rows()

    def _rows(self, family: Family[Facts], facts: Facts, moment: float | None = None) -> list[Row]:
        """Return the wanted measures of a family."""
        return [Row(name, moment, by, value) for name, by, value in family.values(facts, self._measures)]

    def _advance(self, until_ns: int) -> bool:
        """Simulate until an instant; return whether it ended early because the overlay has settled."""
        simulation, settled_s = self.simulation, self._run.settled_s
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
        now_ns = self.simulation.now_ns
        newest_ns = now_ns - self._run.newcomers_s * SECOND_NS
        newcomers = {node for node, joined_ns in self._watch.population.joined_ns.items() if joined_ns > newest_ns}
        snapshot = take_snapshot(self.simulation, newcomers, list(members(self._adversaries)))
        at_s = (now_ns - START_NS) / SECOND_NS
        rows = [Row(name, at_s, by, value) for name, by, value in measure_snapshot(snapshot, self._measures)]
        return rows + self._rows(SLOTS, count_slots(self.simulation, newcomers, self._adversaries), at_s)

    def _delivery_rows(self) -> list[Row]:
        batches, window_s = self._watch.batches, self._run.window_s
        rows = self._batch_rows(batches)
        if self._run.epoch_messages is not None:
            for batch in batches:
                rows += self._batch_rows([batch], batch.number)
        elif window_s is not None:
            zero_s = (self._times.zero_ns - START_NS) / SECOND_NS
            for batch in batches:
                rows += self._batch_rows([batch], zero_s + batch.number * window_s)
        return rows

    def _batch_rows(self, batches: Sequence[Batch], moment: float | None = None) -> list[Row]:
        """Return the rows of batches: single numbers first, then topic by topic."""
        rows = self._rows(DELIVERIES, sum_up(batches), moment)
        if groups := [group for batch in batches for group in batch.groups]:
            honest = [node for node in range(self._hosts) if not self._adversaries >> node & 1]
            facts = sum_up_groups(groups, [batch.sent for batch in batches], honest, self._lengths)
            rows += self._rows(GROUPS, facts, moment) + self._rows(NEWCOMERS, count_newcomers(groups), moment)
        if self._through is not None:
            carried = [message for batch in batches for message in batch.carried]
            facts_of_links = sum_up_carried(carried, self._through, self.simulation.delay_ns, self._links_between)
            rows += self._rows(UNDERLAY, facts_of_links, moment)
        return sorted(rows, key=lambda row: -1 if row.by is None else row.by)

    @cached_property
    def _lengths(self) -> Matrix | None:
        """The shortest paths between the hosts, if they are needed."""
        if BOUNDED.isdisjoint(self._measures):
            return None
        return measure_paths(self.simulation.delay_ns, self._hosts)

    @cached_property
    def _links_between(self) -> Matrix | None:
        """The fewest links between routers, if they are needed."""
        if self._through is None or "crossings_over_bound" not in self._measures:
            return None
        return count_links_between(self._through.graph)

    def _score_rows(self) -> list[Row]:
        """Return the scores per epoch, from the first epoch that a node scored; earlier ones had no messages."""
        scores = self._watch.scores
        rows: list[Row] = []
        for epoch in sorted(scores):
            rows += self._rows(SCORES, np.array(scores[epoch]), epoch - min(scores))
        if scores:
            rows += self._rows(SCORES, np.array([score for of_epoch in scores.values() for score in of_epoch]))
        return rows

    def _disclosure_rows(self) -> list[Row]:
        conclusions, subscribers = self._watch.conclusions, self._watch.population.ever
        found = conclusions.measure(self._askers, subscribers, members(self._adversaries))
        return self._rows(DISCLOSURE, found)

    def _count_traffic(self) -> None:
        simulation = self.simulation
        frames = {kind: number for kind, number in enumerate(simulation.sent_frames) if number}
        sizes_bytes = {kind: number for kind, number in enumerate(simulation.sent_bytes) if number}
        self._sent.append(Sent(simulation.now_ns, frames, sizes_bytes, self._watch.changes))

    def _control_rows(self) -> list[Row]:
        if len(self._sent) < 2:  # settled before the window's end
            self._count_traffic()
        before, after = self._sent
        traffic = Traffic(
            _less(after.frames, before.frames),
            _less(after.sizes_bytes, before.sizes_bytes),
            len(self._honest_interests) * (after.at_ns - before.at_ns) / SECOND_NS,
            after.changes - before.changes,
        )
        return self._rows(TRAFFIC, traffic)


def simulate_point(experiment: Experiment, run: RunSpec, measures: Collection[str], folder: Path) -> list[Row]:
    """Simulate one experiment in memory, with the arguments of ``PointRun``; the same ones give the same rows.

    Raises:
        ExperimentError: a file is missing or invalid, or the experiment is impossible.
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
    planned = Timeline.plan(START_NS, experiment.workload.spans_s)
    return _Times(planned.zero_ns, planned.end_ns, planned.zero_ns, planned.published_ns, publishes=True)


def _draw_workload(experiment: Experiment, nodes: int, folder: Path, times: _Times) -> Workload:
    if times.publishes:
        return draw_workload(experiment, nodes, folder)
    membership = draw_membership(experiment, nodes, folder, Span(0, times.end_ns - START_NS))
    return Workload(membership.up, membership.interests, membership.changes)


def _predicted_rate(experiment: Experiment) -> Rate | None:
    """Return the false positives that the protocol predicts; None if it predicts nothing."""
    predict = PROTOCOLS[experiment.protocol].false_positive_rate
    if predict is None:
        return None
    return cache(partial(predict, to_builtins(section_of(experiment, experiment.protocol))))


def _instants(run: RunSpec, end_ns: int) -> list[int]:
    """Return the instants of snapshots; the last one is the end."""
    instants = {START_NS + round(at_s * SECOND_NS) for at_s in run.snapshots_s}
    if run.snapshot_every_s is not None:
        every_ns = round(run.snapshot_every_s * SECOND_NS)
        instants.update(range(START_NS + every_ns, end_ns, every_ns))
    return [*sorted(at_ns for at_ns in instants if at_ns < end_ns), end_ns]


def _less(after: dict[int, int], before: dict[int, int]) -> dict[int, int]:
    return {kind: count - before.get(kind, 0) for kind, count in after.items()}
