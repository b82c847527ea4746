"""The tests of ``tests/guest``, inside a virtual machine whose kernel has netem, and the runs that they leave."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.planes.registry import PLANES
from metrics.analysis import analyse
from metrics.rundir import VALID
from tests.guest_machine import boot

pytestmark = [pytest.mark.root, pytest.mark.long, pytest.mark.timeout(3600)]


class Booted(NamedTuple):
    """What the guest has left: the exit status of its tests, what they printed, and the folder of their results."""

    status: int
    output: str
    results: Path


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Booted]:
    results = tmp_path_factory.mktemp("guest")
    status = boot("exec python3 -P -m pytest -q -p no:cacheprovider -o timeout=0 tests/guest", results)
    output = (results / "output").read_text()
    print(output)
    yield Booted(status, output, results)


def test_the_tests_in_the_guest_pass(guest: Booted) -> None:
    assert guest.status == 0, guest.output
    assert " passed" in guest.output and "skipped" not in guest.output


@pytest.mark.parametrize("plane", PLANES)
def test_the_run_of_each_plane_is_valid(guest: Booted, plane: str) -> None:
    summary = analyse(guest.results / f"run-{plane}", page=False)
    checks = {check.name: check for check in summary.checks}
    print({name: (check.outcome, check.worst, check.tolerance, check.unit) for name, check in checks.items()})
    assert summary.verdict == VALID, summary.reasons
    assert checks["wire_delay"].tested > 100
