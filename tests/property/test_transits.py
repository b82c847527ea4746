"""Transits of packets: against the data plane's own code on a simulated clock, and against plain counting."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.checks.evidence import Jitter as Found
from metrics.checks.evidence import Losses, Outcome, Timed, Transits, WrongLinks
from metrics.checks.rule import Absent
from metrics.executors.in_process import InProcess
from metrics.pcap.schemas import CROSSINGS
from metrics.recorded.stalls import Stalls
from metrics.rundir.files import CHANGES_FILE
from metrics.tables.bottleneck_replay import replay_bottlenecks
from metrics.tables.bottlenecks import QUEUES, Crossed
from metrics.tables.moments import Moments
from metrics.tables.shares import all_shares, write_shares
from metrics.tables.transit_evidence import (
    GRACE_NS,
    LINK_LATE_RATIO,
    Counts,
    JudgedTransits,
    TransitRules,
    find_links,
    judge_losses,
    weigh_transits,
)
from metrics.tables.transits import TRANSITS, TransitSources, build_transits, match
from tests.examples import examples
from tests.property.test_dataplane_forwarder import HOSTS, MS_NS, Bench, ip_frame
from topologies.jitter import Jitter
from topologies.network import Link
from topologies.timeline import Change, encode_changes

SECOND_NS = 1_000_000_000
FAR_NS = 10**15
NO_STALLS = Stalls(np.empty((0, 2), np.int64), np.empty((0, 2), np.int64))
NODES = {number: number for number in range(HOSTS)}
"""Here a host's address is its number."""

Crossing = tuple[int, int, int, bool, int, int]


class Wire:
    """A data plane whose crossings are recorded as the capture records them."""

    def __init__(self, **network: Any) -> None:
        self.bench = Bench(**network)
        self.crossings: list[Crossing] = []
        self.sizes: list[int] = []
        self._network = network

    def send(self, source: int, destination: int, size: int) -> None:
        number = len(self.sizes)
        self.sizes.append(size)
        self.crossings.append((self.bench.now_ns, source, destination, True, number, size))
        self.bench.give(source, ip_frame(source, destination, size, number))

    def finish(self) -> "Wire":
        self.bench.drain()
        for at_ns, destination, source, number in self.bench.written:
            self.crossings.append((at_ns, source, destination, False, number, self.sizes[number]))
        return self


def table(crossings: list[Crossing]) -> pa.Table:
    columns = list(zip(*((*each, each[-1]) for each in crossings), strict=True)) or [()] * len(CROSSINGS)
    return pa.table(dict(zip(CROSSINGS.names, columns, strict=True)), CROSSINGS)


def in_order(rows: pa.Table) -> pa.Table:
    """The crossings of a network without duplication and reordering, for ``match``."""
    nothing = np.zeros(len(rows), np.int64)
    return rows.append_column("is_copy", pa.array(nothing != 0)).append_column("reorder_ns", pa.array(nothing))


