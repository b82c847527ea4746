"""Compare an experiment on two commits of a repository, for continuous integration.

    compare_commits.py BASE EXPERIMENT --fail-if 'propagation_delay_ms_p99 > +10%' [-- OPTION...]

Run it in the repository that has the experiment: that of a protocol, of a program that is a peer, or of Trellis. The
commit BASE is checked out beside the working tree. The experiment runs on both, in turn, with the same seeds. If
``trellis compare`` says that more runs are needed, they are made, once. OPTIONs go to ``trellis run``.

The exit status is that of ``trellis compare``: 0 = no condition is met, 3 = undecided, or a run was invalid, 4 = a
condition is met. ``--out`` has the runs, ``compare.md`` and ``compare.html``.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from itertools import count, takewhile
from pathlib import Path

UNDECIDED = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run and compare, and return the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    words, options = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("experiment", help="the file, as a path in the repository")
    parser.add_argument("--trellis", default="trellis", help="the command; a relative path is one in each checkout")
    parser.add_argument("--fail-if", action="append", required=True, metavar="CONDITION")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each commit at first (default: 3)")
    parser.add_argument("--most-seeds", type=int, default=10, help="the most runs of each commit (default: 10)")
    parser.add_argument("--out", type=Path, default=Path("compared"))
    given = parser.parse_args(words)
    if given.seeds < 1:
        parser.error(f"--seeds: expected at least 1, got {given.seeds}")
    if given.out.exists():
        parser.error(f"--out: {given.out} is there already; name a new folder")
    folders = {"base": (given.out / "checkout").resolve(), "head": Path.cwd()}
    if failed := git("worktree", "add", "--detach", "--force", str(folders["base"]), given.base):
        return failed
    try:
        runs = Runs(given.trellis, given.experiment, folders, given.out.resolve(), options)
        runs.make(range(1, given.seeds + 1))
        status, more = runs.compare(given.fail_if)
        most = min(given.seeds + more, given.most_seeds)
        if status == UNDECIDED and most > given.seeds:
            runs.make(range(given.seeds + 1, most + 1))
            status, _ = runs.compare(given.fail_if)
        return status
    finally:
        git("worktree", "remove", "--force", str(folders["base"]))


def git(*words: str) -> int:
    """Call Git in the repository, and return its exit status. It says itself what is wrong."""
    return call(["git", *words], Path.cwd(), stdout=subprocess.DEVNULL)


def call(words: Sequence[str], folder: Path, stdout: int | None = None) -> int:
    """Call a program in a folder, and return its exit status. End with a message if there is no such program."""
    try:
        return subprocess.run(words, cwd=folder, check=False, stdout=stdout).returncode
    except OSError as error:
        sys.exit(f"{words[0]} cannot be started: {error.strerror}")


class Runs:
    """The runs of both commits.

    Args:
        trellis: the command.
        experiment: the file, relative to a checkout.
        folders: the checkout of each commit.
        out: the folder of the runs.
        options: for ``trellis run``.
    """

    def __init__(
        self, trellis: str, experiment: str, folders: dict[str, Path], out: Path, options: Sequence[str]
    ) -> None:
        self._trellis = trellis
        self._experiment = experiment
        self._folders = folders
        self._out = out
        self._options = options
        self._seeds: list[int] = []

    def make(self, seeds: Iterable[int]) -> None:
        """Run the experiment on both commits, in turn, so that a slow machine is slow for both."""
        for seed in seeds:
            self._seeds.append(seed)
            for name, folder in self._folders.items():
                place = self._place(name, seed)
                words = ["run", self._experiment, "--seed", str(seed), "--out", str(place), *self._options]
                status = call([self._trellis, *words], folder)
                if not (place / "summary.json").exists():
                    sys.exit(status or 1)  # Trellis has said why

    def compare(self, conditions: Sequence[str]) -> tuple[int, int]:
        """Compare the runs; return the exit status, and how many more runs of each commit are needed."""
        runs = [str(last_attempt(self._place(name, seed))) for name in self._folders for seed in self._seeds]
        words = ["compare", *runs, "--by-folder", "--baseline", runs[0]]
        words += [word for condition in conditions for word in ("--fail-if", condition)]
        for form in ("markdown", "html", "json"):
            words += [f"--{form}", str(self._out / f"compare.{'md' if form == 'markdown' else form}")]
        status = call([self._trellis, *words], self._folders["head"])
        if status not in (0, UNDECIDED, 4):
            sys.exit(status)
        outcomes = json.loads((self._out / "compare.json").read_text(encoding="utf-8"))["conditions"]
        return status, max((each["more_runs"] or 0 for each in outcomes), default=0)

    def _place(self, name: str, seed: int) -> Path:
        return self._out / name / f"seed-{seed}"


def last_attempt(place: Path) -> Path:
    """Return the last attempt of a run: ``--retry-host-stalls`` repeats one that stalls of the host have spoiled."""
    attempts = (place.with_name(f"{place.name}-attempt{number}") for number in count(2))
    whole = takewhile(lambda attempt: (attempt / "summary.json").exists(), attempts)
    return [place, *whole][-1]


if __name__ == "__main__":
    sys.exit(main())
