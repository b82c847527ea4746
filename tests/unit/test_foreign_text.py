"""Text of a run, which anybody may have written, in terminals, SQL, CSV, HTML and figures."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import duckdb
import pyarrow as pa
import pytest
from matplotlib.figure import Figure as Canvas

from harness.terminal import printable, say, say_json
from metrics.report.canvas import plain_axes, styled
from metrics.report.page import breakable, template
from metrics.report.svg import to_element, to_svg
from metrics.rundir import RunDir
from metrics.rundir.files import TABLES_FOLDER
from metrics.spreadsheets import plain_cell, plain_column
from metrics.tables.exports import write_views
from tests.examples import long_unless
from tests.fabricate import Fabrication

CHECKOUT = Path(__file__).parents[2]

EVIL = (
    "\x1b]0;OWNED\x07",
    "\x9b31m",
    "a\rb",
    "\u202egnp.exe",
    "'; COPY (SELECT 1) TO 'stolen.csv'; --",
    "x\n.shell touch owned\n.read x\n",
    "\x00",
    "<script>alert(1)</script>",
    "</svg><img src=x onerror=alert(1)>",
    "[/nosuch] [bold]x",
    "\u6771\u4eac",
    r"$\frac{$",
    '=HYPERLINK("http://x")',
)
DRAWN = ("x\n.shell touch owned\n.read x\n", "\x00", "</svg><img src=x onerror=alert(1)>", r"$\frac{$")
"""What is drawn in every run of the tests: several lines, no letter, markup, and a formula."""


@pytest.mark.parametrize("words", EVIL)
def test_a_terminal_gets_no_control_characters(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert all(letter.isprintable() for letter in printable(words).replace("\n", ""))
    say(words, words)
    say_json({"text": words})
    said = capsys.readouterr().out
    assert all(letter.isprintable() or letter == "\n" for letter in said)
    assert json.loads(said.splitlines()[-1]) == {"text": words}


@pytest.mark.parametrize("words", EVIL)
def test_text_of_a_run_is_no_sql(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = Fabrication(seed=3, nodes=3, topics=2, messages=2).write(tmp_path / "run", run_id=words, testbed=words)
    (run_dir / TABLES_FOLDER).mkdir()
    script = write_views(RunDir(run_dir)).read_text()
    assert words not in script
    assert all(line.startswith(("-- ", "CREATE OR REPLACE ")) and line.isprintable() for line in script.splitlines())
    monkeypatch.chdir(tmp_path)
    database = duckdb.connect()
    database.execute(script)
    assert database.execute("SELECT run_id, testbed, seed FROM run").fetchall() == [(words, words, 1)]
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


def test_plain_text_stays_readable_in_sql(tmp_path: Path) -> None:
    run_dir = Fabrication(seed=3, nodes=3, topics=2, messages=2).write(tmp_path / "run", run_id="20261127T1-seed1")
    (run_dir / TABLES_FOLDER).mkdir()
    assert "'20261127T1-seed1' AS run_id" in write_views(RunDir(run_dir)).read_text()


CELLS = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1", "a=1", "", "10.0.0.1:1-10.0.0.2:2", "'x")


def test_text_is_no_formula_in_csv() -> None:
    written = [plain_cell(cell) for cell in CELLS]
    assert [cell.removeprefix("'") for cell in written[:8]] == list(CELLS[:8])
    assert all(cell.startswith("'") for cell in written[:8])
    assert written[8:] == list(CELLS[8:])
    assert plain_column(pa.array([*CELLS, None])).to_pylist() == [*written, None]
    assert [plain_cell(value) for value in (-1.5, None, True)] == [-1.5, None, True]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("words", long_unless(DRAWN, EVIL))
def test_text_in_a_figure_is_only_text(words: str) -> None:
    @styled
    def draw() -> Canvas:
        canvas, axes = plain_axes()
        axes.plot([1, 2], [1, 2], label=words)
        axes.annotate(words, (1, 1))
        axes.set(title=words, xlabel=words)
        axes.legend(loc="upper left")  # to look for the best place warns on a busy machine
        return canvas

    svg = to_svg(draw())
    found = ElementTree.fromstring(
        to_element(svg, "figure", words).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    )
    tags = {each.tag.rpartition("}")[2] for each in found.iter()}
    assert tags <= {"svg", "g", "path", "text", "tspan", "use", "defs", "clipPath", "rect"}
    drawn = [each.text for each in ElementTree.fromstring(svg).iter() if each.tag.endswith("text")]
    shown = printable(words).splitlines()
    assert all(drawn.count(line) == 4 for line in shown), drawn


def test_every_page_escapes_what_it_shows() -> None:
    """Only figures are put in as they are, which are made of text by matplotlib."""
    pages = [*CHECKOUT.glob("metrics/**/*.j2"), *CHECKOUT.glob("harness/**/*.j2")]
    assert len(pages) >= 4
    for page in pages:
        for trusted in re.findall(r"\{\{(.*?)\|\s*safe\s*\}\}", page.read_text()):
            assert trusted.strip().endswith(".svg"), page
    assert breakable("<b>_x") == "&lt;b&gt;_<wbr>x"
    assert template("comparison.html.j2").environment.autoescape is True
