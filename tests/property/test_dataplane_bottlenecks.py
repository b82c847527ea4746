"""Bottlenecks in the forwarding code: each frame against a plain simulation of queues on a chain of routers."""

from collections import defaultdict
from heapq import heappop, heappush

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.planes.userspace.links import Pair
from harness.planes.userspace.trips import Part
from tests.examples import examples
from tests.property.test_dataplane_forwarder import HOSTS, MS_NS, Bench
from topologies.bottlenecks import Bottlenecks
from topologies.link_graph import GraphLink, LinkGraph, Router
from topologies.network import Link
from topologies.timeline import Change, Reach

Limit = tuple[float, float]
"""Rate and queue of a link."""

DELAYS_MS = (10.0, 30.0)


def chain(first: Limit, second: Limit) -> Bottlenecks:
    """Hosts 0, 1 and 2 in a row: 10 ms between the first two, 30 ms between the others; both directions alike."""
    links = []
    for number, limit in enumerate((first, second)):
        values = dict(zip(("rate_mbit", "queue_ms"), limit, strict=True))
        links += [GraphLink(number, number + 1, DELAYS_MS[number], **values)]
        links += [GraphLink(number + 1, number, DELAYS_MS[number], **values)]
    return Bottlenecks(LinkGraph(tuple(Router(name) for name in "abc"), tuple(links)), range(HOSTS))


limits = st.tuples(st.sampled_from([0.0, 0.5, 4.0]), st.sampled_from([0.0, 3.0, 40.0]))
frames = st.lists(
    st.tuples(st.integers(1, 4 * MS_NS), st.integers(0, HOSTS - 1), st.integers(1, HOSTS - 1), st.integers(24, 1500)),
    max_size=60,
)


