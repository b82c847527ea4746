"""Digests of what Trellis computes: plans, simulated runs with all their tables, and studies.

A change that only moves code leaves every digest as it is. A change of behaviour changes some of them, and its commit
updates ``tests/golden/digests.json``::

    python -m tests.digests                    # plans and runs: what the tests compare
    python -m tests.digests --studies          # every study's quick profile, too: takes long
    python -m tests.digests --check [...]      # compare instead of writing
"""

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pyarrow.parquet as pq

from harness.errors import ExperimentError
from harness.experiment.form import Experiment
from harness.experiment.loader import load_experiment
from harness.planning import make_plan, write_plan
from harness.stages.simulation import simulate_planned
from harness.studies.executor import Failure, Outcome, execute
from harness.studies.loader import load_study
from harness.studies.store import jobs_of
from metrics.executors import HERE

ROOT = Path(__file__).parents[1]
GOLDEN = Path(__file__).parent / "golden" / "digests.json"

EXPERIMENT = """
name = "digest"
protocol = "{protocol}"
testbed = "simulated"
seed = 5

[underlay]
kind = "world-cities"
hosts = 16
{network}

[workload]
topics = 5
publish_rate_per_s = 5
topics_per_message = 2
warmup_s = 4
duration_s = 25

[interests]
ratio = 0.5

[churn]
kind = "exponential"
on_s = 15
crash_ratio = 0.5

[adversary]
kind = "{adversary}"
ratio = 0.2
drop_ratio = 0.5
victim_topics = [0, 1]
"""

ADVERSARIES = {
    "gossipsub": "topic-attacker",
    "gossipsub-bounded": "asker",
    "random": "slow",
    "scribe": "topic-attacker",
    "similarity": "asker",
    "spidercast": "slow",
    "topiary": "topic-attacker",
}
"""The adversary of each protocol's run; of the others, ``DEFAULT_ADVERSARY``."""

DEFAULT_ADVERSARY = "dropper"

NETWORKS = {"jitter": "jitter = 3", "loss": "loss_ratio = 0.02", "rates": "rate_mbit = 2"}
"""Further runs, of the protocol ``random``: a key of ``[underlay]`` by the name of each."""

SIGNIFICANT_DIGITS = 9
"""Of numbers with a fraction, whose last digits depend on the processor."""


def protocols() -> tuple[str, ...]:
    """Every protocol's name."""
    return tuple(sorted(get_args(get_type_hints(Experiment)["protocol"])))


def digest_plans() -> Iterator[tuple[str, dict[str, str]]]:
    """Of each playbook its name and its plan's hashes; playbooks whose data is missing are left out."""
    for path in sorted((ROOT / "playbooks" / "experiments").glob("*.toml")):
        try:
            plan = make_plan(load_experiment(path), path).plan
        except ExperimentError as error:
            if "TRELLIS_DATA" not in str(error):
                raise
        else:
            yield path.stem, dict(plan.hashes)


def digest_run(protocol: str, folder: Path, network: str = "", *, analysed: bool = True) -> dict[str, str]:
    """Simulate a protocol with churn and adversaries: digests of its plan, its traces, every table, and the summary.

    Args:
        protocol: its name.
        folder: where the run directory is made.
        network: further keys of ``[underlay]``.
        analysed: also digest tables and summary, which take most of the time.
    """
    from metrics import summary, tables

    file = folder / f"{protocol}.toml"
    adversary = ADVERSARIES.get(protocol, DEFAULT_ADVERSARY)
    file.write_text(EXPERIMENT.format(protocol=protocol, adversary=adversary, network=network), encoding="utf-8")
    run_dir = folder / protocol
    planned = make_plan(load_experiment(file), file)
    write_plan(planned, run_dir)
    simulate_planned(run_dir)
    traces = sorted((run_dir / "trace").iterdir())
    digests = {
        "plan": digest(dict(planned.plan.hashes)),
        "traces": hashlib.sha256(b"".join(path.read_bytes() for path in traces)).hexdigest()[:16],
    }
    if not analysed:
        return digests
    tables.build(run_dir)
    found = summary.write(run_dir)
    digests |= {
        "headline": digest(found.headline),
        "checks": digest([[check.name, check.tested, check.failed, check.detail] for check in found.checks]),
    }
    for path in sorted((run_dir / "tables").glob("*.parquet")):
        digests[f"tables/{path.stem}"] = digest_table(path)
    return digests


def digest_table(path: Path) -> str:
    """A table's columns, and its rows in any order."""
    table = pq.read_table(path)
    rows = sorted(json.dumps(plain(list(row.values())), sort_keys=True) for row in table.to_pylist())
    return digest([table.column_names, [str(kind) for kind in table.schema.types], rows])


def digest_study(path: Path) -> dict[str, str]:
    """The results of a study's quick profile: a digest of the keys of its runs, and one of their rows."""
    study = load_study(path, [], seeds=None, quick=True)
    rows: dict[str, Any] = {}

    def take(outcome: Outcome) -> None:
        if isinstance(outcome, Failure):
            raise RuntimeError(outcome.words)
        result = outcome.result
        rows[result.key] = [sorted(map(str, result.at.items())), result.seed, msgspec.to_builtins(result.rows)]

    execute(jobs_of(study, path.parent), HERE, take)
    return {"keys": digest(sorted(rows)), "rows": digest(sorted(json.dumps(plain(row)) for row in rows.values()))}


def digest(value: object) -> str:
    """A short digest of plain data."""
    return hashlib.sha256(json.dumps(plain(value), sort_keys=True).encode()).hexdigest()[:16]


def plain(value: Any) -> Any:
    """The value with its fractions rounded."""
    if isinstance(value, float):
        return f"{value:.{SIGNIFICANT_DIGITS}g}"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def read_golden() -> dict[str, dict[str, dict[str, str]]]:
    """The digests on record: ``plans``, ``runs`` and ``studies``."""
    golden: dict[str, dict[str, dict[str, str]]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return golden


def differences(recorded: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """What two sets of digests do not have in common."""
    return sorted(name for name in recorded.keys() | found.keys() if recorded.get(name) != found.get(name))


def main(argv: list[str] | None = None) -> int:
    """Write the golden file anew, or compare with it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", action="store_true", help="run every study's quick profile, too")
    parser.add_argument("--check", action="store_true", help="compare with the golden file instead of writing it")
    given = parser.parse_args(argv)
    recorded = read_golden() if GOLDEN.exists() else {"plans": {}, "runs": {}, "studies": {}}
    found = {name: dict(digests) for name, digests in recorded.items()}
    wrong = 0
    for part, name, digests in _all(studies=given.studies):
        wrong += (differs := differences(recorded[part].get(name, {}), digests)) != []
        print(f"{part} {name}: {'differs: ' + ' '.join(differs) if differs else 'same'}", file=sys.stderr, flush=True)
        found[part][name] = digests
    if given.check:
        return min(wrong, 1)
    GOLDEN.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


def _all(*, studies: bool) -> Iterable[tuple[str, str, dict[str, str]]]:
    for name, hashes in digest_plans():
        yield "plans", name, hashes
    with tempfile.TemporaryDirectory() as folder:
        for protocol in protocols():
            yield "runs", protocol, digest_run(protocol, Path(folder))
    for name, network in NETWORKS.items():
        with tempfile.TemporaryDirectory() as folder:
            yield "runs", f"random, {name}", digest_run("random", Path(folder), network)
    if studies:
        for path in sorted((ROOT / "playbooks" / "studies").glob("*.toml")):
            yield "studies", path.stem, digest_study(path)


if __name__ == "__main__":
    sys.exit(main())
