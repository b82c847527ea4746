"""The order in which the tables come from each other, and how they are written."""

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.lib.format import open_memmap
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from metrics.adversaries import of_nodes, read_adversaries
from metrics.checks import check_run
from metrics.checks.evidence import Evidence, Links
from metrics.measures.snapshots import measure_overlay
from metrics.pcap.source import register, ship_code
from metrics.rundir import RunDir
from metrics.rundir.files import CAPTURE_FOLDER, STALLS_FILE, table_file
from metrics.rundir.parquet import with_version
from metrics.tables import agreement, churn, deliveries, disclosures, epochs, fidelity, hops, links, logs, overhead
from metrics.tables.condensed import build_and_condense
from metrics.tables.conns import build_conns
from metrics.tables.evidence import copies_show_links, gather
from metrics.tables.overlay import Intervals, build_parts, choose_instants
from metrics.tables.schemas import TABLES, arrow_schema
from metrics.tables.shares import write_shares
from metrics.tables.staged import STAGED
from metrics.tables.traces import EVENTS
from metrics.tables.wire import Wire
from peer.files import OVERLAY_FILE, SCHEDULE_FILE, TRACE_FOLDER

_SMALL = frozenset(("conns", "messages", "links", "physical_links", "sharing", "overhead", "control"))
_CONDENSED = ("streams", "carried", "copies", "sent", "split")
_OVERLAY = "nodes array<struct<node bigint, topics array<bigint>, up boolean>>"

_THREADS = 2
"""Planning a query fills one core, as do a small one's tasks; what Spark itself does side by side fills the others."""


def in_parallel(**parts: Callable[[], Any]) -> dict[str, Any]:
    """Call independent parts, two at a time in the order given, and return what each of them returns.

    Raises:
        Exception: what the first part that failed raised, after all have ended.
    """
    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        begun = {name: pool.submit(part) for name, part in parts.items()}
    return {name: future.result() for name, future in begun.items()}


