"""What the benchmark of open pages says of pairs of runs."""

from typing import Any

import pytest

from benchmarks.watching import compare, table


def summary(verdict: str, **headline: float | None) -> dict[str, Any]:
    return {"verdict": verdict, "headline": headline}


PAIRS = [
    (summary("valid", lateness_ms_p99=0.2), summary("valid", lateness_ms_p99=0.3, delivery_ratio=1.0)),
    (summary("valid", lateness_ms_p99=0.4), summary("suspect", lateness_ms_p99=0.7, delivery_ratio=1.0)),
    (summary("valid", lateness_ms_p99=None), summary("valid", lateness_ms_p99=0.1, delivery_ratio=1.0)),
]


def test_numbers_are_compared_within_pairs_that_have_both() -> None:
    found = compare(PAIRS)
    assert (found["alone"], found["watched"]) == ({"valid": 3}, {"valid": 2, "suspect": 1})
    assert set(found["differences"]) == {"lateness_ms_p99"}
    lateness = found["differences"]["lateness_ms_p99"]
    assert lateness["pairs"] == 2
    assert (lateness["alone"], lateness["difference"]) == (pytest.approx(0.3), pytest.approx(0.2))


def test_the_table_has_a_row_per_number() -> None:
    *_, row = table(compare(PAIRS))
    assert row.startswith("| lateness_ms_p99 | 2 | 0.3 | +0.2 ± ")
    [*_, alone] = table(compare(PAIRS[:1]))
    assert alone.endswith(" ± unknown |")
