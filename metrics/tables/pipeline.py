"""Make all tables of a run in the order in which they depend on each other, and write them."""

from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Address
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from metrics.adversaries import read_adversaries, read_behaviours
from metrics.changes import PairChanges, read_changes
from metrics.checks import check_run
from metrics.checks.evidence import Bounds, Links, Outcome, Transits
from metrics.checks.rule import Absent
from metrics.executors import Executor
from metrics.facts.crossings import Through
from metrics.measures.snapshots import measure_overlay
from metrics.pcap.schemas import SCHEMAS
from metrics.pcap.tables import Reading
from metrics.recorded.host_captures import compare_captures
from metrics.reported import DUPLICATE, FRAME, find_missing, hide_values
from metrics.rundir import RunDir
from metrics.rundir.files import STALLS_FILE, table_file
from metrics.storage import Place
from metrics.storage.parquet import open_dataset, read_parquet
from metrics.tables import (
    accounts,
    churn,
    counters,
    deliveries,
    dimensions,
    disclosures,
    epochs,
    faults,
    fidelity,
    groups,
    hops,
    interests,
    link_tasks,
    overhead,
)
from metrics.tables.bottleneck_replay import replay_bottlenecks
from metrics.tables.bottlenecks import Crossed
from metrics.tables.completeness import Completeness, weigh_streams
from metrics.tables.condensed import build_and_condense
from metrics.tables.earliest import MOST_PACKETS, EarliestSources, find_earliest
from metrics.tables.evidence import (
    Found,
    copies_show_links,
    first_copies_may_wait,
    gather,
    has_program,
    processing_delays,
)
from metrics.tables.exports import write_views
from metrics.tables.group_links import build_group_links
from metrics.tables.hop_evidence import Circumstances, find_least_wire, weigh_hops
from metrics.tables.message_evidence import MessageSources, weigh_messages
from metrics.tables.observed_links import observer_of
from metrics.tables.overlay import Intervals, build_parts, choose_instants
from metrics.tables.published import PublishedSources, build_published
from metrics.tables.reported_copies import build_reported
from metrics.tables.scheduled import weigh_schedule
from metrics.tables.schemas import FAULTS, GROUP_LINKS, GROUPS, TABLES, UNDERLAY_LINKS, arrow_schema
from metrics.tables.shares import GROUP_ROWS, Made, Share, all_shares, write_share, write_shares
from metrics.tables.staged import read_staged, temporary_folder
from metrics.tables.staging import StagedRun, in_parallel
from metrics.tables.traces import EVENTS
from metrics.tables.transit_evidence import TransitRules, weigh_transits
from metrics.tables.transits import TRANSITS, TransitSources, build_transits
from metrics.tables.underlay_links import LinkSources, build_underlay_links
from metrics.tables.wire import captures_of, write_packets
from metrics.totals import Totals, write_totals
from topologies.jitter import Jitter


