"""A plan with churn in the simulator: the instances that the schedule asks for, and links that never outlive them."""

import hashlib
from collections import Counter
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.experiment.form import Experiment
from harness.experiment.sections.underlay import UnderlaySpec
from harness.experiment.sections.workload import ChurnSpec, InterestsSpec, ScriptedAction, WorkloadSpec
from harness.planning import make_plan
from harness.simulator.enactment import Enactment
from harness.simulator.network import SimulatedNetwork
from harness.simulator.simulation import Simulation
from peer.core.contract import Message
from peer.core.schedule import Crash, Join, Leave, Publish, Vanish
from peer.trace import TraceEvent
from tests.examples import examples
from topologies.network import Network, uniform_network

SECOND = 1_000_000_000
START_NS, ZERO_NS = SECOND, 3 * SECOND
NODES, DURATION_S = 12, 20


class Record:
    """An observer that keeps everything."""

    frames = True

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []

    def trace(self, event: TraceEvent) -> None:
        self.events.append(event)

    def deliver(self, now_ns: int, node: int, message: Message) -> None:
        pass


def enact(seed: int, crash_ratio: float = 0.5, protocol: str = "random", silent_ratio: float = 0.0):
    """A run with a session of four seconds on average, up to the stop and the closing of all links."""
    experiment = Experiment(
        name="x",
        seed=seed,
        protocol=protocol,
        testbed="simulated",
        underlay=UnderlaySpec(kind="uniform", hosts=NODES),
        workload=WorkloadSpec(topics=3, duration_s=DURATION_S, warmup_s=2, publish_rate_per_s=5),
        interests=InterestsSpec(ratio=0.6),
        churn=ChurnSpec(kind="exponential", on_s=4, crash_ratio=crash_ratio, silent_ratio=silent_ratio),
    )
    planned = make_plan(experiment, Path("x.toml"))
    draws = Random(seed)
    delays = [[draws.randrange(1, 150) for _ in range(NODES)] for _ in range(NODES)]
    record = Record()
    simulation = Simulation(SimulatedNetwork(Network(NODES, lambda a, b: delays[a][b]), draws), record, seed=seed)
    stop_ns = ZERO_NS + (DURATION_S + 3) * SECOND
    Enactment(simulation, planned.overlay, planned.schedule, start_ns=START_NS, zero_ns=ZERO_NS, stop_ns=stop_ns)
    simulation.at(stop_ns, simulation.quiesce)
    simulation.at(stop_ns + SECOND, simulation.close)
    simulation.run(stop_ns + 45 * SECOND)
    return planned, simulation, record


def instances(events: list[TraceEvent]) -> list[tuple[int, str, int]]:
    """(node, what, instant) of every beginning and end of an instance that is traced."""
    return [
        (e.node, e.reason, e.ts_ns)
        for e in events
        if e.reason in ("joined", "left", "crashed") and e.event in ("join", "leave")
    ]


@given(
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from(["random", "complete", "spidercast"]),
    st.sampled_from([0.0, 0.5]),
)
@settings(max_examples=examples(25), deadline=None)
def test_lives_are_those_of_the_schedule_and_links_never_outlive_them(
    seed: int, ratio: float, protocol: str, silent_ratio: float
) -> None:
    planned, simulation, record = enact(seed, ratio, protocol, silent_ratio)
    words = {Join: "joined", Leave: "left", Crash: "crashed", Vanish: "crashed"}
    asked = [(a.node, words[type(a)], a.at_ns + ZERO_NS) for a in planned.schedule if type(a) in words]
    assert Counter(instances(record.events)) == Counter(asked)
    up = {spec.node: spec.up for spec in planned.overlay.nodes}
    open_links: dict[tuple[int, int, str], int] = {}
    for event in record.events:
        if event.event in ("join", "leave") and event.reason in words.values():
            up[event.node] = event.event == "join"
        elif event.event == "add_peer":
            assert up[event.node]
            open_links[event.node, event.peer, event.conn] = event.ts_ns
        elif event.event == "remove_peer":
            del open_links[event.node, event.peer, event.conn]
        elif event.event in ("publish", "deliver", "duplicate", "relay", "graft"):
            assert up[event.node]
    assert not open_links
    assert not any(host.links or host.table.pending for host in simulation.hosts.values())
    published = {e.message_id for e in record.events if e.event == "publish"}
    assert published == {a.message_id for a in planned.schedule if isinstance(a, Publish)}


