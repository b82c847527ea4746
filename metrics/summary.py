"""``summary.json``: the verdict, its reasons and the headline numbers, from the tables alone (no Spark)."""

from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from metrics.headline import headline
from metrics.rundir import Check, RunDir, Summary, write_document
from metrics.rundir.files import SUMMARY_FILE
from metrics.verdict import judge


def write(run_dir: Path) -> Summary:
    """Close the analysis of a run whose tables are there.

    Raises:
        FileNotFoundError: a table is missing.
    """
    run = RunDir(run_dir)
    checks = tuple(msgspec.convert(row, Check) for row in pq.read_table(run.tables / "checks.parquet").to_pylist())
    numbers = headline(run)
    minimum = float(run.experiment["verdict"].get("delivery_ratio_min", 0.0))
    verdict, reasons = judge(run.manifest, checks, numbers["delivery_ratio"], minimum)
    summary = Summary(
        verdict=verdict,
        reasons=reasons,
        headline=numbers,
        checks=checks,
        run_id=run.manifest.run_id,
        name=run.plan.name,
        seed=run.plan.seed,
        protocol=run.experiment["protocol"],
        attempt=run.attempt,
    )
    write_document(run_dir / SUMMARY_FILE, summary)
    return summary
