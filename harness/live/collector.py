"""Makes snapshots of a run from the files that it writes anyway.

It asks no process of the run for anything, except Prometheus for peers on other machines. It writes nothing, so any
number of collectors may read the same run.
"""

import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from msgspec.json import Decoder

from harness.live import judging
from harness.live.following import Followed, is_locked
from harness.live.peer_files import PeerFiles, count_traces, find_work_folder
from harness.live.phases import Course, finished_course, follow_course
from harness.live.planned import LivePlan, PlannedExperiment
from harness.live.scraped import PeerScrapes, Scraped, find_scrapes
from harness.live.snapshot import (
    MOST_SECONDS,
    Ended,
    Messages,
    Peers,
    PlaneNow,
    PressureNow,
    Reason,
    RunFacts,
    Second,
    Snapshot,
    Stage,
    StageNode,
)
from harness.live.traces import SECOND_NS, Flow, Links, find_due
from harness.live.traces import Messages as TracedMessages
from harness.testbeds.registry import find_testbed
from metrics.checks.plane import ASKED_DROPS
from metrics.checks.rule import Absent
from metrics.measures.measure import ratio
from metrics.recorded.dataplane import PlaneInterval, merge_counts, quantile_ns, second_values, spans
from metrics.recorded.stalls import join_stalls
from metrics.recount import list_due
from metrics.rundir import (
    BegunPhase,
    Manifest,
    RunDir,
    Stall,
    Summary,
    Timeline,
    read_document,
    require_run_dir,
)
from metrics.rundir.documents import OverlayOutline
from metrics.rundir.files import (
    ANALYSIS_LOG,
    DATAPLANE_FILE,
    MANIFEST_FILE,
    PHASES_FILE,
    PLAN_FILE,
    PRESSURE_FILE,
    REPORT_PAGE,
    STALLS_FILE,
    SUMMARY_FILE,
    UNDERLAY_FILE,
)
from metrics.rundir.lines import line_decoder
from metrics.rundir.reading import iterate_lines
from peer.files import OVERLAY_FILE, SCHEDULE_FILE
from peer.runtime.clock import Clock
from topologies.model import Underlay

LAG_S: Final = 2
"""Peers write their traces once a second, so only seconds before the last ``LAG_S`` ones are known whole."""

MOST_TRACE_BYTES: Final = 64 << 20
"""That are read of all traces for one snapshot."""


