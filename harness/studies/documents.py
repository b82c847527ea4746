"""Writes the committed results of studies into the documents: ``python -m harness.studies.documents``.

They stand between ``<!-- results: STUDY -->`` and ``<!-- end of results -->``, for each study with a file in
``docs/results``; the rest of a page is written by hand.
"""

import re
from pathlib import Path

from harness.studies.claims import judge, write_findings
from harness.studies.loader import load_study
from harness.studies.results_file import ResultsFile, read_results_file
from harness.studies.store import ROOT
from harness.studies.tables import make_table, write_markdown

PAGES = tuple(sorted((ROOT / "docs" / "protocols").glob("*.md")))
RESULTS = ROOT / "docs" / "results"
STUDIES = ROOT / "playbooks" / "studies"

_PLACE = re.compile(r"(<!-- results: (.*?) -->\n\n).*?(<!-- end of results -->)", re.DOTALL)


def fill(text: str, folder: Path = RESULTS) -> str:
    """Return a page of ``docs/protocols`` with the results of the studies that it names.

    Args:
        text: the page.
        folder: the folder of the results files; a study without a file has no results.

    Raises:
        StaleResults: a file does not belong to its study.
    """
    return _PLACE.sub(lambda place: f"{place[1]}{show_study(folder / f'{place[2]}.md')}{place[3]}", text)


def show_study(path: Path) -> str:
    """Return the source, the claims and the tables of a results file, as Markdown that ends with an empty line."""
    if not path.exists():
        return ""
    study = load_study(STUDIES / path.name.replace(".md", ".toml"))
    found = read_results_file(path, study)
    parts = [_source(path, found)]
    if study.claim:
        parts.append(write_findings([judge(claim, found.results) for claim in study.claim]))
    parts += [write_markdown(make_table(table, found.results)).rstrip("\n") for table in study.table]
    return "\n\n".join(parts) + "\n\n"


def _source(path: Path, found: ResultsFile) -> str:
    head, name = found.head, path.stem
    return (
        f"[{name}](../../playbooks/studies/{name}.toml), seeds {head['seeds']}, commit `{head['commit']}`:\n"
        f"[all numbers](../results/{name}.md)."
    )


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(fill(page.read_text(encoding="utf-8")), encoding="utf-8")
