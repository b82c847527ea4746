"""The samples that Prometheus scraped, as rows: ``prometheus/samples.parquet`` (docs/metrics.md).

The running stage writes the file while the server still runs, so no reader needs a Prometheus.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from metrics.rundir.files import SAMPLES_FILE
from metrics.rundir.parquet import read_recorded
from metrics.storage import Place

SAMPLES: Final = pa.schema(
    [
        pa.field("ts_ns", pa.int64(), nullable=False),
        pa.field("job", pa.string(), nullable=False),
        pa.field("instance", pa.string(), nullable=False),
        pa.field("node", pa.int32()),
        pa.field("metric", pa.string(), nullable=False),
        pa.field("labels", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
    ]
)
"""``ts_ns``: when the scrape began; ``node``: the number of the peer, null for other targets; ``labels``: all labels
except ``job``, ``instance`` and ``node``; ``value``: in the unit in the metric's name."""


def read_samples(run_dir: Place, metrics: Sequence[str]) -> pa.Table | None:
    """Return the samples of some metrics, None if a run has no samples.

    Args:
        run_dir: the run directory.
        metrics: the names of the metrics.

    Raises:
        DamagedError: the file is not a file of samples.
    """
    path = run_dir / SAMPLES_FILE
    if not path.exists():
        return None
    rows = read_recorded(path, SAMPLES)
    return rows.filter(pc.is_in(rows["metric"], pa.array(metrics, pa.string())))
