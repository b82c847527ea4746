"""Runs as lazy DataFrames of PySpark (docs/dataframes.md).

Only the DataFrame API is used, so that a session may be a session of Spark Connect. This process reads the documents of
a run; Spark reads its tables, captures and traces.
"""

from metrics.dataframes.opening import OpenRuns as OpenRuns
from metrics.dataframes.opening import open_run as open_run
from metrics.dataframes.opening import open_runs as open_runs
