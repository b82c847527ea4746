"""How messages of a fabricated run spread, against the simulation that made it, and the page that shows it."""

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from harness import cli
from metrics.analysis import analyse
from metrics.report import report, spread
from metrics.report.replay import choose_messages, render_replay
from metrics.report.run import Run
from metrics.report.script import read_script, script_source
from metrics.report.spread import DUPLICATE, FIRST, RELAYED, Spread, read_spreads
from metrics.rundir import RunDir
from metrics.tables.schemas import arrow_schema
from metrics.totals import read_totals, write_totals
from peer.core.frames import Data
from tests.fabricate import Fabrication, Truth

MESSAGES = 30


@pytest.fixture(scope="module")
def fabrication() -> Fabrication:
    return Fabrication(seed=2, nodes=7, messages=MESSAGES, relays=True)


@pytest.fixture(scope="module")
def analysed(fabrication: Fabrication, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = fabrication.write(tmp_path_factory.mktemp("replay") / "run")
    analyse(run_dir, page=False)
    return run_dir


@pytest.fixture(scope="module")
def truth(fabrication: Fabrication) -> Truth:
    return fabrication.truth


@pytest.fixture(scope="module")
def run(analysed: Path) -> Run:
    return Run(analysed)


@pytest.fixture(scope="module")
def spreads(run: Run, truth: Truth) -> list[Spread]:
    return read_spreads(run, sorted(truth.published))


def latencies(truth: Truth) -> dict[tuple[int, int], float]:
    """The delay of every delivery, in ms, by message and node."""
    published = {message: each["publish_ns"] for message, each in truth.published.items()}
    expected = truth.expected()
    return {key: (at_ns - published[key[0]]) / 1e6 for key, at_ns in truth.delivered.items() if key in expected}


def make_earlier(source: Path, target: Path) -> Path:
    """A copy of a run whose tables and totals are those of a version without standouts and ``copies``."""
    run_dir = Path(shutil.copytree(source, target))
    shutil.rmtree(run_dir / "tables" / "copies.parquet")
    totals = read_totals(RunDir(run_dir))
    messages = structs.replace(totals.messages, standouts=None)
    write_totals(RunDir(run_dir), structs.replace(totals, messages=messages, buckets=None))
    return run_dir


def changed(source: Path, target: Path, table: str, **columns: Any) -> Path:
    """A copy of a run with other columns in a table, as an earlier version would have written it."""
    run_dir = make_earlier(source, target)
    path = run_dir / "tables" / f"{table}.parquet"
    rows = pq.read_table(path)
    for name, make in columns.items():
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, name, pa.array(make(rows.to_pylist()), rows.schema.field(name).type))
    shutil.rmtree(path)
    path.mkdir()
    pq.write_table(rows, path / "part-0.parquet")
    return run_dir


