"""What stalls of the host explain, against a count nanosecond by nanosecond."""

import json
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from metrics.recorded.stalls import SLACK_NS, Stalls, merge, read_stalls
from metrics.rundir import Stall
from metrics.rundir.files import STALLS_FILE
from tests.fabricate import Fabrication

LONGEST = 40
NONE = np.empty((0, 2), np.int64)

intervals = st.lists(st.tuples(st.integers(0, LONGEST), st.integers(0, LONGEST)).map(sorted), max_size=8)


def as_array(pairs: list[list[int]]) -> np.ndarray:
    return np.array(pairs, np.int64).reshape(-1, 2)


def scaled(pairs: list[list[int]]) -> np.ndarray:
    """So that the slack is one unit of the small numbers."""
    return as_array(pairs) * SLACK_NS


@given(intervals)
def test_merged_intervals_are_sorted_disjoint_and_cover_the_same(pairs: list[list[int]]) -> None:
    merged = merge(as_array(pairs))
    assert (merged[1:, 0] > merged[:-1, 1]).all()
    assert (merged[:, 0] <= merged[:, 1]).all()
    inside = {point for start, end in pairs for point in range(start, end + 1)}
    covered = {point for start, end in merged.tolist() for point in range(start, end + 1)}
    assert inside <= covered
    assert {start for start, _ in merged.tolist()} | {end for _, end in merged.tolist()} <= inside
    assert sum(end - start for start, end in merged.tolist()) == covered_units(pairs, 0, LONGEST)


def covered_units(pairs: list[list[int]], due: int, came: int) -> int:
    """How many units of an interval lie inside any other."""
    return sum(any(start <= unit and unit + 1 <= end for start, end in pairs) for unit in range(due, came))


@given(intervals, st.lists(st.tuples(st.integers(-2, LONGEST), st.integers(-2, LONGEST)).map(sorted), min_size=1))
def test_samples_are_explained_by_what_stalls_cover_of_them(pairs: list[list[int]], samples: list[list[int]]) -> None:
    stalls = Stalls(merge(scaled(pairs)), NONE)
    widened = [[start - 1, end + 1] for start, end in pairs]
    due, came = scaled(samples).T
    covered = [min(covered_units(pairs, *sample) + 2, covered_units(widened, *sample)) for sample in samples]
    assert (stalls.covered_ns(due, came) / SLACK_NS).tolist() == covered
    for limit in (0, 3, 20):
        expected = [
            limit < late and late - inside <= limit
            for late, inside in zip(((came - due) // SLACK_NS).tolist(), covered, strict=True)
        ]
        assert stalls.excuse(due, came, limit * SLACK_NS).tolist() == expected


@given(intervals, st.lists(st.integers(-2, LONGEST + 2), min_size=1))
def test_an_instant_is_explained_within_a_widened_stall(pairs: list[list[int]], instants: list[int]) -> None:
    stalls = Stalls(merge(scaled(pairs)), NONE)
    expected = [any(start - 1 <= at <= end + 1 for start, end in pairs) for at in instants]
    assert stalls.explain(np.array(instants, np.int64) * SLACK_NS).tolist() == expected


def test_many_short_stalls_do_not_explain_a_long_delay() -> None:
    """Stalls of 0.6 ms every 2.5 ms, widened, would cover all of it; a quarter of it is what they took."""
    starts = np.arange(0, 100_000_000, 2_500_000)
    stalls = Stalls(np.column_stack([starts, starts + 600_000]), NONE)
    due, came = np.array([10_000_000]), np.array([60_000_000])
    assert stalls.covered_ns(due, came).tolist() == [20 * 600_000 + 2 * SLACK_NS]
    assert not stalls.excuse(due, came, 5_000_000).any()


def test_the_slack_is_real_time(tmp_path: Path) -> None:
    run_dir = Fabrication(seed=1, nodes=2, messages=1).write(tmp_path / "run")
    (run_dir / STALLS_FILE).write_bytes(Stall("host", 5_000_000, 6_000_000, 0).line())
    plan = json.loads((run_dir / "plan.json").read_bytes())
    plan["experiment"]["time_dilation"] = 10.0
    (run_dir / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    stalls = read_stalls(run_dir)
    assert stalls.covered_ns(np.array([0]), np.array([10_000_000])).tolist() == [1_200_000]
    assert stalls.explain(np.array([4_899_999, 4_900_000, 6_100_000, 6_100_001])).tolist() == [False, True, True, False]


def test_a_run_without_the_file_has_no_stalls(tmp_path: Path) -> None:
    stalls = read_stalls(tmp_path)
    assert (stalls.host.shape, stalls.plane.shape) == ((0, 2), (0, 2))
    assert stalls.explain(np.array([0, 5])).tolist() == [False, False]
    assert stalls.covered_ns(np.array([0]), np.array([5])).tolist() == [0]


def test_lines_of_both_sources_are_read_up_to_one_that_was_cut_off(tmp_path: Path) -> None:
    lines = [Stall("host", 30, 40, 1), Stall("plane", 5, 9), Stall("host", 10, 20, 0), Stall("host", 15, 25, 1)]
    text = b"".join(stall.line() for stall in lines)
    (tmp_path / STALLS_FILE).write_bytes(text + lines[0].line()[:-8])
    stalls = read_stalls(tmp_path)
    assert stalls.host.tolist() == [[10, 25], [30, 40]]
    assert stalls.plane.tolist() == [[5, 9]]
