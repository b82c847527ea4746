"""How long a session waits for its executors, and what it says if it gets none."""

import pytest
from pyspark.sql import SparkSession

from metrics.executors.cluster import MasterError
from metrics.session import SETTLED_S, WAIT_S, expected_executors, is_cluster, session, wait_until_settled


@pytest.mark.parametrize(
    ("master", "cluster", "expected"),
    [
        ("local", False, None),
        ("local[4]", False, None),
        ("local[4,2]", False, None),
        ("local-cluster[3,2,1024]", True, 3),
        ("local-cluster[ 2 , 1 , 512 ]", True, 2),
        ("spark://somewhere:7077", True, None),
    ],
)
def test_what_a_masters_name_says(master: str, cluster: bool, expected: int | None) -> None:
    assert is_cluster(master) is cluster
    assert expected_executors(master) == expected


def waited_s(arrivals_s: list[float], expected: int | None, told_s: list[float] | None = None) -> float:
    """How long the wait is when executors register at these times; and when arrivals were told."""
    passed = 0.0

    def sleep(seconds: float) -> None:
        nonlocal passed
        passed += seconds

    def count() -> int:
        return sum(at <= passed for at in arrivals_s)

    arrived = (lambda: None) if told_s is None else lambda: told_s.append(passed)
    wait_until_settled(count, expected, arrived, now_s=lambda: passed, sleep=sleep)
    return passed


def test_it_ends_with_the_last_executor_that_is_expected() -> None:
    assert waited_s([1.0, 5.0, 12.0], 3) == pytest.approx(12.0, abs=0.2)


def test_it_ends_when_no_more_come() -> None:
    assert waited_s([1.0, 3.0, 5.5], None) == pytest.approx(5.5 + SETTLED_S, abs=0.2)


@pytest.mark.parametrize("expected", [None, 3])
def test_each_arrival_is_told_at_once(expected: int | None) -> None:
    told_s: list[float] = []
    waited_s([1.0, 1.0, 3.0], expected, told_s)
    assert told_s == pytest.approx([1.0, 3.0], abs=0.2)


@pytest.mark.parametrize("expected", [None, 2])
def test_it_ends_at_last_where_none_comes(expected: int | None) -> None:
    assert waited_s([], expected) == pytest.approx(WAIT_S, abs=0.2)


@pytest.mark.parametrize(("master", "error"), [("spark://nobody:7077", MasterError), ("local[2]", RuntimeError)])
def test_a_master_that_does_not_answer_is_an_error_in_words(
    master: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(builder: SparkSession.Builder) -> SparkSession:
        raise RuntimeError("Cannot call methods on a stopped SparkContext\n\tat java.base/java.lang.Thread.run")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", refuse)
    with pytest.raises(error) as raised, session(master):
        pass
    if error is MasterError:
        assert str(raised.value) == f"{master}: Spark cannot begin: does a master answer at this address?"