class Pipeline:
    """One analysis of one run.

    It has two phases, in a staging folder that is deleted at the end. *Staging* (``_stage*``) reads every raw file
    once: traces and captures become Parquet that tasks write themselves, small documents become one file each.
    *Building* (``_save_*``) makes the tables; ``_build`` has their order, since a table may need earlier ones. The
    steps of one line of ``_build`` are independent and run side by side.

    Tables with one row per frame or copy come from kernels that take shares (``write_shares``); the others are
    DataFrame expressions (``_save``), or rows made on the driver (``_save_small``). Checks are judged last.
    """

    def __init__(self, spark: SparkSession, run: RunDir) -> None:
        self._spark = spark
        self._run = run
        self._tables = run.tables

    def write(self, *, packets: bool) -> None:
        """Write every table into an empty folder (``RunDir.tables``)."""
        with tempfile.TemporaryDirectory(prefix=".staging-", dir=self._tables) as staging:
            self._staging = Path(staging)
            self._pairs = self._staging / "pairs"
            self._stage()
            self._build()
        if packets:
            self.write_packets()

    # ---------------------------------------------------------------------------------------------- staging

    def _stage(self) -> None:
        """Read the raw files once: traces to ``logs``, captures to ``wire``; small inputs as they are."""
        ship_code(self._spark)
        in_parallel(raw=self._stage_raw, plan=self._stage_plan)
        subscribed = deliveries.subscriptions(self.overlay, self.events, self._run.settle_ns)
        self.interests = self._stage_rows("interests", subscribed)
        self.instances = churn.instances(self.overlay, self.events)

    def _stage_raw(self) -> None:
        traces = logs.Logs(self._spark, self._staging)
        captured = bool(self._run.captures)
        ahead_ns = {node: clock.monotonic_ns for node, clock in self._run.clocks.items()}
        self.states = traces.read(self._run.path / TRACE_FOLDER, traced=captured, ahead_ns=ahead_ns)
        complete = {node for node, state in self.states.items() if state.is_complete}
        self.incomplete = [node for node in self._run.nodes if node not in complete]
        self.events = traces.events
        self.starts = traces.starts()
        self.wire = Wire(self._spark, self._staging / "wire")
        if captured:
            traced, manifest = traces.complete_traced(self.incomplete), self._run.manifest
            self.wire.read(self._run.path / CAPTURE_FOLDER, traced, manifest.epoch_offset_ns, manifest.zero_ns)

    def _stage_plan(self) -> None:
        """What was asked for. Nodes are in a file: a list handed to Spark starts Python workers wherever it is used."""
        self._stage_pairs()
        places, path = self._run.plan.placement, self._staging / "nodes.parquet"
        columns = {"node": [place.node for place in places], "ip": [place.wan_ip for place in places]}
        pq.write_table(pa.table(columns, pa.schema([("node", pa.int32()), ("ip", pa.string())])), path)
        self.nodes = self._spark.read.parquet(str(path))
        whole = self._spark.read.schema(_OVERLAY).option("multiLine", True)
        self.overlay = whole.json(str(self._run.path / OVERLAY_FILE))

    def _stage_pairs(self) -> None:
        """What was asked of every directed pair of nodes, as matrices that tasks map: pairs may be 100 million."""
        underlay = self._run.underlay
        hosts = {place.node: place.host for place in self._run.plan.placement}
        size, nodes, index = 1 + max(hosts), list(hosts), list(hosts.values())
        self._pairs.mkdir()
        for name, matrix in (("delay_ms", underlay.delay_ms), ("jitter_ms", underlay.jitter_ms)):
            asked = open_memmap(self._pairs / f"{name}.npy", "w+", np.float64, (size, size))
            for node in range(size):
                asked[node] = np.nan
                if node in hosts:
                    asked[node, nodes] = matrix[hosts[node], index]
            asked.flush()

    # ---------------------------------------------------------------------------------------------- tables

    def _build(self) -> None:
        """Each line needs the tables of those above it."""
        in_parallel(hops=self._save_hops, links=self._save_links)
        in_parallel(deliveries=self._save_deliveries, sharing=self._save_sharing, overhead=self._save_overhead)
        in_parallel(fidelity=self._save_fidelity, epochs=self._save_epochs, overlay=self._save_overlay)
        in_parallel(
            churn_control=self._save_churn_control, disclosures=self._save_disclosures, checks=self._save_checks
        )

    def _save_hops(self) -> None:
        schedule, events, zero_ns = self._run.path / SCHEDULE_FILE, self._staging / "events", self._run.manifest.zero_ns
        publish = partial(deliveries.build_published, schedule, events, zero_ns)
        write_shares(self._spark, publish, self._folders("published"), ds.dataset(events, schema=EVENTS).count_rows())
        wire = self._staging / "wire"
        sources = hops.HopSources(
            frames=self._staging / "frames",
            taps=wire / "frames",
            conns=wire / "conns",
            events=events,
            published=self._staging / "published",
            pairs=self._pairs,
            nodes_by_host=self._run.nodes_by_host,
            starts=self.starts,
        )
        make = partial(build_and_condense, sources, zero_ns)
        write_shares(self._spark, make, self._folders("hops", *_CONDENSED), sources.rows)
        if not self.wire.keep(self._path("frames")):
            self._save("frames", self.wire.table("frames"))

    def _save_links(self) -> None:
        end_ns = self._run.timeline.end_ns
        self._save("physical_links", links.build_physical_links(self.events, end_ns))
        self._save("links", links.build_links(self.events, self._table("physical_links"), end_ns))

    def _save_deliveries(self) -> None:
        sources = deliveries.DeliverySources(
            events=self._staging / "events",
            hops=self._path("hops"),
            interests=self._staging / "interests",
            published=self._staging / "published",
            pairs=self._pairs,
        )
        rows = sources.rows
        write_shares(self._spark, partial(deliveries.build_deliveries, sources), self._folders("deliveries"), rows)
        make = partial(deliveries.build_messages, sources, self._path("deliveries"))
        write_shares(self._spark, make, self._folders("messages"), rows)

    def _save_sharing(self) -> None:
        logical, physical = self._table("links"), self._table("physical_links")
        streams, carried, copies = (self._staged(name) for name in ("streams", "carried", "copies"))
        self._save("conns", build_conns(self.wire.table("conns"), self.nodes, streams, carried, self.interests))
        grid = self._run.timeline.grid
        rows = links.build_sharing("trace", logical, physical, self.instances, grid)
        if self._run.captures:
            self.ends = self._stage_rows("ends", agreement.wire_ends(streams, self._table("conns")))
            self.proven = self._stage_rows("proven", agreement.proven_links(copies, self.interests))
            used = agreement.wire_links(self.proven, logical)
            rows = rows.unionByName(links.build_sharing("wire", used, self.ends, self.instances, grid))
        self._save("sharing", rows)

    def _staged(self, name: str) -> DataFrame:
        return self._spark.read.parquet(str(self._staging / name))

    def _stage_rows(self, name: str, rows: DataFrame) -> DataFrame:
        """Rows that are used again, as a file."""
        path = str(self._staging / name)
        rows.coalesce(1).write.options(**STAGED).parquet(path)
        return self._spark.read.parquet(path)

    def _save_fidelity(self) -> None:
        self._save_small("fidelity", fidelity.build_fidelity(self._run))
        stalls = sorted(self._run.lines(STALLS_FILE), key=lambda line: (line["start_ns"], line["end_ns"]))
        self._save_small("stalls", [line | {"phase": self._run.timeline.phase_at(line["start_ns"])} for line in stalls])

    def _save_epochs(self) -> None:
        adversaries, timeline = read_adversaries(self._run), self._run.timeline
        rows = pq.read_table(self._path("deliveries"), columns=["node", "publish_ns", "message_id", "latency_ms"])
        rows = of_nodes(rows, "node", adversaries, others=True)
        ends = epochs.epoch_ends(self.events, adversaries)
        self._save_small("epochs", epochs.build_epochs(ends, rows, timeline.start_ns, timeline.published_ns))

    def _save_churn_control(self) -> None:
        workload, rows = self._run.phase("workload"), []
        if workload is not None and any(state.changes for state in self.states.values()):
            span_ns = workload.start_ns, workload.end_ns
            adversaries = read_adversaries(self._run)
            rows = churn.build_churn_control(self._staging / "events", self._path("hops"), span_ns, adversaries)
        self._save_small("churn_control", rows)

    def _save_disclosures(self) -> None:
        askers, adversaries = read_adversaries(self._run, "asker"), read_adversaries(self._run)
        events, interests = self._staging / "events", self._staging / "interests"
        self._save_small("disclosures", disclosures.build_disclosures(events, interests, askers, adversaries))

    def _save_checks(self) -> None:
        found = in_parallel(evidence=self._gather, links=self._compare_links)
        evidence = msgspec.structs.replace(found["evidence"], links=found["links"])
        self._save_small("checks", [msgspec.to_builtins(check) for check in check_run(evidence)])

    def _gather(self) -> Evidence:
        crashed = any(state.crashes for state in self.states.values())
        events, nothing = self._staging / "events", pa.array([], pa.string())
        silent = churn.silent_crashes(self._run)
        broken = churn.broken_connections(events, self._path("hops"), silent) if crashed else nothing
        return gather(self._run, self.states, self.incomplete, broken, self._staging)

    def _compare_links(self) -> Links | None:
        """The links of the traces against those of the captures; None where nothing was captured."""
        if not self._run.captures:
            return None
        physical, logical, shown = self._table("physical_links"), self._table("links"), copies_show_links(self._run)
        found = in_parallel(
            physical=lambda: agreement.compare_physical(self.ends, physical, self.incomplete, self._run.timeline.grid),
            logical=lambda: agreement.compare_logical(self.proven, logical, self.incomplete) if shown else None,
        )
        return Links(**found)

    def _save_overlay(self) -> None:
        """The overlay's measures over time, and those of its topics and nodes at zero and at the workload's end."""
        run, timeline = self._run, self._run.timeline
        end_ns = timeline.published_ns
        physical, logical = (pq.read_table(self._path(name)) for name in ("physical_links", "links"))
        instances, interests = self.instances.toArrow(), self.interests.toArrow()
        intervals = Intervals(instances, interests, physical, logical, read_adversaries(run))
        instants = choose_instants(timeline.grid, end_ns, len(run.nodes))
        rows = [{"at_ns": at_ns} | measure_overlay(intervals.at(at_ns)[1]) for at_ns in instants]
        self._save_small("overlay", rows)
        topics, degrees = build_parts(intervals, sorted({timeline.zero_ns, end_ns}))
        self._save_small("overlay_topics", topics)
        self._save_small("overlay_degrees", degrees)

    def _save_overhead(self) -> None:
        classes = overhead.frame_classes(self._staged("sent"), self._staged("split"), self.wire.table("spans"))
        table = overhead.build_overhead(classes, self.wire.table("wire"), self._run.nodes_by_host)
        self._save("overhead", table)
        self._save("control", overhead.build_control(classes))

    # ---------------------------------------------------------------------------------------------- files

    def _path(self, name: str) -> Path:
        return self._tables / table_file(name)

    def _folders(self, *names: str) -> dict[str, Path]:
        """Where tasks write: tables of the run to their place, others to the staging folder."""
        return {name: self._path(name) if name in TABLES else self._staging / name for name in names}

    def _table(self, name: str) -> DataFrame:
        schema = ", ".join(f"{column} {kind}" for column, kind in TABLES[name].items())
        return self._spark.read.schema(schema).parquet(str(self._path(name)))

    def _save(self, name: str, rows: DataFrame) -> None:
        chosen = rows.select(*(F.col(column).cast(kind).alias(column) for column, kind in TABLES[name].items()))
        if name in _SMALL:
            chosen = chosen.coalesce(1)
        chosen.write.parquet(str(self._path(name)))

    def _save_small(self, name: str, rows: list[dict[str, Any]]) -> None:
        path = self._path(name)
        path.mkdir()
        table = with_version(pa.Table.from_pylist(rows, arrow_schema(name)))
        pq.write_table(table, path / "part-0.parquet", compression="zstd")

    def write_packets(self) -> None:
        register(self._spark)
        reader = self._spark.read.format("pcap").option("tables", "packets")
        options = {
            "epoch_offset_ns": str(self._run.manifest.epoch_offset_ns),
            "parallelism": str(self._spark.sparkContext.defaultParallelism),
        }
        rows = reader.options(**options).load(str(self._run.path / CAPTURE_FOLDER))
        rows.write.parquet(str(self._path("packets")))
