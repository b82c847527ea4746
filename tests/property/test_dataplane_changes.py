"""The data plane's network under scheduled changes, against what the timeline asks."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harness.planes.pcapng import OUTBOUND
from harness.planes.userspace.upcoming import NEVER, Upcoming
from tests.property.test_dataplane_forwarder import HOSTS, MS_NS, Bench, address
from topologies.jitter import REACH
from topologies.network import Link, Network, ask_path
from topologies.timeline import Change, Reach, Timeline, link_with

SECOND = 1_000_000_000

groups = st.sets(st.integers(0, HOSTS - 1)).map(lambda hosts: tuple(sorted(hosts)))


@st.composite
def some_change(draw: st.DrawFn) -> Change:
    """A change as the verbs make them: of pairs, or of the rates of access links."""
    from_s = draw(st.integers(0, 5))
    to_s = draw(st.none() | st.integers(1, 5).map(lambda length: from_s + length))
    times = {"from_ns": from_s * SECOND, "to_ns": None if to_s is None else to_s * SECOND, "fault": 0}
    if draw(st.booleans()):
        return Change(**times, up=draw(groups), down=draw(groups), rate_mbit=draw(st.sampled_from([1.0, 8.0])))
    return Change(
        **times,
        sources=draw(groups),
        destinations=draw(groups),
        is_cut=draw(st.booleans()),
        delay_factor=draw(st.sampled_from([1.0, 3.0])),
        jitter_ms=draw(st.sampled_from([0.0, 2.0])),
        loss_ratio=draw(st.sampled_from([0.0, 0.5])),
    )


@given(st.lists(some_change(), max_size=5), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=12))
def test_every_pair_and_access_link_is_as_the_timeline_asks(changes: list[Change], used: list[tuple[int, int]]) -> None:
    bench = Bench(delay_ms=10.0, rate_mbit=4.0, queue_ms=50.0)
    network = bench.forwarder.network
    made = Network(HOSTS, lambda *_: 10.0, rate_mbit=[4.0] * 2 * HOSTS, queue_ms=[50.0] * 2 * HOSTS)
    timeline = Timeline(made, changes, zero_ns=7)
    upcoming = Upcoming(changes, HOSTS, 7)
    applied = []
    while upcoming.next_ns != NEVER:
        at_ns = upcoming.next_ns
        for source, destination in used:  # pairs in use are remembered across changes
            _ = network.links[source].route[inet(destination)]
        network.change(upcoming.changes())
        upcoming.note(at_ns + 1)
        applied.append(at_ns)
        for source in range(HOSTS):
            for destination in range(HOSTS):
                pair, asked = network.links[source].route[inet(destination)], timeline.asked(source, destination, at_ns)
                assert pair.delay_ns == round(asked.delay_ms * MS_NS)
                below_ns = REACH * asked.jitter_ms * MS_NS  # the delay is larger than that
                assert (pair.jitter.below_ns if pair.jitter else 0.0) == below_ns
                assert (pair.loss_ratio, pair.dead_end) == (asked.loss_ratio, "cut" if asked.is_cut else None)
            up, down = (timeline.link(number, at_ns).rate_mbit for number in (source, HOSTS + source))
            assert (network.links[source].up_byte_ns, network.links[source].down_byte_ns) == (8000 / up, 8000 / down)
    assert tuple(applied) == timeline.instants
    assert upcoming.applied_ns == [each + 1 for each in applied]


@given(some_change(), some_change())
def test_changes_also_reach_a_pair_that_was_set(one: Change, other: Change) -> None:
    bench = Bench(delay_ms=10.0)
    bench.forwarder.network.set_pair(0, 1, Link(40.0, 1.0, 0.25))
    bench.forwarder.network.change(tuple(Reach(change, HOSTS) for change in (one, other)))
    made = Network(HOSTS, lambda *_: 40.0, jitter_ms=lambda *_: 1.0, loss_ratio=lambda *_: 0.25)
    changes = [Reach(change, HOSTS) for change in (one, other)]
    asked = ask_path(link_with(changes, made, number) for number in made.path(0, 1))
    pair = bench.forwarder.network.links[0].route[inet(1)]
    assert (pair.delay_ns, pair.loss_ratio) == (round(asked.delay_ms * MS_NS), asked.loss_ratio)
    assert pair.dead_end == ("cut" if asked.is_cut else None)


def inet(host: int) -> bytes:
    return bytes(map(int, address(host).split(".")))


def cut(**values: Any) -> Reach:
    return Reach(Change(from_ns=0, fault=0, sources=(0,), destinations=(1,), is_cut=True, **values), HOSTS)


def test_no_frame_enters_a_cut_pair_and_those_under_way_arrive() -> None:
    bench = Bench(delay_ms=10.0)
    first = bench.send(0, 1)
    bench.forwarder.recorder = recorder = Recorder()  # type: ignore[assignment]
    bench.forwarder.network.change((cut(),))
    bench.send(0, 1)
    back, other = bench.send(1, 0), bench.send(0, 2)
    assert recorder.outbound == [1, 0], "the frame that was refused is in no capture"
    bench.drain()
    assert sorted(number for *_, number in bench.written) == [first, back, other]
    assert bench.drops == {"cut": 1}
    bench.forwarder.network.change(())
    healed = bench.send(0, 1)
    bench.drain()
    assert bench.written[-1][-1] == healed


class Recorder:
    """Stands for a capture."""

    def __init__(self) -> None:
        self.outbound: list[int] = []

    def add(self, host: int, tap: int, _: int, __: bytes) -> None:
        if tap == OUTBOUND:
            self.outbound.append(host)


def test_a_cut_may_lose_what_is_under_way() -> None:
    bench = Bench(delay_ms=10.0)
    bench.send(0, 1)
    kept = bench.send(1, 0)
    bench.forwarder.drop_in_flight(cut(loses_in_flight=True))
    bench.drain()
    assert [number for *_, number in bench.written] == [kept]
    assert bench.drops == {"cut_in_flight": 1}


def test_what_has_passed_the_cut_link_arrives() -> None:
    """A frame that waits at the access link of its destination is behind the pair's link."""
    bench = Bench(delay_ms=10.0, rate_mbit=1.0, queue_ms=1000.0)
    bench.send(0, 1, 1250)  # 10 ms up, 10 ms on the link, 10 ms down
    bench.advance(25 * MS_NS)
    bench.send(0, 1, 1250)
    bench.forwarder.drop_in_flight(cut(loses_in_flight=True))
    bench.drain()
    assert len(bench.written) == 1
    assert bench.drops == {"cut_in_flight": 1}


def test_changes_that_lose_frames_do_so_when_they_begin() -> None:
    changes = [
        Change(from_ns=0, to_ns=SECOND, fault=0, sources=(0,), destinations=(1,), is_cut=True, loses_in_flight=True),
        Change(from_ns=0, to_ns=2 * SECOND, fault=1, sources=(1,), destinations=(0,), is_cut=True),
    ]
    upcoming = Upcoming(changes, HOSTS, 0)
    losses = []
    while upcoming.next_ns != NEVER:
        losses.append([each.change for each in upcoming.losses()])
        upcoming.note(upcoming.next_ns)
    assert losses == [[changes[0]], [], []]