class Analysis(tempfile.TemporaryDirectory[str]):
    """The two passes over some crossings, in so many buckets."""

    def __init__(
        self,
        wire: Wire,
        *,
        until_ns: int = FAR_NS,
        limit_ms: float = 0.5,
        buckets: int = 2,
        changes: Sequence[Change] = (),
    ) -> None:
        super().__init__()
        asked = {name: wire.bench.__dict__[name] for name in ("delay_ms", "jitter_ms", "loss_ratio")}
        self.folder, self.buckets = Path(self.name), buckets
        self.pairs = self.folder / "asked"
        for name in ("crossings", "asked"):
            (self.folder / name).mkdir()
        for name, value in asked.items():
            np.save(self.pairs / f"{name}.npy", np.full((HOSTS, HOSTS), value))
        access = [[getattr(link, name) for link in wire.bench.access] for name in ("rate_mbit", "queue_ms")]
        np.save(self.pairs / "access.npy", np.repeat(np.array(access)[:, :, None], HOSTS + 1, axis=2))
        if changes:
            (self.pairs / CHANGES_FILE).write_bytes(encode_changes(changes))
        rows = table(wire.crossings)
        for bucket in range(buckets):
            own = rows.filter(pa.array(rows["src"].to_numpy() % buckets == bucket))
            pq.write_table(own, self.folder / "crossings" / f"part-0-{bucket}.parquet")
        crossed = Crossed(wire.bench.bottlenecks, NODES)
        self.sources = TransitSources(
            self.folder / "crossings", self.pairs, NODES, NODES, Jitter(wire.bench.seed), buckets, crossed
        )
        self.rules = TransitRules(self.pairs, (0, until_ns), limit_ms, NO_STALLS, crossed)
        self.executor = InProcess(1).__enter__()
        transits = {"transits": self.folder / "transits"}
        if crossed:
            transits["through"] = self.folder / "through"
        write_shares(self.executor, lambda share: build_transits(self.sources, share), transits, buckets)
        self.queues = QUEUES.empty_table()
        if crossed:
            self.queues = replay_bottlenecks(self.executor, self.sources, transits["through"], transits["transits"])

    def rows(self, *, degraded: bool = False) -> list[JudgedTransits]:
        """What is judged, by buckets of destinations."""
        found = []
        for share in all_shares(self.buckets):
            parts = [
                pq.read_table(part) for part in sorted((self.folder / "transits").glob(f"*-{share.number}.parquet"))
            ]
            rows = pa.concat_tables([TRANSITS.empty_table(), *parts])
            rows = rows.sort_by([("due_ns", "ascending"), ("sent_ns", "ascending")])
            found.append(JudgedTransits(self.rules, rows, degraded=degraded))
        return found

    def weigh(self) -> Transits:
        return weigh_transits(
            self.executor,
            self.rules,
            self.folder / "transits",
            self.folder / "pairs.parquet",
            self.folder / "weighed",
            self.buckets,
        )

    def __enter__(self) -> "Analysis":  # type: ignore[override]
        return self

    def __exit__(self, *exception: Any) -> None:
        self.executor.__exit__(*exception)
        super().__exit__(*exception)


def total(analysis: Analysis, count: Callable[[JudgedTransits], Any]) -> int:
    return sum(int(np.count_nonzero(count(rows))) for rows in analysis.rows())


steps = st.lists(
    st.tuples(st.integers(1, 4 * MS_NS), st.integers(0, HOSTS - 1), st.integers(1, HOSTS - 1), st.integers(24, 1500)),
    max_size=60,
)
access = st.tuples(st.sampled_from([0.0, 0.5, 10.0]), st.sampled_from([0.0, 3.0, 40.0]))
"""Rate and queue of an access link in one direction."""


def play(actions: list[tuple[int, int, int, int]], **network: Any) -> Wire:
    wire = Wire(**network)
    for wait_ns, source, ahead, size in actions:
        wire.bench.advance(wire.bench.now_ns + wait_ns)
        wire.send(source, (source + ahead) % HOSTS, size)
    return wire.finish()


@settings(max_examples=examples(40), deadline=None)
@given(steps, access, access, st.sampled_from([0.0, 0.3]), st.sampled_from([0.0, 1.0, 8.0]))
def test_a_sound_plane_has_no_error_whatever_its_queues_and_jitter_do(
    actions: list[tuple[int, int, int, int]],
    up: tuple[float, float],
    down: tuple[float, float],
    loss_ratio: float,
    jitter_ms: float,
) -> None:
    up_down = dict(zip(("rate_mbit", "queue_ms", "down_mbit", "down_queue_ms"), (*up, *down), strict=True))
    wire = play(actions, loss_ratio=loss_ratio, jitter_ms=jitter_ms, **up_down)
    with Analysis(wire) as analysis:
        for rows in analysis.rows():
            assert rows.deviation_ms[rows.timed].tolist() == [0.0] * int(rows.timed.sum())
        drops = wire.bench.drops
        assert total(analysis, lambda rows: rows.came) == len(wire.bench.written)
        dropped, lost = (
            total(analysis, each) for each in (lambda rows: rows.full & ~rows.came, lambda rows: rows.lost)
        )
        assert dropped + lost == sum(drops.values())
        assert dropped >= drops.get("queue", 0), "a lost packet might have met a full queue later"
        assert loss_ratio or lost == 0
        assert total(analysis, lambda rows: rows.full & rows.came) == 0


