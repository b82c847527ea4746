"""Find the few numbers over whole tables that the checks judge. They are exact, and read in this process."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.asked import RoundTrips
from metrics.changes import PairChanges, asked_instants
from metrics.checks import evidence as parts
from metrics.checks.rule import Absent
from metrics.offsets import measure_offsets
from metrics.pcap.schemas import CAPTURES
from metrics.pcap.walk import Bools
from metrics.recorded import first_packets
from metrics.recorded.dataplane import spans
from metrics.recorded.host_captures import HostCaptures
from metrics.recorded.probing import PHASES, measure_sweep, read_achieved, without_changes
from metrics.recorded.round_trips import measure_phases, read_round_trips
from metrics.reported import LINK, find_missing, reports_nothing
from metrics.rundir import AppliedChange, RunDir
from metrics.rundir.files import DATAPLANE_FILE, FAULTS_FILE, PRESSURE_FILE
from metrics.rundir.hashes import find_edited
from metrics.storage import Place
from metrics.storage.parquet import open_dataset, read_parquet
from metrics.tables.accounts import AccountEvidence
from metrics.tables.columns import numbers, read_columns, valid
from metrics.tables.completeness import Completeness
from metrics.tables.halts import count_drops
from metrics.tables.hop_evidence import HopEvidence
from metrics.tables.message_evidence import MessageEvidence
from metrics.tables.scheduled import Scheduled
from metrics.tables.traces import EVENTS, TraceState
from peer.protocols.registry import copies_follow_links, copies_may_wait

_BY_NODE = ("node_sends", "node_receives", "node_handlings")


class Found(NamedTuple):
    """What tasks find in large tables; None = the run has no captures."""

    messages: MessageEvidence
    hops: HopEvidence
    transits: parts.Transits | Absent | None
    bounds: parts.Bounds | Absent | None
    links: parts.Links | None
    host_captures: HostCaptures | None
    accounts: AccountEvidence
    counters: parts.Counters | Absent
    scheduled: Scheduled
    completeness: Completeness | None
    identity: parts.Outcome | None
    least_wire_ns: Mapping[tuple[int, int], int]


def gather(
    run: RunDir,
    states: Mapping[int | None, TraceState],
    incomplete: list[int],
    staging: Place,
    found: Found,
) -> parts.Evidence:
    """Find all evidence.

    Args:
        run: the run directory, with its tables.
        states: the states of ``logs.Logs.read``, by node.
        incomplete: nodes whose trace is missing or cut off.
        staging: has the events, the streams and what was read of the captures.
        found: what the tasks found.
    """
    messages, hops = found.messages, found.hops
    busy, steal = read_load(run)
    simulated = run.manifest.has_ability("simulate")
    opaque, measured = is_opaque(run, hops), read_measured(run, found.least_wire_ns)
    packets = None if found.transits is None or isinstance(found.transits, Absent) else found.transits.sent
    evidence = parts.Evidence(
        traces=parts.Traces(
            nodes=len(run.nodes),
            incomplete={node: states[node].lines if node in states else None for node in incomplete},
            changes=sum(state.changes for state in states.values()),
            scheduled_changes=found.scheduled.changes,
            dropped=_drops(staging / "events", PairChanges.of_nodes(run))
            if any(state.drops for state in states.values())
            else {},
        ),
        publications=parts.Publications(
            scheduled=found.scheduled.publications,
            messages=messages.counts.messages,
            with_schedule=messages.counts.with_schedule,
            subscribers=messages.counts.subscribers,
            lag=Absent("in virtual time no publication is late") if simulated else messages.lag,
        ),
        deliveries=messages.counts.deliveries,
        recount=found.scheduled.recount,
        carried=packets if opaque else hops.frames.tested,
        order=hops.order,
        frames=hops.frames,
        documents=_documents(run),
        clocks=_clocks(run, hops.clocks, measured),
        host_captures=_unsampled(run) if found.host_captures is None else found.host_captures,
        accounts=found.accounts.accounts,
        counters=found.counters,
        emulation=read_emulation(run, pairs_in_time(run)),
        changes=read_changes(run),
        measured=measured,
        busy=busy,
        steal=steal,
        **_captured(run, staging, found),
    )
    if reports_nothing(run.experiment):
        evidence = without_messages(evidence)
    return without_frames(evidence) if opaque else evidence


def is_opaque(run: RunDir, hops: HopEvidence) -> bool:
    """Return whether the peers are a program without any frame in traces or captures."""
    return has_program(run) and not hops.frame_sets.tested


def has_program(run: RunDir) -> bool:
    """Return whether the peers are a program; its frames may be known or not."""
    peer: Mapping[str, Any] = run.experiment.get("peer", {})
    return peer.get("command") is not None


def without_frames(evidence: parts.Evidence) -> parts.Evidence:
    """Return the evidence for peers whose frames are not known: the parts about frames are absent by design."""
    reason = Absent("the program (peer.command) neither writes nor traces frames that Trellis knows")
    present = (name for name in _ABOUT_FRAMES if not isinstance(getattr(evidence, name), Absent))
    replaced: dict[str, Any] = dict.fromkeys(present, reason)
    if not isinstance(evidence.measured, Absent):
        replaced["measured"] = msgspec.structs.replace(evidence.measured, wire_ms=reason)
    return msgspec.structs.replace(evidence, **replaced)


def without_messages(evidence: parts.Evidence) -> parts.Evidence:
    """Return the evidence for programs that report nothing: parts about traces and messages are absent by design."""
    reason = Absent('the programs report no messages (peer.events = "none")')
    return msgspec.structs.replace(evidence, **dict.fromkeys(_ABOUT_MESSAGES, reason))


_ABOUT_MESSAGES = ("traces", "publications", "deliveries", "bounds", "counters")
"""The parts of evidence that need reports of messages."""

_ABOUT_FRAMES = (
    *("order", "frames", "frame_sets", "coverage", "connections", "delays", "inside", "send", "receive"),
    *("links", "accounts", "node_sends", "node_receives", "node_handlings"),
)
"""The parts of evidence that need frames in traces or captures."""


def _documents(run: RunDir) -> parts.Documents | Absent:
    """Compare the documents with their hashes in the manifest, which runs of earlier versions do not have."""
    found = find_edited(run.path, run.manifest.hashes)
    if not found:
        return Absent("the manifest has no hashes of the documents")
    return parts.Documents(len(found), tuple(name for name, differs in found.items() if differs))


def _captured(run: RunDir, staging: Place, found: Found) -> dict[str, Any]:
    """Return the parts that need captures."""
    uncaptured = lacks_captures(run)
    if uncaptured is not None:
        names = ("frame_sets", "coverage", "connections", "captures", "delays", "bounds", "inside", "transits")
        others = ("identity", "send", "receive", "links", "connected", *_BY_NODE)
        absent: dict[str, Any] = dict.fromkeys((*names, *others), uncaptured)
        return absent | {"uncaptured": True if uncaptured.due else uncaptured}
    assert found.completeness is not None and found.identity is not None, "tasks weigh them where there are captures"
    captures = _captures(run, read_parquet(staging / "wire" / "captures", schema=CAPTURES))
    return {
        "uncaptured": False,
        "frame_sets": found.hops.frame_sets,
        **found.completeness._asdict(),
        "captures": captures,
        "delays": found.messages.delays,
        "bounds": _bounds(captures, found.bounds),
        "inside": found.messages.inside,
        "transits": found.transits,
        "identity": found.identity,
        "send": found.hops.send,
        "receive": found.hops.receive,
        "links": found.links,
        "connected": _connected(run, found.links),
        "node_sends": found.hops.node_sends,
        "node_receives": found.hops.node_receives,
        "node_handlings": found.accounts.handling,
    }


def _bounds(captures: parts.Captures, bounds: parts.Bounds | Absent | None) -> parts.Bounds | Absent | None:
    """Return the bounds of deliveries, unless packets are missing in the captures."""
    missing = captures.dropped or captures.truncated or captures.plane_dropped
    return Absent("packets are missing in the captures (capture_drops)", due=True) if missing else bounds


def _connected(run: RunDir, links: parts.Links | None) -> parts.Matching | Absent:
    if LINK in find_missing(run):
        return Absent("the program does not report its links (peer.says)")
    assert links is not None, "the run has captures"
    return links.connected


def lacks_captures(run: RunDir) -> Absent | None:
    """Return why a run has no captures; None if it has some."""
    if run.captures:
        return None
    if run.manifest.uncaptured:
        return Absent(run.manifest.uncaptured)
    if not run.manifest.has_ability("capture"):
        return Absent(f"the {run.manifest.testbed} testbed captures no packets")
    if not run.experiment.get("capture", {}).get("enabled", False):
        return Absent("the experiment asks for no capture")
    return Absent("there is no capture file", due=True)


def _unsampled(run: RunDir) -> Absent:
    """Return why a run compares no captures of hosts."""
    if not run.manifest.has_ability("certify"):
        return Absent(f"the {run.manifest.testbed} testbed emulates no network")
    return Absent("the experiment samples no hosts for a second capture")


def read_emulation(run: RunDir, in_time: Bools | None = None) -> parts.Emulation | Absent:
    """Read what an emulated run recorded of its network and its machine.

    Args:
        run: the run directory.
        in_time: ``pairs_in_time``; None = not known.
    """
    if not run.manifest.has_ability("certify"):
        return Absent(f"the {run.manifest.testbed} testbed emulates no network")
    limits = run.experiment["verdict"]
    asked = {phase: RoundTrips.of(run.network, idle=phase != "during") for phase in PHASES}
    achieved, slots = read_achieved(run.path), first_packets.read(run.path)
    sweeps, offsets, changes = None, None, PairChanges.of(run)
    if achieved is not None:
        phases = ((phase, achieved.filter(pc.equal(achieved["phase"], phase))) for phase in PHASES)
        all_pairs = run.network.size * (run.network.size - 1) // 2  # earlier versions probed both directions
        material = {phase: (in_time, None) if phase == "during" else (None, all_pairs) for phase in PHASES}
        sweeps = {
            phase: measure_sweep(without_changes(rows, changes), limits, run.stalls, asked[phase], *material[phase])
            for phase, rows in phases
            if rows.num_rows
        }
        offsets = measure_offsets(without_changes(achieved, changes))
    sampled = float(run.experiment.get("probes", {}).get("during_per_s", 0)) > 0
    return parts.Emulation(
        hosts=run.network.size,
        sweeps=sweeps,
        asked_sweeps=tuple(phase for phase in PHASES if sampled or phase != "during"),
        first_packets=None if slots is None else tuple(first_packets.judge(slots, run.stalls)),
        spans=tuple(spans(run.lines(DATAPLANE_FILE))),
        pressure=msgspec.convert(run.lines(PRESSURE_FILE), tuple[parts.PressureLine, ...]),
        judged_ns=run.judged_ns,
        workload=run.phase("workload"),
        stalls=run.stalls,
        lateness_p99_ms=float(limits["lateness_p99_ms"]),
        offsets=offsets,
        unmeasured=_lacks_lateness(run),
    )


def _lacks_lateness(run: RunDir) -> Absent | None:
    """Return why a run's data plane does not report its lateness, which captures must show then; None if it does."""
    if not run.manifest.has_ability("opaque"):
        return None
    uncaptured = lacks_captures(run) is not None
    words = "nothing shows how late its packets were: there is no capture" if uncaptured else "wire_delay judges it"
    return Absent(f"the kernel forwards and does not say how late it is; {words}", due=uncaptured)


