"""Packets through access links whose rates faults have changed: replayed at the rates that held at their instants."""

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from metrics.changes import PairChanges
from metrics.checks import check_run
from metrics.rundir import FAILED, INVALID, Check
from tests.examples import examples
from tests.property.test_dataplane_forwarder import HOSTS, MS_NS
from tests.property.test_transits import Analysis, Wire, access, steps
from tests.sound_evidence import SOUND, change
from topologies.model import DOWN, UP
from topologies.network import Network, uniform_network
from topologies.timeline import Change, Timeline

SECOND_NS = 1_000_000_000
LOWER_UP = Change(2 * SECOND_NS, 0, 7 * SECOND_NS, up=(0,), rate_mbit=1.0)
LOWER_DOWN = replace(LOWER_UP, up=(), down=(1,))
SIDES = [LOWER_UP, LOWER_DOWN]
BURST = range(4)
"""A packet of 1,250 bytes takes 10 ms at the lower rate, so that a burst of so many packets takes 40 of 50 ms."""


def play(
    actions: Iterable[tuple[int, int, int, int]], applied: Iterable[Change], late_ns: int = 0, **network: float
) -> Wire:
    """Let a plane carry packets, given as (wait in ns, source, hosts ahead, bytes), and apply changes.

    Args:
        actions: the packets.
        applied: what the plane applies.
        late_ns: for how long before each change the plane lets nothing out.
        network: of ``Bench``.
    """
    wire = Wire(**network)
    bench, timeline = wire.bench, Timeline(uniform_network(HOSTS, 0.0), applied)
    left = list(timeline.instants)

    def advance(until_ns: int) -> None:
        while left and left[0] <= until_ns:
            at_ns = left.pop(0)
            bench.advance(max(at_ns - 1 - late_ns, bench.now_ns))
            bench.now_ns = at_ns
            bench.forwarder.reach_links(at_ns - 1)
            bench.forwarder.network.change(timeline.active(at_ns))
        bench.advance(until_ns)

    for wait_ns, source, ahead, size in actions:
        advance(bench.now_ns + wait_ns)
        wire.send(source, (source + ahead) % HOSTS, size)
    advance(max((bench.now_ns, *timeline.instants)))
    return wire.finish()


def play_bursts(*applied: Change, rate_mbit: float = 4.0, queue_ms: float = 200.0) -> Wire:
    """Let host 0 send a burst to host 1 every 50 ms, for 10 s."""
    bursts = [(0 if number else 50 * MS_NS, 0, 1, 1250) for _ in range(200) for number in BURST]
    return play(bursts, applied, rate_mbit=rate_mbit, queue_ms=queue_ms)


def judge(wire: Wire, asked: Change) -> dict[str, Check]:
    """The checks of packets, by name."""
    with Analysis(wire, changes=[asked]) as analysis:
        transits = analysis.weigh()
    names = ("wire_delay", "access_rate", "access_queue", "packets_arrive")
    return {each.name: each for each in check_run(change(SOUND, transits=transits)) if each.name in names}


def failed(found: dict[str, Check]) -> set[str]:
    return {name for name, each in found.items() if each.outcome == FAILED}


@pytest.mark.parametrize("asked", SIDES)
@pytest.mark.parametrize(("rate_mbit", "queue_ms"), [(4.0, 200.0), (0.0, 200.0), (4.0, 15.0), (0.0, 15.0)])
def test_a_rate_that_was_applied_as_asked_passes(asked: Change, rate_mbit: float, queue_ms: float) -> None:
    """Also where the hosts have no rate without the fault, and where its queue drops packets."""
    wire = play_bursts(asked, rate_mbit=rate_mbit, queue_ms=queue_ms)
    found = judge(wire, asked)
    assert failed(found) == set()
    assert "while faults changed links" in found["access_rate"].detail
    assert (wire.bench.drops.get("queue", 0) >= 100) == (queue_ms < 20)


@pytest.mark.parametrize("asked", SIDES)
@pytest.mark.parametrize("rate_mbit", [4.0, 0.0])
@pytest.mark.parametrize("factor", [0.0, 1.5, 0.9])
def test_a_rate_that_was_not_applied_or_is_another_one_makes_the_run_invalid(
    asked: Change, rate_mbit: float, factor: float
) -> None:
    """Without a factor the plane applies nothing."""
    found = judge(play_bursts(replace(asked, rate_mbit=asked.rate_mbit * factor), rate_mbit=rate_mbit), asked)
    assert "access_rate" in failed(found)
    assert found["access_rate"].severity == INVALID