@settings(max_examples=examples(15), deadline=None)
@given(steps.filter(len), st.sampled_from([0.0, 0.5]), st.integers(1, 9))
def test_a_plane_that_is_late_has_that_error(
    actions: list[tuple[int, int, int, int]], rate_mbit: float, late_ms: int
) -> None:
    wire = play(actions, rate_mbit=rate_mbit, queue_ms=60_000.0)
    wire.crossings = [
        (at_ns + (0 if is_tx else late_ms * MS_NS), source, destination, is_tx, number, size)
        for at_ns, source, destination, is_tx, number, size in wire.crossings
    ]
    with Analysis(wire) as analysis:
        found = analysis.weigh()
    timed = found.rated if rate_mbit else found.steady
    assert not isinstance(timed, Absent)
    spread = timed.errors
    assert (timed.arrived, spread.samples, spread.p50, spread.max) == (len(actions), len(actions), late_ms, late_ms)
    assert spread.late == (len(actions), 0)


@settings(max_examples=examples(15), deadline=None)
@given(steps.filter(lambda actions: len(actions) > 5), st.data())
def test_a_rate_that_was_not_asked_for_is_an_error(
    actions: list[tuple[int, int, int, int]], data: st.DataObject
) -> None:
    """A packet of 1,500 bytes takes 24 ms at 0.5 Mbit/s; the plane sends at 0.4."""
    wire = play([*actions, *[(0, 0, 1, 1500)] * 3], rate_mbit=0.4, queue_ms=60_000.0)
    wire.bench.rate_mbit = 0.5
    with Analysis(wire) as analysis:
        found = analysis.weigh().rated
    assert not isinstance(found, Absent)
    assert found.errors.late.samples >= 3


@pytest.mark.parametrize(("asked", "late"), [({}, 0), ({"rate_mbit": 0.5}, 8), ({"down_mbit": 0.5}, 8)])
def test_rates_up_and_down_are_judged_apart(asked: dict[str, float], late: int) -> None:
    """The plane sends at 0.4 Mbit/s up and at 2 down."""
    wire = play([(200 * MS_NS, 0, 1, 1500)] * 8, queue_ms=60_000.0, rate_mbit=0.4, down_mbit=2.0)
    for key, rate_mbit in asked.items():
        setattr(wire.bench, key, rate_mbit)
    with Analysis(wire) as analysis:
        found = analysis.weigh().rated
    assert isinstance(found, Timed)
    assert found.errors.late.samples == late


@pytest.mark.parametrize("key", ["queue_ms", "down_queue_ms"])
def test_a_queue_that_is_shorter_or_longer_than_asked_is_an_error(key: str) -> None:
    actions = [(0, 0, 1, 1500)] * 20
    rates = {"rate_mbit": 1.0 if key == "queue_ms" else 100.0, "down_mbit": 1.0}
    rates |= {"queue_ms": 900.0, "down_queue_ms": 900.0}
    for made_ms, asked_ms, wrong in ((50.0, 50.0, 0), (50.0, 200.0, 6), (200.0, 50.0, 6)):
        wire = play(actions, **rates | {key: made_ms})
        setattr(wire.bench, key, asked_ms)
        with Analysis(wire) as analysis:
            found = analysis.weigh().queues
        assert not isinstance(found, Absent)
        assert (found.failed >= wrong) if wrong else found.failed == 0


