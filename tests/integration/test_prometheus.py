"""The real Prometheus server: what it scrapes is there, what it misses is counted, and it can be opened again."""

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from harness.errors import TestbedError
from harness.experiment.form import Experiment, PrometheusSpec
from harness.stages.manifest import epoch_offset_ns
from harness.stages.prometheus import Prometheus, free_port, reopen_prometheus, start_prometheus
from harness.stages.samples import fetch_samples, write_samples
from metrics.libp2p_names import MESSAGE_TYPES, PREFIX
from metrics.prometheus import Target
from metrics.recorded.samples import read_samples
from metrics.rundir import Manifest, Phase
from tests.integration.deployment_machines import prometheus_runs, sandboxed

pytestmark = pytest.mark.root

DEAD_PORT = 9
ROOT = Path(__file__).parents[2]
EVENTS = ("publications", "deliveries", "duplicates")
PEER = "peer/127.0.0.1:9100"
DELIVERIES = "last_over_time(trellis_deliveries_total[1h])"  # the last scrape may have failed on a busy machine


def digest(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def await_series(server: Prometheus, expression: str) -> None:
    deadline = time.monotonic() + 300
    while not server.query(expression, time.time()) and time.monotonic() < deadline:
        time.sleep(0.05)


def scrape_once(run_dir: Path) -> None:
    """A run directory with a live target's and a dead one's scrapes, and a manifest."""
    registry = CollectorRegistry()
    Counter("trellis_deliveries", "messages", registry=registry).inc(42)
    start_http_server(9100, "127.0.0.1", registry)
    start_s = time.time()
    live = Target("peer", "127.0.0.1", 9100, {"node": "3", "city": "Oslo"})
    server = start_prometheus(run_dir, [live, Target("agent", "127.0.0.1", DEAD_PORT)], 4)  # beside other tests, too
    assert stands_back(server.pid)
    await_series(server, DELIVERIES)
    await_series(server, 'up{job="agent"}')
    [row] = server.query(DELIVERIES, time.time())
    assert row["value"][1] == "42"
    assert {name: row["metric"][name] for name in ("job", "node", "city")} == {
        "job": "peer", "node": "3", "city": "Oslo"
    }  # fmt: skip
    counts = server.count_scrapes(start_s, time.time())
    # Not that the dead target's scrapes all failed: each number is asked for by itself, while others come.
    assert counts.failed_by_target[f"agent/127.0.0.1:{DEAD_PORT}"] > 0
    assert counts.by_target[PEER] > counts.failed_by_target.get(PEER, 0)
    server.stop()
    write_manifest(run_dir, start_s)


def stands_back(pid: int) -> bool:
    """Whether a process runs only when neither its session nor another one has use for the processor."""
    autogroup = Path(f"/proc/{pid}/autogroup")
    nice = autogroup.read_text().split()[-1] if autogroup.exists() else "19"
    return os.sched_getscheduler(pid) == os.SCHED_IDLE and nice == "19"


def write_manifest(run_dir: Path, start_s: float) -> None:
    offset_ns = epoch_offset_ns()
    phase = Phase("workload", int(start_s * 1e9) - offset_ns, time.monotonic_ns())
    manifest = Manifest("r", "emulated", offset_ns, phase.start_ns, (phase,), (), {}, {}, {}, {})
    (run_dir / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    experiment = msgspec.to_builtins(Experiment(name="r", prometheus=PrometheusSpec(scrape_interval_s=1.0)))
    place = {"node": 0, "host": 0, "machine": "sandbox", "wan_ip": "172.16.0.1", "ctl_ip": ""}
    plan = {"name": "r", "seed": 1, "experiment": experiment, "placement": [place]}
    (run_dir / "plan.json").write_text(json.dumps(plan))


@sandboxed
def test_what_was_scraped_can_be_opened_again_and_the_run_stays_as_it_is(tmp_path: Path):
    scrape_once(tmp_path)
    before = digest(tmp_path)
    server = reopen_prometheus(tmp_path, 9190)
    [row] = server.query(DELIVERIES, time.time())
    assert row["value"][1] == "42"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{server.url}/metrics")
    server.stop()
    assert digest(tmp_path) == before


@contextlib.contextmanager
def serving(run_dir: Path) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    argv = [sys.executable, "-m", "harness.cli", "serve", str(run_dir)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.strip())
            if line.startswith("Ctrl-C"):
                break
        try:
            yield process, lines
        finally:
            process.kill()


@sandboxed
def test_serve_shows_report_and_metrics_until_interrupted(tmp_path: Path):
    scrape_once(tmp_path)
    (tmp_path / "report").mkdir()
    (tmp_path / "report/index.html").write_text("the report")
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/nodes").write_text("a table")
    before = digest(tmp_path)
    with serving(tmp_path) as (process, lines):
        words = dict(line.split(None, 1) for line in lines[:2])
        reader = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        report, prometheus = (words[name].partition("?")[0] for name in ("report", "prometheus"))
        assert reader.open(words["report"]).read() == b"the report"
        assert reader.open(f"{report}../tables/nodes").read() == b"a table"
        assert b"prometheus_build_info" in reader.open(f"{prometheus}/metrics").read()
        asked = reader.open(f"{prometheus}/api/v1/query", b"query=vector(7)")
        assert json.loads(asked.read())["data"]["result"][0]["value"][1] == "7"
        graphs = [line.rpartition(" ")[2] for line in lines if "/graph?g0.expr=" in line]
        assert len(graphs) > 2
        assert all(reader.open(graph).status == 200 for graph in graphs)
        stranger = urllib.request.build_opener()
        for url in (report, f"{prometheus}/metrics", f"{prometheus}/api/v1/query?query=up"):
            for ask in (stranger.open, lambda url: reader.open(urllib.request.Request(url, headers={"Host": "a.b"}))):
                with pytest.raises(urllib.error.HTTPError, match="403"):
                    ask(url)
        assert prometheus_runs()
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(300) == 0
    assert not prometheus_runs()
    assert digest(tmp_path) == before


@sandboxed
def test_killing_serve_leaves_no_server(tmp_path: Path):
    scrape_once(tmp_path)
    with serving(tmp_path) as (process, _):
        process.kill()
    deadline = time.monotonic() + 300
    while prometheus_runs() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not prometheus_runs()


@sandboxed
def test_two_runs_have_a_server_each_and_a_taken_port_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first, second = (start_prometheus(tmp_path / name, [], 1) for name in "ab")
    assert first.url != second.url
    taken = int(first.url.rpartition(":")[2])
    ports = iter([taken, taken, free_port()])
    monkeypatch.setattr("harness.stages.prometheus.free_port", lambda: next(ports))
    monkeypatch.setattr("harness.stages.prometheus.refuse_taken", lambda port: None)  # it was free when we looked
    third = start_prometheus(tmp_path / "c", [], 1)
    assert third.url not in (first.url, second.url)
    for server in (first, second, third):
        assert server.lost() == {}
        server.stop()
    assert third.lost() == {"Prometheus": "ended with status 0"}


@sandboxed
def test_a_run_without_metrics_and_a_folder_that_is_no_run(tmp_path: Path):
    with pytest.raises(TestbedError, match="recorded no"):
        reopen_prometheus(tmp_path, 9190)
    argv = [sys.executable, "-m", "harness.cli", "serve", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 2
    assert "not a run directory" in done.stderr
    (tmp_path / "plan.json").write_text("{}")
    (tmp_path / "report").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for port, problem in (
            (taken.getsockname()[1], "Address already in use"),
            (70_000, "expected a port from 0 to 65535, got 70000"),
        ):
            done = subprocess.run([*argv, "--port", str(port)], capture_output=True, text=True)
            assert (done.returncode, "Traceback" in done.stderr) == (2, False)
            assert problem in done.stderr


@sandboxed
def test_the_dashboard_shows_a_peer_of_gossipsub(tmp_path: Path):
    """Every expression has a value over the series of a peer that sends and receives every type of frame."""
    registry = CollectorRegistry()
    events = [Counter(f"trellis_{name}", "events", registry=registry) for name in EVENTS]
    ways = [Counter(f"trellis_{way}_frames", "frames", ["kind"], registry=registry) for way in ("sent", "received")]
    Gauge("trellis_logical_links", "links", ["topic"], registry=registry).labels("3").set(6)
    start_http_server(9100, "127.0.0.1", registry)
    server = start_prometheus(tmp_path, [Target("peer", "127.0.0.1", 9100, {"node": "3"})], 1)
    dashboard = json.loads((ROOT / "playbooks/grafana/gossipsub.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(asked) > len(dashboard["panels"]) > 5
    missing, deadline = asked, time.monotonic() + 300
    while missing and time.monotonic() < deadline:
        for counter in (*events, *(way.labels(kind) for way in ways for kind in MESSAGE_TYPES)):
            counter.inc()
        missing = [each for each in missing if not server.query(each.replace("$__rate_interval", "5m"), time.time())]
        time.sleep(0.2)
    assert missing == []
    types = server.query("last_over_time(gossipsub_rpc_sent_total[1h])", time.time())
    assert {row["metric"]["message_type"] for row in types} == set(MESSAGE_TYPES.values())
    assert {tuple(sorted(row["metric"])) for row in types} == {
        ("__name__", "instance", "job", "message_type", "node")
    }  # fmt: skip
    assert any(name.startswith(PREFIX) for name in server.list_metrics())
    span_s = time.time() - 60, time.time()
    copied = {name for table in fetch_samples(server, span_s, 60, int) for name in table["metric"].to_pylist()}
    assert "trellis_logical_links" in copied
    assert not any(name.startswith(PREFIX) for name in copied), "they are samples of ours under other names"
    server.stop()


@sandboxed
def test_samples_are_copied_whole_whatever_is_asked_for_at_once(tmp_path: Path):
    registry = CollectorRegistry()
    sent = Counter("trellis_sent_frames", "frames", ["kind"], registry=registry)
    for kind, count in (("data", 42), ("hello", 2)):
        sent.labels(kind).inc(count)
    start_http_server(9100, "127.0.0.1", registry)
    start_s = time.time()
    server = start_prometheus(tmp_path, [Target("peer", "127.0.0.1", 9100, {"node": "3"})], 1)
    await_series(server, "trellis_sent_frames_total offset 2s")
    span_s, path = (start_s, time.time()), tmp_path / "prometheus/samples.parquet"
    tables = []
    for step in (1.0, 100.0):
        written = write_samples(path, fetch_samples(server, span_s, step, lambda epoch_ns: epoch_ns - 5))
        tables.append(read_samples(tmp_path, ["trellis_sent_frames_total", "up", "scrape_samples_scraped"]))
    server.stop()
    assert sorted(map(str, tables[0].to_pylist())) == sorted(map(str, tables[1].to_pylist()))
    rows = tables[1].to_pylist()
    assert 0 < len(rows) < written
    seen = {(row["metric"], tuple(row["labels"]), row["value"]) for row in rows}
    assert seen - {("up", (), 0.0)} == {  # on a busy machine a scrape fails now and then
        ("trellis_sent_frames_total", (("kind", "data"),), 42.0),
        ("trellis_sent_frames_total", (("kind", "hello"),), 2.0),
        ("up", (), 1.0),
    }
    assert {(row["job"], row["instance"], row["node"]) for row in rows} == {("peer", "127.0.0.1:9100", 3)}
    assert all((row["ts_ns"] + 5) % 1_000_000 == 0 for row in rows)
    instants = [row["ts_ns"] for row in rows if row["metric"] == "up"]
    assert len(set(instants)) == len(instants) > 1, "no scrape twice"