class Pipeline:
    """One analysis of one run.

    It has two phases, in a staging folder that is deleted at the end. *Staging* (``metrics.tables.staging``) reads
    every raw file once. *Building* (``_save_*``) makes the tables. ``_build`` has their order, since a table may need
    earlier ones. The steps of one line of ``_build`` are independent and run side by side.

    Every table comes from a kernel. Tables that grow with frames, copies or links run as tasks of the executor
    (``write_shares``), each of which reads its bucket. The other tables are made here (``_save_small``). Checks are
    judged last.
    """

    def __init__(self, executor: Executor, run: RunDir) -> None:
        self._executor = executor
        self._run = run
        self._tables = run.tables
        self._missing = find_missing(run)
        self.links: Links | None = None

    def write(self, *, packets: bool) -> None:
        """Write every table into an empty folder (``RunDir.tables``)."""
        with temporary_folder(self._tables, ".staging-") as self._staging:
            self._pairs = self._staging / "pairs"
            self._staged = StagedRun(self._executor, self._run, self._staging, self._path("frames"))
            self._buckets = self._staged.buckets
            self._build()
        if packets:
            self.write_packets()
        write_views(self._run)

    # ---------------------------------------------------------------------------------------------- tables

    def _build(self) -> None:
        """Make all tables. Each line needs the tables of the lines above it."""
        in_parallel(hops=self._save_hops, links=self._save_links, pairs=self._save_pairs)
        self._find_earliest()
        in_parallel(
            deliveries=self._save_deliveries,
            conns=self._save_conns,
            overhead=self._save_overhead,
            captures=self._compare_captures,
        )
        in_parallel(
            hops=self._weigh_hops,
            accounts=self._weigh_accounts,
            counters=self._weigh_counters,
            schedule=self._weigh_schedule,
            sharing=self._save_sharing,
            fidelity=self._save_fidelity,
            overlay=self._save_overlay,
        )
        in_parallel(
            completeness=self._weigh_completeness,
            nodes=self._save_nodes,
            epochs=self._save_epochs,
            churn_control=self._save_churn_control,
            disclosures=self._save_disclosures,
            groups=self._save_groups,
            faults=self._save_faults,
            underlay_links=self._save_underlay_links,
        )
        self._save_checks()

    def _save_hops(self) -> None:
        staging, wire, zero_ns = self._staging, self._staging / "wire", self._run.manifest.zero_ns
        said = PublishedSources(staging / "planned", staging / "told", staging / "mentions")
        self._write(partial(build_published, said, zero_ns), "published", "contents")
        sources = hops.HopSources(
            frames=staging / "frames",
            beginnings=staging / "beginnings",
            taps=self._path("frames"),
            conns=wire / "conns",
            handled=staging / "handled",
            contents=staging / "contents",
            pairs=self._pairs,
            nodes_by_host=self._run.nodes_by_host,
        )
        make = partial(build_and_condense, sources, wire / "spans", zero_ns)
        self._write(make, "hops", "transmissions", "host_delays", "streams", "carried", "arrivals", "classes")
        self._staged.wire.complete()

    def _save_links(self) -> None:
        """Save what the traces have of nodes and their links; each trace has the links of its own node."""
        tables = ("instances", "subscriptions", "physical_links", "links")
        make = partial(link_tasks.build_links, self._link_sources())
        self._write(make, "uptimes", "interests", *tables, "opposite")

    def _link_sources(self) -> link_tasks.LinkSources:
        run, timeline = self._run, self._run.timeline
        captured = bool(run.captures)
        return link_tasks.LinkSources(
            staging=self._staging,
            links=self._path("links"),
            physical=self._path("physical_links"),
            conns=self._path("conns"),
            settle_ns=run.settle_ns,
            span_ns=(timeline.start_ns, timeline.end_ns),
            grid=timeline.grid,
            incomplete=tuple(self._staged.incomplete),
            vanished=tuple({node for node, _ in churn.silent_crashes(run)}),
            captured=captured,
            shown=captured and copies_show_links(run),
            observer=observer_of(run) if captured else None,
            adversaries=tuple(sorted(read_adversaries(run))),
            missing=self._missing,
        )

    def _save_pairs(self) -> None:
        """Save what became of each packet between two hosts, if there is a capture."""
        run, folder = self._run, self._staging / "transits"
        self.transits: Transits | Absent | None = None
        self._queues: pa.Table | None = None
        if run.captures and not run.manifest.has_ability("shape"):
            self.transits = Absent("nothing was asked of the network between the machines")
        elif run.network.jitter_ms and not run.network.jitter_correlation_ms:
            self.transits = Absent("an earlier version of Trellis drew a new jitter for every packet", due=True)
        if not run.captures or self.transits is not None:
            self._save_small("pairs", [])
            return
        nodes = {int(IPv4Address(place.wan_ip)): place.node for place in run.plan.placement}
        hosts = {place.node: place.host for place in run.plan.placement}
        jitter = Jitter(run.plan.seed, run.network.jitter_correlation_ms, run.manifest.zero_ns)
        crossings = self._staging / "wire" / "crossings"
        crossed = Crossed(run.network.bottlenecks, hosts)
        sources = TransitSources(crossings, self._pairs, nodes, hosts, jitter, self._buckets, crossed)
        self._write(partial(build_transits, sources), "transits", *(["through"] if crossed else []))
        if crossed:
            self._queues = replay_bottlenecks(self._executor, sources, self._staging / "through", folder)
        limit_ms = float(run.experiment["verdict"]["wire_error_p99_ms"])
        rules = TransitRules(self._pairs, run.judged_ns, limit_ms, run.stalls, crossed)
        sorted_values = self._staging / "weighed-transits"
        self.transits = weigh_transits(self._executor, rules, folder, self._path("pairs"), sorted_values, self._buckets)

    def _find_earliest(self) -> None:
        """Find when packets could have brought each delivery, if the path of each packet is known."""
        target = self._staging / "earliest"
        lacking = self._too_many_packets() if isinstance(self.transits, Transits) else self.transits
        if lacking is not None or self.transits is None:
            target.mkdir()
            self.bounds: Bounds | Absent | None = lacking
            return
        sources = EarliestSources(
            published=self._staging / "published",
            told=self._staging / "told",
            transits=self._staging / "transits",
            nodes=1 + max(self._run.nodes),
            buckets=self._buckets,
        )
        self.bounds = find_earliest(self._executor, sources, target)

    def _too_many_packets(self) -> Absent | None:
        packets = open_dataset(self._staging / "transits", TRANSITS).count_rows()
        if has_program(self._run) or packets <= MOST_PACKETS:
            return None
        return Absent(f"the frames of these peers are known, and there are more than {MOST_PACKETS:,} packets")

    def _save_deliveries(self) -> None:
        if self._transmissions.name == "reported":
            self._write(partial(build_reported, self._staging), "reported")
        sources = deliveries.DeliverySources(
            told=self._staging / "told",
            transmissions=self._transmissions,
            interests=self._staging / "interests",
            published=self._staging / "published",
            earliest=self._staging / "earliest",
            pairs=self._pairs,
            incomplete=tuple(self._staged.incomplete),
            captured=bool(self._run.captures),
            missing=self._missing,
        )
        make = partial(deliveries.build_deliveries, sources)
        self._write(make, "deliveries", "messages", "copies", group_rows=deliveries.GROUP_ROWS)
        weighed = MessageSources(
            messages=self._path("messages"),
            deliveries=self._path("deliveries"),
            transmissions=sources.transmissions,
            adversaries=read_adversaries(self._run),
            zero_ns=self._run.manifest.zero_ns,
            stalls=self._run.stalls,
            may_wait=first_copies_may_wait(self._run),
            changes=PairChanges.of_nodes(self._run),
        )
        folder = self._staging / "weighed-messages"
        self.messages = weigh_messages(self._executor, weighed, folder, self._buckets)

    def _save_conns(self) -> None:
        self._write(partial(link_tasks.build_conns, self._staging, self._missing), "conns")

    def _compare_captures(self) -> None:
        """Compare the data plane's capture with those in hosts, in one task: few hosts are sampled."""
        [self.host_captures] = self._executor.map(compare_captures, [self._run.path])

    def _save_sharing(self) -> None:
        """Save the sizes of both views, and compare the links of traces and captures (None: no captures)."""
        sources = self._link_sources()
        if sources.captured:
            observed = ("observed", "read_ends") if sources.observer is not None else ()
            shown = ("ends", "connected", "proven", "proven_opposite", *observed)
            self._write(partial(link_tasks.show_links, sources), *shown)
        self._write(partial(link_tasks.build_sharing, sources), "sharing", "wire_links")
        if sources.captured:
            self.links = link_tasks.compare_links(self._executor, sources, self._buckets)

    def _save_nodes(self) -> None:
        run = self._run
        starters, behaviours = interests.starters_of(run.overlay), read_behaviours(run)
        rows = dimensions.build_nodes(run.plan.placement, run.underlay.hosts, starters, behaviours)
        self._write_small("nodes", rows)

    def _save_fidelity(self) -> None:
        find = partial(fidelity.host_delays, self._staging / "host_delays", self._run.manifest.zero_ns)
        found = self._executor.map(find, all_shares(self._buckets))
        delays = {second: row for each in found for second, row in each.items()}
        self._save_small("fidelity", fidelity.build_fidelity(self._run, delays, self.messages.totals.lag_ms_max))
        stalls = sorted(self._run.lines(STALLS_FILE), key=lambda line: (line["start_ns"], line["end_ns"]))
        self._save_small("stalls", [line | {"phase": self._run.timeline.phase_at(line["start_ns"])} for line in stalls])

    def _save_epochs(self) -> None:
        adversaries, timeline = read_adversaries(self._run), self._run.timeline
        said = pc.field("event") == "epoch"
        ends = epochs.epoch_ends(
            read_staged(self._events, EVENTS, ["node", "ts_ns", "epoch", "score"], said), adversaries
        )
        span_ns, folder = (timeline.start_ns, timeline.published_ns), self._staging / "weighed-epochs"
        rows = epochs.build_epochs(self._executor, ends, self._path("deliveries"), adversaries, span_ns, folder)
        self._save_small("epochs", rows)

    def _save_faults(self) -> None:
        """Save the table of faults; nothing if there are none."""
        run, timeline = self._run, self._run.timeline
        if not run.changes:
            return
        spans = faults.find_spans(read_changes(run), timeline.zero_ns, timeline.published_ns)
        folder, deliveries = self._staging / "weighed-faults", self._path("deliveries")
        rows = faults.build_faults(self._executor, spans, deliveries, read_adversaries(run), folder)
        self._write_small(FAULTS, pa.Table.from_pylist(rows, arrow_schema(FAULTS)))

    def _save_underlay_links(self) -> None:
        """Save the table of the underlay's links; nothing if the underlay has no graph."""
        hosts = {place.node: place.host for place in self._run.plan.placement}
        through = Through.of(self._run.underlay, hosts)
        if through is None:
            return
        transits = self._staging / "transits" if isinstance(self.transits, Transits) else None
        reported = FRAME in self._missing
        copies = None if reported and DUPLICATE in self._missing else self._transmissions
        sources = LinkSources(transits, copies, self._buckets, self._queues, reported)
        self._write_small(UNDERLAY_LINKS, build_underlay_links(self._executor, through, sources))

    def _save_groups(self) -> None:
        """Save the tables of messages with expressions; nothing if no message has one."""
        run = self._run
        if not run.has_expressions:
            return
        sources = groups.GroupSources(
            published=self._staging / "published",
            told=self._staging / "told",
            handled=self._staging / "handled",
            hops=self._path("hops"),
            starters=interests.starters_of(run.overlay),
            changes=self._staging / "changes",
        )
        adversaries = read_adversaries(run)
        self._write_small(GROUPS, groups.build_groups(run, sources, adversaries, groups.predicted_rate(run)))
        links = build_group_links(sources.published, sources.hops, adversaries, on_wire=bool(run.captures))
        self._write_small(GROUP_LINKS, links)

    def _save_churn_control(self) -> None:
        workload, rows = self._run.phase("workload"), []
        if workload is not None and any(state.changes for state in self._staged.states.values()):
            span_ns = workload.start_ns, workload.end_ns
            adversaries = read_adversaries(self._run)
            rows = churn.build_churn_control(self._events, self.hops.totals.sent, span_ns, adversaries)
        self._save_small("churn_control", rows)

    def _save_disclosures(self) -> None:
        askers, adversaries = read_adversaries(self._run, "asker"), read_adversaries(self._run)
        rows = disclosures.build_disclosures(self._events, self._staging / "interests", askers, adversaries)
        self._save_small("disclosures", rows)

    def _weigh_hops(self) -> None:
        endings: tuple[churn.Ending, ...] = ()
        if any(state.changes for state in self._staged.states.values()):
            endings = churn.read_endings(self._events, churn.silent_crashes(self._run))
        circumstances = Circumstances.of(self._run, self._staged.incomplete, endings, self._pairs)
        self.hops = weigh_hops(self._executor, self._run, circumstances, self._staging / "weighed-hops")

    def _weigh_accounts(self) -> None:
        staging, states = self._staging, self._staged.states
        complete = set(self._run.nodes) - set(self._staged.incomplete)
        sources = accounts.AccountSources(
            messages=self._path("messages"),
            published=staging / "published",
            transmissions=staging / "transmissions",
            told=staging / "told",
            further=staging / "further",
            interests=staging / "interests",
            uptimes=staging / "uptimes",
            physical=self._path("physical_links"),
            silent=tuple(node for node in self._run.nodes if node not in complete or not states[node].reads),
            processing_ns=processing_delays(self._run),
            approximate=groups.predicted_rate(self._run) is not None,
            stalls=self._run.stalls,
            changes=PairChanges.of_nodes(self._run),
        )
        self.accounts = accounts.weigh_accounts(self._executor, sources, self._buckets)

    def _weigh_counters(self) -> None:
        run, incomplete = self._run, self._staged.incomplete
        self.counters = counters.weigh_counters(self._executor, run, incomplete, self._staging, self._buckets)

    def _weigh_schedule(self) -> None:
        self.scheduled = weigh_schedule(self._executor, self._run)

    def _weigh_completeness(self) -> None:
        """Compare traces and captures, which needs captures and the hops."""
        executor, run, buckets = self._executor, self._run, self._buckets
        self.completeness: Completeness | None = None
        self.identity: Outcome | None = None
        self.least_wire_ns: dict[tuple[int, int], int] = {}
        if run.captures:
            incomplete, cut = self._staged.incomplete, self.hops.cut
            self.completeness = weigh_streams(executor, self._staging, incomplete, cut, buckets)
            self.identity = overhead.weigh_identity(executor, self._path("overhead"), buckets)
            if not run.manifest.has_ability("shape"):
                self.least_wire_ns = find_least_wire(executor, self._path("hops"))

    def _save_checks(self) -> None:
        totals = Totals(self.messages.totals, self.hops.totals, self.scheduled.settling, self._buckets)
        write_totals(self._run, totals)
        found = Found(
            messages=self.messages,
            hops=self.hops,
            transits=self.transits,
            bounds=self.bounds,
            links=self.links,
            host_captures=self.host_captures,
            accounts=self.accounts,
            counters=self.counters,
            scheduled=self.scheduled,
            completeness=self.completeness,
            identity=self.identity,
            least_wire_ns=self.least_wire_ns,
        )
        evidence = gather(self._run, self._staged.states, self._staged.incomplete, self._staging, found)
        self._save_small("checks", [msgspec.to_builtins(check) for check in check_run(evidence)])

    def _save_overlay(self) -> None:
        """Save the overlay's measures over time, and those of its topics and nodes at zero and at the end."""
        run, timeline = self._run, self._run.timeline
        end_ns = timeline.published_ns
        physical, logical = (read_parquet(self._path(name)) for name in ("physical_links", "links"))
        nodes, topics = (read_parquet(self._staging / name) for name in ("uptimes", "interests"))
        intervals = Intervals(nodes, topics, physical, logical, read_adversaries(run))
        instants = choose_instants(timeline.grid, end_ns, len(run.nodes))
        rows = [{"at_ns": at_ns} | measure_overlay(intervals.at(at_ns)[1]) for at_ns in instants]
        topics, degrees = build_parts(intervals, sorted({timeline.zero_ns, end_ns}))
        for name, parts in {"overlay": rows, "overlay_topics": topics, "overlay_degrees": degrees}.items():
            self._save_small(name, [hide_values(row, self._missing) for row in parts])

    def _save_overhead(self) -> None:
        make = partial(overhead.build_share, self._staging, self._run.nodes_by_host, self._missing)
        self._write(make, "overhead", "control")

    # ---------------------------------------------------------------------------------------------- files

    @property
    def _events(self) -> Place:
        return self._staging / "events"

    @property
    def _transmissions(self) -> Place:
        """Copies of messages: frames, or reports of programs that do not report frames."""
        is_reported = FRAME in self._missing and DUPLICATE not in self._missing
        return self._staging / ("reported" if is_reported else "transmissions")

    def _path(self, name: str) -> Place:
        return self._tables / table_file(name)

    def _write(self, make: Callable[[Share], Made], *names: str, group_rows: int = GROUP_ROWS) -> None:
        """Write tables of the run to their place and other tables to the staging folder, one share per bucket."""
        targets = {name: self._path(name) if name in TABLES else self._staging / name for name in names}
        write_shares(self._executor, make, targets, self._buckets, group_rows)

    def _save_small(self, name: str, rows: list[dict[str, Any]]) -> None:
        self._write_small(name, pa.Table.from_pylist(rows, arrow_schema(name)))

    def _write_small(self, name: str, table: pa.Table) -> None:
        path = self._path(name)
        path.mkdir()
        write_share({name: table}, {name: path}, Share())

    def write_packets(self) -> None:
        """Write the table ``packets``, one row per packet of the captures."""
        folder = self._path("packets")
        folder.mkdir()
        reading = Reading(("packets",), epoch_offset_ns=self._run.manifest.epoch_offset_ns, foreign=True)
        if captures := captures_of(self._run):
            write_packets(self._executor, captures, reading, folder)
        else:
            write_share({"packets": SCHEMAS["packets"].empty_table()}, {"packets": folder}, Share())
