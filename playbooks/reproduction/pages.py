"""Writes the pages of the reproduced papers from their recorded results.

``docs/reproduction/papers.toml`` lists the papers and which study reproduces which of their tables and figures. A page,
``docs/reproduction/<paper>.md``, has a section per study: source, claims, reasons, tables and figures. All numbers come
from the records in ``docs/reproduction/<paper>``, all texts from the study files and the list of papers. One figure of
each paper is in the repository; ``draw_figures`` draws them all.
"""

import hashlib
import io
import re
import textwrap
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import matplotlib as mpl
import msgspec
from msgspec import Struct

from harness.studies.claims import VERDICTS, Finding, by_source, judge, judge_statements, write_findings
from harness.studies.figures import describe_figure, draw_figure, make_curves
from harness.studies.form import FigureSpec, Study
from harness.studies.loader import load_study
from harness.studies.origin import describe_commit
from harness.studies.points import places_of, seeds_of
from harness.studies.record import Record, Source, encode_record, read_record
from harness.studies.store import Result, study_code
from harness.studies.tables import make_table, tabulate, write_markdown
from playbooks.reproduction.mutations import Check, read_checks, show_checks
from playbooks.reproduction.papers import HERE, Paper, Place, read_papers
from playbooks.reproduction.readings import show_readings
from playbooks.reproduction.rechecks import Recheck, digest_results, read_rechecks

INDEX_FILE = "README.md"

CHANGED = "**The code has changed since**, so the same command may give other numbers today."
"""Marks results of other code than today's. A page may lack it until the pages are written again."""

WIDTH = 120
"""The width of the documents."""

NOT_RECORDED = "Not recorded yet."

JUDGED = """The verdicts:

- **met**, **not met**: at all points, the value is or is not in the stated range. **partly met**: in a wider stated
  range, or only at some points.
- **undecided**: the interval crosses a bound, so more seeds could change the verdict.
- **irreproducible**: not met, and no implementation can meet it with the settings that the paper states.
- **reported**: the paper says neither a number nor a direction, so the value is not judged.

The table counts statements of the paper. Several claims about one statement count once, such as claims at several
points or by several readings; it is partly met if some of them are met and others are not. What we ask beyond the paper
is counted apart."""
"""What the verdicts mean, and what is counted."""

NOT_HERE = "Plots that are not in the repository:"
"""The head of the list of a study's figures, except the one of the paper that is in the repository."""


class Recorded(Struct, frozen=True):
    """A study with its record and its judged claims; without a record, none of its claims is measured.

    ``points``: how many points the study has. Its record may have fewer.
    """

    study: Study
    record: Record | None
    points: int
    findings: tuple[Finding, ...]

    @property
    def results(self) -> tuple[Result, ...]:
        """Return the recorded results."""
        return () if self.record is None else self.record.results

    @property
    def lack(self) -> str:
        """Say what the record lacks of the study; empty if it lacks nothing, or if there is no record."""
        if self.record is None:
            return ""
        seeds, points = self.record.source.seeds, len({tuple(each.at.items()) for each in self.results})
        if points == self.points and seeds == seeds_of(self.study):
            return ""
        return (
            f"**Recorded in part**: {points} of {self.points} points, with {_seeds(seeds)}; the study has "
            f"{_seeds(seeds_of(self.study))}. A claim about points that are not recorded is at most partly met."
        )


def read_recorded(paper: Paper, name: str, place: Place = HERE) -> Recorded:
    """Read a study and its record, which may lack seeds and points that the study has got since.

    Raises:
        StaleRecord: the record is not one of the study as it is now.
    """
    study = load_study(place.studies / f"{name}.toml")
    path = place.record(paper, name)
    record = read_record(path, study, partial=True) if path.exists() else None
    results = () if record is None else record.results
    points = places_of(study)
    return Recorded(study, record, len(points), tuple(judge(claim, results, points) for claim in study.claim))


