"""The replay's page in Chromium: it plays, pauses, goes to any instant, and shows what its data say."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metrics.analysis import analyse
from metrics.report.replay import choose_messages, render_replay
from metrics.report.run import Run
from metrics.report.spread import read_spreads
from tests.browser import END, HOME, LEFT, RIGHT, SPACE, Page, browse
from tests.fabricate import Fabrication
from tests.live_snapshots import CITIES

NODES = len(CITIES)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browse(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = Fabrication(seed=2, nodes=NODES, messages=20, relays=True).write(
        tmp_path_factory.mktemp("replay") / "run"
    )
    analyse(run_dir, page=False)
    return run_dir


def write(run_dir: Path, path: Path) -> Path:
    """Write the replay of a run."""
    run = Run(run_dir)
    reasons = choose_messages(run)
    path.write_text(render_replay(run, read_spreads(run, list(reasons)), reasons))
    return path


@pytest.fixture(scope="module")
def circle(analysed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The replay of a run whose hosts have no places."""
    return write(analysed, tmp_path_factory.mktemp("circle") / "replay.html")


@pytest.fixture(scope="module")
def world(analysed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The replay of the same run with hosts all over the world."""
    folder = tmp_path_factory.mktemp("world")
    run_dir = Path(shutil.copytree(analysed, folder / "run"))
    underlay = json.loads((run_dir / "underlay.json").read_text())
    for host, (city, longitude, latitude) in zip(underlay["hosts"], CITIES, strict=True):
        host |= {"site": city, "longitude": longitude, "latitude": latitude}
    (run_dir / "underlay.json").write_text(json.dumps(underlay))
    return write(run_dir, folder / "replay.html")


@pytest.fixture
def page(browser: Page, circle: Path) -> Iterator[Page]:
    """The replay, 1400 pixels wide, as it is when it is opened. Its console must stay empty."""
    browser.show(1400)
    browser.open("about:blank")
    browser.open(circle.as_uri())
    yield browser
    assert browser.console() == []


def data(page: Page) -> dict[str, Any]:
    """The data in the page."""
    found: dict[str, Any] = json.loads(page.run("return document.getElementById('data').textContent"))
    return found


def shown(page: Page) -> dict[str, Any]:
    """The message that is shown."""
    return next(each for each in data(page)["messages"] if each["id"] in page.text("#about"))


def instant(page: Page) -> float:
    return float(page.value("#time"))


def length(page: Page) -> float:
    return float(page.run("return document.getElementById('time').max"))


def frames(page: Page, number: int) -> list[tuple[float, float]]:
    """The browser's clock and the replay's at some frames, both in ms."""
    found: list[tuple[float, float]] = page.run(
        """
        return new Promise(resolve => {
          const seen = [];
          const see = clock => {
            seen.push([clock, Number(document.getElementById("time").value)]);
            if (seen.length < arguments[0]) requestAnimationFrame(see); else resolve(seen);
          };
          requestAnimationFrame(see);
        });
        """,
        number,
    )
    return found


def test_it_opens_at_the_end_of_the_slowest_delivery(page: Page) -> None:
    message = shown(page)
    assert message == data(page)["messages"][0]
    assert instant(page) == pytest.approx(length(page))
    made = len(message["expected"])
    assert f"{made} of {made} expected deliveries made" in page.text("#seen")
    assert page.text("#play") == "Play"
    assert not page.shows("#fallback")


def test_it_plays_from_the_beginning_and_pauses(page: Page) -> None:
    page.choose("#speed", "500")
    page.click("#play")
    assert page.text("#play") == "Pause"
    page.wait(lambda: 0 < instant(page) < length(page) / 2, "it plays from the beginning")
    page.click("#play")
    assert page.text("#play") == "Play"
    times = {time for _, time in frames(page, 5)}
    assert len(times) == 1, "it stands still"
    page.click("#play")
    page.wait(lambda: instant(page) > max(times), "it goes on where it was")


def test_it_ends_at_the_end(page: Page) -> None:
    page.choose("#speed", "1")
    page.click("#play")
    page.wait(lambda: page.text("#play") == "Play" and instant(page) > 0, "it has ended")
    assert instant(page) == pytest.approx(length(page))


@pytest.mark.parametrize("factor", [200, 500])
def test_it_is_as_much_slower_as_chosen(page: Page, factor: int) -> None:
    page.choose("#speed", str(factor))
    page.click("#play")
    page.wait(lambda: 0 < instant(page) < length(page) / 2, "it plays")
    (first, begin), *_, (last, end) = frames(page, 10)
    step = float(page.run("return document.getElementById('time').step"))
    assert end - begin == pytest.approx((last - first) / factor, abs=1.01 * step)


def test_its_counts_are_those_of_the_instant(page: Page) -> None:
    delivered = sorted(each[1] / 1000 for each in shown(page)["expected"] if each[1] is not None)
    page.press("#time", HOME)
    frames(page, 1)  # the page draws once in a frame
    assert instant(page) == 0 and page.text("#seen").startswith("At 0 ms: 0 of")
    counts = []
    while instant(page) < length(page) and len(counts) < 100:
        page.click("#next")
        frames(page, 1)
        [(now, made)] = re.findall(r"At ([\d,.]+) ms: (\d+) of", page.text("#seen"))
        least, most = (
            sum(time <= float(now.replace(",", "")) + error for time in delivered) for error in (-0.06, 0.06)
        )
        assert least <= int(made) <= most, "an instant is written with one decimal"
        counts.append(int(made))
    assert counts[-1] == len(delivered) > 2 and counts == sorted(counts)
    page.click("#back")
    frames(page, 1)
    assert instant(page) < length(page)


def test_the_slider_goes_to_any_instant(page: Page) -> None:
    page.press("#time", HOME)
    page.press("#time", RIGHT * 100)
    assert instant(page) == pytest.approx(length(page) / 5, rel=0.02)
    frames(page, 1)
    assert page.text("#now") == page.run("return document.getElementById('time').getAttribute('aria-valuetext')")
    page.press("#time", LEFT * 50)
    assert instant(page) == pytest.approx(length(page) / 10, rel=0.02)


def test_keys_play_and_step(page: Page) -> None:
    page.choose("#speed", "500")
    page.run("document.activeElement.blur()")
    page.type(SPACE)
    assert page.text("#play") == "Pause"
    page.type(SPACE)
    assert page.text("#play") == "Play"
    page.type(HOME)
    assert page.wait(lambda: page.text("#now") == "0 ms", "it is at the beginning")
    page.type(RIGHT)
    page.wait(lambda: instant(page) > 0, "it is at the first arrival")
    page.type(LEFT)
    page.wait(lambda: instant(page) == 0, "it is at the beginning again")
    page.type(END)
    page.wait(lambda: instant(page) == pytest.approx(length(page)), "it is at the end")


def test_another_message_and_another_node_are_shown(page: Page) -> None:
    place, message = len(data(page)["messages"]) - 1, data(page)["messages"][-1]
    page.choose("#message", str(place))
    assert page.text("#about") == message["about"]
    node = message["expected"][0][0]
    page.choose("#node", str(node))
    assert page.text("#race-title").startswith(f"The race of copies to node {node} ")
    copies = sum(copy[1] == node for copy in message["copies"])
    assert page.count("#race tbody tr") == copies > 0
    assert page.run("return location.hash") == f"#m={message['id']}&n={node}"


def test_an_address_names_the_message_and_the_node(browser: Page, circle: Path) -> None:
    browser.open(circle.as_uri())
    message = data(browser)["messages"][-1]
    node = message["expected"][-1][0]
    browser.open(f"{circle.as_uri()}#m={message['id']}&n={node}")
    browser.wait(lambda: browser.text("#about") == message["about"], "the message is shown")
    assert browser.value("#node") == str(node)


def test_a_node_is_chosen_on_the_map_and_in_the_grid(page: Page) -> None:
    order = page.run("return [...document.querySelectorAll('#node option')].map(each => each.value)")
    assert order[0] == str(shown(page)["publisher"])
    wide, tall = page.run(
        "const box = document.getElementById('map').getBoundingClientRect(); return [box.width, box.height]"
    )
    page.click_at("#map", 0, 24 - min(wide, tall) / 2)
    assert page.value("#node") == order[0], "the first one stands at the top of the circle"
    tall = page.run("return document.getElementById('grid').getBoundingClientRect().height")
    page.click_at("#grid", 0, 6 + 1.5 * 18 - tall / 2)
    assert page.value("#node") == order[1]
    frames(page, 1)
    assert 0 < instant(page) < length(page), "a click in the grid goes to its instant, too"


def test_all_nodes_are_in_a_table(page: Page) -> None:
    page.click("#all summary")
    nodes = page.count("#node option")
    page.wait(lambda: page.count("#list tbody tr") == nodes > 2, "the table has the nodes")
    page.click("#list tbody tr:nth-child(2) button")
    assert page.text("#race-title").endswith(page.text("#list tbody tr:nth-child(2) button"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("form", ["circle", "world"])
def test_nothing_is_wider_than_a_telephone(
    browser: Page, form: str, scheme: str, request: pytest.FixtureRequest
) -> None:
    browser.show(400, scheme)
    browser.open(request.getfixturevalue(form).as_uri())
    browser.click("#all summary")
    browser.wait(lambda: browser.count("#list tbody tr"), "the table is there")
    assert browser.spills() == []
    assert browser.run("return document.documentElement.scrollWidth") == 400
    assert browser.run("return document.getElementById('map').getAttribute('aria-label')").startswith(
        {"circle": "Circle of nodes", "world": "Map"}[form]
    )
    assert browser.console() == []


def test_the_map_has_the_coasts_in_the_colours_of_the_scheme(browser: Page, world: Path) -> None:
    """Pixels of the map have the colour of land, which differs between light and dark."""
    count = """
        const canvas = document.getElementById("map"), pen = canvas.getContext("2d");
        const wanted = getComputedStyle(document.documentElement).getPropertyValue("--land").trim();
        const bytes = pen.getImageData(0, 0, canvas.width, canvas.height).data;
        const colour = place => "#" + [0, 1, 2].map(part => bytes[place + part].toString(16).padStart(2, "0")).join("");
        let found = 0;
        for (let place = 0; place < bytes.length; place += 4) found += colour(place) === wanted;
        return [wanted, found / (bytes.length / 4)];
    """
    seen = []
    for scheme in ("light", "dark"):
        browser.show(1000, scheme)
        browser.open(world.as_uri())
        frames(browser, 2)
        colour, share = browser.run(count)
        assert 0.15 < share < 0.5
        seen.append(colour)
    assert len(set(seen)) == 2