def read_changes(run: RunDir) -> parts.Changes | Absent:
    """Read when a testbed on real time applied the faults, up to the end of the judged span."""
    if run.manifest.has_ability("simulate"):
        return Absent(f"the {run.manifest.testbed} testbed emulates no network")
    if not run.changes:
        return Absent("the experiment has no faults")
    lines = msgspec.convert(run.lines(FAULTS_FILE), tuple[AppliedChange, ...])
    end_ns = run.judged_ns[1]
    return parts.Changes(
        applied=tuple(line for line in lines if line.asked_ns < end_ns),
        asked=sum(at_ns < end_ns for at_ns in asked_instants(run)),
        stalls=run.stalls,
        error_ns=max((clock.error_ns for clock in run.clocks.values()), default=0),
    )


def read_measured(run: RunDir, least_wire_ns: Mapping[tuple[int, int], int]) -> parts.MeasuredNetwork | Absent:
    """Read what a run recorded of a network that it did not make.

    Args:
        run: the run directory.
        least_wire_ns: ``hop_evidence.find_least_wire``.
    """
    if run.manifest.has_ability("shape"):
        return Absent(f"the network of the {run.manifest.testbed} testbed is compared with what was asked for")
    if not run.manifest.has_ability("probe"):
        return Absent(f"the {run.manifest.testbed} testbed measures no round trips")
    rows = read_round_trips(run.path)
    addresses = [place.wan_ip for place in run.plan.placement]
    shared = {address for address in addresses if addresses.count(address) > 1}
    several = len(set(addresses))
    sampled = float(run.experiment.get("probes", {}).get("during_per_s", 0)) > 0
    return parts.MeasuredNetwork(
        pairs=several * (several - 1) + len(shared),
        phases=None if rows is None else measure_phases(rows),
        asked_phases=tuple(phase for phase in PHASES if sampled or phase != "during"),
        wire_ms=lacks_captures(run) or _between_addresses(run, least_wire_ns),
    )