def document(page: str) -> dict[str, Any]:
    """The data in a page, which has one such element."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    data: dict[str, Any] = json.loads(found)
    return data


def test_the_slowest_deliveries_are_those_of_the_simulation(run: Run, truth: Truth) -> None:
    expected = sorted(((-latency, *key) for key, latency in latencies(truth).items()))[:10]
    found = run.standouts.slowest
    assert [(each.message_id, each.node) for each in found] == [(message, node) for _, message, node in expected]
    assert [each.latency_ms for each in found] == pytest.approx([-latency for latency, _, _ in expected])
    assert all(each.publisher == truth.published[each.message_id]["publisher"] for each in found)


def test_every_copy_and_delivery_is_there(spreads: list[Spread], truth: Truth) -> None:
    assert [each.message_id for each in spreads] == sorted(truth.published)
    for each in spreads:
        origin_ns = truth.published[each.message_id]["publish_ns"]
        sent = [hop for hop in truth.hops if hop["kind"] == Data.kind and hop["message_id"] == each.message_id]
        instants = ("log_send_ns", "tap_tx_ns", "tap_rx_ns", "log_recv_ns")
        expected = sorted(
            (hop["src_node"], hop["dst_node"], *((hop[name] - origin_ns) // 1000 for name in instants)) for hop in sent
        )
        assert sorted(copy[:6] for copy in each.copies) == expected
        assert (each.origin, each.left_out) == ("published", 0)
        made = {node: at_ns for (message, node), at_ns in truth.delivered.items() if message == each.message_id}
        wanted = {node for message, node in truth.expected() if message == each.message_id}
        assert {row.node: row.delivered_us for row in each.expected} == {
            node: (made[node] - origin_ns) // 1000 if node in made else None for node in wanted
        }


def test_a_path_begins_at_the_publisher_and_follows_first_copies(spreads: list[Spread], truth: Truth) -> None:
    longest = 0
    for each in spreads:
        for node in {copy.dst for copy in each.copies if copy.role in (FIRST, RELAYED)}:
            path = each.path_to(node)
            assert path is not None and (path[0], path[-1]) == (each.publisher, node)
            links = {(copy.src, copy.dst) for copy in each.copies if copy.role in (FIRST, RELAYED)}
            assert set(pairwise(path)) <= links
            longest = max(longest, len(path))
    assert longest > 2, "some first copies are relayed"


def test_a_node_that_nothing_reached_has_no_path(spreads: list[Spread]) -> None:
    assert spreads[0].path_to(999) is None


def test_many_copies_are_cut_to_the_first_ones_and_the_earliest_others(
    run: Run, spreads: list[Spread], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = max(spreads, key=lambda each: sum(copy.role == DUPLICATE for copy in each.copies))
    firsts = [copy for copy in whole.copies if copy.role in (FIRST, RELAYED)]
    assert len(whole.copies) > len(firsts) + 2
    monkeypatch.setattr(spread, "MOST_COPIES", len(firsts) + 2)
    (cut,) = read_spreads(run, [whole.message_id])
    others = [copy for copy in cut.copies if copy not in firsts]
    assert len(others) == 2 and len(cut.copies) + cut.left_out == len(whole.copies)
    assert others == [copy for copy in whole.copies if copy not in firsts][:2]


def test_a_message_of_another_run_is_left_out(run: Run) -> None:
    assert read_spreads(run, [123456789, -1, 2**63]) == []


def test_a_publication_that_no_trace_tells_begins_with_its_first_copy(analysed: Path, tmp_path: Path) -> None:
    run = Run(changed(analysed, tmp_path / "run", "messages", publish_ns=lambda rows: [None] * len(rows)))
    (found,) = read_spreads(run, [run.standouts.typical or 0])
    assert found.origin == "first sent" and min(copy.sent_us or 0 for copy in found.copies) == 0


def test_a_message_with_a_delivery_that_was_not_made_is_chosen(analysed: Path, tmp_path: Path) -> None:
    assert Run(analysed).standouts.undelivered is None
    lost = pq.read_table(analysed / "tables" / "deliveries.parquet")["message_id"][-1].as_py()

    def lose(rows: list[dict[str, Any]]) -> list[int | None]:
        return [None if row["message_id"] == lost else row["delivered_ns"] for row in rows]

    run = Run(changed(analysed, tmp_path / "run", "deliveries", delivered_ns=lose))
    assert run.standouts.undelivered == lost
    assert "a delivery that was not made" in choose_messages(run)[lost]


def test_a_typical_message_has_the_median_delay(run: Run, truth: Truth) -> None:
    by_message: dict[int, list[float]] = {}
    for (message, _), latency in latencies(truth).items():
        by_message.setdefault(message, []).append(latency)
    wanted = {message: sum(key[0] == message for key in truth.expected()) for message in by_message}
    halves = {message: sorted(each)[-(-wanted[message] // 2) - 1] for message, each in by_message.items()}
    half = sorted(halves.values())[(len(halves) - 1) // 2]
    assert run.standouts.typical == min(message for message in halves if halves[message] == half)


def test_what_stands_out_by_node_is_that_of_the_simulation(run: Run, truth: Truth) -> None:
    by_node: dict[int, list[float]] = {}
    for (_, node), latency in latencies(truth).items():
        by_node.setdefault(node, []).append(latency)
    found = run.standouts.by_node
    assert {node: delays.deliveries for node, delays in found.items()} == {
        node: len(each) for node, each in by_node.items()
    }
    assert all(found[node].mean_ms == pytest.approx(sum(each) / len(each)) for node, each in by_node.items())


def test_tables_of_earlier_versions_say_the_same(
    run: Run, spreads: list[Spread], analysed: Path, truth: Truth, tmp_path: Path
) -> None:
    earlier = Run(make_earlier(analysed, tmp_path / "earlier"))
    assert earlier.standouts == run.standouts
    assert read_spreads(earlier, sorted(truth.published)) == spreads
    assert read_spreads(earlier, [123456789, -1]) == [] == read_spreads(earlier, [])
    assert choose_messages(earlier) == choose_messages(run)


def test_other_frames_about_a_message_are_no_copies(analysed: Path, truth: Truth, tmp_path: Path) -> None:
    """In tables of earlier versions, whose copies are among all hops."""
    message = min(truth.published)

    def announce(rows: list[dict[str, Any]]) -> list[int | None]:
        return [Data.kind + 1 if row["message_id"] == message else row["kind"] for row in rows]

    run = Run(changed(analysed, tmp_path / "run", "hops", kind=announce))
    first, second = read_spreads(run, sorted(truth.published)[:2])
    assert not first.copies and first.expected and second.copies


def test_the_page_has_its_data_and_needs_nothing_else(run: Run, spreads: list[Spread]) -> None:
    page = render_replay(run, spreads[:2], {})
    data = document(page)
    assert [each["id"] for each in data["messages"]] == [str(each.message_id) for each in spreads[:2]]
    assert data["messages"][0]["copies"] == [list(copy) for copy in spreads[0].copies]
    assert data["messages"][0]["expected"] == [list(row) for row in spreads[0].expected]
    assert len(data["nodes"]) == len(run.nodes) and data["land"] is None
    assert not re.search(r"\b(?:src|href)=\"(?!#)", page) and "@import" not in page and "http" not in page


def test_faults_are_on_the_clock_of_the_message(analysed: Path, truth: Truth, tmp_path: Path) -> None:
    run_dir = Path(shutil.copytree(analysed, tmp_path / "run"))
    message = min(truth.published)
    from_ns = truth.published[message]["publish_ns"] - 5_000_000
    rows = [
        {"fault": 0, "phase": phase, "from_ns": from_ns, "to_ns": from_ns + 12_000_000}
        for phase in ("before", "during")
    ]
    (run_dir / "tables" / "faults.parquet").mkdir()
    pq.write_table(pa.Table.from_pylist(rows, arrow_schema("faults")), run_dir / "tables/faults.parquet/part-0.parquet")
    run = Run(run_dir)
    page = render_replay(run, read_spreads(run, [message]), {})
    assert document(page)["messages"][0]["faults"] == [[-5_000, 7_000]]


def test_the_script_names_elements_of_the_page(run: Run, spreads: list[Spread]) -> None:
    page = render_replay(run, spreads[:1], {})
    places = re.findall(r' id="([^"]*)"', page)
    assert len(set(places)) == len(places)
    named = set(re.findall(r'find\("([\w-]+)"\)', read_script()))
    assert len(named) > 15 and named <= set(places)


def test_the_script_of_the_page_has_the_hash_that_a_server_allows(run: Run, spreads: list[Spread]) -> None:
    page = render_replay(run, spreads[:1], {})
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert script == read_script()
    assert re.fullmatch(r"'sha256-[A-Za-z0-9+/]{43}='", script_source())


def test_the_script_puts_no_text_into_the_page_as_markup() -> None:
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", read_script())


def test_names_of_sites_are_text_in_the_page(analysed: Path, tmp_path: Path) -> None:
    run_dir = Path(shutil.copytree(analysed, tmp_path / "run"))
    underlay = json.loads((run_dir / "underlay.json").read_text())
    for host in underlay["hosts"]:
        host |= {"latitude": 10.0, "longitude": 20.0, "site": "</script><b>\x1b[2J\u2028"}
    (run_dir / "underlay.json").write_text(json.dumps(underlay))
    run = Run(run_dir)
    reasons = choose_messages(run)
    page = render_replay(run, read_spreads(run, list(reasons)), reasons)
    assert page.count("</script>") == 2 and "<b>" not in page.split('id="data">')[1]
    assert document(page)["nodes"][0][0] == "</script><b>\ufffd[2J\ufffd"
    assert document(page)["land"], "every host has a place on the map"


def test_the_report_leads_from_each_slow_delivery_to_its_replay(
    analysed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "FIGURES", ())
    run_dir = Path(shutil.copytree(analysed, tmp_path / "run"))
    page = report.write(run_dir).read_text()
    table = page.split('<table id="slow">')[1].split("</table>")[0]
    links = re.findall(r'<a href="replay\.html#m=(\d+)&amp;n=(\d+)">(\d+)</a>', table)
    slowest = Run(run_dir).standouts.slowest
    assert links == [(str(each.message_id), str(each.node), str(each.message_id)) for each in slowest]
    replayed = (run_dir / "report" / "replay.html").read_text()
    shown = {each["id"] for each in document(replayed)["messages"]}
    assert {message for message, _, _ in links} <= shown and '<a href="index.html">' in replayed
    paths = re.findall(r"<td>(node .*?)</td>", table)
    assert len(paths) == len(links) and all(" → " in path for path in paths)


def test_the_command_writes_the_page_of_a_message(
    analysed: Path, truth: Truth, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, message = tmp_path / "page.html", max(truth.published)
    assert cli.main(["replay", str(analysed), "--message", str(message), "--out", str(page)]) == 0
    assert capsys.readouterr().out == f"written: {page}\n"
    assert [each["id"] for each in document(page.read_text())["messages"]] == [str(message)]
    assert cli.main(["replay", str(analysed), "--out", str(page)]) == 0
    chosen = choose_messages(Run(analysed))
    assert [each["id"] for each in document(page.read_text())["messages"]] == [str(each) for each in chosen]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--message", "1"], "--message: is written into a page; name it with --out FILE.html"),
        (["--node", "1", "--out", "page.html"], "--node: replays a recorded peer"),
        (["--message", "4096", "--out", "page.html"], "has no message 4096;"),
        (["--message", str(2**70), "--out", "page.html"], f"has no message {2**70};"),
        (["--out", "."], "Is a directory"),
        (["--message", "x"], "expected an integer, got 'x'"),
    ],
)
def test_what_cannot_be_shown_is_a_usage_error(
    words: list[str], problem: str, analysed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["replay", str(analysed), *words]) == 2
    assert problem in capsys.readouterr().err
