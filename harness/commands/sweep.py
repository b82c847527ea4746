"""``trellis sweep FILE``: simulate the experiments of a study. An interrupted sweep can be resumed."""

import argparse
import os
from pathlib import Path

from harness.errors import ExperimentError
from harness.experiment.data import DATA_VARIABLE
from harness.progress import counting
from harness.stages.analysis import run_spark
from harness.stages.manifest import versions
from harness.studies.loader import load_study
from harness.studies.store import Store, SweepSpec, code_hash, jobs_of, write_spec

SWEEPS = Path("runs") / "studies"

LOG = "sweep.log"
"""The log of Spark and of the runs, in the sweep's folder."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="the study (TOML)")
    parser.add_argument("--quick", action="store_true", help="use the study's quick profile: fewer and smaller points")
    parser.add_argument("--seeds", type=int, metavar="N", help="use seeds 1 to N instead of the file's")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of the study")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the results, existing ones included")
    parser.add_argument(
        "--master", help="a Spark master, or 'here': one run at a time, no Spark (default: all cores of this machine)"
    )
    parser.add_argument("--any-code", action="store_true", help="accept results of other versions of the code")


def run(arguments: argparse.Namespace) -> int:
    """Run the jobs that have no result, then write tables, figures and the page."""
    study = load_study(arguments.file, arguments.set, seeds=arguments.seeds, quick=arguments.quick)
    folder = (arguments.out or SWEEPS / (study.name + ("-quick" if arguments.quick else ""))).absolute()
    if folder.exists() and not folder.is_dir():
        raise ExperimentError(str(folder), "exists and is not a folder")
    source = arguments.file.absolute()
    jobs = jobs_of(study, source.parent)
    write_spec(folder, SweepSpec(study, str(source), code_hash(), _options(arguments), versions(), arguments.any_code))
    (folder / "study.toml").write_bytes(source.read_bytes())
    store = Store(folder, None if arguments.any_code else code_hash())
    inputs = [source.parent, *([Path(data)] if (data := os.environ.get(DATA_VARIABLE)) else [])]
    with counting(f"sweep {study.name}", len(jobs), lambda: store.count(jobs)):
        run_spark("harness.studies.sweep", folder, LOG, arguments.master, inputs)
    for name in (*(f"{table.name}.md" for table in study.table), *(["claims.md"] if study.claim else [])):
        print(f"\n{(folder / name).read_text(encoding='utf-8')}", end="")
    print(f"\nresults: {folder / 'index.html'}")
    return 0


def _options(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the options that changed the study, for the record."""
    seeds = [f"--seeds={arguments.seeds}"] if arguments.seeds is not None else []
    return (*(["--quick"] if arguments.quick else []), *seeds, *(f"--set {text}" for text in arguments.set))