def play(bench: Bench, actions: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Send the frames. Return (instant, source, destination, size) of each."""
    sent = []
    for wait_ns, source, ahead, size in actions:
        bench.advance(bench.now_ns + wait_ns)
        bench.send(source, destination := (source + ahead) % HOSTS, size)
        sent.append((bench.now_ns, source, destination, size))
    bench.drain()
    return sent


def forward(sent: list[tuple[int, int, int, int]], first: Limit, second: Limit) -> dict[int, int]:
    """When each frame arrives that is not dropped, by its number: each link has a queue, then a delay."""
    events = [(at_ns, number, number, source) for number, (at_ns, source, *_) in enumerate(sent)]
    free_ns: dict[tuple[int, int], int] = defaultdict(int)
    arrived, pushed = {}, len(sent)
    while events:
        at_ns, _, number, router = heappop(events)
        _, _, destination, size = sent[number]
        if router == destination:
            arrived[number] = at_ns
            continue
        ahead = router + (1 if destination > router else -1)
        which = min(router, ahead)
        rate_mbit, queue_ms = (first, second)[which]
        if rate_mbit:
            wait_ns = max(free_ns[router, ahead] - at_ns, 0)
            if wait_ns > queue_ms * MS_NS:
                continue
            at_ns = free_ns[router, ahead] = at_ns + wait_ns + int(size * 8000 / rate_mbit)
        pushed += 1
        heappush(events, (at_ns + round(DELAYS_MS[which] * MS_NS), pushed, number, ahead))
    return arrived


def bench_of(first: Limit, second: Limit, **network: float) -> Bench:
    """Return a bench on the chain, with the delays of its paths."""
    bench = Bench(bottlenecks=chain(first, second), **network)
    for source in range(HOSTS):
        for destination in range(HOSTS):
            low, high = sorted((source, destination))
            link = Link(sum(DELAYS_MS[low:high]), bench.jitter_ms, bench.loss_ratio)
            bench.forwarder.network.set_pair(source, destination, link)
    return bench


@settings(max_examples=examples(100), deadline=None)
@given(frames, limits, limits)
def test_frames_wait_and_are_dropped_as_at_queues_one_after_the_other(
    actions: list[tuple[int, int, int, int]], first: Limit, second: Limit
) -> None:
    bench = bench_of(first, second)
    expected = forward(play(bench, actions), first, second)
    assert {number: at_ns for at_ns, *_, number in bench.written} == expected
    assert bench.drops.get("queue", 0) == len(actions) - len(expected)
    counters = bench.forwarder.network.bottleneck_counters()
    assert [each.link for each in counters] == [each.link for each in bench.bottlenecks.all]
    assert sum(each.drops for each in counters) == len(actions) - len(expected)


@settings(max_examples=examples(60), deadline=None)
@given(frames, limits, limits, st.sampled_from([0.0, 0.3]), st.integers(0, 99))
def test_jitter_and_loss_keep_the_order_of_a_pair(
    actions: list[tuple[int, int, int, int]], first: Limit, second: Limit, loss_ratio: float, seed: int
) -> None:
    bench = bench_of(first, second, jitter_ms=4.0, loss_ratio=loss_ratio, seed=seed)
    play(bench, actions)
    pairs = defaultdict(list)
    for _, destination, source, number in bench.written:
        pairs[source, destination].append(number)
    assert all(numbers == sorted(numbers) for numbers in pairs.values())
    assert loss_ratio or "loss" not in bench.drops


def test_a_lost_frame_takes_its_place_in_the_queue() -> None:
    """Of frames that are lost in the end, as of others, more than the queue's 10 ms are dropped before."""
    bench = bench_of((0.8, 10.0), (0.0, 0.0), loss_ratio=0.9)
    for _ in range(10):
        bench.send(0, 1, 1000)
    bench.drain()
    assert bench.drops["queue"] == 8
    [first, *_] = bench.forwarder.network.bottleneck_counters()
    assert (first.link, first.frames, first.frame_bytes, first.drops) == (0, 2, 2000, 8)


def test_flows_that_cross_a_bottleneck_share_it_and_those_of_other_links_do_not() -> None:
    bench = bench_of((0.0, 0.0), (8.0, 1000.0))
    for number in range(20):
        bench.send(number % 2, 2, 1000)
        bench.send(2, number % 2, 1000)
    bench.drain()
    for ends in ((0, 2), (1, 2)):
        arrivals = [at_ns for at_ns, to, of, _ in bench.written if (of, to) == ends]
        assert len(arrivals) == 10
    to_last = sorted(at_ns for at_ns, to, *_ in bench.written if to == 2)
    assert to_last[0] == 31 * MS_NS, "host 1 is at the bottleneck"
    assert to_last[9] == 40 * MS_NS
    assert to_last[10:] == [(41 + number) * MS_NS for number in range(10)]
    back = sorted(at_ns for at_ns, to, of, _ in bench.written if (of, to) == (2, 1))
    assert back == [(32 + 2 * number) * MS_NS for number in range(10)], "the other direction has a queue of its own"


def test_a_frame_on_its_way_meets_no_later_change_of_its_pair() -> None:
    bench = bench_of((0.0, 0.0), (8.0, 100.0))
    first = bench.send(0, 2, 1000)
    bench.forwarder.network.set_pair(0, 2, Link(4.0))
    second = bench.send(0, 2, 1000)
    bench.drain()
    assert [(number, at_ns) for at_ns, *_, number in bench.written] == [(first, 41 * MS_NS), (second, 41 * MS_NS)], (
        "it overtakes none"
    )


def test_a_cut_takes_the_frames_before_and_behind_a_bottleneck() -> None:
    bench = bench_of((8.0, 100.0), (8.0, 100.0))
    for _ in range(30):
        bench.send(0, 2, 1000)
    bench.advance(20 * MS_NS)
    bench.forwarder.drop_in_flight(Reach(Change(0, 0, sources=(0,), destinations=(2,), is_cut=True), HOSTS))
    bench.drain()
    assert not bench.written
    assert bench.drops == {"cut_in_flight": 30}


def test_a_pair_without_bottlenecks_has_no_parts() -> None:
    bench = bench_of((0.0, 0.0), (8.0, 100.0))
    bench.send(0, 1, 100)
    assert held(bench, 0, 1).first is None and not held(bench, 0, 1).uneven
    bench.send(0, 2, 100)
    assert isinstance(held(bench, 0, 2).first, Part)


def held(bench: Bench, source: int, destination: int) -> Pair:
    return bench.forwarder.network.links[source].route[bytes([10, 0, 0, destination + 1])]


@pytest.mark.parametrize("jitter_ms", [0.0, 3.0])
def test_a_queue_that_is_empty_adds_only_the_time_to_send(jitter_ms: float) -> None:
    limited, free = (bench_of(first, (0.0, 0.0), jitter_ms=jitter_ms) for first in ((8.0, 0.0), (0.0, 0.0)))
    for bench in (limited, free):
        for number in range(50):
            bench.advance(number * 20 * MS_NS)
            bench.send(0, 1, 1000)
        bench.drain()
    added_ns = [one[0] - other[0] for one, other in zip(limited.written, free.written, strict=True)]
    if not jitter_ms:
        assert added_ns == [MS_NS] * 50
    assert all(abs(each - MS_NS) <= MS_NS // 2 for each in added_ns), "jitter moves by half of the time in between"
