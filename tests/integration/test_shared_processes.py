"""Several peers in one process: each is a peer like others, and the process ends for all of them."""

import os
import resource
import signal
import socket
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

from peer.core.contract import message_id
from peer.core.schedule import Crash, Join, Leave, Publish, encode_schedule
from peer.instances.spec import PeerPlace
from peer.runtime.limits import needed_files
from tests.integration.test_agent import (
    LIMIT_S,
    NO_CAPABILITY,
    STOPS_LATE,
    Machine,
    check_trace,
    frame_set,
    machine,
    process_below,
    scrape,
    status_of,
    until,
)
from tests.integration.test_silent_crash import CTL, METRICS_PORT, Hosts, holders, inside

__all__ = ["holders", "machine"]

SHARED = ((0, 1, 2), (3, 4))


def processes(m: Machine) -> list[int]:
    """The process of each node, in order."""
    peers = m.await_ready()["peers"]
    return [peers[str(node)]["pid"] for node in range(len(peers))]


def test_peers_that_share_processes_behave_like_others(machine):
    m = machine(shared=SHARED)
    pids = processes(m)
    assert [pids.count(pid) for pid in pids] == [3, 3, 3, 2, 2]
    assert m.call("status")["counts"] == {"ready": 5}
    zero_ns = m.start()
    for node in range(5):
        page = until(lambda: "trellis_publications_total 4.0" in (text := scrape(m.metrics[node])) and text)  # noqa: B023
        assert "trellis_links 4.0" in page
        assert "process_" not in page, "what a process uses is no metric of one of its peers"
    assert m.wait() == 0
    assert {(e["process"], e["state"], e["status"]) for e in m.exits().values()} == {
        (f"peer-{node}", "exited", 0) for node in range(5)
    }
    traces = [m.trace(node) for node in range(5)]
    sent, received = frame_set(traces, "send"), frame_set(traces, "receive")
    assert sent == received
    delivered = Counter((e.node, e.message_id) for trace in traces for e in trace if e.event == "deliver")
    assert delivered == {(n, a.message_id): 1 for a in m.actions for n in range(5) if set(a.topics) & set(m.topics[n])}
    for node, trace in enumerate(traces):
        check_trace(trace, node, zero_ns)


def test_the_agents_memory_counts_a_shared_process_once(machine):
    m = machine(shared=((0, 1, 2, 3, 4),))
    [pid] = set(processes(m))
    [line] = [line for line in scrape(m.agent_metrics).splitlines() if line.startswith("trellis_agent_peers_rss")]
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert float(line.split()[1]) < 2 * resident


def test_a_process_that_dies_takes_its_peers_along_and_each_is_told(machine):
    m = machine(shared=SHARED)
    victim = processes(m)[0]
    m.start(0.1)
    until(lambda: "trellis_links 4.0" in scrape(m.metrics[3]))
    os.kill(victim, signal.SIGKILL)
    until(lambda: m.call("status")["counts"] == {"ready": 2, "signalled": 3})
    assert m.wait() == 1
    ends = [(m.exits()[f"peer-{node}"]["state"], m.exits()[f"peer-{node}"]["status"]) for node in range(5)]
    assert ends == [("signalled", signal.SIGKILL)] * 3 + [("exited", 0)] * 2
    removed = {(e.node, e.peer) for node in (3, 4) for e in m.trace(node) if e.event == "remove_peer"}
    assert removed >= {(node, peer) for node in (3, 4) for peer in (0, 1, 2)}


def test_a_peer_that_fails_ends_its_process_with_its_words(machine):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        m = machine(2, peers=(PeerPlace(0, ("127.0.0.1", 0), None), PeerPlace(1, taken.getsockname(), None)),
                    shared=((0, 1),))  # fmt: skip
        assert m.wait() == 1
        words = m.process.stderr.read().decode()
    assert "peer-0 and 1 other peer of its process exited (1) before the start" in words
    assert "Address already in use" in words
    assert {name: end["status"] for name, end in m.exits().items()} == {"peer-0": 1, "peer-1": 1}
    for node in (0, 1):
        assert [event.event for event in m.trace(node)] in ([], ["start"]), "no peer of it ended in order"