class Collector:
    """A run directory that is followed from a call of ``collect`` to the next.

    Args:
        run_dir: the run, which may be over, or may not have begun.

    Raises:
        RunDirError: it is no run directory, or a document of its plan is damaged.
    """

    def __init__(self, run_dir: Path) -> None:
        require_run_dir(run_dir)
        self._run_dir = run_dir
        self._plan = read_document(run_dir / PLAN_FILE, Decoder(LivePlan).decode)
        experiment = self._plan.experiment
        self._clock = Clock(experiment.time_dilation)
        self._description = find_testbed(experiment.testbed, experiment.plane)
        self._overlay = read_document(run_dir / OVERLAY_FILE, Decoder(OverlayOutline).decode).nodes
        self._faults = tuple(self._plan.list_faults())
        self._begun = Followed([run_dir / PHASES_FILE], Decoder(BegunPhase).decode)
        self._plane_lines = Followed([run_dir / DATAPLANE_FILE], line_decoder(DATAPLANE_FILE))
        self._pressure_lines = Followed([run_dir / PRESSURE_FILE], line_decoder(PRESSURE_FILE))
        self._stall_lines = Followed([run_dir / STALLS_FILE], Decoder(Stall).decode)
        self._phases: list[BegunPhase] = []
        self._spans: list[PlaneInterval] = []
        self._last_plane: dict[str, Any] | None = None
        self._pressure: list[dict[str, Any]] = []
        self._stalls: list[Stall] = []
        self._peers: PeerFiles | None = None
        self._messages: TracedMessages | None = None
        self._links = Links()
        self._scrapes: PeerScrapes | None = None
        self._scraped: Scraped | None = None
        self._manifest: Manifest | None = None
        self._summary: Summary | None = None
        self._is_worked_on = False

    @property
    def _experiment(self) -> PlannedExperiment:
        return self._plan.experiment

    @cached_property
    def stage(self) -> Stage:
        """What does not change during the run."""
        hosts = read_document(self._run_dir / UNDERLAY_FILE, Underlay.from_json).hosts
        nodes = []
        for place in self._plan.placement:
            host = hosts[place.host]
            city = host.name if host.longitude is not None else None
            position = (city, host.longitude, host.latitude)
            nodes.append(StageNode(place.node, f"peer-{place.node}", *position, place.host, place.machine))
        workload = self._experiment.workload
        limits = tuple(judging.list_limits(self._experiment.verdict))
        return Stage(self._facts, tuple(nodes), workload.topics, workload.duration_s, limits)

    @property
    def _facts(self) -> RunFacts:
        experiment = self._experiment
        identity = (self._run_dir.name, self._plan.name, experiment.protocol, experiment.testbed, self._plan.seed)
        return RunFacts(*identity, experiment.time_dilation)

    def collect(self, now_ns: int | None = None) -> Snapshot:
        """Return the run as its files show it now.

        Args:
            now_ns: the present instant of the run's clock; None = that of the clock. No older than that of the call
                before.
        """
        now_ns = self._clock.now_ns() if now_ns is None else now_ns  # before anything is read
        is_running = is_locked(self._run_dir / PHASES_FILE)
        self._is_worked_on = is_locked(self._run_dir / ANALYSIS_LOG)  # if it ends meanwhile, its summary may be unread
        self._read_documents()
        self._follow()
        course = self._find_course(now_ns, is_running=is_running)
        timeline = self._manifest.timeline if self._manifest is not None else course.timeline
        zero_ns = None if timeline is None else timeline.zero_ns
        if zero_ns is not None and self._summary is None:
            self._read_traces(zero_ns)
        if is_running and self._manifest is None and not self._traces_are_here:
            self._scraped = self._read_scrapes()
        last_ns = now_ns if self._manifest is None or timeline is None else timeline.end_ns
        reasons = judging.sort_reasons(self._judge(timeline, now_ns))
        return Snapshot(
            run=self._facts,
            now_s=None if zero_ns is None else (last_ns - zero_ns) / SECOND_NS,
            phase=None if course.running is None else course.running.name,
            phase_left_s=_left_s(course.running, now_ns),
            run_left_s=self._run_left_s(course, now_ns) if is_running else None,
            phases=tuple(course.describe(zero_ns)),
            verdict=judging.find_verdict(reasons),
            reasons=reasons,
            peers=self._count_peers(is_started=zero_ns is not None),
            messages=self._count_messages(),
            delay_ms=None if self._messages is None else self._messages.recent(last_ns),
            plane=self._describe_plane(timeline),
            pressure=self._describe_pressure(),
            faults=self._faults,
            links=self._links.latest(now_ns) if self._manifest is None else None,
            history=() if zero_ns is None else self._history(zero_ns, last_ns),
            ended=self._end(is_running=is_running),
            remarks=tuple(self._remarks()),
        )

    # ------------------------------------------------------------------------------------------------ reading

    def _read_documents(self) -> None:
        if self._manifest is None and (self._run_dir / MANIFEST_FILE).exists():
            self._manifest = RunDir(self._run_dir).manifest
        if self._summary is None and self._manifest is not None and (self._run_dir / SUMMARY_FILE).exists():
            self._summary = RunDir(self._run_dir).summary

    def _follow(self) -> None:
        self._phases += self._begun.read_all()
        self._pressure += self._pressure_lines.read_all()
        self._stalls += self._stall_lines.read_all()
        last = self._last_plane
        if lines := self._plane_lines.read_all():
            found = spans(lines if last is None else [last, *lines])
            self._spans += found[1:] if last is not None and last["at_ns"] else found
            self._last_plane = lines[-1]

    def _read_traces(self, zero_ns: int) -> None:
        if self._messages is None or self._peers is None:
            places = self._plan.placement
            machines = sorted({place.machine for place in places})
            self._peers = PeerFiles(self._run_dir, [place.node for place in places], machines)
            left_out = frozenset(each.node for each in self._overlay if each.behaviour is not None)
            schedule = iterate_lines(self._run_dir / SCHEDULE_FILE, line_decoder(SCHEDULE_FILE))
            settle_ns = round(self._experiment.workload.settle_s * SECOND_NS)
            due = find_due(list_due(self._overlay, schedule, settle_ns), left_out)
            self._messages = TracedMessages(due, zero_ns)
        self._peers.read_ends()
        for line in self._peers.read_traces(MOST_TRACE_BYTES):
            self._messages.take(line)
            self._links.take(line)

    def _read_scrapes(self) -> Scraped | None:
        """Return what Prometheus says of peers on other machines; None = it does not say."""
        self._scrapes = self._scrapes or find_scrapes(self._run_dir)
        return None if self._scrapes is None else self._scrapes.read()

    # ------------------------------------------------------------------------------------------------ showing

    def _find_course(self, now_ns: int, *, is_running: bool) -> Course:
        if self._manifest is not None:
            return finished_course(self._manifest.phases, now_ns, analysing=self._is_analysing)
        found = follow_course(self._phases, now_ns)
        return found if is_running else found._replace(running=None)

    @property
    def _is_analysing(self) -> bool:
        """Whether the run has its manifest and no summary, and a process works on it."""
        return self._summary is None and self._is_worked_on

    def _run_left_s(self, course: Course, now_ns: int) -> float | None:
        """Return the virtual time until the planned end of the cool-down; None = it is not planned yet, or over."""
        timeline = course.timeline
        left_ns = 0 if timeline is None else timeline.stop_ns - now_ns
        return left_ns / SECOND_NS if left_ns > 0 and self._manifest is None else None

    def _judge(self, timeline: Timeline | None, now_ns: int) -> Iterator[Reason]:
        if self._summary is not None and self._manifest is not None:
            yield from judging.judge_summary(self._summary, self._manifest)
            return
        if self._manifest is not None:
            yield from judging.judge_manifest(self._manifest)
        elif timeline is not None and self._peers is not None:
            yield from judging.judge_ends(self._peers.ends.values(), timeline)
        if timeline is not None and "certify" in self._description.can:
            yield from judging.judge_recorded(self._recorded, timeline, now_ns)

    @property
    def _recorded(self) -> judging.Recorded:
        unmeasured = Absent("the kernel forwards and does not say how late it is")
        return judging.Recorded(
            hosts=len(self._plan.placement),
            spans=tuple(self._spans),
            pressure=self._pressure,
            stalls=join_stalls(self._stalls, self._clock.dilation),
            lateness_p99_ms=float(self._experiment.verdict["lateness_p99_ms"]),
            unmeasured=unmeasured if "opaque" in self._description.can else None,
        )

    def _count_peers(self, *, is_started: bool) -> Peers:
        expected = len(self._plan.placement)
        if self._manifest is not None:
            states = [each.state for each in self._manifest.final_states if each.process.startswith("peer-")]
            ended = sum(state in ("exited", "signalled") for state in states)
            return Peers(expected, None, states.count("running"), ended)
        if self._peers is not None and self._traces_are_here:
            ended = len(self._peers.ends)
            return Peers(expected, expected if is_started else None, self._peers.begun - ended, ended)
        if not self._traces_are_here:
            up = None if self._scraped is None else self._scraped.up
            return Peers(expected, expected if is_started else None, up)
        folder = find_work_folder(self._run_dir)
        return Peers(expected, None, None if folder is None else count_traces(folder))

    @property
    def _knows_messages(self) -> bool:
        """Whether the traces are read."""
        return self._messages is not None and (self._traces_are_here or self._manifest is not None)

    @property
    def _traces_are_here(self) -> bool:
        """Whether peers write their traces on this machine; those of other machines come when the run is over."""
        return self._description.sandboxed

    def _count_messages(self) -> Messages:
        if self._summary is not None:
            return _final_messages(self._summary.headline)
        traced = self._messages
        if traced is None or not self._knows_messages:
            return Messages(None if self._scraped is None else self._scraped.published)
        if traced.unscheduled:
            return Messages(traced.published)
        return Messages(traced.published, traced.delivered, traced.expected, ratio(traced.delivered, traced.expected))

    def _describe_plane(self, timeline: Timeline | None) -> PlaneNow | None:
        if not self._spans:
            return None
        last = next((span for span in reversed(self._spans) if span.passed_ns >= SECOND_NS // 2), self._spans[0])
        drops: dict[str, int] = {}
        for span in self._spans:
            for cause, count in span.drops.items():
                drops[cause] = drops.get(cause, 0) + count
        seconds = last.passed_ns / SECOND_NS
        return PlaneNow(
            lateness_p99_ms=_in_ms(last.lateness_ns.get("p99") if last.lateness_counts else None),
            lateness_run_p99_ms=None if timeline is None else self._lateness_of_run(timeline),
            drops={cause: count for cause, count in drops.items() if count},
            unasked_drops=sum(count for cause, count in drops.items() if cause not in ASKED_DROPS),
            frames_per_s=last.counts["frames_out"] / seconds if seconds and "frames_out" in last.counts else None,
            busy_ratio=last.busy_ratio,
        )

    def _lateness_of_run(self, timeline: Timeline) -> float | None:
        first_ns, last_ns = timeline.judged_ns
        counts = merge_counts(span.lateness_counts or () for span in self._spans if first_ns < span.at_ns <= last_ns)
        return quantile_ns(counts, 0.99) / 1e6 if counts else None

    def _describe_pressure(self) -> PressureNow | None:
        if not self._pressure:
            return None
        last = self._pressure[-1]
        return PressureNow(*(last.get(name) for name in PressureNow.__struct_fields__))

    def _history(self, zero_ns: int, now_ns: int) -> tuple[Second, ...]:
        last = (now_ns - zero_ns) // SECOND_NS - (0 if self._manifest is not None else LAG_S)
        first = max(last - MOST_SECONDS + 1, -math.ceil(self._experiment.workload.warmup_s))
        flows = {} if self._messages is None else self._messages.seconds(now_ns)
        from_ns = zero_ns + first * SECOND_NS
        plane = second_values([span for span in self._spans if span.at_ns >= from_ns], zero_ns)
        load = {(line["at_ns"] - zero_ns) // SECOND_NS: line for line in self._pressure if line["at_ns"] >= from_ns}
        nothing = Flow(0, 0, None, None) if self._knows_messages else None
        return tuple(_second(each, flows.get(each, nothing), plane, load) for each in range(first, last + 1))

    def _end(self, *, is_running: bool) -> Ended | None:
        if self._summary is not None:
            from metrics.measures.registry import FIRST_NUMBERS  # takes long to import

            summary = self._summary
            page = self._run_dir.absolute() / REPORT_PAGE
            report = str(page) if page.exists() else None  # as with --no-report
            return Ended("analysed", summary.verdict, summary.reasons, dict(summary.headline), FIRST_NUMBERS, report)
        if self._manifest is not None:
            return None if self._is_analysing else Ended("not analysed")
        return Ended("failed") if self._phases and not is_running else None

    def _remarks(self) -> Iterator[str]:
        if self._manifest is None and not self._traces_are_here:
            yield "the traces are on other machines: deliveries, delays and links are not known during the run"
        if self._peers is not None and self._peers.is_behind:
            yield "the traces grow faster than they are read here: the numbers of messages and deliveries lag behind"
        if self._messages is not None and self._messages.unscheduled and self._summary is None:
            yield "programs publish messages that the schedule does not have: expected deliveries are not known"


def _second(
    second: int,
    flow: Flow | None,
    plane: Mapping[int, Mapping[str, Any]],
    load: Mapping[int, Mapping[str, Any]],
) -> Second:
    """Return a second of the history; what is missing in the others is not known."""
    of_plane, of_load = plane.get(second, {}), load.get(second, {})
    some = of_load.get("cpu_some_ratio")
    return Second(
        at_s=second,
        published=None if flow is None else flow.published,
        delivered=None if flow is None else flow.delivered,
        delay_p50_ms=None if flow is None else _in_ms(flow.delay_p50_ns),
        delay_p99_ms=None if flow is None else _in_ms(flow.delay_p99_ns),
        lateness_p99_ms=_in_ms(of_plane.get("lateness_p99_ns") if of_plane.get("frames_out") else None),
        cpu_ratio=of_load.get("cpu_busy_ratio") if some is None else some,
    )


def _final_messages(headline: Mapping[str, Any]) -> Messages:
    """Return the numbers of a summary; of deliveries of which it is not known whether they were made none counts."""
    expected, unknown, share = (headline.get(f"deliver{name}") for name in ("ies_expected", "ies_unknown", "y_ratio"))
    delivered = None if expected is None or share is None else round(share * (expected - (unknown or 0)))
    return Messages(headline.get("messages_published"), delivered, expected, share)


def _left_s(running: BegunPhase | None, now_ns: int) -> float | None:
    if running is None or running.end_ns is None:
        return None
    return max(0.0, (running.end_ns - now_ns) / SECOND_NS)


def _in_ms(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / 1e6