@pytest.mark.parametrize("seed", range(6))
def test_orderly_leaves_lose_no_frame(seed: int) -> None:
    _, _, record = enact(seed, crash_ratio=0)
    sent, received = (
        {(e.conn, e.direction, e.off, e.len_bytes, e.kind) for e in record.events if e.event == name}
        for name in ("send", "receive")
    )
    assert instances(record.events)
    assert sent == received


def test_the_same_plan_gives_the_same_trace() -> None:
    digests = {hashlib.sha256(msgspec.json.encode(enact(5)[2].events)).hexdigest() for _ in range(2)}
    assert len(digests) == 1


def vanishing(returns_s: float | None, until_s: int = 60):
    """Nodes 0 and 1 are linked, 200 ms apart, when the host of node 1 vanishes at 5 s; node 2 joins at 6 s."""
    script = [(5.0, 1, "vanish"), (6.0, 2, "join")] + ([] if returns_s is None else [(returns_s, 1, "join")])
    experiment = Experiment(
        name="x",
        protocol="complete",
        testbed="simulated",
        underlay=UnderlaySpec(kind="uniform", hosts=3),
        workload=WorkloadSpec(topics=1, duration_s=60, warmup_s=2),
        interests=InterestsSpec(ratio=1),
        churn=ChurnSpec(kind="script", script=tuple(ScriptedAction(*entry) for entry in script)),
    )
    planned = make_plan(experiment, Path("x.toml"))
    record = Record()
    network = SimulatedNetwork(uniform_network(3, 200), Random(1))
    simulation = Simulation(network, record, seed=1)
    Enactment(
        simulation, planned.overlay, planned.schedule, start_ns=START_NS, zero_ns=ZERO_NS, stop_ns=ZERO_NS + 60 * SECOND
    )
    simulation.run(ZERO_NS + until_s * SECOND)
    return simulation, record.events


def ends(events: list[TraceEvent], node: int, peer: int) -> list[tuple[float, str | None]]:
    """When links of a node with a peer ended (s from zero), and why."""
    return [
        ((e.ts_ns - ZERO_NS) / SECOND, e.reason)
        for e in events
        if e.event == "remove_peer" and (e.node, e.peer) == (node, peer)
    ]


def test_neighbours_of_a_vanished_host_notice_after_their_kernels_timeout() -> None:
    _, events = vanishing(None)
    assert ends(events, 1, 0) == [(5.0, "crashed")]
    assert ends(events, 0, 1) == [(35.0, "TimeoutError")]
    assert not any(e.event == "receive" and e.node == 1 and e.ts_ns >= ZERO_NS + 5 * SECOND for e in events)


def test_a_vanished_host_that_is_back_resets_its_old_connections() -> None:
    _, events = vanishing(11)
    assert ends(events, 0, 1) == [(11.2, "ConnectionResetError")]
    links = [e for e in events if e.event == "add_peer" and (e.node, e.peer) == (0, 1)]
    assert [e.ts_ns > ZERO_NS + 11 * SECOND for e in links] == [False, True], "they are linked again"


def test_a_vanished_host_does_not_answer_attempts_to_open_a_link() -> None:
    simulation, _ = vanishing(None, until_s=10)
    table = simulation.hosts[2].table
    table.connect(1)
    for until_s, waits in ((10.1, True), (19.9, True), (20.1, False)):
        simulation.run(ZERO_NS + round(until_s * SECOND))
        assert (1 in table.pending) == waits
