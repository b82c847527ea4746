"""Packets on links that faults have changed: judged against what was asked at the instant at which they left."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from metrics.asked import ASKED
from metrics.changes import GRACE_NS, PairChanges
from metrics.checks import check_run
from metrics.rundir import FAILED, INVALID, PASSED, Check
from tests.property.test_dataplane_forwarder import HOSTS, MS_NS
from tests.property.test_transits import Analysis, Wire
from tests.sound_evidence import SOUND, change
from topologies.network import Network, uniform_network
from topologies.timeline import Change, Timeline, find_disorder

SECOND_NS = 1_000_000_000
SLOWER = Change(2 * SECOND_NS, 0, 12 * SECOND_NS, sources=(0,), destinations=(1, 2), delay_factor=3.0)
SHORT = replace(SLOWER, to_ns=3_400_000_000)
LOSSY = replace(SLOWER, delay_factor=1.0, loss_ratio=0.2)
JITTERY = replace(SLOWER, delay_factor=1.0, jitter_ms=1.0)
DOUBLED = replace(SLOWER, delay_factor=1.0, duplicate_ratio=0.1)
REORDERED = replace(SLOWER, delay_factor=1.0, reorder_ratio=0.05, reorder_ms=25.0)
DELAY_NS = 10 * MS_NS


def play(applied: Change | None, length_s: int = 16) -> Wire:
    """Let host 0 send to host 1 every 10 ms through a plane that applies a change."""
    wire = Wire()
    network = wire.bench.forwarder.network
    timeline = Timeline(uniform_network(HOSTS, 0.0), [] if applied is None else [applied])
    left = list(timeline.instants)
    for at_ns in range(0, length_s * SECOND_NS, DELAY_NS):
        wire.bench.advance(at_ns)
        while left and left[0] <= at_ns:
            network.change(timeline.active(left.pop(0)))
        wire.send(0, 1, 100)
    return wire.finish()


def judge(wire: Wire, asked: Change) -> dict[str, Check]:
    """The checks of packets, by name."""
    with Analysis(wire, changes=[asked]) as analysis:
        transits = analysis.weigh()
    names = ("wire_delay", "wire_delay_jittered", "packet_loss", "jitter", "packets_arrive", "wire_delay_overtaken")
    return {each.name: each for each in check_run(change(SOUND, transits=transits)) if each.name in names}


def failed(found: dict[str, Check]) -> set[str]:
    return {name for name, each in found.items() if each.outcome == FAILED}


@pytest.mark.parametrize("asked", [SLOWER, SHORT, LOSSY, JITTERY, DOUBLED, REORDERED])
def test_what_was_applied_as_asked_passes(asked: Change) -> None:
    found = judge(play(asked), asked)
    assert failed(found) == set()
    assert "while faults changed links" in found["wire_delay" if not asked.jitter_ms else "jitter"].detail


@pytest.mark.parametrize(
    ("applied", "asked", "check"),
    [
        (None, SLOWER, "wire_delay"),
        (None, SHORT, "wire_delay"),
        (replace(SLOWER, delay_factor=2.9), SLOWER, "wire_delay"),
        (None, LOSSY, "packet_loss"),
        (replace(LOSSY, loss_ratio=0.3), LOSSY, "packet_loss"),
        (None, JITTERY, "jitter"),
        (replace(JITTERY, jitter_ms=0.5), JITTERY, "jitter"),
        (LOSSY, SLOWER, "packets_arrive"),
        (None, DOUBLED, "packets_arrive"),
        (replace(DOUBLED, duplicate_ratio=0.2), DOUBLED, "packets_arrive"),
        (DOUBLED, SLOWER, "packets_arrive"),
        (None, REORDERED, "wire_delay_overtaken"),
        (replace(REORDERED, reorder_ms=20.0), REORDERED, "wire_delay_overtaken"),
        (replace(REORDERED, reorder_ratio=0.2), REORDERED, "wire_delay"),
        (REORDERED, SLOWER, "wire_delay"),
    ],
)
def test_a_change_that_was_not_applied_or_is_another_one_makes_the_run_invalid(
    applied: Change | None, asked: Change, check: str
) -> None:
    """Even if fewer than 1 % of all packets left while it should have held (``SHORT``)."""
    found = judge(play(applied, 80 if asked is SHORT else 16), asked)
    assert check in failed(found)
    assert found[check].severity == INVALID


def test_what_was_never_asked_for_is_found_too() -> None:
    assert "wire_delay" in failed(judge(play(SLOWER), replace(SLOWER, sources=(1,))))


def test_packets_around_the_begin_and_the_end_are_left_out() -> None:
    """Until ``GRACE_NS`` and the delay asked for before have passed; and those that are under way at the instant."""
    with Analysis(play(SLOWER), changes=[SLOWER]) as analysis:
        found = analysis.weigh()
    assert found.degraded is not None
    begin_ns, end_ns = SLOWER.from_ns + GRACE_NS + DELAY_NS, SLOWER.to_ns - 3 * DELAY_NS
    assert found.degraded.sent == (end_ns - begin_ns) // DELAY_NS
    after_ns = 16 * SECOND_NS - (SLOWER.to_ns + GRACE_NS + 3 * DELAY_NS)
    assert found.sent == (SLOWER.from_ns - DELAY_NS + after_ns) // DELAY_NS
    assert (found.steady.errors.max, found.degraded.steady.errors.max) == (0.0, 0.0)


def test_without_such_a_fault_there_is_one_judgement() -> None:
    cut = Change(2 * SECOND_NS, 0, 3 * SECOND_NS, sources=(0,), destinations=(2,), is_cut=True)
    with Analysis(play(None, 1), changes=[cut]) as analysis:
        assert analysis.weigh().degraded is None
    assert judge(play(None, 1), cut)["wire_delay"].outcome == PASSED


hosts = st.sets(st.integers(0, HOSTS - 1), min_size=1).map(lambda each: tuple(sorted(each)))


@st.composite
def some_change(draw: st.DrawFn) -> Change:
    from_ns = draw(st.integers(0, 20))
    return Change(
        from_ns,
        0,
        draw(st.none() | st.integers(0, 9).map(lambda length: from_ns + length)),
        sources=draw(hosts),
        destinations=draw(hosts),
        delay_factor=draw(st.sampled_from([1.0, 3.0])),
        jitter_ms=draw(st.sampled_from([0.0, 2.0])),
        loss_ratio=draw(st.sampled_from([0.0, 0.5])),
        duplicate_ratio=draw(st.sampled_from([0.0, 0.25])),
        reorder_ratio=draw(st.sampled_from([0.0, 0.5])),
        reorder_ms=draw(st.sampled_from([5.0, 7.0])),
    )


questions = st.lists(st.tuples(st.integers(0, HOSTS - 1), st.integers(0, HOSTS - 1), st.integers(0, 30)), min_size=1)


@given(st.lists(some_change(), max_size=4), questions)
def test_what_is_asked_of_many_pairs_is_what_the_timeline_asks_of_each(
    changes: list[Change], asked: list[tuple[int, int, int]]
) -> None:
    source, destination, at_ns = (np.array(column) for column in zip(*asked, strict=True))
    without = {"delay_ms": 10.0, "jitter_ms": 1.0, "loss_ratio": 0.1}
    network = Network(
        HOSTS,
        lambda *_: without["delay_ms"],
        jitter_ms=lambda *_: without["jitter_ms"],
        loss_ratio=lambda *_: without["loss_ratio"],
    )
    timeline, found = Timeline(network, changes), PairChanges(changes, HOSTS)
    for name in ASKED:
        values = found.alter(name, np.full(len(asked), without[name]), source, destination, at_ns)
        assert values.tolist() == pytest.approx([getattr(timeline.asked(*each), name) for each in asked])
    disorder = np.array(found.disorder(source, destination, at_ns)).T
    assert disorder.tolist() == [list(find_disorder(timeline.active(instant), *ends)) for *ends, instant in asked]
    altered = [timeline.asked(*each) != network.asked(*each[:2]) for each in asked]
    assert (found.alters(source, destination, at_ns) | ~np.array(altered)).all()
