"""The tests of ``tests/guest``, inside a virtual machine whose kernel has netem."""

from pathlib import Path

import pytest

from tests.guest_machine import boot

pytestmark = [pytest.mark.root, pytest.mark.long, pytest.mark.timeout(3600)]


def test_the_tests_in_the_guest_pass(tmp_path: Path) -> None:
    status = boot("exec python3 -P -m pytest -q -p no:cacheprovider -o timeout=0 tests/guest", tmp_path)
    output = (tmp_path / "output").read_text()
    print(output)
    assert status == 0, output
    assert " passed" in output and "skipped" not in output