def write_pages(papers: Sequence[Paper], place: Place = HERE) -> None:
    """Write the pages of papers with their figures, the claims in their records, and the index."""
    for paper in papers:
        folder = place.pages / paper.name
        folder.mkdir(exist_ok=True)
        studies = [read_recorded(paper, name, place) for name in paper.studies]
        kept = set()
        for each in studies:
            if each.record is not None:
                place.record(paper, each.study.name).write_text(
                    encode_record(each.study, each.record), encoding="utf-8"
                )
            for figure in each.study.figure:
                if _figure_name(each.study, figure) == paper.figure and list(make_curves(figure, each.results)):
                    kept.add(_write_figure(folder, each, figure))
        for path in set(folder.glob("*.svg")) - kept:
            path.unlink()
        changed = {each.study.name for each in studies if _has_changed(each)}
        page = show_page(paper, studies, changed, read_checks(paper, place), read_rechecks(paper, place))
        (place.pages / f"{paper.name}.md").write_text(page, encoding="utf-8")
    (place.pages / INDEX_FILE).write_text(show_index(read_papers(place), place), encoding="utf-8")


def draw_figures(papers: Sequence[Paper], folder: Path, place: Place = HERE) -> None:
    """Draw the figures of papers, as ``<paper>/<study>-<figure>.svg``.

    Args:
        papers: the papers.
        folder: where the files are written.
        place: where the pages and the study files are.
    """
    for paper in papers:
        (folder / paper.name).mkdir(parents=True, exist_ok=True)
        for each in (read_recorded(paper, name, place) for name in paper.studies):
            for figure in each.study.figure:
                if list(make_curves(figure, each.results)):
                    _write_figure(folder / paper.name, each, figure)


def _has_changed(recorded: Recorded) -> bool:
    return recorded.record is not None and recorded.record.source.code != study_code(recorded.study)


def marked(page: str) -> set[str]:
    """Return the studies that a page marks as measured with other code."""
    sections = re.split(r"^<a id=\"(.*?)\"></a>$", page, flags=re.MULTILINE)
    return {name for name, text in zip(sections[1::2], sections[2::2], strict=True) if CHANGED in text}


def show_page(
    paper: Paper,
    studies: Sequence[Recorded],
    changed: Collection[str],
    checks: Sequence[Check] = (),
    rechecks: Mapping[str, Recheck] = MappingProxyType({}),
) -> str:
    """Return the page of a paper.

    Args:
        paper: the paper.
        studies: its studies, in order.
        changed: the names of the studies that were recorded with other code than today's.
        checks: of its claims by changes of the protocol.
        rechecks: of its records, by study.
    """
    texts = [
        f"# {paper.title}: the paper's results and ours",
        f"{paper.source} How the protocol is implemented: [{Path(paper.protocol).name}]({paper.protocol}).",
        "This page is generated from the records of studies and from the study files "
        "([how](../studies.md#recorded-results)). The numbers of the claims, the verdicts, the tables and the plots "
        "are computed from the records; the reasons and discussions are texts of the study files. Intervals (±, or two "
        "ends in parentheses) are 95 % confidence intervals over the seeds; a value without one is of one seed. One "
        "plot is in the repository; `python -m playbooks.reproduction --figures FOLDER` draws all of them.",
        JUDGED,
        *([paper.text.strip()] if paper.text else []),
        _overview(paper, {each.study.name: each for each in studies}),
        *filter(None, _compare_readings(paper, studies)),
        *show_checks(checks),
        *(
            show_study(paper, each, changed=each.study.name in changed, recheck=rechecks.get(each.study.name))
            for each in studies
        ),
    ]
    return _wrap("\n\n".join(texts)) + "\n"


def _wrap(text: str) -> str:
    """Wrap the paragraphs, lists and images of Markdown, as in all documents; tables and headings stay."""
    return "\n\n".join(block if block.startswith(("|", "#", "<")) else _fill(block) for block in text.split("\n\n"))


def _fill(block: str) -> str:
    items = re.split(r"\n(?=- )", block)
    indents = ["  " if item.startswith("- ") else "" for item in items]
    wrapper = textwrap.TextWrapper(WIDTH, break_long_words=False, break_on_hyphens=False)
    lines = []
    for wrapper.subsequent_indent, item in zip(indents, items, strict=True):
        lines += wrapper.wrap(" ".join(item.split()))
    return "\n".join(lines)


