"""When a failed check is the host's fault."""

import pytest
from msgspec import structs

from metrics.recorded.stalls import is_the_hosts
from metrics.rundir import Check

PASSED = Check("wire_delay", 1000, 0, 0.3, 0.5, "ms", "invalid", "p99 0.3 ms")
FAILED = Check("wire_delay", 1000, 1, 7.0, 0.5, "ms", "invalid")


@pytest.mark.parametrize(
    ("check", "late", "explained", "allowed", "expected"),
    [
        (FAILED, 40, 30, 10, True),
        (FAILED, 40, 29, 10, False),
        (FAILED, 40, 0, 40, False),
        (PASSED, 40, 40, 10, False),
        (FAILED, 10, 1, 10, False),  # not by these it failed
        (FAILED, None, None, None, False),
    ],
)
def test_a_failure_is_the_hosts_if_the_check_passed_without_what_stalls_explain(
    check: Check, late: int | None, explained: int | None, allowed: int | None, expected: bool
) -> None:
    assert is_the_hosts(structs.replace(check, late=late, explained=explained, allowed=allowed)) == expected
