"""What checks say if a run has too little for them to judge."""

from typing import Any

import pytest
from msgspec import structs

from metrics.checks import check_run
from metrics.checks.evidence import Jitter, LinkFrames, Losses, Matching, Timed
from metrics.checks.rule import Absent
from metrics.recount import Recount
from metrics.rundir import NOT_APPLICABLE, NOT_JUDGED, PASSED
from tests.sound_evidence import SHORT, SOUND, change, failures


@pytest.mark.parametrize(("samples", "outcome"), [(900, PASSED), (899, NOT_JUDGED), (0, NOT_JUDGED)])
def test_packets_that_were_not_timed_are_missed(samples: int, outcome: str) -> None:
    """Of 1,000 packets that have neither jitter nor an access link with a rate."""
    found = check_run(change(SOUND, transits={"steady": Timed(1000, structs.replace(SHORT, samples=samples))}))
    check = next(check for check in found if check.name == "wire_delay")
    assert (check.outcome, check.material) == (outcome, 1000)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"losses": Losses(900, 0, 9.0, 8.9, 0, 0)}, "packet_loss"),
        ({"jitter": Jitter(99, 9.0, 2.0, 9.0, 2.0), "jittered": Timed(99, SHORT)}, "jitter"),
        ({"queues": Absent("no rate")}, "access_queue"),
        ({"rated": Absent("no rate")}, "access_rate"),
        ({"steady": Absent("all have jitter")}, "wire_delay"),
        ({"jittered": Absent("no jitter")}, "wire_delay_jittered"),
        ({"overtaken": Absent("no fault asks for it")}, "wire_delay_overtaken"),
        ({"plain_sent": 0}, "packets_arrive"),
    ],
)
def test_what_an_experiment_gives_too_little_of_is_said(changes: dict[str, Any], name: str) -> None:
    check = next(check for check in check_run(change(SOUND, transits=changes)) if check.name == name)
    assert (check.outcome, check.tested) == (NOT_APPLICABLE, 0)
    assert check.detail


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"losses": Losses(9000, 4500, 9.0, 8.9, pairs=1, wrong_pairs=0)}, "packet_loss"),
        ({"losses": Losses(900, 9, 9.0, 8.9, pairs=1, wrong_pairs=1)}, "packet_loss"),
        ({"plain_sent": 0, "invented": 2}, "packets_arrive"),
        ({"jitter": Jitter(100, 50.0, 2.0, 2.0, 2.0)}, "jitter"),
    ],
)
def test_what_is_wrong_is_found_although_other_tests_lack_material(changes: dict[str, Any], name: str) -> None:
    assert set(failures(change(SOUND, transits=changes))) == {name}


def test_jitter_of_packets_whose_delays_are_not_known_is_missed() -> None:
    unclear = change(SOUND, transits={"jitter": Jitter(99, 0.0, 2.0, 2.0, 2.0), "jittered": Timed(100, SHORT)})
    assert next(check for check in check_run(unclear) if check.name == "jitter").outcome == NOT_JUDGED


def test_what_nobody_recorded_is_not_said_to_be_missing() -> None:
    assert failures(change(SOUND, carried=None)) == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"traces": {"incomplete": {2: 7}}},
        {"publications": {"messages": 21}},
        {"publications": {"messages": 19, "with_schedule": 19}},
    ],
)
def test_deliveries_of_a_run_that_is_not_as_planned_are_those_of_the_traces(changes: dict[str, Any]) -> None:
    """Then the recount, which knows the plan alone, expects what cannot be there."""
    found = change(SOUND, recount=Recount(99, 0), **changes)
    assert "delivery_rows" in failures(change(SOUND, recount=Recount(99, 0)))
    assert "delivery_rows" not in failures(found)


@pytest.mark.parametrize(
    ("frames", "outcome", "said"),
    [
        (None, NOT_APPLICABLE, "no frame of this protocol says which topics a link carries"),
        (LinkFrames(Matching(4, 0, 0), 9, 4, 2), NOT_APPLICABLE, "2 of 4 ends of connections"),
        (LinkFrames(Matching(5, 0, 0), 9, 4, 2), PASSED, ""),
        (LinkFrames(Matching(0, 0, 0), 0, 0, 0), NOT_JUDGED, "0 of 0 could be tested"),
    ],
)
def test_links_whose_frames_are_missing_or_cut_are_not_compared(
    frames: LinkFrames | None, outcome: str, said: str
) -> None:
    found = change(SOUND, links={"frames": frames})
    [check] = [check for check in check_run(found) if check.name == "logical_link_frames"]
    assert check.outcome == outcome
    assert said in check.detail


def test_links_that_copies_do_not_show_are_not_compared() -> None:
    found = change(SOUND, links={"logical": None})
    [check] = [check for check in check_run(found) if check.name == "logical_links"]
    assert (check.outcome, check.tested) == (NOT_APPLICABLE, 0)
    assert "where there is no logical link" in check.detail