def _overview(paper: Paper, studies: dict[str, Recorded]) -> str:
    """Return the table of the paper's parts."""
    rows = []
    for part in paper.parts:
        if not part.study:
            rows.append([part.what, "-", part.reason, "", ""])
            continue
        each = studies[part.study]
        recorded = "not recorded yet" if each.record is None else _seeds(each.record.source.seeds)
        recorded += ", in part" if each.lack else ""
        rows.append([part.what, f"[{part.study}](#{part.study})", recorded, *_count(each.findings, paper.reading)])
    return tabulate(("in the paper", "study", "recorded", "the paper's statements", "beyond the paper"), rows)


def _compare_readings(paper: Paper, studies: Sequence[Recorded]) -> Iterator[str]:
    """Yield the section with the table of the paper's numbers by its readings, if claims are about readings."""
    if table := show_readings([finding for each in studies for finding in each.findings]):
        yield "## Which reading of the paper gives which of its numbers"
        yield (
            "Where the paper can be read in several ways, its numbers are compared with each reading. The claims of "
            "the studies below say within which bounds a number is met. The last rows count the numbers of a reading."
        )
        yield paper.reading_text.strip()
        yield table


def _seeds(seeds: Sequence[int]) -> str:
    consecutive = list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    return f"seeds {seeds[0]} to {seeds[-1]}" if consecutive else f"seeds {', '.join(map(str, seeds))}"


def _count(findings: Sequence[Finding], reading: str) -> tuple[str, str]:
    """Return how many statements have each verdict, such as ``3 met, 1 not met``: the paper's, and ours."""
    return (
        _count_verdicts(judge_statements([each for each in findings if not each.claim.ours], reading)),
        _count_verdicts(judge_statements([each for each in findings if each.claim.ours], reading)),
    )


def _count_verdicts(verdicts: Sequence[str]) -> str:
    counts = Counter(verdicts)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]) or "none"


def show_study(paper: Paper, recorded: Recorded, *, changed: bool, recheck: Recheck | None = None) -> str:
    """Return the section of a study: its source, claims, reasons, tables and figures.

    Args:
        paper: the paper.
        recorded: the study.
        changed: whether it was recorded with other code than today's.
        recheck: what was found when recorded runs were made again; shown if it is of this record.
    """
    study = recorded.study
    texts = [f'<a id="{study.name}"></a>', f"## {study.reproduces}", study.description.strip()]
    if recorded.record is None:
        link = f"[{study.name}](../../playbooks/studies/{study.name}.toml)"
        texts.append(f"**{NOT_RECORDED}** Study: {link}, {_seeds(seeds_of(study))}.")
    else:
        texts.append(_show_source(paper, study.name, recorded.record.source))
        texts += [CHANGED if changed else "", recorded.lack]
        texts += [str(recheck)] if recheck is not None and recheck.results == digest_results(recorded.record) else []
    for title, found in by_source(recorded.findings):
        texts.append(f"**{title}**")
        texts.append(write_findings(found))
        reasons = [(each.claim.text, each.claim.irreproducible or each.claim.why) for each in found]
        texts.append("\n".join(f"- **{text}**: {reason}" for text, reason in reasons if reason))
    texts.append(study.discussion.strip())
    if recorded.record is not None:
        for table in study.table:
            texts.append(write_markdown(make_table(table, recorded.results)).strip())
        texts += list(_show_figures(paper, recorded))
    return "\n\n".join(filter(None, texts))


def _show_source(paper: Paper, name: str, source: Source) -> str:
    origin = source.origin
    runs = "1 run" if source.runs == 1 else f"{source.runs} runs"
    commit = describe_commit(origin.commit, clean=origin.clean)
    machine = origin.machine
    where = "a machine that the record does not name"
    if machine is not None:
        where = f"{machine.processor} ({machine.cores} cores, Linux {machine.kernel}, Python {machine.python})"
    return (
        f"Measured at {commit}, on {origin.date}: `{source.command}`, {_seeds(source.seeds)}, {runs}, "
        f"{_duration(source.cpu_s)} of processor time (the longest run {_duration(source.longest_run_s)}, "
        f"{source.largest_process_mib} MiB), {where}. [Record]({paper.name}/{name}.json), "
        f"[study](../../playbooks/studies/{name}.toml)."
    )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"


