"""One protocol, two worlds: the same experiment as processes and in the simulator ends alike.

Stated tolerances: the same underlay, overlay and schedule byte for byte; the same set of deliveries; view sizes and
degrees within 15 %, over the run and at its end; at its end clustering within 0.15, and the same number of components
and of topic components; median delay within 10 ms or 10 %. The part of the delay in the network, over the links that
the first copy took, is always judged. The whole delay has the time in the hosts, too: it may differ if the run's own
verdict says that its host was overloaded. The simulator does not count what nodes compute, so they have little to
compute here. Both draw the same numbers, but a real network delivers two frames in another
order now and then, and every later choice of a node may depend on that.
"""

import json
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq
import pytest

from peer.core.frames import Data
from tests.captured_frames import received_frames
from tests.e2e.run_experiment import QUICKLY, await_recorded, finish, speaks_of_load, start
from tests.examples import long_unless

pytestmark = pytest.mark.root

SHARING = ("link_sharing_ratio", "expressions_per_link_mean")
"""How many topics, or groups, share a link: protocols have one of the two."""
SHAPE = ("degree_mean", "view_size_total_mean", "view_size_unique_mean", *SHARING)
"""What of the headline tells of the overlay."""
FINAL_SHAPE = ("view_size_total_mean", "view_size_unique_mean", "degree_mean")
"""What the last row of ``overlay`` tells of it."""
TOLERANCE_RATIO = 0.15
CLUSTERING_TOLERANCE = 0.15
DELAY_TOLERANCE_MS = 10.0

EXPERIMENT = """
name = "two-testbeds"
protocol = "{protocol}"
seed = 11

[underlay]
kind = "unit-square"
hosts = 16
side_ms = 60
rate_mbit = {rate_mbit}

[workload]
topics = 6
payload_bytes = 1000
publish_rate_per_s = 8
warmup_s = 12
duration_s = 8
cooldown_s = 4

[interests]
kind = "popularity"
subscriptions_min = 3
subscriptions_max = 3

[processing]
kind = "{processing}"
mean_ms = 40

[capture]
snaplen_bytes = 65535

[prometheus]
enabled = false

{parameters}
"""

SPARSE_GROUPS = """
[expressions]
kind = "nodes"

[implicit_groups]
expansion_limit = 16
"""
"""The simulator does not count the time that a node computes. Nodes of implicit groups compute most: with the usual 64
extents so long that the median delivery, over three hops, took 12 ms longer on a slow machine."""

RUNS: dict[str, dict[str, Any]] = {
    "implicit-groups": {"rate_mbit": 0, "processing": "none", "parameters": SPARSE_GROUPS},
    "spidercast": {"rate_mbit": 1, "processing": "none", "parameters": ""},  # some 9 ms up and 9 ms down for a frame
    "stan": {"rate_mbit": 0, "processing": "none", "parameters": ""},
    "topiary": {"rate_mbit": 0, "processing": "exponential", "parameters": ""},
    "vitis": {"rate_mbit": 0, "processing": "none", "parameters": "[vitis]\ntable_size = 5"},  # of 15 other nodes
}
"""What each protocol meets besides delays."""
USUAL = {"topiary"}
"""The protocols that are compared in every run of the tests: one that meets busy hosts and tells of interests."""
PASS_ON_EVERY_COPY = {"implicit-groups"}
"""Protocols whose nodes pass on each copy of a message, and not the first one only."""
TELL_OF_INTERESTS = {"implicit-groups", "topiary", "vitis"}
"""Protocols whose peers send each other topics that the receiver does not share. StAN's never do. SpiderCast's have no
need to: whom a node may choose from, with which interests, it knows from its membership service."""


class Outcome:
    """What is compared of a run."""

    def __init__(self, run_dir: Path, summary: dict[str, Any]) -> None:
        self.headline = summary["headline"]
        self.delay_ms = summary["headline"]["propagation_delay_ms_p50"]
        self.checks = {check["name"]: check for check in summary["checks"]}
        self.hashes = json.loads((run_dir / "manifest.json").read_text())["hashes"]
        *_, self.final = pq.read_table(run_dir / "tables" / "overlay.parquet").to_pylist()
        rows = pq.read_table(run_dir / "tables" / "deliveries.parquet").to_pylist()
        self.busy = any(speaks_of_load(reason) for reason in summary["reasons"])
        made = [row for row in rows if row["delivered_ns"] is not None]
        self.delivered = {(row["message_id"], row["node"]) for row in made}
        hops = pq.read_table(run_dir / "tables" / "hops.parquet").to_pylist()
        every_copy = summary["protocol"] in PASS_ON_EVERY_COPY
        self.network_ms = median(delays_in_network(hops, made, every_copy=every_copy))
        self.expected = {(row["message_id"], row["node"]) for row in rows}


