"""What a query of a run's DataFrames gives, in short: to compare sessions that are in different processes."""

import hashlib

from metrics.dataframes import OpenRuns

COMPARED = ("packets", "events", "deliveries", "streams")
"""A partitioned table, a recording, a stored table and a derived one."""


def digest_rows(run: OpenRuns) -> dict[str, list[object]]:
    """For each DataFrame its columns, the number of its rows, and a digest of them in any order."""
    found: dict[str, list[object]] = {}
    for name in COMPARED:
        rows = sorted(repr(tuple(row)) for row in run[name].collect())
        found[name] = [run[name].columns, len(rows), hashlib.sha256("\n".join(rows).encode()).hexdigest()]
    return found
