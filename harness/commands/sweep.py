"""``trellis sweep FILE``: make the runs of a study, or some of a record again. An interrupted sweep can be resumed."""

import argparse
import os
import platform
import sys
from pathlib import Path

from harness.commands.process_runs import make_process_runs
from harness.errors import ExperimentError
from harness.experiment.data import DATA_VARIABLE
from harness.progress import counting
from harness.stages.analysis import exclusive, master_option, run_spark
from harness.stages.manifest import kernel, versions
from harness.studies.form import Study
from harness.studies.loader import load_study
from harness.studies.origin import Machine, find_origin
from harness.studies.points import describe_runs
from harness.studies.recheck import DRAW, MINUTES, draw_runs, make_again
from harness.studies.record import RECORD_FILE, Record, StaleRecord, encode_record, make_source
from harness.studies.store import Store, SweepSpec, jobs_of, study_code, write_spec
from metrics.rundir import write_file
from metrics.rundir.plain import find_foreign
from metrics.storage import local_path

SWEEPS = Path("runs") / "studies"

LOG = "sweep.log"
"""The log of Spark and of the runs, in the sweep's folder."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="the study (TOML)")
    parser.add_argument("--quick", action="store_true", help="use the study's quick profile: fewer and smaller points")
    parser.add_argument("--seeds", type=int, metavar="N", help="use seeds 1 to N instead of the file's")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of the study")
    parser.add_argument("--out", type=local_path, metavar="DIR", help="folder of the results, existing ones included")
    parser.add_argument(
        "--master",
        type=master_option,
        help="a Spark master, or 'here': one run at a time, no Spark (default: all cores of this machine)",
    )
    parser.add_argument("--any-code", action="store_true", help="accept results of other versions of the code")
    again = parser.add_argument_group("instead, make some recorded runs again", "compare their numbers; keep no files")
    again.add_argument("--recheck", type=Path, metavar="RECORD", help="the record of the study's results (JSON)")
    again.add_argument(
        "--minutes", type=float, metavar="M", help=f"draw runs that took so long in all (default: {MINUTES})"
    )
    again.add_argument("--draw", type=int, metavar="SEED", help=f"the seed of the draw (default: {DRAW})")


def run(arguments: argparse.Namespace) -> int:
    """Run the jobs that have no result, then write tables, figures, the page and the record."""
    study = load_study(arguments.file, arguments.set, seeds=arguments.seeds, quick=arguments.quick)
    if arguments.recheck:
        return _recheck(study, arguments)
    if arguments.minutes is not None or arguments.draw is not None:
        raise ExperimentError("--minutes, --draw", "need --recheck")
    folder = (arguments.out or SWEEPS / (study.name + ("-quick" if arguments.quick else ""))).absolute()
    if folder.exists() and not folder.is_dir():
        raise ExperimentError(str(folder), "exists and is not a folder")
    if foreign := find_foreign(folder):
        raise ExperimentError(str(folder), f"{foreign}; remove it, or name another folder (--out)")
    source = arguments.file.absolute()
    jobs = jobs_of(study, source.parent)
    spec = SweepSpec(study, str(source), study_code(study), _options(arguments), versions(), arguments.any_code)
    write_spec(folder, spec)
    write_file(folder / "study.toml", source.read_bytes())
    store = Store(folder, any_code=arguments.any_code)
    inputs = [source.parent, *([Path(data)] if (data := os.environ.get(DATA_VARIABLE)) else [])]
    different = tuple({job.key: job for job in jobs}.values())
    print(f"sweep {study.name}: {describe_runs(study)}", file=sys.stderr, flush=True)
    with exclusive(folder, LOG):
        failed = make_process_runs(different, store, folder, source)
    if failed:
        print(f"{failed} runs of processes failed or are not valid; the others are kept", file=sys.stderr)
        return 1
    with counting(f"sweep {study.name}", len(different), lambda: store.count(different)):
        run_spark("harness.studies.sweep", folder, LOG, arguments.master, inputs)
    for name in (*(f"{table.name}.md" for table in study.table), *(["claims.md"] if study.claim else [])):
        print(f"\n{(folder / name).read_text(encoding='utf-8')}", end="")
    print(f"\nresults: {folder / 'index.html'}")
    if not arguments.any_code:
        results = [result for job in jobs if (result := store.read(job)) is not None]
        record = Record(make_source(study, spec.command, find_origin(source, _this_machine()), results), tuple(results))
        write_file(folder / RECORD_FILE, encode_record(study, record).encode())
    return 0


def _recheck(study: Study, arguments: argparse.Namespace) -> int:
    """Make some runs of a record again, and print which of its numbers they have. Return 1 if any is another."""
    if arguments.out or arguments.master or arguments.any_code:
        raise ExperimentError("--recheck", "takes neither --out nor --master nor --any-code")
    minutes = MINUTES if arguments.minutes is None else arguments.minutes
    draw = DRAW if arguments.draw is None else arguments.draw
    try:
        drawn = draw_runs(arguments.recheck, study, arguments.file.absolute().parent, minutes=minutes, draw=draw)
    except StaleRecord as error:
        raise ExperimentError("--recheck", str(error)) from None
    equal = 0
    for compared in make_again(study, drawn):
        print(compared, flush=True)
        equal += not compared.differences
    most = drawn.record.source.runs
    print(f"{equal} of {len(drawn.chosen)} runs have the recorded numbers; the record has {most} runs")
    return int(equal < len(drawn.chosen))


def _this_machine() -> Machine:
    found = kernel()
    return Machine(found["cpu"], int(found["cpus"]), found["release"], platform.python_version())


def _options(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the options that changed the study, for the record."""
    seeds = [f"--seeds={arguments.seeds}"] if arguments.seeds is not None else []
    return (*(["--quick"] if arguments.quick else []), *seeds, *(f"--set {text}" for text in arguments.set))
