"""Faults in the simulator: what cuts, pauses and worse links do to frames and connections, to the instant."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.simulator.changes import ChangingNetwork
from harness.simulator.hosts import TIMEOUT
from harness.simulator.network import SimulatedNetwork
from harness.simulator.simulation import Simulation
from peer.core.contract import Message, Publish, message_id
from peer.testing import outputs_under_hash_seeds
from tests.examples import examples
from tests.simulation.test_simulation import Record, links, simulate
from topologies.network import Network
from topologies.timeline import Change, Timeline

MS = 1_000_000
SECOND = 1_000_000_000
DELAY_MS = 50
ROUND_TRIP = 2 * DELAY_MS * MS
TIMEOUT_NS = 200 * MS + ROUND_TRIP
"""The first retransmission timeout: 300 ms."""


def change(from_s: float, to_s: float | None, **values: Any) -> Change:
    return Change(
        from_ns=round(from_s * SECOND), to_ns=None if to_s is None else round(to_s * SECOND), fault=0, **values
    )


def cut(from_s: float, to_s: float | None, one: int = 0, other: int = 1, **values: Any) -> Change:
    """A cut of the packets from one node to another."""
    return change(from_s, to_s, sources=(one,), destinations=(other,), is_cut=True, **values)


def both(from_s: float, to_s: float | None, **values: Any) -> list[Change]:
    return [cut(from_s, to_s, 0, 1, **values), cut(from_s, to_s, 1, 0, **values)]


def changing(changes: list[Change], nodes: int = 2, **values: Any) -> ChangingNetwork:
    return ChangingNetwork(Timeline(Network(nodes, lambda a, b: DELAY_MS, **values), changes), Random(1))


def run(
    changes: list[Change], sends_s: dict[float, int], until_s: float = 100, nodes: int = 2, **values: Any
) -> tuple[Simulation, Record]:
    """Simulate nodes that are all linked, of which some publish at some instants, and return what was recorded."""
    simulation, record = simulate(nodes, {"name": "complete"}, changing(changes, nodes, **values))
    for number, (at_s, node) in enumerate(sends_s.items()):
        message = Publish((0,), message_id(node, number), b"x")
        simulation.at(round(at_s * SECOND), simulation.give, node, message)
    simulation.run(round(until_s * SECOND))
    return simulation, record


def publisher(message: Message) -> int:
    return message.message_id >> 32


def arrivals_s(record: Record, node: int) -> list[float]:
    """When messages of others were delivered to a node."""
    return [at_ns / SECOND for at_ns, receiver, message in record.delivered if receiver == node != publisher(message)]


def downs_s(record: Record, after_s: float = 9) -> list[tuple[int, float, str]]:
    return [
        (event.node, event.ts_ns / SECOND, event.reason)
        for event in record.events
        if event.event == "remove_peer" and event.ts_ns > after_s * SECOND
    ]


def retransmissions_s(at_s: float) -> list[float]:
    """When a kernel sends bytes again that it sent at an instant: 0.3 s later, and after twice the time before."""
    return [at_s + 0.3 * (2**number - 1) for number in range(1, 7)]


def test_no_frame_enters_a_cut_link_and_it_arrives_with_the_first_retransmission_after_the_cut():
    _, record = run(both(10, 15), {10: 0})
    assert retransmissions_s(10)[3:5] == [pytest.approx(14.5), pytest.approx(19.3)]
    assert arrivals_s(record, 1) == [pytest.approx(19.35)]
    assert downs_s(record) == []


@pytest.mark.parametrize(("values", "arrives_s"), [({}, 10.01), ({"loses_in_flight": True}, 19.31)])
def test_what_is_under_way_when_a_link_is_cut_arrives_or_is_lost(values: dict[str, Any], arrives_s: float):
    _, record = run(both(10, 15, **values), {9.96: 0})
    assert arrivals_s(record, 1) == [pytest.approx(arrives_s)]


def test_a_frame_that_has_arrived_before_the_cut_is_not_sent_again_but_its_acknowledgement_is_awaited():
    """The acknowledgement of the first frame enters the cut, so the second one waits for that of a retransmission."""
    _, record = run(both(10, 15), {9.96: 0, 12: 0})
    assert arrivals_s(record, 1) == [pytest.approx(10.01), pytest.approx(19.26 + 0.1 + 0.05)]


def test_frames_that_follow_lost_ones_wait_for_the_acknowledgement():
    _, record = run(both(10, 15), {10: 0, 10.1: 0, 13: 0, 17: 0, 19.5: 0})
    assert arrivals_s(record, 1) == [pytest.approx(19.35), *[pytest.approx(19.45)] * 3, pytest.approx(19.55)]


def test_a_frame_within_the_first_timeout_overtakes_no_lost_one():
    """The cut ends before the sender knows of the loss: the second frame crosses, and waits for the first one."""
    _, record = run(both(10, 10.1), {10: 0, 10.2: 0})
    assert arrivals_s(record, 1) == [pytest.approx(10.35), pytest.approx(10.35)]


@pytest.mark.parametrize("direction", [(0, 1), (1, 0)])
def test_a_one_way_cut_stops_acknowledgements_or_data(direction: tuple[int, int]):
    """Without acknowledgements data arrives at once, and later data waits."""
    _, record = run([cut(10, 15, *direction)], {10: 0, 12: 0})
    first_s = 19.35 if direction == (0, 1) else 10.05
    assert arrivals_s(record, 1) == [pytest.approx(first_s), pytest.approx(19.45)]


def test_a_connection_ends_thirty_seconds_after_bytes_that_are_not_acknowledged():
    simulation, record = run(both(10, None), {12: 0}, until_s=39.9)
    assert downs_s(record) == []
    simulation.run(45 * SECOND)
    assert downs_s(record) == [(1, pytest.approx(40), TIMEOUT), (0, pytest.approx(42), TIMEOUT)]
    assert links(simulation) == set()


def test_an_idle_connection_survives_a_cut_of_less_than_its_silence_and_ends_with_a_longer_one():
    for length_s, ends in ((29, []), (31, [0, 1])):
        _, record = run(both(10, 10 + length_s), {})
        assert [(node, at_s, reason) for node, at_s, reason in downs_s(record)] == [
            (node, pytest.approx(40), TIMEOUT) for node in ends
        ]


def test_a_side_that_was_not_told_learns_from_the_answer_to_what_it_sends():
    """Node 0 gives up at 40 s. Its packets are cut, those of node 1 are not, so node 1 hears at its next frame."""
    changes = [cut(10, 41, 0, 1)]
    _, record = run(changes, {10: 0, 42: 1})
    assert downs_s(record)[0] == (0, pytest.approx(40), TIMEOUT)
    assert [reason for node, _, reason in downs_s(record) if node == 1] != [""]
    assert sorted(arrivals_s(record, 0)) == sorted(set(arrivals_s(record, 0)))


def test_nodes_link_again_after_a_cut_that_has_broken_their_link():
    simulation, record = run(both(10, 45), {11: 0, 12: 1})
    assert {reason for _, _, reason in downs_s(record)} == {TIMEOUT}
    assert links(simulation) == {(0, 1), (1, 0)}


@pytest.mark.parametrize(("heals_s", "linked_s"), [(0.5, 1.15), (2, 3.15), (6, 7.15)])
def test_a_handshake_across_a_cut_succeeds_with_a_repeated_first_packet(heals_s: float, linked_s: float):
    """Linux sends it again after 1, 3 and 7 s. Node 0 opens the link, and Hello takes another round trip."""
    simulation, record = simulate(2, {"name": "complete"}, changing(both(0, heals_s)))
    simulation.run(20 * SECOND)
    ups = [event.ts_ns / SECOND for event in record.events if event.event == "add_peer"]
    assert min(ups) == pytest.approx(linked_s, abs=0.15)
    assert links(simulation) == {(0, 1), (1, 0)}


def test_a_handshake_across_a_lasting_cut_fails_after_ten_seconds():
    simulation, record = simulate(2, {"name": "random", "degree": 1}, changing(both(0, None)))
    simulation.run(9 * SECOND)
    waiting = simulation.hosts[0].table.wanted[1]
    assert waiting == 1
    simulation.run(11 * SECOND)
    assert simulation.hosts[0].table.wanted[1] == 2
    simulation.run(300 * SECOND)
    assert not any(event.event in ("send", "add_peer") for event in record.events)


def test_a_crash_across_a_cut_is_noticed_after_it():
    simulation, record = simulate(2, {"name": "complete"}, changing(both(10, 15)))
    simulation.at(12 * SECOND, simulation.crash, 1)
    simulation.run(29 * SECOND)
    assert [down for down in downs_s(record) if down[0] == 0] == []
    simulation.run(60 * SECOND)
    assert [down for down in downs_s(record) if down[0] == 0] == [(0, pytest.approx(30.1), "ConnectionResetError")]


def test_a_paused_peer_does_nothing_and_then_all_it_has_missed_in_order():
    pause = [change(10, 70, paused=(1,))]
    simulation, record = run(pause, {20: 0, 30: 0, 40: 1}, until_s=69.9)
    assert arrivals_s(record, 1) == arrivals_s(record, 0) == []
    simulation.run(100 * SECOND)
    delivered = [(at_ns / SECOND, node, publisher(message)) for at_ns, node, message in record.delivered]
    assert [each for each in delivered if each[1] == 1] == [(70, 1, 0), (70, 1, 0), (70, 1, 1)]
    assert downs_s(record) == [], "its host acknowledges"


def test_a_paused_peer_is_woken_by_the_stop():
    simulation, record = run([change(10, None, paused=(1,))], {20: 0}, until_s=50)
    assert arrivals_s(record, 1) == []
    simulation.quiesce()
    assert arrivals_s(record, 1) == [50]


def test_timers_wait_for_the_end_of_a_pause():
    """A node that is paused while it waits to open a link opens it afterwards."""
    simulation, _ = simulate(2, {"name": "random", "degree": 1}, changing([change(0, 5, paused=(0, 1))]))
    simulation.run(round(4.9 * SECOND))
    assert not links(simulation)
    simulation.run(8 * SECOND)
    assert links(simulation) == {(0, 1), (1, 0)}


def test_a_longer_delay_holds_for_frames_that_are_sent_within_its_time():
    worse = [change(10, 20, sources=(0,), destinations=(1,), delay_factor=4.0)]
    _, record = run(worse, {9.99: 0, 10: 0, 19.99: 0, 20: 0})
    assert arrivals_s(record, 1) == [pytest.approx(at_s) for at_s in (10.04, 10.2, 20.19, 20.19)]


def test_a_lower_rate_delays_frames_at_the_access_link():
    """1,000 bytes and their headers take 8.9 s at 1 kbit/s, and no time at all without a limit."""
    limited = [change(10, 20, up=(0,), rate_mbit=0.001)]
    simulation, record = simulate(2, {"name": "complete"}, changing(limited))
    for number, at_s in enumerate((9, 10, 30)):
        message = Publish((0,), message_id(0, number), bytes(1000))
        simulation.at(at_s * SECOND, simulation.give, 0, message)
    simulation.run(60 * SECOND)
    first, second, third = arrivals_s(record, 1)
    assert (first, third) == (pytest.approx(9.05), pytest.approx(30.05))
    assert 18.5 < second < 19.5


def test_a_further_loss_delays_frames():
    lossy = [change(10, 20, sources=(0,), destinations=(1,), loss_ratio=0.9)]
    _, record = run(lossy, {5: 0, 10: 0}, until_s=100_000)
    first, second = arrivals_s(record, 1)
    assert (first, second > 10.3) == (pytest.approx(5.05), True)


instants = st.integers(100, 300).map(lambda tenths: tenths / 10)


@st.composite
def some_cuts(draw: st.DrawFn) -> list[Change]:
    cuts = []
    for _ in range(draw(st.integers(1, 4))):
        from_s, ends = draw(instants), draw(st.sampled_from([(0, 1), (1, 0)]))
        length_s = draw(st.sampled_from([0.1, 0.5, 2.0, 7.0, 20.0]))
        cuts.append(cut(from_s, from_s + length_s, *ends, loses_in_flight=draw(st.booleans())))
    return cuts


def passes(cuts: list[Change], source: int, leaves_ns: int, arrives_ns: int) -> bool:
    """Whether no cut takes a packet, by a look at every cut."""
    return not any(
        each.sources == (source,)
        and (
            each.from_ns <= leaves_ns < (each.to_ns or 0)
            or (each.loses_in_flight and leaves_ns < each.from_ns < arrives_ns)
        )
        for each in cuts
    )


@given(some_cuts(), st.lists(st.tuples(instants, st.integers(0, 1)), max_size=12))
@settings(max_examples=examples(150), deadline=None)
def test_frames_arrive_in_order_only_through_open_links_and_no_later_than_connections_live(
    cuts: list[Change], sends: list[tuple[float, int]]
):
    simulation, record = run(cuts, dict(sends), until_s=400)
    offsets: dict[tuple[str, str | None], int] = {}
    sent_ns = {
        (event.conn, event.direction, event.off): event.ts_ns for event in record.events if event.event == "send"
    }
    for event in record.events:
        if event.event != "receive":
            continue
        stream = event.conn, event.direction
        assert event.off == offsets.get(stream, 0), "in order, each once, none left out"
        offsets[stream] = event.off + event.len_bytes
        assert event.ts_ns - sent_ns[*stream, event.off] < 31 * SECOND
        left_ns = event.ts_ns - DELAY_MS * MS
        if event.ts_ns - sent_ns[*stream, event.off] == DELAY_MS * MS:
            assert passes(cuts, event.peer, left_ns, event.ts_ns)
    assert links(simulation) == {(0, 1), (1, 0)}, "they link again, and both ends agree"
    simulation.quiesce()
    simulation.close()
    simulation.run(600 * SECOND)
    assert not links(simulation)


def test_a_run_without_changes_that_matter_equals_one_without_changes():
    later = [cut(500, 501), change(500, 501, paused=(0, 1))]
    sends = {5.0: 0, 6.0: 1}
    _, changed = run(later, sends, until_s=60)
    simulation, plain = simulate(
        2, {"name": "complete"}, SimulatedNetwork(Network(2, lambda a, b: DELAY_MS), Random(1))
    )
    for number, (at_s, node) in enumerate(sends.items()):
        simulation.at(round(at_s * SECOND), simulation.give, node, Publish((0,), message_id(node, number), b"x"))
    simulation.run(60 * SECOND)
    assert changed.events == plain.events


SCRIPT = """
import hashlib, msgspec
from tests.simulation.test_cuts import both, change, run
lossy = change(5, 40, sources=(0, 1), destinations=(2, 3), loss_ratio=0.3)
changes = [*both(10, 25), change(12, 30, paused=(2,)), lossy]
_, record = run(changes, {5 + second: second % 4 for second in range(40)}, nodes=4)
print(hashlib.sha256(msgspec.json.encode([msgspec.to_builtins(event) for event in record.events])).hexdigest())
"""


def test_the_same_run_under_any_hash_seed():
    assert len(set(outputs_under_hash_seeds(SCRIPT))) == 1
