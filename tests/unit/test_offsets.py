"""Pairs whose delay is wrong are those that are off in both sweeps, in the same direction, by more than the others."""

from collections.abc import Mapping

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.checks import check_run
from metrics.recorded.offsets import DEVIATIONS, OFFSET_MS, Offsets, measure_offsets
from metrics.rundir import NOT_APPLICABLE, NOT_JUDGED, PASSED, SUSPECT
from tests.examples import examples
from tests.sound_evidence import SOUND, change, failures

ASKED_MS = 80.0
Errors = Mapping[tuple[int, int], float]

HOSTS = 8
USUAL: Errors = {(a, b): 0.1 + 0.01 * (a % 3) for a in range(HOSTS) for b in range(a + 1, HOSTS)}


def row(phase: str, src: int, dst: int, error_ms: float | None, attempt: int = 1) -> dict[str, object]:
    found = None if error_ms is None else ASKED_MS + error_ms
    return {"phase": phase, "src": src, "dst": dst, "attempt": attempt, "asked_rtt_ms": ASKED_MS, "rtt_ms": found}


def table(before: Errors, after: Errors) -> pa.Table:
    sweeps = {"before": before, "after": after}
    rows = [row(phase, *pair, error) for phase, errors in sweeps.items() for pair, error in errors.items()]
    return pa.Table.from_pylist(rows)


@pytest.mark.parametrize(
    ("before_ms", "after_ms", "beyond"),
    [(0.5, 0.5, 1), (-0.5, -0.5, 1), (0.5, 0.2, 0), (0.2, 0.5, 0), (0.8, -0.8, 0), (0.3, 0.3, 0), (0.47, 9.0, 1)],
)
def test_a_pair_is_wrong_if_both_sweeps_say_so(before_ms: float, after_ms: float, beyond: int) -> None:
    """The median error is 0.11 ms."""
    found = measure_offsets(table({**USUAL, (2, 5): before_ms}, {**USUAL, (2, 5): after_ms}))
    assert found is not None
    assert (found.pairs, found.beyond, found.limit_ms) == (len(USUAL), beyond, OFFSET_MS)
    if beyond:
        smaller_ms = min(before_ms, after_ms, key=abs)
        assert (found.name, found.worst_ms) == ("hosts 2 and 5", pytest.approx(smaller_ms - 0.11))


def test_a_pair_is_the_same_pair_whichever_host_asks() -> None:
    turned = {(b, a): error for (a, b), error in {**USUAL, (2, 5): 0.6}.items()}
    found = measure_offsets(table({**USUAL, (2, 5): 0.5}, turned))
    assert found is not None
    assert (found.pairs, found.beyond, found.name) == (len(USUAL), 1, "hosts 2 and 5")


def test_of_both_directions_the_better_one_counts() -> None:
    both = {**USUAL, (2, 5): 0.5, (5, 2): 0.1}
    found = measure_offsets(table(both, both))
    assert found is not None
    assert (found.pairs, found.beyond) == (len(USUAL), 0)


def test_of_attempts_the_last_counts_and_what_was_not_answered_does_not() -> None:
    again = [row("before", 2, 5, 0.1, attempt=2), row("after", 0, 1, None, attempt=2)]
    rows = pa.concat_tables([table({**USUAL, (2, 5): 0.5}, {**USUAL, (2, 5): 0.5}), pa.Table.from_pylist(again)])
    found = measure_offsets(rows)
    assert found is not None
    assert (found.pairs, found.beyond) == (len(USUAL) - 1, 0)


@settings(max_examples=examples(30))
@given(spread_ms=st.floats(0.1, 5), factor=st.floats(1.2, 3))
def test_where_errors_differ_much_the_limit_is_larger(spread_ms: float, factor: float) -> None:
    """Half of the pairs differ from the median by more than the spread, half by less."""
    errors = {pair: 10 + spread_ms * (-1) ** place * (1 + place % 2 * 1e-9) for place, pair in enumerate(USUAL)}
    off_ms = 10 + factor * DEVIATIONS * 2 * spread_ms
    found, none = (measure_offsets(table(each, each)) for each in ({**errors, (2, 5): off_ms}, errors))
    assert found is not None
    assert none is not None
    assert (found.beyond, none.beyond) == (1, 0)


def test_one_sweep_and_no_answer_say_nothing() -> None:
    assert measure_offsets(table(USUAL, {})) is None
    found = measure_offsets(table(USUAL, dict.fromkeys(USUAL)))  # type: ignore[arg-type]
    assert found is not None
    assert (found.pairs, found.beyond) == (0, 0)


@pytest.mark.parametrize("beyond", [0, 1])
def test_one_such_pair_fails_the_check(beyond: int) -> None:
    offsets = Offsets(pairs=10, beyond=beyond, limit_ms=0.35, worst_ms=-0.4, name="hosts 2 and 4")
    expected = {"rtt_offset_pairs": SUSPECT} if beyond else {}
    assert failures(change(SOUND, emulation={"offsets": offsets})) == expected


def test_without_two_sweeps_there_is_nothing_to_judge() -> None:
    checks = {check.name: check for check in check_run(change(SOUND, emulation={"offsets": None}))}
    assert checks["rtt_offset_pairs"].outcome == NOT_APPLICABLE


@pytest.mark.parametrize(("hosts", "outcome"), [(2, NOT_APPLICABLE), (3, PASSED)])
def test_a_single_pair_is_compared_with_nothing(hosts: int, outcome: str) -> None:
    """Its offset is 0, however wrong its delay is."""
    pairs = {(a, b): 7.0 for a in range(hosts) for b in range(a + 1, hosts)}
    offsets = measure_offsets(table(pairs, pairs))
    assert offsets is not None
    assert (offsets.pairs, offsets.worst_ms) == (len(pairs), 0)
    checks = {check.name: check for check in check_run(change(SOUND, emulation={"offsets": offsets, "hosts": hosts}))}
    assert checks["rtt_offset_pairs"].outcome == outcome


@pytest.mark.parametrize(("answered", "outcome"), [(9, PASSED), (8, NOT_JUDGED)])
def test_too_few_pairs_are_not_judged(answered: int, outcome: str) -> None:
    offsets = Offsets(answered, 0, 0.35, 0.1, "hosts 0 and 1")
    checks = {check.name: check for check in check_run(change(SOUND, emulation={"offsets": offsets}))}
    assert checks["rtt_offset_pairs"].outcome == outcome
