"""The types of the documents of a run directory. docs/results.md explains every file to users."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct, field

from metrics.rundir.bounds import (
    Count,
    Dilation,
    EpochOffset,
    Instant,
    NodeNumber,
    Number,
    Seed,
    Span,
    Text,
    TopicNumber,
    Whole,
    require_shallow,
)
from metrics.rundir.phases import Phase, Timeline
from peer.wire import MTU_BYTES

VALID, SUSPECT, INVALID = "valid", "suspect", "invalid"

PASSED, FAILED, NOT_JUDGED, NOT_APPLICABLE = "passed", "failed", "not judged", "not applicable"
"""The outcomes of a check. ``not judged``: the run should have material for it, and has too little. ``not applicable``:
by its design the run has none."""

JUDGED = "judged"
"""The state of a part of the verdict's scope: at least one of its checks passed or failed, and none was not judged."""

Judged: TypeAlias = Literal["judged", "not judged", "not applicable"]
"""The possible states of a part of the scope."""

MeasureName: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z0-9_]{1,100}\Z")]

SCHEMA_VERSION = 1
"""The version of the run directory: raise it if files change so that programs of the version before misread them."""


_EARLIER_ABILITIES = {"emulated": ("shape", "capture", "probe", "certify"), "simulated": ("shape", "simulate")}
"""The abilities, by name, that the analysis assumes of testbeds whose manifests do not say."""


class Placement(Struct, frozen=True, omit_defaults=True):
    """Where a node runs: its host (index into the underlay), machine and addresses; and its implementation, if any."""

    node: NodeNumber
    host: NodeNumber
    machine: str
    wan_ip: str
    ctl_ip: str
    implementation: str = ""


class _Workload(Struct, frozen=True):
    duration_s: Span
    topics: Count
    topics_per_message: Count
    settle_s: Span = 0


class _Verdict(Struct, frozen=True):
    rtt_error_p50_ms: Number
    rtt_error_p50_ratio: Number
    rtt_error_p99_ms: Number
    rtt_error_p99_ratio: Number
    wire_error_p99_ms: Number
    lateness_p99_ms: Number
    delivery_ratio_min: Number = 0


class _Kind(Struct, frozen=True):
    kind: Text = "none"


class _Interests(_Kind, frozen=True):
    ratio: Number = 0
    subscriptions_min: Count = 0


class Views(Struct, frozen=True):
    """How many nodes a node knows or links to, by keys of protocols and memberships; None = no such key."""

    view_size: Count | None = None
    cache_size: Count | None = None
    table_size: Count | None = None
    active_view: Count | None = None
    passive_view: Count | None = None


class _Underlay(Struct, frozen=True):
    kind: Text
    hosts: NodeNumber | None = None
    mtu_bytes: Annotated[int, Meta(ge=576, le=65_535)] = MTU_BYTES


class _Capture(Struct, frozen=True):
    enabled: bool = False
    checked_hosts: Annotated[int, Meta(ge=0, le=64)] = 0


class _Prometheus(Struct, frozen=True):
    scrape_interval_s: Span


class _Experiment(Struct, frozen=True):
    """The keys of an experiment that the analysis reads. The protocol reads its own section."""

    protocol: Text
    testbed: Text
    underlay: _Underlay
    workload: _Workload
    interests: _Interests
    membership: _Kind
    verdict: _Verdict
    prometheus: _Prometheus
    time_dilation: Dilation
    expressions: _Kind = _Kind()
    capture: _Capture = _Capture()


def _require_section(experiment: dict[str, Any], protocol: str) -> None:
    """Check the section of a protocol that the report passes to it, if Trellis knows the protocol."""
    from peer.protocols.registry import PROTOCOLS  # takes long to import

    known = PROTOCOLS.get(protocol)
    if known is not None and known.parameters is not None and (known.report_note or known.false_positive_rate):
        msgspec.convert(experiment.get(known.section), known.parameters)


def views_of(experiment: Mapping[str, Any], part: str) -> Views:
    """Return the sizes of views in the section of a protocol or membership.

    Raises:
        msgspec.ValidationError: there is no such section, or a size is not a whole number.
    """
    return msgspec.convert(experiment.get(part.replace("-", "_"), {}), Views)


class PlanOutline(Struct, frozen=True):
    """The part of ``plan.json`` that the analysis reads. ``harness.planning.plan.Plan`` is all of it.

    ``experiment`` is the resolved experiment as plain values, since its types belong to the harness.
    """

    name: Text
    seed: Seed
    experiment: dict[str, Any]
    placement: Annotated[tuple[Placement, ...], Meta(min_length=1)]

    def __post_init__(self) -> None:
        require_shallow(self.experiment)
        known = msgspec.convert(self.experiment, _Experiment)
        _require_section(self.experiment, known.protocol)
        for part in (known.protocol, known.membership.kind):
            views_of(self.experiment, part)
        if [place.node for place in self.placement] != [*range(len(self.placement))]:
            raise ValueError("expected a placement of the nodes 0, 1, ... in their order")


