"""What Trellis computes stays as it is, unless a commit changes the digests on record, too."""

from pathlib import Path

import pytest

from tests import digests
from tests.examples import long_unless


def test_plans_have_the_hashes_on_record() -> None:
    golden = digests.read_golden()["plans"]
    found = dict(digests.digest_plans())
    assert len(found) >= 2  # the others need data
    assert {name: golden.get(name) for name in found} == found


ANALYSED = {"gossipsub", "spidercast", "topiary"}
"""The protocols whose runs are analysed in every run of the tests: one code makes the tables of all protocols."""


@pytest.mark.parametrize("protocol", digests.protocols())
def test_plans_and_traces_of_simulated_runs_have_the_digests_on_record(protocol: str, tmp_path: Path) -> None:
    found = digests.digest_run(protocol, tmp_path, analysed=False)
    recorded = digests.read_golden()["runs"].get(protocol, {})
    assert len(found) == 2
    assert {name: recorded.get(name) for name in found} == found


@pytest.mark.parametrize("protocol", long_unless(ANALYSED, digests.protocols()))
def test_simulated_runs_with_churn_and_adversaries_have_the_digests_on_record(protocol: str, tmp_path: Path) -> None:
    found = digests.digest_run(protocol, tmp_path)
    assert len(found) > 15
    assert digests.differences(digests.read_golden()["runs"].get(protocol, {}), found) == []


def test_digests_tell_what_changed() -> None:
    assert digests.digest({"a": 1.0000000001}) == digests.digest({"a": 1.0})
    assert digests.digest({"a": 1.0001}) != digests.digest({"a": 1.0})
    assert digests.digest([1, 2]) != digests.digest([2, 1])
    assert digests.differences({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}) == ["b", "c"]
