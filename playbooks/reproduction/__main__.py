"""Writes the pages of the reproduced papers: ``python -m playbooks.reproduction``.

``--record FOLDER`` first records the finished sweep in a folder, ``--figures FOLDER`` draws all figures into a folder,
and ``--marks`` lists the results whose code has changed and whose page does not say so. ``--mutate STUDY --out FOLDER``
checks the claims of a study by small changes of its protocol first, and ``--recheck STUDY`` makes some of its recorded
runs again.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.errors import ExperimentError
from harness.studies.recheck import MINUTES
from harness.studies.record import StaleRecord
from playbooks.reproduction.mutations import check_claims, keep_checks
from playbooks.reproduction.pages import draw_figures, stale_marks, write_pages
from playbooks.reproduction.papers import HERE, Place, paper_of, read_papers
from playbooks.reproduction.publishing import publish
from playbooks.reproduction.rechecks import keep_recheck, recheck


def main(argv: Sequence[str] | None = None, place: Place = HERE) -> int:
    """Do what the command line asks for, and return the exit status.

    Args:
        argv: the arguments; None = those of this process.
        place: where the pages and the study files are.
    """
    parser = argparse.ArgumentParser(prog="python -m playbooks.reproduction", description="write the papers' pages")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--record", type=Path, metavar="FOLDER", help="record the finished sweep in this folder first")
    choice.add_argument("--figures", type=Path, metavar="FOLDER", help="only draw all figures, as SVG in this folder")
    choice.add_argument("--marks", action="store_true", help="only list the results whose code has changed unmarked")
    choice.add_argument(
        "--mutate", metavar="STUDY", help="check the claims of a study by changes of its protocol first"
    )
    choice.add_argument("--recheck", metavar="STUDY", help="make recorded runs of a study again first")
    parser.add_argument("--minutes", type=float, default=MINUTES, metavar="M", help="of --recheck, as of trellis sweep")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="for the code and the sweeps of --mutate")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="the seeds of --mutate: 1 to N")
    parser.add_argument("--master", default="here", help="where --mutate makes its runs, as of trellis sweep")
    given: Any = parser.parse_args(argv)
    if bool(given.mutate) != bool(given.out):
        parser.error("--mutate and --out need each other")
    try:
        if given.mutate:
            paper = paper_of(given.mutate, place)
            checks = check_claims(paper, given.mutate, given.out, seeds=given.seeds, master=given.master, place=place)
            print(f"checked: {keep_checks(paper, checks, place)}")
            write_pages([paper], place)
        elif given.recheck:
            paper = paper_of(given.recheck, place)
            found = recheck(paper, given.recheck, minutes=given.minutes, place=place)
            print(f"rechecked: {keep_recheck(paper, found, place)}: {found}")
            write_pages([paper], place)
        elif given.marks:
            for name in stale_marks(place):
                print(f"{name}: the mark on its page is out of date; run: python -m playbooks.reproduction")
        elif given.figures:
            draw_figures(read_papers(place), given.figures, place)
        elif given.record:
            paper, record = publish(given.record, place)
            print(f"recorded: {record}")
            write_pages([paper], place)
        else:
            write_pages(read_papers(place), place)
    except ExperimentError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except StaleRecord as error:
        print(f"the pages are not all written: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
