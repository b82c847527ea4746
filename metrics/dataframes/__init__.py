"""Runs as lazy DataFrames of PySpark (docs/dataframes.md).

Only the DataFrame API is used, so that a session may be one of Spark Connect. The documents of a run are read here, its
tables, captures and traces by Spark.
"""

from metrics.dataframes.opening import OpenRuns as OpenRuns
from metrics.dataframes.opening import open_run as open_run
from metrics.dataframes.opening import open_runs as open_runs