def _show_figures(paper: Paper, recorded: Recorded) -> Iterator[str]:
    """Yield the figure that is in the repository, and a list of the others with what each shows."""
    elsewhere = []
    for figure in recorded.study.figure:
        shown = describe_figure(figure, recorded.results)
        name = _figure_name(recorded.study, figure)
        if not list(make_curves(figure, recorded.results)):
            yield f"**{figure.title}**: the record does not have these numbers."
        elif name == paper.figure:
            note = f"\n\n{figure.note}" if figure.note else ""
            yield f"**{figure.title}**\n\n![{shown}]({paper.name}/{name}.svg){note}"
        else:
            note = f". {figure.note}" if figure.note else ""
            elsewhere.append(f"- {figure.title}: {shown}{note}")
    if elsewhere:
        yield f"{NOT_HERE}\n\n" + "\n".join(elsewhere)


def _figure_name(study: Study, figure: FigureSpec) -> str:
    return f"{study.name}-{figure.name}"


def _write_figure(folder: Path, recorded: Recorded, figure: FigureSpec) -> Path:
    """Write the SVG of a figure, unless the present one shows the same content."""
    path = folder / f"{_figure_name(recorded.study, figure)}.svg"
    content = figure_content(figure, recorded.results)
    if not path.exists() or drawn_content(path) != content:
        path.write_text(draw_svg(figure, recorded.results), encoding="utf-8")
    return path


def figure_content(figure: FigureSpec, results: Sequence[Result]) -> str:
    """Return a hash of what a figure shows: its specification and its curves, to six digits."""
    curves = [
        (curve.label, [(x, *(_rounded(each) for each in over)) for x, over in curve.points])
        for curve in make_curves(figure, results)
    ]
    return hashlib.sha256(msgspec.json.encode((figure, curves), order="deterministic")).hexdigest()[:16]


def _rounded(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def drawn_content(path: Path) -> str | None:
    """Return the hash of what the SVG of a figure shows; None = it does not say."""
    found = re.search(r"<!-- content: (\w+) -->", path.read_text(encoding="utf-8"))
    return found and found[1]


def draw_svg(figure: FigureSpec, results: Sequence[Result]) -> str:
    """Return a figure as SVG. It has no date, and the same content is drawn in the same way.

    Coordinates are rounded to hundredths of a point, and lines are not indented, since the files are committed.
    """
    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "trellis", "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}):
        draw_figure(figure, results).savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    lines = [_FRACTION.sub(r"\1", line.strip()) for line in text.getvalue().splitlines()]
    return "\n".join([*lines, f"<!-- content: {figure_content(figure, results)} -->"]) + "\n"


_FRACTION = re.compile(r"(?<=[ \"(])(-?\d+\.\d\d)\d+")


def show_index(papers: Sequence[Paper], place: Place = HERE) -> str:
    """Return the index of the pages."""
    rows = []
    for paper in papers:
        studies = [read_recorded(paper, name, place) for name in paper.studies]
        recorded = sum(each.record is not None for each in studies)
        findings = [finding for each in studies for finding in each.findings]
        counts = _count(findings, paper.reading)
        rows.append([f"[{paper.title}]({paper.name}.md)", f"{recorded} of {len(studies)}", *counts])
    return (
        "# The papers' results and ours\n\n"
        "One page per paper: figure by figure, what the paper claims, what we measured, and whether the claim is met.\n"
        "Pages are generated from recorded results ([how](../studies.md#recorded-results)). Each says what counts.\n"
        "\n"
        f"{tabulate(('paper', 'studies recorded', 'statements of the paper', 'beyond the paper'), rows)}\n"
    )


def stale_marks(place: Place = HERE) -> Iterator[str]:
    """Yield the studies whose mark on a page is not as today's code would have it."""
    for paper in read_papers(place):
        page = (place.pages / f"{paper.name}.md").read_text(encoding="utf-8")
        studies = [read_recorded(paper, name, place) for name in paper.studies]
        yield from sorted({each.study.name for each in studies if _has_changed(each)} ^ marked(page))
