"""Write ``summary.json``: the verdict, its reasons and the headline numbers, from the tables alone (no Spark).

The verdict joins the findings of the running stage with the checks of the analysis.
"""

from collections.abc import Iterator, Sequence

import msgspec

from metrics.headline import headline
from metrics.reasons import describe, describe_end
from metrics.rundir import (
    FAILED,
    INVALID,
    JUDGED,
    NOT_APPLICABLE,
    NOT_JUDGED,
    PASSED,
    SUSPECT,
    VALID,
    Check,
    Manifest,
    RunDir,
    Scope,
    Summary,
    write_document,
)
from metrics.rundir.files import SUMMARY_FILE
from metrics.storage import Place
from metrics.storage.parquet import read_parquet

ABOUT_RUN = frozenset({"documents_unchanged"})
"""Checks that are about the whole run, whatever else of it can be judged."""


def write(run_dir: Place, results: Place | None = None, computed_by: str = "") -> Summary:
    """Judge a run that has its tables, and write its summary.

    Args:
        run_dir: the run directory.
        results: the folder in which the tables are, and the summary is written; None = the run directory.
        computed_by: where the tables were computed (``tables.build``).

    Raises:
        FileNotFoundError: a table is missing.
    """
    run = RunDir(run_dir, results)
    checks = tuple(msgspec.convert(row, Check) for row in read_parquet(run.tables / "checks.parquet").to_pylist())
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
        computed_by=computed_by,
        scope=find_scope(checks),
    )
    write_document(run.results / SUMMARY_FILE, summary)
    return summary


def judge(
    manifest: Manifest, checks: Sequence[Check], delivery_ratio: float | None, delivery_ratio_min: float
) -> tuple[str, tuple[str, ...]]:
    """Return the verdict and its reasons, graver reasons first; a valid run has none.

    Args:
        manifest: the running stage's findings.
        checks: every row of the ``checks`` table.
        delivery_ratio: the delivery ratio of the run; None = nothing was to be delivered.
        delivery_ratio_min: the ratio that the experiment expects.
    """
    found = list(manifest.problems)
    ends = (describe_end(state, manifest.timeline, manifest.problems) for state in manifest.final_states)
    found += [(INVALID, sentence) for sentence in ends if sentence is not None]
    found += [(check.severity, describe(check)) for check in checks if check.failed]
    found += [(SUSPECT, sentence) for sentence in _unjudged(checks)]
    if delivery_ratio is not None and delivery_ratio < delivery_ratio_min:
        found.append(
            (SUSPECT, f"The delivery ratio is {delivery_ratio:.4f}, expected at least {delivery_ratio_min:g}.")
        )
    invalid = [text for severity, text in found if severity == INVALID]
    suspect = [text for severity, text in found if severity != INVALID]
    verdict = INVALID if invalid else SUSPECT if suspect else VALID
    return verdict, tuple(text if text.endswith(".") else f"{text}." for text in dict.fromkeys(invalid + suspect))


def find_scope(checks: Sequence[Check]) -> Scope:
    """Return what the verdict is about: a part is judged if all its checks were, except checks that do not apply."""
    of_parts = [check for check in checks if check.name not in ABOUT_RUN]
    outcomes = {part: {check.outcome for check in of_parts if check.scope == part} for part in Scope.__struct_fields__}
    states = {
        part: NOT_JUDGED if NOT_JUDGED in found else JUDGED if found & {PASSED, FAILED} else NOT_APPLICABLE
        for part, found in outcomes.items()
    }
    return msgspec.convert(states, Scope)


def _unjudged(checks: Sequence[Check]) -> Iterator[str]:
    """Yield the checks that were not judged although the run should have material for them, a sentence per reason."""
    reasons: dict[str, list[str]] = {}
    for check in checks:
        if check.outcome == NOT_JUDGED:
            reasons.setdefault(check.detail, []).append(check.name.replace("_", " "))
    for reason, names in reasons.items():
        named = f"Check {names[0]} was" if len(names) == 1 else f"Checks {', '.join(names)} were"
        yield f"{named} not judged: {reason}"
