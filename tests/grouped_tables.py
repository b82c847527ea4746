"""The groups of a made-up run's tables, as ``metrics.report.run.Run.grouped`` gives those of a real one."""

from collections.abc import Sequence
from typing import Any

import pandas as pd


def grouped(
    run: Any, name: str, keys: Sequence[str], *columns: str, by: str, honest: bool = False
) -> pd.DataFrame | None:
    """The groups of a run whose tables are in memory; a method of it."""
    table = run.table(name)
    if table is None:
        return None
    rows = table[~table["node"].isin(run.adversaries)] if honest else table
    return rows.groupby(list(keys))[list(columns)].agg(by).reset_index()
