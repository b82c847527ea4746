"""What the peers' traces say: events, the frames they sent and read, and the input of header-only captures."""

from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from metrics.pcap.schemas import TRACED
from metrics.tables.traces import BEGINNINGS, EVENTS, FRAMES, TraceState, merge_states, stage_files

SHARE_BYTES: Final = 16 << 20
_FOREVER: Final = 2**63 - 1


class Logs:
    """The staged traces of a run."""

    def __init__(self, spark: SparkSession, staging: Path) -> None:
        self._spark = spark
        self._staging = staging

    def read(self, trace_dir: Path, *, traced: bool, ahead_ns: Mapping[int, int]) -> dict[int | None, TraceState]:
        """Parse every trace once, and stage its events; see ``traces.stage_files`` for the states by node.

        Args:
            trace_dir: where the traces are.
            traced: whether to stage the input of header-only captures as well.
            ahead_ns: how far the clocks of nodes are ahead of ours; absent = not.
        """
        for name in ("frames", "events", "beginnings", "traced"):
            (self._staging / name).mkdir()
        files = sorted(trace_dir.glob("*.jsonl"), key=lambda path: (-path.stat().st_size, path.name))
        total = sum(path.stat().st_size for path in files)
        shares = max(1, min(self._spark.sparkContext.defaultParallelism, -(-total // SHARE_BYTES)))
        staging = self._staging
        parts = [(number, files[number::shares]) for number in range(shares)]
        staged = self._spark.sparkContext.parallelize(parts, shares).flatMap(
            lambda part: stage_files(part[1], staging, part[0], traced=traced, ahead_ns=ahead_ns)
        )
        return merge_states(staged.collect())

    @property
    def events(self) -> DataFrame:
        """Every line that is no frame; one that is no event has ``event`` null and the node of its file."""
        return self._spark.read.schema(from_arrow_schema(EVENTS)).parquet(str(self._staging / "events"))

    @property
    def frames(self) -> DataFrame:
        """The ``send`` and ``receive`` events."""
        return self._spark.read.schema(from_arrow_schema(FRAMES)).parquet(str(self._staging / "frames"))

    def starts(self) -> dict[str, list[int]]:
        """When the incarnations of those connections began that reused their addresses and ports, rising.

        Every incarnation begins with a frame at offset 0 in each direction; its start is the earlier of the two.
        """
        rows = pq.read_table(self._staging / "beginnings", schema=BEGINNINGS)
        begun = rows.group_by(["conn", "direction"]).aggregate([("ts_ns", "list")])
        found: dict[str, list[int]] = {}
        for row in begun.filter(pc.greater(pc.list_value_length(begun["ts_ns_list"]), 1)).to_pylist():
            found.setdefault(row["conn"], [])
        again = pc.is_in(begun["conn"], pa.array(list(found), pa.string()))
        for row in begun.filter(again).to_pylist():
            both = zip_longest(found[row["conn"]], sorted(row["ts_ns_list"]), fillvalue=_FOREVER)
            found[row["conn"]] = [min(pair) for pair in both]
        return found

    def complete_traced(self, incomplete: list[int]) -> Path:
        """Where the input of header-only captures is: every frame once, those of lost traces by the receivers' word.

        Args:
            incomplete: nodes whose trace is cut off or missing.
        """
        path = self._staging / "traced"
        if incomplete:
            rows = orphans(framed(self.frames), incomplete).select(TRACED.names)
            rows.sortWithinPartitions("conn", "direction", "off").write.mode("append").parquet(str(path))
        return path


def framed(frames: DataFrame) -> DataFrame:
    """Those ``send`` and ``receive`` events that say where in a stream their frame lies."""
    located = F.col("conn").isNotNull() & F.col("direction").isNotNull() & F.col("off").isNotNull()
    return frames.where(located & F.col("len_bytes").isNotNull())


def orphans(frames: DataFrame, incomplete: list[int]) -> DataFrame:
    """Frames that the ``incomplete`` nodes sent by their receivers' word alone."""
    key = ["conn", "direction", "off"]
    sends = frames.where(F.col("event") == "send")
    received = frames.where((F.col("event") == "receive") & F.col("peer").isin(incomplete))
    return received.join(sends, key, "left_anti")