def delays_in_network(
    hops: Iterable[dict[str, Any]], deliveries: Iterable[dict[str, Any]], *, every_copy: bool
) -> Iterator[float]:
    """Yield how long the first copy of each delivery was under way between hosts, in ms, without the time in them.

    The simulator has no taps: a frame leaves when it is written, and is read when it arrives.

    Args:
        hops: the frames of the run.
        deliveries: the deliveries that were made.
        every_copy: nodes pass on every copy as they get it, so that the latest one was passed on; otherwise the first.
    """
    copies = defaultdict(list)
    for hop in sorted((hop for hop in hops if hop["log_recv_ns"] is not None), key=lambda hop: hop["log_recv_ns"]):
        if hop["kind"] == Data.kind:
            copies[hop["message_id"], hop["dst_node"]].append(hop)
    for row in deliveries:
        node, passed_ns, hop = row["node"], 0, None
        while node != row["publisher"]:
            there = copies[row["message_id"], node]
            earlier = [copy for copy in there if hop and copy["log_recv_ns"] <= hop["log_send_ns"]]
            hop = earlier[-1] if every_copy and earlier else there[0]
            wire_ns = hop["d_wire_ns"]
            passed_ns += hop["log_recv_ns"] - hop["log_send_ns"] if wire_ns is None else wire_ns
            node = hop["src_node"]
        yield passed_ns / 1e6


def begin(folder: Path, testbed: str, name: str) -> subprocess.Popen[str]:
    """Start a run and wait until all but its analysis is done: analyses may go on beside each other."""
    file = folder / "experiment.toml"
    process = start("run", file, "--testbed", testbed, *QUICKLY, "--out", folder / name, "--json")
    await_recorded(process, folder / name)
    return process


@pytest.fixture(scope="module", params=long_unless(USUAL, RUNS))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs of a protocol are, with their experiment."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "experiment.toml").write_text(EXPERIMENT.format(protocol=request.param, **RUNS[request.param]))
    return folder


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> tuple[Outcome, Outcome]:
    """A machine that stood still for a second says nothing: then, and only then, there is another run."""
    runs = {name: begin(folder, name, name) for name in ("emulated", "simulated")}
    emulated, simulated = (Outcome(folder / name, finish(process)) for name, process in runs.items())
    for attempt in range(2):
        if agree(emulated, simulated) or not emulated.busy:
            break
        name = f"emulated-again-{attempt}"
        emulated = Outcome(folder / name, finish(begin(folder, "emulated", name)))
    return emulated, simulated


def agree(emulated: Outcome, simulated: Outcome) -> bool:
    """Whether both ended alike: who got what, after what time, over what kind of overlay."""
    alike = all(build_the_same_kind(emulated, simulated, name) for name in SHAPE)
    ended_alike = end_with_the_same_kind(emulated, simulated)
    delivered_alike = emulated.delivered == simulated.delivered
    delayed_alike = have_like_networks(emulated, simulated) and have_like_delays(emulated, simulated)
    return delivered_alike and alike and ended_alike and delayed_alike


def build_the_same_kind(emulated: Outcome, simulated: Outcome, name: str) -> bool:
    """Within the tolerance; or neither has that number."""
    there, expected = (outcome.headline.get(name) for outcome in (emulated, simulated))
    return there is expected is None or bool(there == pytest.approx(expected, rel=TOLERANCE_RATIO))


def end_with_the_same_kind(emulated: Outcome, simulated: Outcome) -> bool:
    return all(
        [emulated.final[name] == pytest.approx(simulated.final[name], rel=TOLERANCE_RATIO) for name in FINAL_SHAPE]
        + [emulated.final["clustering"] == pytest.approx(simulated.final["clustering"], abs=CLUSTERING_TOLERANCE)]
        + [emulated.final[name] == simulated.final[name] for name in ("nodes", "components", "topic_components")]
    )