def test_packets_are_found_again_by_their_headers_in_order_of_time() -> None:
    def rows(*found: tuple[int, bool, int]) -> pa.Table:
        crossings = [(at_ns, 0, 1, is_tx, identity, 100) for at_ns, is_tx, identity in found]
        return in_order(table(crossings)).append_column("src_node", pa.array([0] * len(found)))

    sent, came_ns, is_clear, others = match(
        rows((0, True, 7), (1, True, 8), (2, True, 7), (3, True, 9), (12, False, 7), (10, False, 7), (11, False, 8))
    )
    assert (came_ns.tolist(), is_clear.tolist()) == ([10, 11, 12, -1], [True, True, True, True])
    assert (sent["ts_ns"].to_pylist(), len(others)) == ([0, 1, 2, 3], 0)
    sent, came_ns, is_clear, others = match(rows((0, True, 7), (5, True, 7), (15, False, 7), (20, False, 4)))
    assert (came_ns.tolist(), is_clear.tolist(), others["ts_ns"].to_pylist()) == ([15, -1], [False, False], [20])


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.booleans(), st.integers(0, 3)), max_size=30))
def test_as_many_packets_are_matched_lost_and_invented_as_counting_says(found: list[tuple[int, bool, int]]) -> None:
    rows = in_order(table([(at_ns, 0, 1, is_tx, identity, 100) for at_ns, is_tx, identity in found]))
    sent, came_ns, _, others = match(rows)
    arrived = lost = invented = 0
    for identity in range(4):
        out, back = (sum(is_tx == left and each == identity for _, is_tx, each in found) for left in (True, False))
        arrived, lost, invented = arrived + min(out, back), lost + max(out - back, 0), invented + max(back - out, 0)
    assert len(sent) == arrived + lost
    assert (int((came_ns >= 0).sum()), len(others)) == (arrived, invented)


def test_packets_near_the_end_of_the_span_are_not_judged() -> None:
    """A packet counts if it was due at least ``GRACE_NS`` before the end."""
    wire = play([(0, 0, 1, 100), (0, 1, 1, 100)])
    due_ns = 10 * MS_NS
    for until_ns, judged in ((due_ns + GRACE_NS, 2), (due_ns + GRACE_NS - 1, 0)):
        with Analysis(wire, until_ns=until_ns) as analysis:
            assert analysis.weigh().sent == judged


def test_packets_that_were_lost_or_invented_are_counted() -> None:
    wire = play([(MS_NS, 0, 1, 100)] * 10)
    arrivals = [each for each in wire.crossings if not each[3]]
    wire.crossings.remove(arrivals[3])
    wire.crossings.append((SECOND_NS, 0, 1, False, 999, 100))
    with Analysis(wire) as analysis:
        found = analysis.weigh()
        pairs = pq.read_table(analysis.folder / "pairs.parquet").to_pylist()
    assert (found.sent, found.plain_sent, found.plain_lost, found.invented) == (10, 10, 1, 1)
    [pair] = pairs
    assert (pair["src_node"], pair["dst_node"], pair["packets"], pair["lost"], pair["late"]) == (0, 1, 10, 1, 0)
    assert (pair["asked_delay_ms"], pair["error_ms_mean"], pair["error_ms_max"]) == (10.0, 0.0, 0.0)


def test_loss_is_counted_beside_what_was_asked() -> None:
    wire = play([(1000, 0, 1, 100)] * 2000, loss_ratio=0.02)
    lost = wire.bench.drops["loss"]
    with Analysis(wire) as analysis:
        found = analysis.weigh().losses
    assert found == Losses(2000, lost, pytest.approx(40.0), pytest.approx(39.2), pairs=1, wrong_pairs=0)
    wire.bench.loss_ratio = 0.08
    with Analysis(wire) as analysis:
        found = analysis.weigh().losses
    assert isinstance(found, Losses)
    assert found.wrong_pairs == 1
    assert found.worst_pair == f"node 0 to node 1: {lost} of 2,000 lost, 8.000% asked for"


