"""What all tests share: on CI a skipped test is a failed run, and data comes only from $TRELLIS_DATA."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from harness.machine.calibration import CALIBRATE_VARIABLE
from tests.examples import ALL, FEW

os.environ.setdefault(CALIBRATE_VARIABLE, "0")  # no test judges how fast the machine is

for profile, number in (("all", ALL), ("few", FEW)):  # how long one takes says more of the machine than of the code
    settings.register_profile(profile, parent=settings(), deadline=None, max_examples=number)
settings.load_profile("all")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for all that a shell starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # some tests interrupt programs, which inherit it


def on_ci() -> bool:
    return os.environ.get("CI", "").lower() == "true"


class RefusedSkips:
    """On CI, what was skipped: a test that cannot run there shows nothing. Only want of data excuses it.

    It hears of reports alone, which also reach a run whose tests run in other processes (``pytest -n``).
    """

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail") and "data" not in report.keywords:
            self._names[f"{report.nodeid} ({report.when})"] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module skipped as a whole has no tests whose markers could excuse it."""
        if report.skipped:
            self._names[report.nodeid] = None

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self._names and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for name in self._names:
            terminalreporter.write_line(f"SKIPPED ON CI, which fails the run: {name}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    if on_ci():
        config.pluginmanager.register(RefusedSkips())


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data sets. Tests that use it carry the marker ``data``."""
    folder = os.environ.get("TRELLIS_DATA")
    if not folder:
        pytest.skip("needs TRELLIS_DATA")
    return Path(folder)
