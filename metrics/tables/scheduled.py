"""Count what the schedule asks for, in one task: the schedule has one line per message and is read several times."""

from typing import NamedTuple

import pyarrow.compute as pc

from metrics.checks.consistency import CHURN_MARGIN
from metrics.executors import Executor
from metrics.recount import Recount, count_changes, recount
from metrics.rundir import RunDir
from metrics.rundir.files import table_file
from metrics.storage import Place
from metrics.storage.parquet import open_dataset
from metrics.tables.columns import numbers
from metrics.tables.schemas import arrow_schema


class Scheduled(NamedTuple):
    """What the schedule of a run asks for."""

    publications: int
    changes: int  # see ``recount.count_changes``
    recount: Recount
    settling: int  # deliveries that ``workload.settle_s`` excludes


def weigh_schedule(executor: Executor, run: RunDir) -> Scheduled:
    """Count what the schedule of a run asks for, in a task.

    Args:
        executor: runs the task.
        run: the run, with the table ``messages``.
    """
    [found] = executor.map(_count, [(run.path, run.results)])
    return found


def _count(places: tuple[Place, Place]) -> Scheduled:
    run = RunDir(*places)
    changes = count_changes(run)
    found = recount(run, CHURN_MARGIN.ns, run.settle_ns, read_lags(run) if changes else {})
    settling = recount(run, 0, 0).expected - found.expected if run.settle_ns else 0
    return Scheduled(sum(action["action"] == "publish" for action in run.schedule()), changes, found, settling)


def read_lags(run: RunDir) -> dict[int, int]:
    """Return how much later than scheduled messages were published, in ns, without those within ``CHURN_MARGIN``."""
    lag_ns = pc.field("publish_ns") - pc.field("scheduled_ns")
    columns = {"message_id": pc.field("message_id"), "lag_ns": lag_ns}
    messages = open_dataset(run.tables / table_file("messages"), arrow_schema("messages"))
    late = messages.to_table(columns=columns, filter=lag_ns > CHURN_MARGIN.ns)
    return dict(zip(numbers(late["message_id"]).tolist(), numbers(late["lag_ns"]).tolist(), strict=True))
