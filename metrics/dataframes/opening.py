"""``open_run`` and ``open_runs``: a DataFrame for each table of one run or several, made when it is asked for."""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from metrics.dataframes.catalogue import DERIVED, RUN_COLUMNS, list_names, schema_of_frame, to_spark
from metrics.dataframes.traces import TraceDataSource
from metrics.pcap.source import register
from metrics.rundir import RunDir, RunDirError
from metrics.rundir.files import CAPTURE_FOLDER, MANIFEST_FILE, SAMPLES_FILE, SUMMARY_FILE, table_file
from metrics.storage import Place, StorePath, place
from metrics.storage.parquet import list_parts
from metrics.tables.schemas import require_tables
from peer.core.frames import Data
from peer.files import TRACE_FOLDER


def open_run(spark: SparkSession, uri: str | Path) -> "OpenRuns":
    """Return a run's DataFrames.

    Args:
        spark: a session, also one of Spark Connect, whose server sees the run under the same path or URI.
        uri: the run directory.

    Raises:
        RunDirError: it is no finished run, or its tables are of a version that cannot be read.
    """
    return OpenRuns(spark, [RunDir(_locate(uri))], identified=False)


def open_runs(spark: SparkSession, uris: str | Sequence[str | Path]) -> "OpenRuns":
    """Return the DataFrames of several runs, each row with ``run_id``, ``experiment``, ``protocol`` and ``seed``.

    Args:
        spark: as for ``open_run``.
        uris: run directories, or a pattern such as ``runs/*/*``. Matches without a manifest are not runs: a warning
            counts them. In a store only the last part of a pattern may have wildcards.

    Raises:
        RunDirError: as for ``open_run``; or two runs have the same ``run_id``.
        FileNotFoundError: the pattern matches no finished run.
    """
    paths = _match(uris) if isinstance(uris, str) else [_locate(uri) for uri in uris]
    runs: dict[str, RunDir] = {}
    for run in map(RunDir, paths):
        first = runs.setdefault(run.manifest.run_id, run)
        if first is not run:
            raise RunDirError(run.path, f"has the run_id of {first.path}; open one of them")
    return OpenRuns(spark, list(runs.values()), identified=True)


def _locate(uri: str | Path) -> Place:
    """Return the place of a run or pattern. Spark may have another working folder, so paths are absolute."""
    where = place(uri)
    return where.absolute() if isinstance(where, Path) else where


def _match(pattern: str) -> list[Place]:
    where = _locate(pattern)
    root: Place = where.parent if isinstance(where, StorePath) else Path(where.anchor)
    relative = where.name if isinstance(where, StorePath) else str(where.relative_to(where.anchor))
    found: list[Place] = sorted(root.glob(relative), key=str)
    runs = [path for path in found if (path / MANIFEST_FILE).exists()]
    if not runs:
        raise FileNotFoundError(f"{pattern}: expected finished runs, found none among {len(found)} matches")
    if others := len(found) - len(runs):
        said = f"{pattern}: {others} of {len(found)} matches have no {MANIFEST_FILE} and are left out"
        warnings.warn(said, stacklevel=3)
    return runs


