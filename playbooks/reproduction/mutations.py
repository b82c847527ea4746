"""Checks the claims of a study by small changes of its protocol: which claims fail by which change.

A claim that no change fails says little about the protocol: it may be true of any. ``docs/reproduction/mutations.toml``
lists at most ``MOST`` changes per paper. For each of them, ``check_claims`` sweeps the study with a copy of the code in
which one text of one file is replaced, and judges the claims again. The result is in
``docs/reproduction/<paper>.mutations.json``, from which the page of the paper shows it.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shutil import copytree, ignore_patterns

import msgspec
from msgspec import Struct

from harness.errors import ExperimentError
from harness.interpreter import python_command
from harness.studies.claims import MET, PARTLY, VERDICTS, judge
from harness.studies.code_hash import ROOT
from harness.studies.loader import load_study
from harness.studies.store import Store, jobs_of
from harness.studies.tables import tabulate
from playbooks.reproduction.by_study import keep_entries, read_entries
from playbooks.reproduction.papers import HERE, Paper, Place

MUTATIONS_FILE = "mutations.toml"
MOST = 12
CODE = ("harness", "metrics", "peer", "playbooks", "topologies")
"""The packages that a sweep imports."""


class Mutation(Struct, frozen=True, forbid_unknown_fields=True):
    """A small change of a protocol: a text that occurs once in a file, and another in its place.

    Attributes:
        paper: the name of the paper whose claims it checks.
        name: what the changed protocol does differently.
        file: the file, relative to the checkout.
        old, new: the texts.
    """

    paper: str
    name: str
    file: str
    old: str
    new: str


class Check(Struct, frozen=True):
    """A claim of a study that is met, at least in part, and the changes that fail it.

    Attributes:
        study: the study's name.
        claim: the text of the claim.
        verdict: its verdict without a change, on these seeds.
        seeds: the number of seeds, from 1 on.
        failed_by: the names of the changes with a worse verdict.
        passed_by: the names of the other changes.
    """

    study: str
    claim: str
    verdict: str
    seeds: int
    failed_by: tuple[str, ...]
    passed_by: tuple[str, ...]


def read_mutations(paper: Paper, place: Place = HERE) -> tuple[Mutation, ...]:
    """Read the changes that check the claims of a paper.

    Raises:
        ExperimentError: there are more than ``MOST``.
    """
    path = place.pages / MUTATIONS_FILE
    if not path.exists():
        return ()
    listed = msgspec.toml.decode(path.read_bytes(), type=dict[str, tuple[Mutation, ...]])["mutation"]
    own = tuple(mutation for mutation in listed if mutation.paper == paper.name)
    if len(own) > MOST:
        raise ExperimentError(str(path), f"expected at most {MOST} changes of {paper.name}, got {len(own)}")
    return own


def change(text: str, mutation: Mutation) -> str:
    """Return the changed text of the mutation's file.

    Raises:
        ExperimentError: the old text does not occur once.
    """
    if (found := text.count(mutation.old)) != 1:
        raise ExperimentError(mutation.file, f"{mutation.name!r}: expected its old text once, found it {found} times")
    return text.replace(mutation.old, mutation.new)


def copy_code(folder: Path, mutation: Mutation | None, root: Path = ROOT) -> Path:
    """Copy the code with a change, and return the folder.

    Args:
        folder: where the copy is made.
        mutation: the change; None = none.
        root: the checkout.
    """
    for name in CODE:
        copytree(root / name, folder / name, ignore=ignore_patterns("__pycache__"), dirs_exist_ok=True)
    if mutation is not None:
        path = folder / mutation.file
        path.write_text(change(path.read_text(encoding="utf-8"), mutation), encoding="utf-8")
    return folder


def sweep_verdicts(code: Path, study: Path, out: Path, seeds: int, master: str) -> dict[str, str] | None:
    """Sweep a study with a copy of the code, and return the verdict on each claim by its text.

    Args:
        code: the copy.
        study: the study file.
        out: the folder of the sweep. Runs that it has are not repeated.
        seeds: use the seeds 1 to this.
        master: where the runs are made, as of ``trellis sweep``.

    Returns:
        None if the sweep fails.
    """
    options = ["--out", str(out), "--seeds", str(seeds), "--any-code", "--master", master]
    argv = python_command("-m", "harness.cli", "sweep", str(study), *options)
    ended = subprocess.run(
        argv, cwd=code, env={**os.environ, "PYTHONPATH": str(code)}, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        return None
    loaded, store = load_study(study, seeds=seeds), Store(out, any_code=True)
    jobs = jobs_of(loaded, study.parent)
    results = [result for job in jobs if (result := store.read(job)) is not None]
    if len(results) < len(jobs):
        raise ExperimentError(str(out), "the change alters parameters of experiments, so it is another experiment")
    return {claim.text: judge(claim, results).verdict for claim in loaded.claim}


def check_claims(
    paper: Paper, study: str, folder: Path, *, seeds: int, master: str, place: Place = HERE
) -> list[Check]:
    """Check the claims of a study by all changes of its paper.

    Args:
        paper: the paper.
        study: the name of the study.
        folder: for the copies of the code and the sweeps, which stay there.
        seeds: use the seeds 1 to this.
        master: where the runs are made, as of ``trellis sweep``.
        place: where the pages and the study files are.

    Raises:
        ExperimentError: the study fails without a change.
    """
    path = (place.studies / f"{study}.toml").absolute()
    found: dict[str, Mapping[str, str] | None] = {}
    for mutation in (None, *read_mutations(paper, place)):
        name = "" if mutation is None else mutation.name
        part = folder / f"{len(found):02}"
        code = copy_code(part / "code", mutation)
        found[name] = sweep_verdicts(code.absolute(), path, (part / study).absolute(), seeds, master)
    before = found.pop("")
    if before is None:
        raise ExperimentError(str(path), "the sweep fails without a change")
    return [
        Check(
            study,
            claim,
            verdict,
            seeds,
            tuple(name for name, after in found.items() if fails(verdict, after, claim)),
            tuple(name for name, after in found.items() if not fails(verdict, after, claim)),
        )
        for claim, verdict in before.items()
        if verdict in (MET, PARTLY)
    ]


def fails(verdict: str, after: Mapping[str, str] | None, claim: str) -> bool:
    """Return whether a claim has a worse verdict than before.

    Args:
        verdict: the verdict before.
        after: the verdicts with a change; None = the sweep failed.
        claim: the text of the claim.
    """
    return after is None or VERDICTS.index(after[claim]) > VERDICTS.index(verdict)


def _path(paper: Paper, place: Place) -> Path:
    return place.pages / f"{paper.name}.mutations.json"


def read_checks(paper: Paper, place: Place = HERE) -> tuple[Check, ...]:
    """Read the checks of a paper's claims that have been made."""
    return read_entries(_path(paper, place), Check)


def keep_checks(paper: Paper, checks: Sequence[Check], place: Place = HERE) -> Path:
    """Write the checks of some studies in place of earlier ones of the same studies, and return the file.

    Args:
        paper: the paper.
        checks: all checks of these studies.
        place: where the pages are.
    """
    return keep_entries(_path(paper, place), Check, checks)


def show_checks(checks: Sequence[Check]) -> Iterator[str]:
    """Yield the section on changes of the protocol, if there are any checks."""
    if checks:
        yield "## Which change of the protocol fails which claim"
        yield (
            "The claims that are met, at least in part, were judged again with small changes of the protocol, one at a "
            "time ([list](mutations.toml)). A claim that no change fails says little about the protocol."
        )
        yield tabulate(
            ("study", "claim", "verdict", "seeds", "fails by", "does not fail by"),
            [
                [each.study, each.claim, each.verdict, str(each.seeds), _names(each.failed_by), _names(each.passed_by)]
                for each in checks
            ],
        )


def _names(names: Sequence[str]) -> str:
    return "; ".join(names) or "**none**"