def play_host(**other: float) -> Wire:
    """Host 0 has another access link than the other hosts, and sends a tenth of the packets, in bursts."""
    wire = Wire(rate_mbit=2.0, queue_ms=500.0)
    names = get_type_hints(Link)
    up, down = (Link(**dict(zip(names, link, strict=True)) | other) for link in wire.bench.access)
    wire.bench.forwarder.network.set_access(0, up, down)
    for number in range(4000):
        wire.bench.advance(wire.bench.now_ns + 12 * MS_NS * (number % 4 == 0))
        source = 0 if number % 40 < 4 else 1
        wire.send(source, 2, 750)
    return wire.finish()


def test_a_host_whose_rate_is_not_the_one_asked_of_it_is_found() -> None:
    with Analysis(play_host()) as analysis:
        found = analysis.weigh()
    assert (found.wrong_rates, found.wrong_queues) == (WrongLinks(), WrongLinks())
    with Analysis(play_host(rate_mbit=1.5)) as analysis:
        found = analysis.weigh()
    assert found.wrong_queues == WrongLinks()
    assert found.wrong_rates.worst == "node 0 up: 400 of 400 packets"


def test_a_host_whose_queue_is_not_the_one_asked_of_it_is_found() -> None:
    """Of a burst of four packets of 3 ms the fourth one would wait 9 ms."""
    with Analysis(play_host(queue_ms=8.0)) as analysis:
        found = analysis.weigh()
    assert found.wrong_rates == WrongLinks()
    assert found.wrong_queues == WrongLinks(2, "node 0 up: 100 of 400 packets")


@pytest.mark.parametrize(("failed", "tested", "links"), [(5, 100, 0), (6, 100, 1), (99, 99, 0)])
def test_a_link_is_wrong_beyond_a_share_of_enough_packets(failed: int, tested: int, links: int) -> None:
    found = find_links(np.array([0, failed]), np.array([0, tested]), LINK_LATE_RATIO, "link {}".format)
    assert found == WrongLinks(links, f"link 1: {failed} of {tested} packets" if links else "")


def test_the_pairs_with_the_same_loss_are_judged_together() -> None:
    """Each pair loses too few packets to be judged; those that were asked to lose 2 % lose none."""
    sent, lost, asked = np.full(40, 100), np.array([1] * 20 + [0] * 20), np.array([0.01] * 20 + [0.02] * 20)
    table = pa.table({"src_node": [0] * 40, "dst_node": [1] * 40, "sent": sent, "lost": lost, "asked": asked})
    counts = Counts(**dict.fromkeys(get_type_hints(Counts), 0) | {"lossy_sent": 4000, "lossy_lost": 20})
    found = judge_losses(counts, 60.0, 59.0, table)
    assert isinstance(found, Losses)
    assert (found.wrong_pairs, found.values, found.wrong_values) == (0, 2, 1)
    assert found.worst_value == "0 of 2,000 packets lost where 2.000% was asked for"