class OpenRuns(Mapping[str, DataFrame]):
    """The DataFrames of runs, by name (``catalogue.MEANINGS``); attributes are the same as items.

    Nothing is read before a query, except the runs' documents and the footers of tables. The rows of several runs are a
    union with the facts of each run as constants, so a query that restricts these does not read the other runs' files.

    Args:
        spark: the session.
        runs: at least one.
        identified: whether rows have columns that identify their run.
    """

    def __init__(self, spark: SparkSession, runs: Sequence[RunDir], *, identified: bool) -> None:
        self._spark, self._runs, self._identified = spark, runs, identified
        register(spark)
        spark.dataSource.register(TraceDataSource)
        self._versions = {run.path: require_tables(run) for run in runs if run.list_tables()}
        if len(set(self._versions.values())) > 1:
            warnings.warn(
                f"the tables of these runs have schema versions {sorted(set(self._versions.values()))}; every column "
                "that this version needs is there (runs.schema_version)",
                stacklevel=3,
            )

    def __iter__(self) -> Iterator[str]:
        return iter(list_names(analysed=len(self._versions) == len(self._runs)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def __getattr__(self, name: str) -> DataFrame:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"runs have no {name!r}; there are {', '.join(self)}") from None

    def __getitem__(self, name: str) -> DataFrame:
        """Return a DataFrame.

        Raises:
            KeyError: no run has such rows.
            RunDirError: the rows need tables, and a run has none yet.
        """
        if name.startswith("_") or name not in list_names(analysed=True):
            raise KeyError(name)
        if name == "runs":
            return self._spark.createDataFrame([self._describe(run) for run in self._runs], to_spark(RUN_COLUMNS))
        schema = to_spark(schema_of_frame(name))
        parts = []
        for run in self._runs:
            rows = self._read(run, name, schema)
            parts.append(rows.selectExpr(*_facts_of(run), "*") if self._identified else rows)
        return _unite(parts)

    def create_views(self, *names: str) -> list[str]:
        """Make a temporary view of each of these DataFrames in the session, for SQL. It replaces a view of that name.

        Args:
            names: names of DataFrames, which the views get, too; none = all that the runs have.

        Returns:
            The names.
        """
        chosen = list(names or self)
        for name in chosen:
            self[name].createOrReplaceTempView(name)
        return chosen

    def _read(self, run: RunDir, name: str, schema: StructType) -> DataFrame:
        """Return the rows of a run: of a table, otherwise of a recording, otherwise none."""
        if derived := DERIVED.get(name):
            rows = self._read(run, derived.table, to_spark(schema_of_frame(derived.table)))
            return rows.selectExpr(*derived.columns).to(schema)
        folder = run.tables / table_file(name)
        if list_parts(folder):
            return self._spark.read.schema(schema).parquet(str(folder)).select(*schema.names)
        if name == "copies" and run.path in self._versions:  # an earlier version made the tables
            hops, messages = (self._read(run, each, to_spark(schema_of_frame(each))) for each in ("hops", "messages"))
            sent = hops.where(f"kind = {Data.kind}").join(messages.select("message_id"), "message_id", "left_semi")
            return sent.select(*schema.names).to(schema)
        if name == "events":
            ahead_ns = {node: clock.monotonic_ns for node, clock in run.clocks.items()}
            reader = self._spark.read.format("trace").option("ahead_ns", json.dumps(ahead_ns))
            return reader.load(str(run.path / TRACE_FOLDER)).to(schema)
        if name == "samples" and (run.path / SAMPLES_FILE).exists():
            return self._spark.read.schema(schema).parquet(str(run.path / SAMPLES_FILE))
        if name == "packets" and run.captures:
            reader = self._spark.read.format("pcap").option("epoch_offset_ns", run.manifest.epoch_offset_ns)
            return reader.load(str(run.path / CAPTURE_FOLDER)).to(schema)
        if run.path not in self._versions and name in list_names(analysed=True) - list_names(analysed=False):
            raise RunDirError(run.path, f"{name} is made of tables, and the run has none; trellis tables {run.path}")
        return self._spark.createDataFrame([], schema)

    def _describe(self, run: RunDir) -> tuple[object, ...]:
        """Return the row of ``runs``."""
        manifest, plan = run.manifest, run.plan
        verdict = run.summary.verdict if (run.results / SUMMARY_FILE).exists() else None
        facts = (manifest.run_id, plan.name, plan.experiment["protocol"], plan.seed, manifest.testbed, verdict)
        return (*facts, manifest.zero_ns, manifest.epoch_offset_ns, self._versions.get(run.path), str(run.path))


def _facts_of(run: RunDir) -> list[str]:
    """Return SQL expressions of the constants that identify a run. Texts are foreign, so they are given as bytes."""
    texts = {"run_id": run.manifest.run_id, "experiment": run.plan.name, "protocol": run.plan.experiment["protocol"]}
    columns = [f"CAST(X'{text.encode().hex()}' AS STRING) AS {name}" for name, text in texts.items()]
    return [*columns, f"CAST({run.plan.seed} AS BIGINT) AS seed"]


def _unite(parts: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all parts, as a union that is as flat as it can be: Connect refuses deep plans."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return _unite(parts[:middle]).union(_unite(parts[middle:]))
