"""What is shown of a run in progress: ``Stage`` once, and a ``Snapshot`` each second, both as JSON.

Seconds (``_s``) are virtual seconds since the workload's start, negative before it. What is not known is None, never 0.
A field that is added later has a default.
"""

from typing import Final, Literal, TypeAlias

from msgspec import Struct

LATEST_S: Final = 10.0
"""Of deliveries, about: those of ``DelayNow``."""

MOST_LINKS: Final = 400
"""In a snapshot: those that carried the most bytes."""

MOST_SECONDS: Final = 600
"""Of ``Snapshot.history``: the last ones."""

SoFar: TypeAlias = Literal["valid so far", "suspect", "invalid"]
Severity: TypeAlias = Literal["suspect", "invalid"]


class Limit(Struct, frozen=True):
    """A limit of the verdict that a snapshot's numbers can be held against.

    Attributes:
        check: the name of the check that has it (docs/verdict.md).
        value: the largest value that passes, or the smallest if ``at_least``.
        unit: ``ms``, ``s`` or ``ratio``.
        severity: what a failure makes of the run.
        at_least: whether smaller values fail.
    """

    check: str
    value: float
    unit: str
    severity: Severity
    at_least: bool = False


class StageNode(Struct, frozen=True):
    """A node and the place where it runs.

    Attributes:
        node: its number, the index into ``Stage.nodes``.
        name: its name for people, such as ``peer-3``.
        city: the place of its host in the underlay; None = the underlay has no places.
        longitude: in degrees, east is positive; None = not known.
        latitude: in degrees, north is positive; None = not known.
        host: the number of its host.
        machine: the machine of its host.
    """

    node: int
    name: str
    city: str | None
    longitude: float | None
    latitude: float | None
    host: int
    machine: str


class Stage(Struct, frozen=True):
    """What does not change during a run.

    Attributes:
        run: which run it is.
        nodes: in the order of their numbers.
        topics: how many there are.
        duration_s: the length of the workload.
        limits: of the verdict.
    """

    run: "RunFacts"
    nodes: tuple[StageNode, ...]
    topics: int
    duration_s: float
    limits: tuple[Limit, ...]


class RunFacts(Struct, frozen=True):
    """Which run it is. ``id``: the name of its directory. A virtual second is ``time_dilation`` real seconds."""

    id: str
    experiment: str
    protocol: str
    testbed: str
    seed: int
    time_dilation: float = 1.0


class PhaseSpan(Struct, frozen=True):
    """A phase of the run, in its order.

    Attributes:
        name: boot, deploy, probe_before, warmup, workload, cooldown, stop, settle, probe_after, collect, analysis.
        begin_s: when it began or will begin; None = not known.
        end_s: when it ended or will end; None = not known. Until there is a manifest, a phase without a planned end
            ends when the next one begins.
        state: ``planned``, ``running`` or ``over``.
    """

    name: str
    begin_s: float | None
    end_s: float | None
    state: Literal["planned", "running", "over"]


class Reason(Struct, frozen=True):
    """A reason why the run is not valid so far. ``check``: the name of the check; empty = no check found it."""

    check: str
    text: str
    severity: Severity


class Peers(Struct, frozen=True):
    """How many peers there are.

    Attributes:
        expected: nodes of the plan.
        ready: peers that have reported that they are ready to start.
        up: peers whose process runs.
        ended: peers whose process has ended.
    """

    expected: int
    ready: int | None = None
    up: int | None = None
    ended: int | None = None


class Messages(Struct, frozen=True):
    """Messages and deliveries so far, by the peers' last scrapes; at the end those of the summary.

    Attributes:
        published: messages published.
        delivered: first copies at subscribers, without those at the publishers themselves.
        expected: deliveries that are due of the messages published so far. None: programs publish messages that the
            schedule does not have, or the traces are on other machines.
        ratio: delivered / expected, 0..1; the newest messages are still on their way.
    """

    published: int | None = None
    delivered: int | None = None
    expected: int | None = None
    ratio: float | None = None


class DelayNow(Struct, frozen=True):
    """The delays of the deliveries of the last ``LATEST_S`` seconds, from publication to delivery.

    Peers write their traces in blocks, so these are the deliveries that are in the files. ``until_s`` is the instant of
    the last one.
    """

    p50: float
    p99: float
    deliveries: int
    until_s: float