def _clocks(run: RunDir, unresolved: parts.Outcome, measured: parts.MeasuredNetwork | Absent) -> parts.Clocks | Absent:
    if not run.clocks:
        return Absent("all processes of the run read the same clock")
    known = not isinstance(measured, Absent) and bool(measured.phases)
    return parts.Clocks(unresolved.tested, unresolved.failed, round(unresolved.worst), has_round_trips=known)


def _between_addresses(run: RunDir, delays_ns: Mapping[tuple[int, int], int]) -> dict[tuple[str, str], float]:
    """Return delays between nodes, in ms by the addresses of the nodes."""
    addresses = {place.node: place.wan_ip for place in run.plan.placement}
    return {(addresses[src], addresses[dst]): delay_ns / 1e6 for (src, dst), delay_ns in delays_ns.items()}


def pairs_in_time(run: RunDir) -> Bools:
    """Return the pairs of hosts, (n, n), with packets in the judged span, at most 1 % of them late and none lost."""
    found: Bools = np.zeros((run.network.size, run.network.size), np.bool_)
    if run.captures:
        columns = ("src_node", "dst_node", "packets", "late", "lost", "asked_loss_ratio", "error_ms_mean")
        rows = read_columns(run, "pairs", *columns)
        packets, late, lost = (numbers(rows[name]) for name in ("packets", "late", "lost"))
        timed, none_lost = valid(rows["error_ms_mean"]), (lost == 0) | (rows["asked_loss_ratio"].to_numpy() > 0)
        held = timed & none_lost & (late * 100 <= packets)
        hosts = {place.node: place.host for place in run.plan.placement}
        src, dst = ([hosts[node] for node in rows[end].to_pylist()] for end in ("src_node", "dst_node"))
        found[src, dst] = held
    return found


