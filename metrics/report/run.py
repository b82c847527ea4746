"""An analysed run for the report: tables as pandas frames, documents as values."""

import shlex
from collections.abc import Sequence
from functools import cached_property

import pandas as pd
import pyarrow.compute as pc

from metrics.adversaries import read_adversaries
from metrics.foreign_text import printable
from metrics.recorded.probing import last_attempts, read_achieved, rtt_errors_ms
from metrics.recorded.samples import read_samples
from metrics.reported import find_missing, is_hidden
from metrics.rundir import RunDir
from metrics.rundir.files import table_file
from metrics.storage import Place
from metrics.storage.parquet import group_parquet, read_parquet
from metrics.tables.schemas import arrow_schema, require_tables
from metrics.tables.standouts import read_standouts
from metrics.totals import Standouts, Totals, read_totals


class Run(RunDir):
    """One run directory after the analysis.

    Args:
        path: the run directory.
        results: the folder in which its tables and summary are; None = the run directory.

    Raises:
        RunDirError: the run has not been analysed, or cannot be read.
    """

    def __init__(self, path: Place, results: Place | None = None) -> None:
        super().__init__(path, results)
        _ = self.plan, self.manifest, self.summary
        require_tables(self)
        self._tables: dict[str, pd.DataFrame | None] = {}

    @property
    def zero_ns(self) -> int:
        """The workload's zero, virtual ns."""
        return self.manifest.zero_ns

    @property
    def is_asked_for(self) -> bool:
        """Whether the experiment asked for this network; otherwise it was there before."""
        return self.manifest.has_ability("shape")

    def hides(self, *names: str) -> bool:
        """Return whether one of these columns or measures has no value, since the peers do not report what it needs."""
        missing = find_missing(self)
        return any(is_hidden(name, missing) for name in names)

    @property
    def duration_s(self) -> float:
        """The length of the publishing window."""
        return float(self.experiment["workload"]["duration_s"])

    @property
    def dilation(self) -> float:
        """The number of real seconds in a virtual second."""
        return self.manifest.time_dilation

    @property
    def scrape_interval_s(self) -> float:
        """The virtual time between two scrapes of a target."""
        return float(self.experiment["prometheus"]["scrape_interval_s"]) / self.dilation

    @property
    def has_map(self) -> bool:
        """Whether every host has a place on the map."""
        return not bool(self.hosts["latitude"].isna().any())

    @cached_property
    def hosts(self) -> pd.DataFrame:
        """The hosts, index = host number: name, site, country, latitude, longitude (NaN without a map)."""
        columns = ["name", "site", "country", "latitude", "longitude"]
        rows = [[getattr(host, column) for column in columns] for host in self.underlay.hosts]
        return pd.DataFrame(rows, columns=columns).astype({"latitude": float, "longitude": float})

    @cached_property
    def adversaries(self) -> frozenset[int]:
        """The nodes that misbehaved on purpose."""
        return read_adversaries(self)

    @cached_property
    def totals(self) -> Totals:
        """The totals of the tables that have one row per frame, message or delivery."""
        return read_totals(self)

    @cached_property
    def standouts(self) -> Standouts:
        """The messages, deliveries and nodes that a report names."""
        found = self.totals.messages.standouts
        return read_standouts(self) if found is None else found

    def name_node(self, node: int | None) -> str:
        """Return a node with its site, for people."""
        if node is None or not 0 <= node < len(self.nodes):
            return "an unknown node"
        return f"node {node} ({printable(self.hosts['site'][self.plan.placement[node].host])})"

    def table(self, name: str) -> pd.DataFrame | None:
        """Return a table of the analysis, None if the run has none of that name."""
        if name not in self._tables:
            path = self.tables / table_file(name)
            self._tables[name] = read_parquet(path).to_pandas() if path.exists() else None
        return self._tables[name]

    def grouped(
        self, name: str, keys: Sequence[str], *columns: str, by: str, honest: bool = False
    ) -> pd.DataFrame | None:
        """Return the rows of a table of any size in groups, None if the run has no table of that name.

        Args:
            name: the table.
            keys: the columns by whose values rows are grouped.
            columns: the columns to summarise in each group.
            by: how to summarise them: ``mean`` or ``sum``.
            honest: whether the rows of adversaries are left out.
        """
        path = self.tables / table_file(name)
        if not path.exists():
            return None
        where = ~pc.field("node").isin(sorted(self.adversaries)) if honest else None
        values = [(column, by) for column in columns]
        return group_parquet(path, arrow_schema(name), keys, values, where).to_pandas()

    def last(self, name: str) -> pd.DataFrame | None:
        """Return a table's rows of its latest instant, None if the run has no table of that name."""
        table = self.table(name)
        return table if table is None or table.empty else table[table["at_ns"] == table["at_ns"].max()]

    def achieved(self) -> pd.DataFrame | None:
        """Return the probes' rows that count with their RTT ``error_ms``, None on a testbed without probes."""
        achieved = read_achieved(self.path)
        if achieved is None:
            return None
        counted = last_attempts(achieved)
        return counted.to_pandas().assign(error_ms=rtt_errors_ms(counted))

    def samples(self, metric: str) -> pd.DataFrame | None:
        """Return the peers' values of a metric: ``node``, ``ts_ns`` and ``value``; None if nothing was scraped."""
        samples = read_samples(self.path, [metric])
        if samples is None:
            return None
        rows = samples.select(["node", "ts_ns", "value"]).filter(samples["node"].is_valid())
        return rows.sort_by([("node", "ascending"), ("ts_ns", "ascending")]).to_pandas()

    def host_links(self) -> list[tuple[int, int]]:
        """Return pairs of hosts (lower number first) with nodes that are neighbours halfway through the publishing."""
        path = self.tables / table_file("physical_links")
        if not path.exists():
            return []
        at = self.zero_ns + int(self.duration_s * 5e8)
        lasting = (pc.field("from_ns") <= at) & (pc.field("to_ns").is_null() | (pc.field("to_ns") >= at))
        alive = group_parquet(path, arrow_schema("physical_links"), ["node", "peer"], where=lasting).to_pandas()
        host_of = {place.node: place.host for place in self.plan.placement}
        known = alive[alive["node"].isin(host_of.keys()) & alive["peer"].isin(host_of.keys())]
        hosts = {(host_of[node], host_of[peer]) for node, peer in zip(known["node"], known["peer"], strict=True)}
        return sorted({(min(pair), max(pair)) for pair in hosts})

    def provenance(self) -> list[tuple[str, str]]:
        """Return what ran, and on what: versions, kernel, hashes, lengths of the phases, resources."""
        manifest = self.manifest
        rows = [("run", manifest.run_id)]
        if command := self.experiment.get("peer", {}).get("command"):
            rows += [("program of the peers", shlex.join(command))]
        if computed_by := self.summary.computed_by:
            rows += [("tables computed", computed_by)]
        if attempt := self.attempt:
            rows += [("attempt", f"{attempt.attempt}, since stalls of the host spoiled {attempt.repeats}")]
        for title, group in (("version of", manifest.versions), ("kernel:", manifest.kernel)):
            rows += [(f"{title} {key}", value) for key, value in sorted(group.items())]
        rows += [(f"SHA-256 of {key}", value) for key, value in sorted(manifest.hashes.items())]
        rows += [(f"phase {phase.name}", f"{(phase.end_ns - phase.start_ns) / 1e9:.2f} s") for phase in manifest.phases]
        rows += [(key.replace("_", " "), f"{value:,.4g}") for key, value in sorted(manifest.resources.items())]
        return rows + [(key.replace("_", " "), f"{value:,}") for key, value in sorted(manifest.counters.items())]
