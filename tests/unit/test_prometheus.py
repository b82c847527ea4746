import json
from collections import Counter
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from harness.stages.prometheus import (
    ScrapeCounts,
    ScrapeWindow,
    count_paused,
    judge_scrapes,
    name_target,
    unexplained_failures,
)
from metrics.libp2p_names import MESSAGE_TYPES
from metrics.prometheus import Target, graph_url, write_config
from peer.core.frames import Data, Subscriptions, kind_names
from peer.core.schedule import Crash, Join, Leave, Vanish
from peer.protocols.gossipsub.frames import Graft, Idontwant, Ihave, Iwant, Prune
from topologies.timeline import Change

TARGETS = [
    Target("peer", "172.16.0.1", 9100, {"node": "0", "city": "Oslo"}),
    Target("peer", "172.16.0.2", 9100, {"node": "1", "city": "Rio"}),
    Target("agent", "172.16.255.254", 9102),
]


def test_targets_go_to_a_file_a_job_with_their_labels(tmp_path: Path):
    config = json.loads(write_config(tmp_path / "prometheus", TARGETS, 2.5).read_text())
    names = ("scrape_interval", "scrape_timeout", "evaluation_interval")
    assert config["global"] == dict.fromkeys(names, "2500ms")
    files = {job["job_name"]: job["file_sd_configs"][0]["files"] for job in config["scrape_configs"]}
    assert files == {"agent": ["targets-agent.json"], "peer": ["targets-peer.json"]}
    peers = json.loads((tmp_path / "prometheus/targets-peer.json").read_text())
    assert peers[1] == {"targets": ["172.16.0.2:9100"], "labels": {"node": "1", "city": "Rio"}}


def test_series_are_recorded_under_the_names_of_libp2ps_draft(tmp_path: Path) -> None:
    config = json.loads(write_config(tmp_path, TARGETS, 1).read_text())
    [group] = json.loads((tmp_path / config["rule_files"][0]).read_text())["groups"]
    rules = {(rule["record"], *rule.get("labels", {}).values()): rule["expr"] for rule in group["rules"]}
    assert len(rules) == len(group["rules"])
    assert rules["gossipsub_message_delivered_total",] == "trellis_deliveries_total"
    assert rules["gossipsub_rpc_sent_total", "publish"] == 'sum without (kind) (trellis_sent_frames_total{kind="data"})'
    assert {name for name, *type_ in rules if type_} == {"gossipsub_rpc_sent_total", "gossipsub_rpc_received_total"}


def test_the_types_of_messages_are_the_frames_of_gossipsub() -> None:
    of_gossipsub = {frame.__name__.lower() for frame in (Data, Subscriptions, Graft, Prune, Ihave, Iwant, Idontwant)}
    assert MESSAGE_TYPES.keys() == of_gossipsub <= set(kind_names().values())


def test_one_failed_scrape_per_scheduled_crash_is_explained():
    failed = {"peer/172.16.0.1:9100": 3, "peer/172.16.0.2:9100": 1, "agent/172.16.255.254:9102": 1}
    schedule = [Crash(1, 0), Join(2, 0, ()), Vanish(3, 0), Leave(4, 1)]
    places = {0: ("172.16.0.1", 9100), 1: ("172.16.0.2", 9100)}
    assert unexplained_failures(ScrapeCounts({}, failed), schedule, places, {}) == failed | {"peer/172.16.0.1:9100": 1}
    assert unexplained_failures(ScrapeCounts({}, {"peer/172.16.0.1:9100": 2}), schedule, places, {}) == {}


@pytest.mark.parametrize(
    ("length_s", "started_before_s", "fewest"),
    [(30, 10, 14), (30, 20, 14), (30, 5, 11), (4.1, 10, 1), (3.9, 10, 0), (3, 0, 0)],
)
def test_a_target_may_lack_one_scrape_and_those_before_the_server_knows_it(length_s, started_before_s, fewest):
    assert ScrapeWindow(length_s, started_before_s, 2.0).fewest == fewest


def test_targets_without_scrapes_are_named_though_no_scrape_failed():
    window, names = ScrapeWindow(10.0, 10.0, 2.0), list(map(name_target, TARGETS))
    assert names[0] == "peer/172.16.0.1:9100"
    enough = dict.fromkeys(names, 4)
    assert judge_scrapes(ScrapeCounts(dict.fromkeys(names, 1), {}), window, TARGETS, Counter()) == []
    [text] = judge_scrapes(ScrapeCounts({}, {}), window, TARGETS, Counter())
    assert text == (
        "3 of 3 targets were never scraped during the workload, although at least 4 scrapes of each were due in 10 s: "
        "peer/172.16.0.1:9100"
    )
    [text] = judge_scrapes(ScrapeCounts(dict.fromkeys(names[:2], 4), {}), window, TARGETS, Counter())
    assert text.startswith("1 of 3 targets were") and text.endswith("agent/172.16.255.254:9102")
    short = ScrapeWindow(3.0, 10.0, 2.0)
    assert judge_scrapes(ScrapeCounts({}, {}), short, TARGETS, Counter()) == [], "none need be due"
    failed = judge_scrapes(ScrapeCounts(enough, {names[0]: 2}), window, TARGETS, Counter({names[0]: 2}))
    assert failed == ["2 of 12 scrapes failed during the workload, most at peer/172.16.0.1:9100"]


def test_a_graph_shows_the_time_of_the_run():
    query = parse_qs(
        urlsplit(graph_url("http://x", ["a", 'rate(b{job="c"}[$window])'], 1_700_000_000.4, 90, 2.5)).query
    )
    assert query["g1.expr"] == ['rate(b{job="c"}[10s])']
    assert query["g0.range_input"] == ["90s"]
    assert query["g0.end_input"] == ["2023-11-14 22:13:20"]


def test_scrapes_of_a_paused_peer_may_fail_as_often_as_they_are_due() -> None:
    pause = Change(0, 0, 3_000_000_000, paused=(4, 5))
    paused = count_paused([pause, Change(0, 1, 9, sources=(4,), is_cut=True)], {4: 0, 5: 1}, interval_s=1.0)
    assert paused == {0: 4, 1: 4}
    places = {0: ("172.16.0.1", 9100)}
    failed = {"peer/172.16.0.1:9100": 5}
    assert unexplained_failures(ScrapeCounts({}, failed), [], places, paused) == {"peer/172.16.0.1:9100": 1}