class Part(Struct, frozen=True):
    """A part of a node, by its name."""

    name: Text


class Behaviour(Part, frozen=True):
    """How a node misbehaves; ``delay_ms``: how long it waits before it handles a frame."""

    delay_ms: Annotated[float, Meta(ge=0, le=60_000)] = 0.0


class NodeOutline(Struct, frozen=True):
    """The part of a node in ``overlay.json`` that the analysis reads; ``peer.instances.spec.NodeSpec`` is all of it."""

    node: NodeNumber
    topics: tuple[TopicNumber, ...]
    dissemination: dict[str, Any]
    overlay: msgspec.Raw = msgspec.Raw(b"{}")  # long for some protocols, so it is decoded where it is needed
    interests: Text = "announced"
    up: bool = True
    behaviour: Behaviour | None = None
    processing_ns: Annotated[int, Meta(ge=0, le=60_000_000_000)] = 0

    def __post_init__(self) -> None:
        msgspec.convert(self.dissemination, Part)


class OverlayOutline(Struct, frozen=True):
    """The part of ``overlay.json`` that the analysis reads."""

    nodes: tuple[NodeOutline, ...]


class FinalState(Struct, frozen=True):
    """How a process ended. ``state``: exited, signalled, running, missing."""

    process: str
    expected: str
    state: str
    status: Whole | None = None
    at_ns: Instant | None = None
    detail: str = ""


class Header(Struct, frozen=True):
    """What every version of ``manifest.json`` has, so that a run of another version can be refused with a reason.

    Manifests of version 0 do not say their version.
    """

    schema_version: Count = 0
    versions: dict[str, str] = {}

    @property
    def maker(self) -> str:
        known = {"trellis-testbed": "version {}", "trellis revision": "revision {}"}
        said = ", ".join(text.format(self.versions[name]) for name, text in known.items() if self.versions.get(name))
        return "the Trellis that made the run" + (f" ({said})" if said else "")


class Manifest(Struct, frozen=True):
    """``manifest.json``. If it is there, the running stage came to its end.

    Instants are virtual: CLOCK_MONOTONIC divided by ``time_dilation``. An instant's real time since the epoch is
    instant x time_dilation + ``epoch_offset_ns``; timestamps of captures are instant + ``epoch_offset_ns``.

    ``problems`` are the running stage's own findings, as (severity, text) with severity ``invalid`` or ``suspect`` and
    one sentence each. A run with any of them is not valid.

    ``deployment`` has the name of the run's ``folder`` below every machine's work folder, the address of
    ``prometheus``, and the ``machine`` that made the run if it was another one (``trellis run --on``).

    ``plugins`` are the loaded plugins: name, version or path, and sha256 of their files (``peer.plugins.Origin``). No
    reader of a run imports them.

    ``uncaptured`` is why a testbed that can capture did not, although the experiment asks for it; empty = it captured.

    ``resources`` is what the processes in the hosts used, without Mininet's shells: ``peer_processes`` and their memory
    ``peers_pss_mib`` at the end, and their processor time in the workload, ``peers_cpu_s`` (real s).

    ``per_process`` is the most peers that one process had, as the experiment allows.

    ``can`` are the abilities of the testbed; None in manifests of earlier versions, so ask ``has_ability``.
    """

    run_id: str
    testbed: str
    epoch_offset_ns: EpochOffset
    zero_ns: Instant
    phases: tuple[Phase, ...]
    final_states: tuple[FinalState, ...]
    counters: dict[str, Whole]
    versions: dict[str, str]
    kernel: dict[str, str]
    hashes: dict[str, str]
    problems: tuple[tuple[str, str], ...] = ()
    capture_files: tuple[str, ...] = ()
    resources: dict[str, Number] = field(default_factory=dict)
    time_dilation: Dilation = 1.0
    deployment: dict[str, str] = field(default_factory=dict)
    schema_version: Count = 0
    can: tuple[Text, ...] | None = None
    uncaptured: Text = ""
    plugins: tuple[dict[str, Text], ...] = ()
    per_process: Count = 1

    def __post_init__(self) -> None:
        self.timeline.require_bounded()

    @property
    def timeline(self) -> Timeline:
        return Timeline(self.zero_ns, self.phases)

    @property
    def machine(self) -> str:
        """The machine of ``trellis run --on``; empty = the run was made where it was started."""
        return self.deployment.get("machine", "")

    def has_ability(self, name: str) -> bool:
        """Return whether the testbed had an ability, by its name in ``harness.testbeds.description``."""
        return name in (_EARLIER_ABILITIES.get(self.testbed, ()) if self.can is None else self.can)


