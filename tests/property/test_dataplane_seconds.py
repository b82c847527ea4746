"""The seconds of the ``fidelity`` table leave out nothing that the data plane's lines say."""

import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from metrics.recorded.dataplane import busy_spans, last_counters, merge_counts, quantile_ns, second_values, spans

SECOND = 1_000_000_000
ZERO_NS = 50 * SECOND
COUNTERS = ("frames_in", "frames_out", "bytes_in", "bytes_out")
CAUSES = ("queue", "loss")
Line = dict[str, Any]

increments = st.tuples(
    st.sampled_from([0, 1_000_000, SECOND // 3, SECOND, 5 * SECOND // 2]),  # since the line before
    st.lists(st.integers(0, 1_000), min_size=6, max_size=6),
    st.lists(st.sampled_from([1, 1_000, 20_000, 90_000, 5_000_000, 300_000_000]), max_size=30),
    st.floats(0, 1),
)


def quantile(late_ns: list[int], share: float) -> int:
    """The least value with so large a share of the values at or below it."""
    return next((value for rank, value in enumerate(sorted(late_ns), 1) if rank >= share * len(late_ns)), 0)


def make_lines(parts: list[tuple[int, list[int], list[int], float]]) -> list[Line]:
    """Lines with cumulative counters, from what happened between them."""
    lines: list[Line] = []
    at_ns, counted = ZERO_NS - 2 * SECOND, [0] * 6
    for passed_ns, more, late_ns, busy_ratio in parts:
        at_ns, counted = at_ns + passed_ns, [a + b for a, b in zip(counted, more, strict=True)]
        counts = [[value, late_ns.count(value)] for value in sorted(set(late_ns))]
        lateness = {f"p{share}": quantile(late_ns, share / 100) for share in (50, 90, 99)}
        line = dict(zip(COUNTERS, counted, strict=False)) | {"drops": dict(zip(CAUSES, counted[4:], strict=True))}
        line |= {"at_ns": at_ns, "busy_ratio": busy_ratio, "lateness_counts": counts}
        lines.append(line | {"lateness_ns": lateness | {"max": max(late_ns, default=0)}})
    return lines


@given(st.lists(increments, max_size=25))
def test_sums_over_the_seconds_are_the_last_counters(parts: list[tuple[int, list[int], list[int], float]]) -> None:
    lines = make_lines(parts)
    seconds = second_values(spans(lines), ZERO_NS).values()
    last = lines[-1] if lines else {"drops": {}} | dict.fromkeys(COUNTERS, 0)
    for name in COUNTERS:
        assert sum(values[name] for values in seconds) == last[name]
    assert sum(values["dropped"] for values in seconds) == sum(last["drops"].values())
    for cause in CAUSES:
        assert sum(json.loads(values["drops"])[cause] for values in seconds) == last["drops"].get(cause, 0)
    if lines:
        assert last_counters(lines) == {name: last[name] for name in COUNTERS} | {
            "dropped": sum(last["drops"].values())
        }


@given(st.lists(increments, min_size=1, max_size=25))
def test_a_second_has_the_lateness_and_load_of_all_its_lines(
    parts: list[tuple[int, list[int], list[int], float]],
) -> None:
    lines = make_lines(parts)
    found = second_values(spans(lines), ZERO_NS)
    seconds = [(line["at_ns"] - ZERO_NS) // SECOND for line in lines]
    assert set(found) == set(seconds)
    for second, values in found.items():
        mine = [part for part, of in zip(parts, seconds, strict=True) if of == second]
        late_ns = [value for _, _, late, _ in mine for value in late]
        assert values["lateness_max_ns"] == max(late_ns, default=0)
        for share in (50, 90, 99):
            assert values[f"lateness_p{share}_ns"] == quantile(late_ns, share / 100)
        passed_ns = [SECOND if part is parts[0] else part[0] for part in mine]  # the first line's time is not known
        busy_ns = sum(part[3] * passed for part, passed in zip(mine, passed_ns, strict=True))
        if sum(passed_ns):
            assert abs(values["busy_ratio"] - busy_ns / sum(passed_ns)) < 1e-9
        else:
            assert values["busy_ratio"] == max(part[3] for part in mine)


@given(st.lists(increments, min_size=1, max_size=25))
def test_busy_spans_cover_all_time_once(parts: list[tuple[int, list[int], list[int], float]]) -> None:
    found = spans(make_lines(parts))
    judged = list(busy_spans(found))
    ends = [found[0].at_ns - SECOND, *(at_ns for at_ns, _ in judged)]
    lengths = [after - before for before, after in pairwise(ends)]
    assert all(length >= SECOND // 2 for length in lengths)
    assert found[-1].at_ns - ends[-1] < SECOND // 2, "what is left is too short to be judged"
    covered = [span for span in found if span.at_ns <= ends[-1]]
    spent = sum(ratio * length for (_, ratio), length in zip(judged, lengths, strict=True))
    busy = sum((span.busy_ratio or 0) * span.passed_ns for span in covered)
    assert abs(spent - busy) < 1


def test_lines_without_histograms_keep_their_largest_lateness() -> None:
    """Runs of older versions have none: what is not known is left out, not made up."""
    lines = make_lines([(0, [0] * 6, [20_000, 90_000], 0.1), (1_000_000, [0] * 6, [300_000_000], 0.1)])
    for line in lines:
        del line["lateness_counts"]
    (values,) = second_values(spans(lines), ZERO_NS).values()
    assert values["lateness_max_ns"] == 300_000_000
    assert "lateness_p99_ns" not in values
    (alone,) = second_values(spans(lines[:1]), ZERO_NS).values()
    assert alone["lateness_p99_ns"] == 90_000


def test_lines_from_before_the_hosts_are_there_make_no_second() -> None:
    assert spans([{"at_ns": 0, "frames_in": 0}]) == []


def test_a_quantile_of_no_frames_is_zero() -> None:
    assert quantile_ns(merge_counts([[], []]), 0.99) == 0
