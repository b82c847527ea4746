"""The replay of bottlenecks against the data plane's own code: it predicts each packet's delay, and names each drop."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.checks.evidence import Outcome, Timed, WrongLinks
from metrics.tables.bottlenecks import Crossed
from tests.examples import examples
from tests.property.test_dataplane_bottlenecks import Limit, chain, frames, limits
from tests.property.test_dataplane_forwarder import HOSTS, MS_NS
from tests.property.test_transits import NODES, Analysis, Wire, play, total

Actions = list[tuple[int, int, int, int]]


@settings(max_examples=examples(60), deadline=None)
@given(
    frames,
    st.tuples(limits, limits),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([0.0, 1.0, 8.0]),
    st.sampled_from([(0.0, 0.0), (2.0, 10.0)]),
    st.integers(1, 2),
)
def test_a_sound_plane_has_no_error_at_bottlenecks(
    actions: Actions, both: tuple[Limit, Limit], loss_ratio: float, jitter_ms: float, access: Limit, buckets: int
) -> None:
    rates = dict(zip(("rate_mbit", "queue_ms"), access, strict=True))
    wire = play(actions, bottlenecks=chain(*both), loss_ratio=loss_ratio, jitter_ms=jitter_ms, **rates)
    network = wire.bench.forwarder.network
    with Analysis(wire, buckets=buckets) as analysis:
        for rows in analysis.rows():
            assert rows.deviation_ms[rows.timed].tolist() == [0.0] * int(rows.timed.sum())
        assert total(analysis, lambda rows: rows.came) == len(wire.bench.written)
        assert total(analysis, lambda rows: rows.full & rows.came) == 0
        assert loss_ratio or total(analysis, lambda rows: rows.lost) == 0
        dropped, drops = total(analysis, lambda rows: rows.full & ~rows.came), wire.bench.drops
        assert dropped >= drops.get("queue", 0), "a lost packet might have met a full queue later"
        assert loss_ratio or dropped == drops.get("queue", 0)
        found = {row["link"]: row["queue_drops"] for row in analysis.queues.to_pylist()}
        assert found == {each.link: each.drops for each in network.bottleneck_counters()}


def crowd(**changes: Any) -> Wire:
    """Send bursts of four packets of 1000 bytes from host 0 to host 2, over a link of 8 Mbit/s behind host 1."""
    return play(
        [(MS_NS if number % 4 else 100 * MS_NS, 0, 2, 1000) for number in range(400)],
        bottlenecks=chain((0.0, 0.0), (4.0, 100.0)),
        **changes,
    )


def shift(wire: Wire, late_ns: int) -> None:
    """Let every packet arrive later."""
    wire.crossings = [(at_ns + (0 if rest[2] else late_ns), *rest) for at_ns, *rest in wire.crossings]


def test_waits_at_a_bottleneck_are_part_of_what_is_asked() -> None:
    """A packet takes 2 ms; the four of a burst come 1 ms apart, and wait 0, 1, 2 and 3 ms."""
    with Analysis(crowd()) as analysis:
        found = analysis.weigh()
        [queue] = [row for row in analysis.queues.to_pylist() if row["link"] == 2]
    assert isinstance(found.rated, Timed) and found.rated.arrived == 400
    assert found.rated.errors.max == 0
    assert found.queues == Outcome(400, 0, total=400)
    assert (queue["rate_mbit"], queue["queue_ms"], queue["queue_drops"]) == (4.0, 100.0, 0)
    assert (queue["wait_ms_p50"], queue["wait_ms_max"]) == (1.5, 3.0)


def test_packets_that_wait_at_their_source_hold_back_none_that_reach_a_bottleneck_before_them() -> None:
    """Packets of 6 ms each leave host 0 until 24 ms; one of host 1 is at the bottleneck before all of them."""
    actions = [*[(1, 0, 2, 1500)] * 4, (MS_NS, 1, 1, 24)]
    wire = play(actions, bottlenecks=chain((0.0, 0.0), (4.0, 100.0)), rate_mbit=2.0, queue_ms=100.0)
    assert len(wire.bench.written) == len(actions)
    with Analysis(wire) as analysis:
        deviations = [each for rows in analysis.rows() for each in rows.deviation_ms[rows.timed].tolist()]
    assert deviations == [0.0] * len(actions)


def test_a_bottleneck_whose_packets_are_late_is_named() -> None:
    wire = crowd()
    shift(wire, MS_NS)
    with Analysis(wire) as analysis:
        found = analysis.weigh()
    assert found.wrong_rates == WrongLinks(1, "link from b to c: 400 of 400 packets")
    assert found.wrong_queues == WrongLinks()


def test_a_bottleneck_that_keeps_packets_against_its_queue_is_named() -> None:
    """With a queue of 2 ms, the fourth packet of a burst would have been dropped."""
    wire = crowd()
    wire.bench.bottlenecks = chain((0.0, 0.0), (4.0, 2.0))
    with Analysis(wire) as analysis:
        found = analysis.weigh()
    assert found.wrong_queues == WrongLinks(1, "link from b to c: 100 of 400 packets")
    assert found.wrong_rates == WrongLinks()


def test_a_packet_that_vanishes_before_a_queue_with_room_is_no_drop_of_the_queue() -> None:
    wire = crowd()
    wire.crossings = [row for row in wire.crossings if row[3] or row[4] % 4]
    with Analysis(wire) as analysis:
        found = analysis.weigh()
    assert found.wrong_queues == WrongLinks(1, "link from b to c: 100 of 400 packets")
    assert not any(row["queue_drops"] for row in analysis.queues.to_pylist())


@given(st.lists(st.tuples(st.integers(-1, HOSTS), st.integers(-1, HOSTS)), max_size=30))
def test_packets_are_counted_at_each_bottleneck_that_they_cross(pairs: list[tuple[int, int]]) -> None:
    crossed = Crossed(chain((1.0, 1.0), (1.0, 1.0)), NODES)
    source, destination = (np.array([pair[end] for pair in pairs], np.int64) for end in (0, 1))
    stops = [[stop.bottleneck for stop in crossed.stops(*pair)] for pair in pairs]
    assert crossed.through(source, destination).tolist() == [bool(each) for each in stops]
    counted = crossed.count(source, destination).tolist()
    assert counted == [sum(number in each for each in stops) for number in range(4)]
    assert crossed.stops(0, 1) and not crossed.stops(0, HOSTS)


@pytest.mark.parametrize("number", range(4))
def test_a_bottleneck_has_the_names_of_its_routers(number: int) -> None:
    names = ["from a to b", "from b to a", "from b to c", "from c to b"]
    assert Crossed(chain((1.0, 1.0), (1.0, 1.0)), NODES).name(number) == f"link {names[number]}"