class Check(Struct, frozen=True):
    """A row of the ``checks`` table: one invariant over the run.

    ``severity`` is what a failure makes of the run (``invalid`` or ``suspect``). ``worst`` and ``tolerance`` are in
    ``unit``. ``outcome`` is one of ``PASSED``, ``FAILED``, ``NOT_JUDGED`` and ``NOT_APPLICABLE``. If a check was not
    made, ``detail`` says why. ``material`` is how many things there were to test, of which ``tested`` were tested.
    ``scope`` is the part of the verdict's scope (``Scope``) to which the check belongs.

    If a stall of the host may be the cause: ``late`` samples were beyond the limit, ``explained`` of them would not
    have been without such stalls (``metrics.recorded.stalls``), and the check fails if more than ``allowed`` are late.
    None: a stall of the host explains nothing in this check.
    """

    name: str
    tested: Count
    failed: Count
    worst: float
    tolerance: float
    unit: str
    severity: str
    detail: str = ""
    late: Count | None = None
    explained: Count | None = None
    allowed: Count | None = None
    outcome: str = PASSED
    scope: str = ""
    material: Count | None = None


class Scope(Struct, frozen=True):
    """What a verdict is about: each part is ``JUDGED``, ``NOT_JUDGED`` or ``NOT_APPLICABLE``.

    Attributes:
        network: whether delays, losses and rates were as the experiment asked.
        machine: whether the machine was fast enough.
        frames: whether traces, captures and tables agree about frames.
        deliveries: whether the workload was carried out, and the deliveries are the expected ones.
        packets: whether captures have every packet, and the connections in the traces.
    """

    network: Judged
    machine: Judged
    frames: Judged
    deliveries: Judged
    packets: Judged = "not applicable"


class BegunPhase(Struct, frozen=True, omit_defaults=True):
    """A line of ``phases.jsonl``, in ns of virtual time: a phase that has begun, or that is planned.

    Warm-up, workload and cool-down are written before the first of them begins. The others have no planned end. A run
    that is cut short begins a later phase before the end of an earlier one.

    Attributes:
        name: as in ``manifest.json``.
        start_ns: when it began, or is to begin.
        end_ns: when it is to end; None = when its work is done.
    """

    name: Text
    start_ns: Instant
    end_ns: Instant | None = None

    def line(self) -> bytes:
        """Return the phase as a line."""
        return msgspec.json.encode(self) + b"\n"


class Record(Struct, frozen=True):
    """``deployment.json``.

    Attributes:
        folder: the run's folder below every machine's work folder.
        prometheus: where the server listens.
        shared: the nodes of each process that has the peers of several.
    """

    folder: str
    prometheus: str | None = None
    shared: tuple[tuple[int, ...], ...] = ()


class Attempt(Struct, frozen=True):
    """``attempt.json`` of a run that repeats another one, which stalls of the host spoiled.

    Attributes:
        attempt: 2 for the first repetition.
        repeats: the directory of the attempt before.
        reasons: the reasons in the earlier run's verdict, all of which stalls of the host explain.
    """

    attempt: Count
    repeats: str
    reasons: tuple[str, ...]


class Summary(Struct, frozen=True):
    """``summary.json``. ``reasons`` is empty if the verdict is ``valid``.

    ``attempt`` is None unless the run repeats another one. ``computed_by`` says where the tables were computed.
    ``scope`` says what the verdict is about; None in summaries of earlier versions.
    """

    verdict: str
    reasons: tuple[str, ...]
    headline: dict[MeasureName, bool | Whole | Number | None]
    checks: tuple[Check, ...]
    run_id: str
    name: str
    seed: Seed
    protocol: str
    attempt: Attempt | None = None
    computed_by: str = ""
    scope: Scope | None = None


class Pointer(Struct, frozen=True):
    """``analysis.json`` of a run in a store: which folder of ``analyses`` has the run's results.

    Attributes:
        analysis: the name of the folder.
        before: the folder to which the pointer pointed before, which is kept for readers that still use it.
    """

    analysis: str
    before: str | None = None


class Stall(Struct, frozen=True, omit_defaults=True):
    """A line of ``stalls.jsonl``, in ns of virtual time.

    Attributes:
        source: ``host``: a processor did not run a process that nothing of the run can delay; ``plane``: the data
            plane's loop came late to a task that it does every few milliseconds.
        start_ns: when the process or loop was to continue.
        end_ns: when it did.
        cpu: the processor; None = the processor of the data plane, whichever it was.
    """

    source: str
    start_ns: Instant
    end_ns: Instant
    cpu: Count | None = None

    def line(self) -> bytes:
        """Return the stall as a line. If one write appends it, no lock is needed."""
        return msgspec.json.encode(self) + b"\n"


class AppliedChange(Struct, frozen=True):
    """A line of ``faults.jsonl``: an instant at which faults begin or end, in ns of virtual time.

    Attributes:
        asked_ns: the instant that the experiment asked for.
        applied_ns: the instant from which packets met all changed links, and all peers concerned had changed.
    """

    asked_ns: Instant
    applied_ns: Instant


class ClockOffset(Struct, frozen=True):
    """A machine's clocks compared with ours, the clocks of the computer on which the run was started.

    Attributes:
        realtime_ns: the machine's CLOCK_REALTIME minus ours.
        monotonic_ns: the machine's CLOCK_MONOTONIC minus ours (the machines booted at different times).
        error_ns: both are off by at most this much.
    """

    realtime_ns: EpochOffset
    monotonic_ns: Instant
    error_ns: Instant