class PlaneNow(Struct, frozen=True):
    """The data plane.

    Attributes:
        lateness_p99_ms: how late frames left it, 99th percentile over its last line (about a second).
        lateness_run_p99_ms: the same over the workload so far, which is what the verdict judges.
        drops: frames dropped since its start, by cause.
        unasked_drops: frames among them that the experiment did not ask to be dropped.
        frames_per_s: frames that it wrote, over its last line.
        busy_ratio: its share of its core over its last line, 0..1.
    """

    lateness_p99_ms: float | None = None
    lateness_run_p99_ms: float | None = None
    drops: dict[str, int] = {}
    unasked_drops: int | None = None
    frames_per_s: float | None = None
    busy_ratio: float | None = None


class PressureNow(Struct, frozen=True):
    """The processors over the last virtual second, each 0..1.

    Attributes:
        cpu_some_ratio: the share of time in which a process waited for a processor (PSI). None: the kernel does not
            say, or processors are kept awake.
        cpu_busy_ratio: the share of time in which they worked.
        steal_ratio: the share of time that the hypervisor took.
    """

    cpu_some_ratio: float | None = None
    cpu_busy_ratio: float | None = None
    steal_ratio: float | None = None


class FaultSpan(Struct, frozen=True):
    """A fault of the experiment; ``end_s``: None = it lasts to the end of the run."""

    kind: str
    begin_s: float
    end_s: float | None


class LinkUse(Struct, frozen=True):
    """What two nodes sent each other, in both directions, in bytes of the last seconds. ``a`` < ``b``."""

    a: int
    b: int
    bytes: int


class Second(Struct, frozen=True):
    """A second of the run, from ``at_s`` on. ``published`` and ``delivered`` are those of this second alone.

    ``lateness_p99_ms`` is of the frames that the data plane wrote in the second, ``cpu_ratio`` the pressure; if it is
    not known, the share of time in which the processors worked.
    """

    at_s: int
    published: int | None = None
    delivered: int | None = None
    delay_p50_ms: float | None = None
    delay_p99_ms: float | None = None
    lateness_p99_ms: float | None = None
    cpu_ratio: float | None = None


class Ended(Struct, frozen=True):
    """How the run ended.

    Attributes:
        state: ``analysed``: there is a summary; ``not analysed``: the run is complete, and there is none (yet);
            ``failed``: the running stage ended without a manifest.
        verdict: ``valid``, ``suspect`` or ``invalid``; None = no summary.
        reasons: those of the summary.
        headline: the summary's headline numbers, by their names (docs/results.md).
        first: the names of those that ``trellis run`` prints, in their order.
        report: the path of the report; None = there is none.
    """

    state: Literal["analysed", "not analysed", "failed"]
    verdict: str | None = None
    reasons: tuple[str, ...] = ()
    headline: dict[str, bool | int | float | None] = {}
    first: tuple[str, ...] = ()
    report: str | None = None


class Snapshot(Struct, frozen=True):
    """A run at an instant.

    Attributes:
        run: which run it is.
        now_s: the present instant; None = the workload's start is not known yet.
        phase: the phase that runs; None = between two phases, or the run has ended.
        phase_left_s: virtual seconds until its planned end; None = its end is not planned.
        run_left_s: virtual seconds until the planned end of the last phase that has one; None = not known yet.
        phases: all known ones, in their order.
        verdict: so far, by those checks that can be made during the run.
        reasons: why it is not ``valid so far``; the gravest first.
        peers: how many there are.
        messages: and deliveries.
        delay_ms: delays in ms; None = no delivery is known.
        plane: None = the testbed has no data plane.
        pressure: None = the run does not record it.
        faults: those of the experiment, in the order of their beginnings.
        links: that were used last, those with the most bytes; None = not known.
        history: the last ``MOST_SECONDS`` seconds, in their order; seconds of which nothing is known may be missing.
        ended: None = the run goes on.
        remarks: what cannot be shown, and why, for people.
    """

    run: RunFacts
    now_s: float | None
    phase: str | None
    phase_left_s: float | None
    run_left_s: float | None
    phases: tuple[PhaseSpan, ...]
    verdict: SoFar
    reasons: tuple[Reason, ...]
    peers: Peers
    messages: Messages
    delay_ms: DelayNow | None
    plane: PlaneNow | None
    pressure: PressureNow | None
    faults: tuple[FaultSpan, ...]
    links: tuple[LinkUse, ...] | None
    history: tuple[Second, ...]
    ended: Ended | None
    remarks: tuple[str, ...] = ()