def first_copies_may_wait(run: RunDir) -> bool:
    """Return whether publishers' first copies may wait for other nodes."""
    return any(copies_may_wait(spec.dissemination) for spec in run.overlay)


def processing_delays(run: RunDir) -> dict[int, int]:
    """Return how long each node waits on purpose before it handles a frame, in ns; absent = no wait."""
    late_ms = {spec.node: spec.behaviour.delay_ms for spec in run.overlay if spec.behaviour is not None}
    asked_ns = {spec.node: spec.processing_ns + round(late_ms.get(spec.node, 0) * 1e6) for spec in run.overlay}
    return {node: delay_ns for node, delay_ns in asked_ns.items() if delay_ns}


def copies_show_links(run: RunDir) -> bool:
    """Return whether copies between two subscribers of a topic use logical links only, as the disseminations declare.

    Adversaries may do otherwise.
    """
    several = run.experiment["workload"]["topics_per_message"] > 1
    return all(
        copies_follow_links(spec.dissemination, spec.interests, several=several) and spec.behaviour is None
        for spec in run.overlay
    )


def _captures(run: RunDir, interfaces: pa.Table) -> parts.Captures:
    counters = run.manifest.counters
    records, dropped, not_understood = (
        pc.sum(interfaces[column]).as_py() or 0 for column in ("packets", "dropped", "n_not_understood")
    )
    truncated = len(interfaces.filter(interfaces["truncated"])["pcap_file"].unique())
    plane_frames: int | Absent = Absent(
        "the manifest has no count of a data plane's frames", due=run.manifest.has_ability("certify")
    )
    if "frames_in" in counters:
        plane_frames = counters["frames_in"] + counters["frames_out"]
    return parts.Captures(records, dropped, truncated, not_understood, plane_frames, counters.get("records_dropped", 0))


def read_load(run: RunDir) -> tuple[tuple[float, ...] | Absent, tuple[float, ...] | Absent]:
    """Read the busy and stolen shares of the processors, second by second, in the workload and the cool-down."""
    rows = read_columns(run, "fidelity", "at_ns", "cpu_busy_ratio", "steal_ratio")
    at_ns, working = numbers(rows["at_ns"]), np.zeros(len(rows), np.bool_)
    for phase in (run.phase("workload"), run.phase("cooldown")):
        if phase is not None:
            working |= (phase.start_ns <= at_ns) & (at_ns < phase.end_ns)
    rows = rows.filter(pa.array(working))
    busy, steal = (tuple(rows[name].drop_null().to_pylist()) for name in ("cpu_busy_ratio", "steal_ratio"))
    missing = Absent("no load of the processors was recorded", due=run.manifest.has_ability("certify"))
    return busy or missing, steal or missing


def _drops(events: Place, changes: PairChanges) -> dict[str, int]:
    """Count the frames that peers dropped, by reason, except drops that a cut or a pause explains."""
    columns = ["node", "peer", "ts_ns", "reason"]
    drops = open_dataset(events, EVENTS).to_table(columns=columns, filter=pc.field("event") == "drop")
    return count_drops(drops, changes)
