"""What all tests share: on CI a skipped test is a failed run, and data comes only from $TRELLIS_DATA."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REFUSED_SKIPS = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[REFUSED_SKIPS] = []


def on_ci() -> bool:
    return os.environ.get("CI", "").lower() == "true"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """On CI, remember each skip: a test that cannot run there shows nothing. Only want of data excuses it."""
    report = yield
    if on_ci() and report.skipped and not hasattr(report, "wasxfail") and item.get_closest_marker("data") is None:
        item.config.stash[REFUSED_SKIPS].append(f"{item.nodeid} ({report.when})")
    return report


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A module skipped as a whole has no items whose markers could excuse it."""
    if on_ci() and report.skipped:
        _collection_skips.append(report.nodeid)


_collection_skips: list[str] = []


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    refused = session.config.stash[REFUSED_SKIPS] + _collection_skips
    session.config.stash[REFUSED_SKIPS] = refused
    if refused and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for name in config.stash[REFUSED_SKIPS]:
        terminalreporter.write_line(f"SKIPPED ON CI, which fails the run: {name}", red=True)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data sets. Tests that use it carry the marker ``data``."""
    folder = os.environ.get("TRELLIS_DATA")
    if not folder:
        pytest.skip("needs TRELLIS_DATA")
    return Path(folder)
