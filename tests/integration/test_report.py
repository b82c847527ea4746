"""The report and the comparison of runs, from an analysed run directory."""

import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from harness import cli
from metrics import tables
from metrics.analysis import analyse
from metrics.comparison.groups import group_runs
from metrics.executors.in_process import InProcess
from metrics.headline import headline
from metrics.recorded.round_trips import SCHEMA
from metrics.report import report
from metrics.report.figures.registry import CHAPTERS, FIGURES
from metrics.rundir import RunDir
from metrics.tables.scheduled import weigh_schedule
from metrics.totals import read_totals, write_totals
from peer.core.schedule import Action, Join, Leave, Publish, encode_schedule
from tests.fabricate import Fabrication

COMPARED = (
    "delivery_ratio",
    *(f"propagation_delay_ms_{what}" for what in ("mean", "p50", "p99")),
    "duplicates_per_delivery",
    "relay_ratio",
    "degree_mean",
    "control_bytes_per_peer_per_s",
)


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fabricated run whose hosts have places on the map, with its report."""
    run_dir = Fabrication(seed=2, nodes=6, messages=30).write(tmp_path_factory.mktemp("report") / "run")
    underlay = json.loads((run_dir / "underlay.json").read_text())
    for number, host in enumerate(underlay["hosts"]):
        host |= {"latitude": 10.0 * number - 20, "longitude": 60.0 * number - 170, "site": f"<City {number}>"}
    (run_dir / "underlay.json").write_text(json.dumps(underlay))
    analyse(run_dir)
    return run_dir


@pytest.fixture
def text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages have no figures, which take most of the time."""
    monkeypatch.setattr(report, "FIGURES", ())


@pytest.fixture
def page(analysed: Path) -> str:
    return (analysed / "report" / "index.html").read_text()


def test_page_starts_with_the_verdict(page: str, analysed: Path) -> None:
    verdict = json.loads((analysed / "summary.json").read_text())["verdict"]
    assert page.index(f'class="verdict {verdict}"') < page.index('<h2 id="results">Results</h2>')


def test_a_message_whose_publication_no_trace_tells_leaves_the_report_whole(analysed: Path, tmp_path: Path) -> None:
    """Its publisher was killed, and its last words with it; others brought the message on."""
    run_dir = tmp_path / "run"
    shutil.copytree(analysed, run_dir)
    names = {path.name for path in (run_dir / "report").iterdir()}
    shutil.rmtree(run_dir / "report")
    path = run_dir / "tables" / "deliveries.parquet"
    rows = pq.read_table(path)
    lost = pc.equal(rows["message_id"], rows["message_id"][0])
    instants = pc.if_else(lost, pa.scalar(None, pa.int64()), rows["publish_ns"])
    shutil.rmtree(path)
    path.mkdir()
    place = rows.schema.get_field_index("publish_ns")
    pq.write_table(rows.set_column(place, "publish_ns", instants), path / "part-0.parquet")
    report.write(run_dir)
    assert {path.name for path in (run_dir / "report").iterdir()} == names


def test_page_needs_no_network(page: str) -> None:
    assert not re.search(r"(?:src|url)[=(][\"']?(?!#)", page) and "@import" not in page
    links = re.findall(r'<a [^>]*href="([^"]*)"', page)
    assert links and all(link.startswith(("#", "../", "replay.html")) for link in links)


def test_links_lead_to_sections_and_files(page: str, analysed: Path) -> None:
    links = set(re.findall(r'<a [^>]*href="([^"]*)"', page))
    places = re.findall(r' id="([^"]*)"', page)
    assert len(set(places)) == len(places)
    assert {link[1:] for link in links if link.startswith("#")} <= set(places)
    files = [(analysed / "report" / link).resolve() for link in links if link.startswith("../")]
    assert {path.parent.stem if path.is_file() else path.stem for path in files} >= set(tables.TABLES)
    assert all(path.exists() and path.is_relative_to(analysed.resolve()) for path in files)


def test_numbers_are_grouped(page: str, analysed: Path) -> None:
    numbers = page.split('<div class="numbers">')[1].split("</div>")[0]
    shown = {
        title: re.findall(r"<dt>(.*?)</dt>", group)
        for title, group in re.findall(r"<h3><a.*?>(.*?)</a>(.*?)</section>", numbers, re.DOTALL)
    }
    assert list(shown) == ["Results", "Overlay", "Network"] and all(shown.values())
    asked = [name for chapter in CHAPTERS for name in chapter.numbers]
    values = headline(RunDir(analysed))
    assert sum(map(len, shown.values())) == sum(values.get(name) is not None for name in asked)
    assert len(set(asked)) == len(asked)


