"""The live page in Chromium: fed by a stream that the tests write, and by a run in progress."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.live import snapshot as live
from harness.live.opening import STAY
from harness.live.page import read_files
from harness.stages.serving import Gate
from metrics.report.figures.chapter import percent
from tests.browser import ENTER, TAB, Page, browse
from tests.e2e.run_experiment import IN_PROCESS, PATIENT, ROOT, await_step, finish, start, write_brief
from tests.live_snapshots import CITIES, STAGE, make_snapshot
from tests.live_stream import Server, serve
from tests.processes import find_below

UNKNOWN = "not known"
NAME = "fabricated"
LOGS = {node: f"peer {node} begins\nit <b>listens</b>".encode() for node in range(len(CITIES))}

NOTHING = live.Snapshot(
    run=STAGE.run, now_s=None, phase="boot", phase_left_s=None, run_left_s=None, phases=(), verdict="valid so far",
    reasons=(), peers=live.Peers(8), messages=live.Messages(), delay_ms=None, plane=None, pressure=None, faults=(),
    links=None, history=(), ended=None,
)  # fmt: skip

SUMMARY = live.Ended(
    "analysed",
    "suspect",
    ("it was late",),
    {"delivery_ratio": 0.9875, "deliveries_expected": 1234567, "degree_mean": None, "topics_partitioned": 0},
    ("delivery_ratio", "deliveries_expected", "degree_mean"),
    "/runs/fabricated/report/index.html",
)
END = make_snapshot(
    30, phase=None, phase_left_s=None, run_left_s=None, verdict="suspect", ended=SUMMARY,
    reasons=(live.Reason("plane_lateness", "it was late", "suspect"),), messages=live.Messages(120, 1234, 1250, 0.9872),
)  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browse(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def server() -> Iterator[Server]:
    with serve(STAGE, LOGS) as started:
        yield started


@pytest.fixture
def page(browser: Page, server: Server) -> Iterator[Page]:
    """The page of the server, 1400 pixels wide, before any snapshot has come. Its console must stay empty."""
    browser.show(1400)
    browser.open(server.address)
    browser.wait(lambda: browser.count("#map .node") == len(CITIES), "the nodes are on the map")
    yield browser
    said = browser.console()
    browser.open("about:blank")
    assert said == []


def others(page: Page) -> list[str]:
    """The console, without the lines that say that a request was not answered or was refused."""
    return [line for line in page.console() if "Failed to load resource" not in line]


def send(page: Page, server: Server, snapshot: live.Snapshot) -> None:
    """Send a snapshot, and wait until the page shows its instant, its phase and its end."""
    server.send(snapshot)
    instant = "is not known yet" if snapshot.now_s is None else f"{snapshot.now_s:.0f} s since"
    phase = "ended" if snapshot.ended else str(snapshot.phase)
    page.wait(lambda: instant in page.text("#now") and page.text("#phase") == phase, f"the page shows {instant}")


def shown(page: Page, *names: str) -> list[str]:
    return [page.text(f"#{name}") for name in names]


def test_numbers_move_with_the_run(page: Page, server: Server) -> None:
    for second in (3, 4, 17):
        snapshot = make_snapshot(second)
        send(page, server, snapshot)
        delivered = sum(each.delivered or 0 for each in snapshot.history)
        assert shown(page, "published", "delivered", "expected") == [str(4 * second), str(delivered), str(28 * second)]
        assert shown(page, "left", "peers-up") == [f"{30 - second} s left", "8"]
    assert shown(page, "so-far", "delay-p50", "delay-p99", "lateness") == [
        "VALID SO FAR",
        "83.2 ms",
        "232 ms",
        "0.46 ms",
    ]
    assert shown(page, "pressure", "busy") == ["12 %", "43 %"]
    assert "limit 5 ms" in page.text("#lateness-label") and "limit 95 %" in page.text("#busy-label")
    assert page.text("#drops") == "loss 3 queue 0"
    phase = page.run("return document.querySelector('#phases .running').textContent")
    assert phase == "workload: running"
    assert page.run("return document.title") == f"valid so far: {NAME}"


def test_what_is_not_known_is_never_zero(page: Page, server: Server) -> None:
    send(page, server, NOTHING)
    numbers = page.run("return [...document.querySelectorAll('.numbers dd')].map(each => [each.id, each.innerText])")
    assert len(numbers) > 15
    assert {text for name, text in numbers if name != "peers-expected"} == {UNKNOWN}
    assert page.text("#left") == "time left: not known"
    values = page.run("return [...document.querySelectorAll('#charts .key b')].map(each => each.innerText)")
    assert len(values) == 6 and set(values) == {UNKNOWN}
    assert "not known" in page.text("#links")


def test_zero_is_zero(page: Page, server: Server) -> None:
    calm = live.PlaneNow(lateness_p99_ms=0.0, drops={}, unasked_drops=0)
    send(page, server, make_snapshot(5, plane=calm, messages=live.Messages(0, 0, 0, None)))
    assert shown(page, "published", "delivered", "ratio") == ["0", "0", UNKNOWN]
    assert shown(page, "lateness", "unasked", "drops") == ["0 ms", "0", "drops none"]


def test_the_reason_that_would_end_the_verdict_comes_first(page: Page, server: Server) -> None:
    reasons = (
        live.Reason("", "peer-3 crashed", "invalid"),
        live.Reason("steal", "the hypervisor took time", "suspect"),
    )
    send(page, server, make_snapshot(5, verdict="invalid", reasons=reasons))
    assert shown(page, "so-far", "reasons") == ["INVALID", "invalid: peer-3 crashed suspect: the hypervisor took time"]
    assert page.run("return document.getElementById('verdict').className") == "verdict invalid"
    send(page, server, make_snapshot(6))
    assert shown(page, "so-far", "reasons") == ["VALID SO FAR", ""]


def test_the_end_has_the_final_numbers_and_the_report(page: Page, server: Server) -> None:
    send(page, server, make_snapshot(29))
    assert not page.shows("#ended")
    send(page, server, replace(END, ended=live.Ended("not analysed")))
    assert "not there yet" in page.text("#outcome") and page.text("#so-far") == "NOT ANALYSED"
    send(page, server, make_snapshot(29))
    send(page, server, END)
    assert page.text("#so-far") == "SUSPECT"
    assert page.text("#first-numbers") == "delivery_ratio 0.9875 deliveries_expected 1,234,567 degree_mean not known"
    assert page.text("#report-path") == SUMMARY.report
    assert shown(page, "published", "delivered", "expected", "ratio") == ["120", "1,234", "1,250", "98.7 %"]
    assert "has ended" in page.text("#connection")
    page.click("#more-numbers summary")
    assert page.text("#all-numbers").endswith("topics_partitioned 0")


def test_a_failed_run_says_so(page: Page, server: Server) -> None:
    send(page, server, make_snapshot(9, phase=None, ended=live.Ended("failed")))
    assert page.text("#so-far") == "FAILED" and "It failed" in page.text("#outcome")
    assert page.run("return document.getElementById('verdict').className") == "verdict invalid"


def test_a_broken_stream_is_named_and_followed_again(page: Page, server: Server) -> None:
    send(page, server, make_snapshot(7))
    assert page.text("#connection").startswith("Live")
    server.stop()
    page.wait(lambda: "interrupted" in page.text("#connection"), "the page says that the stream is broken")
    assert page.text("#published") == "28", "what it knew is still there"
    page.wait(lambda: page.shows("#age"), "the page says how old its numbers are")
    assert re.fullmatch(r"These numbers are \d+ s old.", page.text("#age"))
    server.start()
    send(page, server, make_snapshot(8))
    assert page.text("#connection").startswith("Live")
    assert others(page) == []


def test_a_refused_stream_is_asked_for_again(page: Page, server: Server) -> None:
    send(page, server, make_snapshot(7))
    server.stop()
    server.start(with_token=False)
    page.wait(lambda: any("403" in line for line in page.console()), "the page is refused")
    server.stop()
    server.start()
    send(page, server, make_snapshot(8))
    assert page.text("#connection").startswith("Live")
    assert others(page) == []


def test_charts_have_the_history_and_the_faults(page: Page, server: Server) -> None:
    history = make_snapshot(20).history
    holes = tuple(
        replace(each, delay_p50_ms=None) if 5 <= each.at_s < 8 or each.at_s == 9 else each for each in history
    )
    send(page, server, make_snapshot(20, history=holes))
    figures = page.run(
        "return [...document.querySelectorAll('#charts figure')].map(each => each.innerText.split('\\n')[0])"
    )
    assert figures == ["Messages", "Delay of deliveries", "Lateness of the data plane", "Processors"]
    assert page.count("#charts .fault") == len(figures)
    delay = "#charts figure:nth-of-type(2)"
    assert page.count(f"{delay} .line.orange") == 1
    assert (page.count(f"{delay} .line.blue"), page.count(f"{delay} .dot.blue")) == (2, 1)
    points = page.run(
        "return document.querySelector(arguments[0]).getAttribute('points').split(' ').length", f"{delay} .orange.line"
    )
    assert points == len(history)
    assert "1 fault: cut from 10 s to 14 s" in page.text("#marks")
    page.click("#seconds summary")
    page.wait(lambda: page.count("#seconds tbody tr") == len(history), "the table is there")
    assert page.text("#seconds tbody tr:first-child") == "19 4 28 85 234 0.45 11"
    assert page.text("#seconds tbody tr:nth-child(15)").split()[3:5] == ["not", "known"]


def test_links_are_those_in_use(page: Page, server: Server) -> None:
    links = (live.LinkUse(0, 3, 400), live.LinkUse(1, 2, 1200))
    send(page, server, make_snapshot(5, links=links))
    assert page.count("#map .link") == 2
    assert page.text("#links").startswith("2 links carried 1,600 bytes")
    assert "between peer-1 (Halifax) and peer-2 (Manila), carried 1,200 bytes" in page.text("#links")
    send(page, server, make_snapshot(6, links=()))
    assert page.count("#map .link") == 0 and "No link" in page.text("#links")


def test_a_peer_is_chosen_on_the_map_or_by_keys(page: Page, server: Server) -> None:
    send(page, server, make_snapshot(5, links=(live.LinkUse(0, 3, 400),)))
    page.click("#map .node:nth-of-type(4)")
    page.wait(lambda: "last lines" in page.text("#logs-state"), "the logs are there")
    assert page.value("#node") == "3"
    assert page.run("return document.getElementById('logs').textContent") == LOGS[3].decode()
    assert "peer-3 (Christchurch) runs at host 3" in page.text("#place")
    assert page.count("#map .link.chosen") == page.count("#map .ring") == 1
    server.logs[3] = b"later"
    page.press("#again", ENTER)
    page.wait(lambda: page.text("#logs") == "later", "the logs are read again")
    page.press("#node", "peer-5")
    page.wait(lambda: page.text("#logs").startswith("peer 5"), "the logs of another peer are there")
    del server.logs[5]
    page.click("#again")
    page.wait(lambda: "could not be read" in page.text("#logs-state"), "the page says that there are none")
    assert others(page) == []


def test_every_control_is_reached_by_the_tab_key(page: Page, server: Server) -> None:
    send(page, server, END)
    page.run("const it = document.getElementById('node'); it.value = '1'; it.dispatchEvent(new Event('change'))")
    page.wait(lambda: "last lines" in page.text("#logs-state"), "the logs are there")
    reached = []
    for _ in range(5):
        page.type(TAB)
        reached.append(page.run("const it = document.activeElement; return it.id || it.parentElement.id"))
    assert reached == ["more-numbers", "seconds", "node", "again", "logs"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("snapshot", [NOTHING, make_snapshot(20), END], ids=["begin", "middle", "end"])
def test_nothing_is_wider_than_a_telephone(page: Page, server: Server, snapshot: live.Snapshot, scheme: str) -> None:
    page.show(400, scheme)
    send(page, server, snapshot)
    page.choose("#node", "2")
    page.wait(lambda: "last lines" in page.text("#logs-state"), "the logs are there")
    page.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert page.spills() == []
    assert page.run("return document.documentElement.scrollWidth") == 400


def test_names_are_text(browser: Page, tmp_path: Path) -> None:
    hostile = "<img src=x onerror=\"document.title='broken'\">"
    nodes = tuple(replace(each, city=hostile, name=hostile) for each in STAGE.nodes)
    with serve(replace(STAGE, nodes=nodes), {}) as server:
        browser.open(server.address)
        run = replace(STAGE.run, experiment=hostile, id=hostile)
        reasons = (live.Reason("", hostile, "suspect"),)
        server.send(make_snapshot(5, run=run, reasons=reasons, verdict="suspect", remarks=(hostile,)))
        browser.wait(lambda: browser.text("#name") == hostile, "the name is there")
        browser.wait(lambda: browser.count("#node option") == len(nodes) + 1, "the nodes are there")
        assert hostile in browser.text("#reasons") and hostile in browser.text("#remarks")
        assert browser.run("return document.images.length") == 0
        browser.open("about:blank")


def test_the_page_needs_nothing_but_its_files() -> None:
    files = {name: file.content.decode() for name, file in read_files().items()}
    page, script = files["index.html"], files["live.js"]
    named = set(re.findall(r'(?:src|href)="([^"]*)"', page)) - {"data:,"}
    assert named | {"index.html", "land.json"} == files.keys()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! src=)", page)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", script)
    places = re.findall(r' id="([^"]*)"', page)
    assert len(set(places)) == len(places)
    asked = set(re.findall(r'\b(?:find|tell|list|pairs)\("([\w-]+)"', script))
    assert len(asked) > 30 and asked <= set(places)


@contextmanager
def served(run_dir: Path) -> Iterator[str]:
    """The server of a run's page as a process, which stays when the run is over; its address.

    Unlike that of ``--live`` it does not run at idle priority, since the page must see the run on a busy machine, too.
    """
    gate = Gate()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        command = [sys.executable, "-m", "harness.live.server", str(run_dir), str(listening.fileno()), STAY]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, pass_fds=[listening.fileno()])
        address = gate.sign(f"http://127.0.0.1:{listening.getsockname()[1]}/")
    assert process.stdin is not None
    try:
        process.stdin.write(f"{gate.token}\n".encode())
        process.stdin.flush()
        yield address
    finally:
        process.stdin.close()
        process.wait()


@contextmanager
def standing_still(run: "subprocess.Popen[str]") -> Iterator[None]:
    """Stop the running stage in the context, so that the run goes no further, whatever time the context takes."""
    stage = find_below(run.pid, "harness.stages.execution")
    os.kill(stage, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(stage, signal.SIGCONT)


WATCH = """
window.seen = [];
const published = document.getElementById("published"), phase = document.getElementById("phase");
new MutationObserver(() => seen.push([phase.textContent, published.textContent]))
  .observe(published, { childList: true });
