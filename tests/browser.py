"""Chromium without a window, driven through ChromeDriver by the WebDriver protocol (https://www.w3.org/TR/webdriver2/).

It reaches loopback and files alone: no name resolves in it, and what is not on loopback goes to a proxy that is not
there.
"""

import base64
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

HEIGHT: Final = 900
ELEMENT: Final = "element-6066-11e4-a52e-4f735466cecf"
"""What WebDriver calls the identity of an element."""

ENTER: Final = "\ue007"
TAB: Final = "\ue004"
SPACE: Final = " "
LEFT: Final = "\ue012"
RIGHT: Final = "\ue014"
HOME: Final = "\ue011"
END: Final = "\ue010"
"""Keys, as WebDriver names them."""

_ARGUMENTS: Final = (
    "--headless=new",
    "--no-sandbox",  # Chromium refuses its sandbox to root, and the pages are ours
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--proxy-server=http://127.0.0.1:9",
    "--proxy-bypass-list=127.0.0.1",
)

_OPTIONS: Final = {"goog:chromeOptions": {"args": _ARGUMENTS}, "goog:loggingPrefs": {"browser": "ALL"}}

_SPILLS: Final = """
const wide = document.documentElement.clientWidth;
const inside = each => {
  for (let box = each.parentElement; box !== document.documentElement; box = box.parentElement) {
    if (getComputedStyle(box).overflowX !== "visible") return true;
  }
  return false;
};
return [...document.body.querySelectorAll("*")]
  .filter(each => each.getBoundingClientRect().right > wide + 0.5 && !inside(each))
  .map(each => `${each.tagName} ${each.id} ${each.className} ${each.getBoundingClientRect().right} > ${wide}`);
"""
"""What lies to the right of the page's edge and is in no box that scrolls or cuts it."""


class Page:
    """The one tab of a browser. Elements are named by selectors of CSS."""

    def __init__(self, session: str) -> None:
        self._session = session

    def open(self, url: str) -> None:
        """Load an address, and wait until it is loaded."""
        self._ask("url", url=url)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run the body of a function in the page, and return what it returns."""
        return self._ask("execute/sync", script=script, args=arguments)

    def text(self, selector: str) -> str:
        """Return the text of an element as a reader sees it, with single spaces."""
        return " ".join(str(self._on(selector, "innerText")).split())

    def value(self, selector: str) -> str:
        return str(self._on(selector, "value"))

    def _on(self, selector: str, name: str) -> Any:
        script = "return [...document.querySelectorAll(arguments[0])].map(each => each[arguments[1]])"
        found = self.run(script, selector, name)
        assert len(found) == 1, f"{len(found)} elements are {selector}"
        return found[0]

    def count(self, selector: str) -> int:
        """Return how many elements there are, seen or not."""
        return int(self.run("return document.querySelectorAll(arguments[0]).length", selector))

    def shows(self, selector: str) -> bool:
        """Return whether an element is on the page and not hidden."""
        return bool(self.run("return document.querySelector(arguments[0]).checkVisibility()", selector))

    def click(self, selector: str) -> None:
        """Click in the middle of an element, as a pointer does: what covers it gets the click."""
        self._ask(f"element/{self._find(selector)}/click")

    def click_at(self, selector: str, right: float, down: float) -> None:
        """Click so many pixels from the middle of an element."""
        self.run("document.querySelector(arguments[0]).scrollIntoView({ block: 'center' })", selector)
        place = {"type": "pointerMove", "x": round(right), "y": round(down), "origin": {ELEMENT: self._find(selector)}}
        presses = [{"type": each, "button": 0} for each in ("pointerDown", "pointerUp")]
        self._ask("actions", actions=[{"type": "pointer", "id": "mouse", "actions": [place, *presses]}])

    def press(self, selector: str, keys: str) -> None:
        """Give an element the focus and press keys."""
        self._ask(f"element/{self._find(selector)}/value", text=keys)

    def type(self, key: str) -> None:
        """Press a key wherever the focus is."""
        presses = [{"type": each, "value": key} for each in ("keyDown", "keyUp")]
        self._ask("actions", actions=[{"type": "key", "id": "keyboard", "actions": presses}])

    def choose(self, selector: str, value: str) -> None:
        """Choose an option of a list by its value."""
        self.click(f'{selector} option[value="{value}"]')

    def _find(self, selector: str) -> str:
        return str(self._ask("element", using="css selector", value=selector)[ELEMENT])

    def wait(self, condition: Callable[[], Any], what: str, seconds: float = 300) -> Any:
        """Ask until a condition holds, and return it. The limit is for pages that are broken, not for slow machines."""
        until = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < until, f"{what}: still not so. The console said {self.console()}"
            time.sleep(0.05)
        return found

    def show(self, width: int, scheme: str = "light") -> None:
        """Give the page a width, in pixels, and a colour scheme, light or dark."""
        size = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        self._devtools("Emulation.setDeviceMetricsOverride", **size)
        preferred = [{"name": "prefers-color-scheme", "value": scheme}]
        self._devtools("Emulation.setEmulatedMedia", features=preferred)

    def screenshot(self, path: Path) -> None:
        """Write the whole page, also what is below the window, as PNG."""
        taken = self._devtools("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(taken["data"]))

    def console(self) -> list[str]:
        """Return what the console has said since the last call: errors of scripts, refused requests, warnings."""
        return [f"{each['level']}: {each['message']}" for each in self._ask("se/log", type="browser")]

    def spills(self) -> list[str]:
        """Return the elements that are wider than the page."""
        found: list[str] = self.run(_SPILLS)
        return found

    def _devtools(self, command: str, **parameters: Any) -> Any:
        return self._ask("goog/cdp/execute", cmd=command, params=parameters)

    def _ask(self, command: str, **parameters: Any) -> Any:
        return _ask(f"{self._session}/{command}", parameters)


def _ask(url: str, parameters: dict[str, Any]) -> Any:
    asked = Request(url, json.dumps(parameters).encode(), {"Content-Type": "application/json"})
    try:
        with urlopen(asked, timeout=300) as answer:
            return json.load(answer)["value"]
    except HTTPError as error:
        raise AssertionError(f"{url}: {json.load(error)['value']['message']}") from error


@contextmanager
def browse(folder: Path) -> Iterator[Page]:
    """Start a browser, and end it with the context.

    Args:
        folder: where its log is kept.
    """
    driver = shutil.which("chromedriver")
    assert driver is not None, "no chromedriver: the set-up of the tests installs it"
    with (folder / "chromedriver.log").open("w") as log:
        process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        port = next(found[1] for line in process.stdout if (found := re.search(r"successfully on port (\d+)", line)))
        sessions = f"http://127.0.0.1:{port}/session"
        session = f"{sessions}/{_ask(sessions, {'capabilities': {'alwaysMatch': _OPTIONS}})['sessionId']}"
        try:
            yield Page(session)
        finally:
            urlopen(Request(session, method="DELETE"), timeout=60).close()
    finally:
        process.terminate()
        process.communicate()