def test_images_say_what_is_seen(page: str, analysed: Path) -> None:
    delivered = headline(RunDir(analysed))
    expected = delivered["deliveries_expected"]
    made = round(expected * delivered["delivery_ratio"])
    (delay,) = re.findall(r'id="delay-cdf">.*?aria-label="([^"]*)"', page, re.DOTALL)
    assert delay.startswith(f"Propagation delay. {made:,} of {expected:,} expected deliveries made")
    assert len(re.findall(r"<svg ", page)) == len(re.findall(r'role="img" aria-label="[^"]*\d[^"]*"', page))


def test_every_figure_is_drawn_and_in_the_page(page: str, analysed: Path) -> None:
    drawn = {path.stem for path in (analysed / "report").glob("*.svg") if path.read_text().startswith("<svg ")}
    # The toy network has nothing for these.
    without = {"learning", "faults", "peer-resources", "underlay-links", "underlay-graph"}
    assert drawn == {figure.name for figure in FIGURES} - without
    assert all(f'<figure id="{name}"' in page or f'class="wide" id="{name}"' in page for name in drawn)
    assert page.count("What this means.") == len(drawn)


def test_the_overlay_is_in_the_page_as_tables(page: str, analysed: Path) -> None:
    topics = headline(RunDir(analysed))["topics"]
    shapes = page.split('id="topics"')[1].split("</table>")[0]
    rows = re.findall(r'<tr><td class="number">\d+</td><td class="number">\d+</td>\s*<td class="number">(\d+)', shapes)
    assert sum(map(int, rows)) == topics > 0
    measures = page.split('id="overlay-measures"')[1].split("</table>")[0]
    assert '<th class="number">0 s</th>' in measures and "partitioned topics" in measures


def test_every_check_and_number_is_in_the_page(page: str, analysed: Path) -> None:
    document = json.loads((analysed / "summary.json").read_text())
    assert all(check["name"].replace("_", " ") in page for check in document["checks"])
    assert all(f'<code class="soft">{name}</code>' in page for name in document["headline"])


def test_probes_are_in_the_page_by_attempt(page: str) -> None:
    sweeps, firsts = (page.split(f'id="{name}"')[1].split("</table>")[0] for name in ("sweeps", "first-packets"))
    assert "before the workload" in sweeps and "after the workload" in sweeps
    assert "pairs" in firsts and "not late" in firsts


@pytest.mark.usefixtures("text_alone")
@pytest.mark.parametrize(
    ("literal", "words"), [(True, "the highest score is kept"), (False, "the lowest score is kept")]
)
def test_the_page_says_how_topiarys_score_was_read(literal: bool, words: str, analysed: Path, tmp_path: Path) -> None:
    assert 'id="reading"' not in (analysed / "report" / "index.html").read_text(), "another protocol has no such choice"
    run_dir = Path(shutil.copytree(analysed, tmp_path / "run"))
    plan = json.loads((run_dir / "plan.json").read_text())
    plan["experiment"] |= {"protocol": "topiary", "topiary": {"literal": literal}}
    (run_dir / "plan.json").write_text(json.dumps(plan))
    told = report.write(run_dir).read_text().split('<p id="reading">')[1].split("</p>")[0]
    assert words in told


@pytest.mark.usefixtures("text_alone")
@pytest.mark.parametrize(
    ("settle_s", "words"),
    [
        (0, "subscribed at the publication."),
        (10, "or for at least 10 s. Of nodes that had joined later, 2 deliveries are left out."),
    ],
)
def test_the_page_says_what_is_expected(settle_s: float, words: str, analysed: Path, tmp_path: Path) -> None:
    run_dir = Path(shutil.copytree(analysed, tmp_path / "run"))
    plan = json.loads((run_dir / "plan.json").read_text())
    plan["experiment"]["workload"]["settle_s"] = settle_s
    (run_dir / "plan.json").write_text(json.dumps(plan))
    nodes = json.loads((run_dir / "overlay.json").read_text())["nodes"]
    late, publisher, topic = nodes[0]["node"], nodes[1]["node"], nodes[0]["topics"][0]
    actions: list[Action] = [
        Leave(0, late),
        Join(1_000_000_000, late, (topic,)),
        *(Publish(at_s * 1_000_000_000, publisher, at_s, (topic,)) for at_s in (5, 10, 11)),
    ]
    (run_dir / "schedule.jsonl").write_bytes(encode_schedule(actions))
    run = RunDir(run_dir)
    with InProcess(1) as executor:
        settling = weigh_schedule(executor, run).settling
    write_totals(run, structs.replace(read_totals(run), settling=settling))
    told = report.write(run_dir).read_text().split('id="expectation">')[1].split("</p>")[0]
    assert told.endswith(words)