"""


@pytest.mark.root
@pytest.mark.long
def test_a_run_in_progress_moves_the_numbers_until_they_are_those_of_its_summary(browser: Page, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    longer = ("--set", "workload.duration_s=10", *PATIENT)
    process = start("run", write_brief(tmp_path), "--out", run_dir, "--json", *longer, *IN_PROCESS)
    await_step(process, "boot")
    browser.show(1400)
    with served(run_dir) as address:
        with standing_still(process):
            browser.open(address)
            browser.run(WATCH)
        summary = finish(process)
        browser.wait(lambda: "has ended" in browser.text("#connection"), "the page shows the end of the run")
        seen = browser.run("return seen")
        assert len({number for phase, number in seen if phase == "workload"}) >= 3, seen
        numbers = [int(number) for _, number in seen if number != UNKNOWN]
        assert numbers == sorted(numbers)
        assert browser.text("#so-far") == summary["verdict"].upper()
        headline = summary["headline"]
        names = ["messages_published", "deliveries_expected"]
        assert shown(browser, "published", "expected") == [f"{headline[name]:,}" for name in names]
        assert browser.text("#ratio") == percent(headline["delivery_ratio"])
        assert browser.text("#report-path") == str(run_dir / "report/index.html")
        browser.click("#more-numbers summary")
        rows = browser.run("return [...document.querySelectorAll('#all-numbers > *')].map(each => each.innerText)")
        final = dict(zip(rows[::2], rows[1::2], strict=True))
        assert final.keys() == headline.keys()
        for name, value in headline.items():
            assert final[name] == UNKNOWN if value is None else read(final[name]) == pytest.approx(value, rel=1e-5)
        assert browser.count("#map .node") == 3
        browser.choose("#node", "1")
        browser.wait(
            lambda: "logs" in browser.text("#logs-state") and "Reading" not in browser.text("#logs-state"), "logs"
        )
        assert browser.spills() == [] and others(browser) == []
        browser.open("about:blank")


def read(text: str) -> float:
    """A headline number as the page writes it."""
    return {"true": 1.0, "false": 0.0}[text] if text in ("true", "false") else float(text.replace(",", ""))
