"""When a failed check is the host's fault."""

from __future__ import annotations

import pytest

from metrics.rundir import Check
from metrics.stalls import blame, is_the_hosts

PASSED = Check("wire_delay", 1000, 0, 0.3, 0.5, "ms", "invalid", "p99 0.3 ms")
FAILED = Check("wire_delay", 1000, 1, 7.0, 0.5, "ms", "invalid")


def test_a_check_says_how_much_a_stall_explains() -> None:
    check = blame(PASSED, 1200, 3, 10, "hops")
    assert check.detail == "p99 0.3 ms; stalls of the host explain 3 of 1,200 late hops"
    assert (check.late, check.explained, check.allowed, check.failed) == (1200, 3, 10, 0)
    assert blame(FAILED, 2, 1, 10, "hops").detail == "stalls of the host explain 1 of 2 late hops"
    assert blame(PASSED, 0, 0, 10, "hops").detail == "p99 0.3 ms"


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        (blame(FAILED, 40, 30, 10, "hops"), True),
        (blame(FAILED, 40, 29, 10, "hops"), False),
        (blame(FAILED, 40, 0, 40, "hops"), False),
        (blame(PASSED, 40, 40, 10, "hops"), False),
        (blame(FAILED, 10, 1, 10, "hops"), False),  # not by these it failed
        (FAILED, False),
    ],
)
def test_a_failure_is_the_hosts_if_the_check_passed_without_what_stalls_explain(check: Check, expected: bool) -> None:
    assert is_the_hosts(check) == expected