def have_like_delays(emulated: Outcome, simulated: Outcome) -> bool:
    return bool(emulated.delay_ms == pytest.approx(simulated.delay_ms, rel=0.1, abs=DELAY_TOLERANCE_MS))


def have_like_networks(emulated: Outcome, simulated: Outcome) -> bool:
    return bool(emulated.network_ms == pytest.approx(simulated.network_ms, rel=0.1, abs=DELAY_TOLERANCE_MS))


def test_both_run_the_same_plan(outcomes: tuple[Outcome, Outcome]) -> None:
    emulated, simulated = (outcome.hashes for outcome in outcomes)
    for name in ("underlay", "overlay", "schedule"):
        assert emulated[name] == simulated[name]


def test_both_deliver_the_same(outcomes: tuple[Outcome, Outcome]) -> None:
    emulated, simulated = outcomes
    assert emulated.expected == simulated.expected
    assert emulated.delivered == simulated.delivered
    assert emulated.delivered


@pytest.mark.parametrize("name", SHAPE)
def test_both_build_the_same_kind_of_overlay(outcomes: tuple[Outcome, Outcome], name: str) -> None:
    assert build_the_same_kind(*outcomes, name), [outcome.headline[name] for outcome in outcomes]


def test_how_many_share_a_link_is_known(outcomes: tuple[Outcome, Outcome]) -> None:
    for outcome in outcomes:
        assert [name for name in SHARING if outcome.headline.get(name) is not None], outcome.headline


def test_the_wire_shows_every_copy_of_a_message_for_a_group(folder: Path, outcomes: tuple[Outcome, Outcome]) -> None:
    """The link sharing of groups is that of the captures. Runs without expressions have no such table."""
    path = folder / "emulated" / "tables" / "group_links.parquet"
    assert path.exists() == ("[expressions]" in (folder / "experiment.toml").read_text())
    rows = pq.read_table(path).to_pylist() if path.exists() else []
    assert bool(rows) == path.exists()
    for row in rows:
        assert (row["copies_on_wire"], row["expressions_on_wire"]) == (row["copies"], row["expressions"])


def test_both_end_with_the_same_kind_of_overlay(outcomes: tuple[Outcome, Outcome]) -> None:
    assert end_with_the_same_kind(*outcomes), [outcome.final for outcome in outcomes]


def test_both_networks_take_as_long(outcomes: tuple[Outcome, Outcome]) -> None:
    assert have_like_networks(*outcomes), [outcome.network_ms for outcome in outcomes]


def test_both_take_as_long(outcomes: tuple[Outcome, Outcome]) -> None:
    """An overloaded host delays what peers handle, and not what the network carries."""
    emulated, _ = outcomes
    in_network = emulated.busy and have_like_networks(*outcomes)
    assert have_like_delays(*outcomes) or in_network, [outcome.delay_ms for outcome in outcomes]


def test_the_simulator_keeps_every_invariant(outcomes: tuple[Outcome, Outcome]) -> None:
    _, simulated = outcomes
    assert {name: check for name, check in simulated.checks.items() if check["failed"]} == {}


def test_what_is_on_the_wire_tells_of_interests_or_does_not(
    folder: Path, outcomes: tuple[Outcome, Outcome], request: pytest.FixtureRequest
) -> None:
    """StAN's claim of privacy by every byte that reached a host; Topiary shows that such a frame would be seen."""
    run_dir, trouble = folder / "emulated", Counter[str]()
    overlay, plan = (json.loads((run_dir / f"{name}.json").read_text()) for name in ("overlay", "plan"))
    wanted = {node["node"]: set(node["topics"]) for node in overlay["nodes"]}
    node_at = {place["wan_ip"]: place["node"] for place in plan["placement"]}
    named, beyond = 0, []
    for capture in sorted((run_dir / "capture").glob("*.pcapng")):
        for address, frame in received_frames(capture, trouble):
            topics = {*getattr(frame, "topics", ()), *([frame.topic] if hasattr(frame, "topic") else ())}
            named += len(topics)
            if topics - wanted[node_at[address]]:
                beyond.append(frame)
    assert set(trouble) <= {"retransmitted"}
    assert named > 500
    assert bool(beyond) == (plan["experiment"]["protocol"] in TELL_OF_INTERESTS), beyond[:3]
