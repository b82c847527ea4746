"""From files to tables to a report. This package reads run directories only, and handles no processes of a run.

``open_run`` and ``open_runs`` give a Spark session the DataFrames of runs (docs/dataframes.md). Spark is imported when
they are asked for.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from metrics.dataframes import open_run as open_run
    from metrics.dataframes import open_runs as open_runs


def __getattr__(name: str) -> object:
    if name in ("open_run", "open_runs"):
        from metrics import dataframes

        return getattr(dataframes, name)
    raise AttributeError(f"module 'metrics' has no attribute {name!r}")