def test_jitter_is_measured_beside_what_was_drawn() -> None:
    """Packets every 0.1 ms would hold each other back if each had a delay of its own."""
    wire = play([(MS_NS // 10, 0, 1, 100)] * 3000, jitter_ms=2.0)
    with Analysis(wire) as analysis:
        found = analysis.weigh()
    assert isinstance(found.jitter, Found)
    assert (found.jitter.packets, found.jitter.asked_ms, found.jitter.bias_ms) == (3000, pytest.approx(2.0), 0.0)
    assert found.jitter.drawn_ms == found.jitter.found_ms > 0.1
    assert not isinstance(found.jittered, Absent) and isinstance(found.steady, Absent)
    assert (found.jittered.errors.samples, found.jittered.errors.max, found.steady.due) == (3000, 0.0, False)


@pytest.mark.parametrize(("made", "asked"), [({"seed": 2}, {"seed": 1}), ({"jitter_ms": 4.0}, {"jitter_ms": 1.0})])
def test_another_series_or_deviation_than_asked_is_an_error(made: dict[str, Any], asked: dict[str, Any]) -> None:
    wire = play([(MS_NS, 0, 1, 100)] * 1000, **{"jitter_ms": 2.0, **made})
    vars(wire.bench).update(asked)
    with Analysis(wire) as analysis:
        found = analysis.weigh().jittered
    assert isinstance(found, Timed)
    assert found.errors.late.samples > found.arrived / 3


def play_jittered(rate_mbit: float, queue_ms: float, loss_ratio: float = 0.0) -> Wire:
    """Two hosts send to a third, for a while faster than its access link takes it."""
    actions = [
        (3 * MS_NS if number % 100 < 50 else 40 * MS_NS, number % 2, 2 - number % 2, 750) for number in range(400)
    ]
    return play(actions, jitter_ms=1.0, rate_mbit=rate_mbit, queue_ms=queue_ms, loss_ratio=loss_ratio)


@pytest.mark.parametrize("loss_ratio", [0.0, 0.1])
def test_behind_a_queue_that_packets_reach_with_jitter_a_sound_plane_has_no_error(loss_ratio: float) -> None:
    wire = play_jittered(1.5, 30.0, loss_ratio)
    assert wire.bench.drops["queue"] > 5
    with Analysis(wire) as analysis:
        found = analysis.weigh()
    arrived = len(wire.bench.written)
    assert isinstance(found.rated, Timed) and isinstance(found.queues, Outcome)
    assert (found.rated.arrived, found.rated.errors.samples, found.rated.errors.max) == (arrived, arrived, 0.0)
    assert (found.queues.failed, found.queues.tested, found.queues.total) == (0, 400, 400)
    assert found.jittered == found.jitter == Absent("every packet with jitter passes a link with a rate")
    if loss_ratio:
        assert isinstance(found.losses, Losses)
        assert found.losses.lost < wire.bench.drops["loss"] + 1
        assert found.losses.lost / found.losses.sent == pytest.approx(loss_ratio, abs=0.04)
        assert (found.losses.pairs, found.losses.wrong_pairs) == (2, 0)


@pytest.mark.parametrize(("asked_mbit", "late"), [(1.8, True), (1.25, True), (1.5, False)])
def test_behind_such_a_queue_another_rate_is_an_error(asked_mbit: float, late: bool) -> None:
    wire = play_jittered(1.5, 500.0)
    wire.bench.rate_mbit = asked_mbit
    with Analysis(wire) as analysis:
        found = analysis.weigh().rated
    assert isinstance(found, Timed)
    assert (found.errors.late.samples > found.arrived // 100) == late


@pytest.mark.parametrize(("asked_ms", "wrong"), [(15.0, True), (60.0, True), (30.0, False)])
def test_such_a_queue_that_is_shorter_or_longer_than_asked_is_an_error(asked_ms: float, wrong: bool) -> None:
    wire = play_jittered(1.5, 30.0)
    wire.bench.queue_ms = asked_ms
    with Analysis(wire) as analysis:
        found = analysis.weigh().queues
    assert isinstance(found, Outcome)
    assert (found.failed > found.tested // 100) == wrong


def test_a_capture_without_packets_of_the_workload_should_have_had_some() -> None:
    with Analysis(Wire().finish()) as analysis:
        found = analysis.weigh()
    assert isinstance(found.steady, Absent) and found.steady.due


@given(st.lists(st.lists(st.floats(-1e3, 1e3), max_size=6), max_size=4))
def test_moments_of_parts_are_those_of_the_whole(parts: list[list[float]]) -> None:
    together = sum((Moments.of(np.array(part)) for part in parts), Moments())
    values = [value for part in parts for value in part]
    assert together.count == len(values)
    if len(values) > 1:
        assert together.std == pytest.approx(np.std(values, ddof=1), abs=1e-6)
    else:
        assert together.std is None