def test_peers_leave_and_join_within_a_shared_process(machine):
    schedule = encode_schedule([
        Leave(0, 1),
        Join(200_000_000, 1, (0, 2)),
        Publish(2_200_000_000, 1, message_id(1, 0), (0,), 100),
    ]).decode()  # fmt: skip
    m = machine(3, documents={"schedule.jsonl": schedule}, shared=((0, 1, 2),), **STOPS_LATE)
    m.await_ready()
    m.start()
    assert m.wait() == 0
    story = [(e.event, e.topics) for e in m.trace(1) if e.event in ("join", "leave", "publish", "deliver")]
    assert story == [("leave", (1, 3)), ("join", (0, 2)), ("publish", (0,)), ("deliver", (0,))]
    assert [e.message_id for e in m.trace(2) if e.event == "deliver"] == [message_id(1, 0)]


def test_a_node_that_crashes_is_beside_a_shared_process(machine):
    schedule = encode_schedule([Crash(0, 1)]).decode()
    m = machine(3, documents={"schedule.jsonl": schedule}, shared=((0, 2),), **STOPS_LATE)
    pids = processes(m)
    assert pids[0] == pids[2] != pids[1]
    first = process_below(m, 1)
    m.start()
    process_below(m, 1, first)
    assert m.wait() == 0
    assert {(e["state"], e["status"]) for e in m.exits().values()} == {("exited", 0)}
    assert m.trace(0)[-1].event == m.trace(2)[-1].event == "stop"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shared": ((0, 1), (1, 2))}, "each at most once"),
        ({"shared": ((0, 7),)}, "nodes of this machine in shared"),
        ({"shared": ((0, 1),), "command": ("sleep", "60")}, "nodes [0, 1] need processes of their own"),
        (
            {"shared": ((0, 1),), "documents": {"schedule.jsonl": encode_schedule([Crash(0, 1)]).decode()}},
            "nodes [1] need processes of their own",
        ),
    ],
)
def test_nodes_that_cannot_share_a_process_are_refused(machine, changes: dict, words: str):
    m = machine(3, **changes)
    assert m.wait() == 2
    assert words in m.process.stderr.read().decode()


def test_a_shared_process_may_open_as_many_files_as_its_peers_need(machine):
    m = machine(20, under=("prlimit", "--nofile=32:"), shared=(tuple(range(19)),))
    pids = processes(m)
    limits = [resource.prlimit(pid, resource.RLIMIT_NOFILE)[0] for pid in (pids[0], pids[19])]
    assert limits == [needed_files(20, 19), needed_files(20)]


@pytest.mark.root
def test_each_peer_of_a_process_is_in_the_network_of_its_host(tmp_path: Path, holders: list[int]) -> None:
    leave_ns, join_ns = 2_000_000_000, 3_000_000_000
    schedule = (Leave(leave_ns, 1), Join(join_ns, 1, (0,)))
    with Hosts(tmp_path, holders, *schedule, shared=((0, 1),)) as hosts:
        [pid] = set(processes(hosts))
        threads = [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
        for thread in threads:
            status = status_of(thread)
            assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {NO_CAPABILITY}
            assert status["NoNewPrivs"] == "1"
        hosts.start()
        until(lambda: hosts.seen()[2:3])
        assert [hosts.seen()[number] for number in (0, 2)] == ["up", "up"], "before its leave, and since it is back"
        for host in (0, 1):
            assert len(hosts.kept(host)) >= 2, "a listener and the link, in this host's kernel"
        # A scrape of a host reads its own peer. Nobody else listens at the address.
        for host, holder in enumerate(holders):
            with inside(holder):
                url = f"http://{CTL[host]}:{METRICS_PORT}/metrics"
                page = until(lambda: "trellis_links 1.0" in (text := read(url)) and text)  # noqa: B023
            kinds = [line for line in page.splitlines() if line.startswith('trellis_sent_frames_total{kind="bye"}')]
            assert bool(kinds) == (host == 1), "only node 1 has left"


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=LIMIT_S) as page:
        return page.read().decode()