@pytest.mark.parametrize("applied", SIDES)
@pytest.mark.parametrize(("rate_mbit", "check"), [(4.0, "access_rate"), (0.0, "wire_delay")])
def test_a_rate_that_was_never_asked_for_is_found(applied: Change, rate_mbit: float, check: str) -> None:
    assert check in failed(judge(play_bursts(applied, rate_mbit=rate_mbit), replace(applied, up=(2,), down=(2,))))


@pytest.mark.parametrize("asked", SIDES)
def test_a_packet_is_lost_as_asked_only_if_the_queue_was_full(asked: Change) -> None:
    """The last packet of every fifth burst vanishes while the rate is lower; a queue of 200 ms never drops it."""
    wire = play_bursts(asked)
    wire.crossings = [each for each in wire.crossings if each[3] or each[4] % 20 != 19 or not 200 < each[4] < 500]
    assert failed(judge(wire, asked)) == {"access_queue"}


@pytest.mark.parametrize("bursts_sent", [1500, pytest.param(8000, marks=pytest.mark.long)])
def test_a_fault_of_few_packets_is_judged_apart(bursts_sent: int) -> None:
    """Of 6,000 packets, or 32,000, 80 meet the lower rate."""
    short = replace(LOWER_UP, to_ns=3 * SECOND_NS)
    bursts = [(0 if number else 50 * MS_NS, 0, 1, 1250) for _ in range(bursts_sent) for number in BURST]
    wire = play(bursts, [], rate_mbit=4.0, queue_ms=200.0)
    with Analysis(wire, changes=[short]) as analysis:
        found = analysis.weigh()
    assert found.degraded is not None
    assert (found.sent, found.degraded.sent) == (4 * bursts_sent - 80, 80)
    assert failed(judge(wire, short)) == {"access_rate"}


@st.composite
def some_change(draw: st.DrawFn) -> Change:
    """A change of rates, or of delays, which may become shorter."""
    hosts = st.sets(st.integers(0, HOSTS - 1)).map(lambda each: tuple(sorted(each)))
    from_ns = draw(st.integers(0, 100 * MS_NS))
    values = {"from_ns": from_ns, "fault": 0, "to_ns": from_ns + draw(st.integers(0, 60 * MS_NS))}
    if draw(st.booleans()):
        return Change(**values, up=draw(hosts), down=draw(hosts), rate_mbit=draw(st.sampled_from([0.3, 2.0, 20.0])))
    return Change(**values, sources=draw(hosts), destinations=draw(hosts), delay_factor=draw(st.sampled_from([0.2, 3])))


@settings(max_examples=examples(60), deadline=None)
@given(steps, st.lists(some_change(), max_size=4), access, st.sampled_from([0, 3 * MS_NS]))
def test_a_sound_plane_has_no_error_whatever_faults_do(
    actions: list[tuple[int, int, int, int]], changes: list[Change], link: tuple[float, float], late_ns: int
) -> None:
    """Even around the instants of changes, and if the plane is busy before them."""
    wire = play(actions, changes, late_ns, rate_mbit=link[0], queue_ms=link[1])
    with Analysis(wire, changes=changes) as analysis:
        for rows in analysis.rows():
            arrived = rows.left & rows.came
            late_ms = np.unique(rows.deviation_ms[arrived])
            assert late_ms.min(initial=0.0) == 0.0 and late_ms.max(initial=0.0) <= late_ns / MS_NS
            assert late_ns or not late_ms.any()
            assert not (rows.full & arrived).any()
            assert (rows.full | ~rows.left | arrived).all()


instants = st.integers(0, 160 * MS_NS)
questions = st.lists(st.tuples(st.sampled_from([UP, DOWN]), st.integers(0, HOSTS - 1), instants), min_size=1)


@given(st.lists(some_change(), max_size=4), questions, st.sampled_from([0.0, 1.0]))
def test_the_rates_of_many_links_are_those_that_the_timeline_asks_of_each(
    changes: list[Change], asked: list[tuple[int, int, int]], rate_mbit: float
) -> None:
    network = Network(HOSTS, lambda *_: 0.0, rate_mbit=[rate_mbit] * 2 * HOSTS)
    timeline, found = Timeline(network, changes), PairChanges(changes, HOSTS)
    for side, host, at_ns in asked:
        rates = found.limit(side, np.array([rate_mbit, 7.0]), np.array([host, -1]), np.array([at_ns, at_ns]))
        assert rates.tolist() == [timeline.link(side * HOSTS + host, at_ns).rate_mbit, 7.0]