@pytest.mark.usefixtures("text_alone")
def test_reasons_are_text_not_markup(analysed: Path, tmp_path: Path) -> None:
    run_dir = Path(shutil.copytree(analysed, tmp_path / "run"))
    document = json.loads((run_dir / "summary.json").read_text())
    document |= {"verdict": "invalid", "reasons": ["peer <b>7</b> was killed"]}
    (run_dir / "summary.json").write_text(json.dumps(document))
    written = report.write(run_dir).read_text()
    assert "peer &lt;b&gt;7&lt;/b&gt; was killed" in written
    assert 'class="verdict invalid"' in written


@pytest.mark.usefixtures("text_alone")
def test_round_trips_between_machines_are_in_the_page(analysed: Path, tmp_path: Path) -> None:
    run_dir = Path(shutil.copytree(analysed, tmp_path / "run"))
    trips = [
        {"src_ip": "a", "dst_ip": "b", "phase": phase, "at_ns": 1, "rtt_ms": 8.25} for phase in ("before", "during")
    ]
    pq.write_table(pa.Table.from_pylist(trips, SCHEMA), run_dir / "round_trips.parquet")
    table = report.write(run_dir).read_text().split('id="round-trips"')[1].split("</table>")[0]
    assert [line.split("<td>")[1].split("</td>")[0] for line in table.splitlines() if "<td>" in line] == [
        "before the workload", "during the workload",
    ]  # fmt: skip
    assert table.count("8.25") == 4


def test_a_run_without_a_map_or_captures_says_what_is_missing(analysed: Path, tmp_path: Path) -> None:
    run_dir = Path(shutil.copytree(analysed, tmp_path / "run"))
    underlay = json.loads((run_dir / "underlay.json").read_text())
    for host in underlay["hosts"]:
        del host["latitude"], host["longitude"]
    (run_dir / "underlay.json").write_text(json.dumps(underlay))
    (run_dir / "achieved.parquet").unlink()
    written = report.write(run_dir).read_text()
    titles = (
        "Before, during and after faults, Learning",
        "The overlay on the planet",
        "Links of the underlay, The graph of the underlay, Measured and configured round-trip times, "
        "Resources of the peers",
    )
    assert all(f"Nothing to show for: {title}." in written for title in titles)


def test_comparison_shows_what_differs(analysed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = Path(shutil.copytree(analysed, tmp_path / "other"))
    plan = json.loads((other / "plan.json").read_text())
    plan["experiment"]["protocol"] = "complete"
    plan["experiment"]["topiary"]["topic_weights"] = [[1, 2.0]]
    (other / "plan.json").write_text(json.dumps(plan))
    groups = group_runs([report.Run(path) for path in (analysed, other)])
    assert [group.label for group in groups] == ["random", "complete"]
    assert groups[1].settings == {"protocol": "complete", "topiary.topic_weights": [[1, 2.0]]}
    page = tmp_path / "comparison.html"
    assert cli.main(["compare", str(analysed), str(other), "--html", str(page)]) == 0
    shown = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()[1:] if line}
    assert shown["protocol"] == ["random", "complete"]
    assert all(name in shown for name in COMPARED), "what protocols are compared by"
    assert page.read_text().count("<svg ") == 4, "two figures, and a map of each group"
    assert all(f'aria-label="Map of {group.label}. 6 hosts at 6 sites' in page.read_text() for group in groups)
    inside = page.read_text()
    links = re.findall(r'<a href="#(\w+)">', inside)
    assert links == ["groups", "distributions", "maps", "numbers"]
    assert all(inside.count(f'id="{name}"') == 1 for name in links)


def test_comparison_of_a_run_that_was_not_analysed_is_a_usage_error(
    analysed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = Path(shutil.copytree(analysed, tmp_path / "run"))
    (run_dir / "summary.json").unlink()
    assert cli.main(["compare", str(run_dir)]) == 2
    assert "summary.json is missing" in capsys.readouterr().err
    assert cli.main(["compare", str(run_dir / "plan.json")]) == 2
    assert "not a run directory" in capsys.readouterr().err
    (run_dir / "summary.json").write_text("{")
    assert cli.main(["compare", str(run_dir)]) == 2
    assert "is damaged" in capsys.readouterr().err


def test_comparison_leaves_out_runs_that_did_not_finish(
    analysed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = Path(shutil.copytree(analysed, tmp_path / "run"))
    (run_dir / "manifest.json").unlink()
    assert cli.main(["compare", str(analysed), str(run_dir)]) == 0
    shown, said = capsys.readouterr()
    assert "delivery_ratio" in shown
    assert f"left out: {run_dir}: the run did not finish" in said
    assert cli.main(["compare", str(analysed), "--html", str(tmp_path)]) == 2
    assert f"{tmp_path}: Is a directory" in capsys.readouterr().err
