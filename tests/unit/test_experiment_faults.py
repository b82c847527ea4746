"""Malformed experiment files and options: one line that names the place, exit code 2, nothing started or written."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main

LINES = '[peer]\ncommand = ["a"]\nevents = "lines"\n'
GOOD = 'name = "x"\n'
REMOTE = GOOD + 'testbed = "remote"\ninventory = "x.toml"\n'
VANISH = '[churn]\nkind = "script"\n[[churn.script]]\nat_s = 1\nnode = 1\naction = "vanish"\n'

# (the file's text, what the error must say after the file's name)
FILES = {
    "empty": ("", ": $.name: missing"),
    "no_value": ("name =\n", ":1:7: invalid value"),
    "unclosed_string": ('seed = 1\nname = "x\n', ":2:10: illegal character"),
    "unclosed_section": ('name = "x"\n[underlay\n', ":2:10: "),
    "cut_off": ('name = "x"\ndescription = """never closed', ":end: "),
    "too_deep": ('name = "x"\ndescription = ' + "[" * 5000 + "]" * 5000, ": nested too deeply"),
    "decimal_comma": (
        GOOD + "[underlay]\ndelay_ms = 12,5  # half\n",
        ":3:14: expected newline or end of document after a statement; write numbers with a decimal point\n",
    ),
    "key_twice": ('name = "x"\nname = "y"\n', ":2:11: cannot overwrite"),
    "unknown_top": (GOOD + "sed = 3\n", ": $.sed: unknown field; did you mean seed?"),
    "unknown_section": (GOOD + "[underlai]\n", ": $.underlai: unknown field; did you mean underlay?"),
    "unknown_key": (GOOD + "[underlay]\nhots = 4\n", ": $.underlay.hots: unknown field; did you mean hosts?"),
    "unknown_elsewhere": (
        GOOD + "[workload]\nhosts = 4\n",
        ": $.workload.hosts: unknown field; did you mean underlay.hosts?",
    ),
    "unknown_in_several": (
        GOOD + "path = 'x'\n",
        ": $.path: unknown field; did you mean underlay.path, interests.path or churn.path?",
    ),
    "unknown_odd": (GOOD + '"a\\nb" = 4\n', ": $.'a\\nb': unknown field; known are name"),
    "nan_at_odd": (GOOD + '"a\\nb" = nan\n', ": $.'a\\nb': expected a finite number, got nan"),
    "unknown_far": (GOOD + "[random]\nzzz = 4\n", ": $.random.zzz: unknown field; known are degree"),
    "name_number": ("name = 3\n", ": $.name: expected a string like ^[a-z0-9][a-z0-9._-]{0,62}$, got 3"),
    "name_path": ('name = "../x"\n', ": $.name: expected a string like"),
    "seed_negative": (GOOD + "seed = -1\n", ": $.seed: expected an integer >= 0 and <= 9223372036854775807, got -1"),
    "seed_float": (GOOD + "seed = 1.5\n", ": $.seed: expected an integer"),
    "seed_bool": (GOOD + "seed = true\n", ": $.seed: expected an integer >= 0 and <= 9223372036854775807, got true"),
    "protocol": (GOOD + 'protocol = "rendom"\n', ': $.protocol: expected "complete", '),
    "testbed": (
        GOOD + 'testbed = "cloud"\n',
        ': $.testbed: expected "emulated", "remote" or "simulated", got \'cloud\'',
    ),
    "section_is_value": (GOOD + "underlay = 4\n", ": $.underlay: expected a section, got 4"),
    "hosts_low": (GOOD + "[underlay]\nhosts = 1\n", ": $.underlay.hosts: expected an integer >= 2 and <= 10000, got 1"),
    "hosts_high": (GOOD + "[underlay]\nhosts = 10001\n", ": $.underlay.hosts: expected an integer >= 2"),
    "hosts_text": (GOOD + '[underlay]\nhosts = "20"\n', ": $.underlay.hosts: expected an integer"),
    "kind": (GOOD + '[underlay]\nkind = "mars"\n', ": $.underlay.kind: expected"),
    "delay_zero": (GOOD + "[underlay]\ndelay_ms = 0\n", ": $.underlay.delay_ms: expected a number > 0 and <= 60000"),
    "delay_nan": (GOOD + "[underlay]\ndelay_ms = nan\n", ": $.underlay.delay_ms: expected a finite number, got nan"),
    "rate_inf": (GOOD + "[underlay]\nrate_mbit = inf\n", ": $.underlay.rate_mbit: expected a finite number, got inf"),
    "loss_one": (
        GOOD + "[underlay]\nloss_ratio = 1\n",
        ': $.underlay.loss_ratio: expected "measured" or a number >= 0 and < 1',
    ),
    "jitter_word": (GOOD + '[underlay]\njitter = "some"\n', ': $.underlay.jitter: expected "measured" or "none"'),
    "jitter_negative": (GOOD + "[underlay]\njitter = -1\n", ': $.underlay.jitter: expected "measured" or "none"'),
    "matrix_without_path": (GOOD + '[underlay]\nkind = "matrix"\n', ": $.underlay.path: missing"),
    "path_unused": (GOOD + '[underlay]\npath = "x.csv"\n', ': $.underlay.path: kind = "world-cities" reads no file'),
    "path_empty": (GOOD + '[underlay]\nkind = "matrix"\npath = ""\n', ": $.underlay.path: expected a string"),
    "degree_zero": (GOOD + "[random]\ndegree = 0\n", ": $.random.degree: expected an integer >= 1, got 0"),
    "degree_high": (
        GOOD + "[underlay]\nhosts = 5\n[random]\ndegree = 5\n",
        ": $.random.degree: expected fewer than the 5 hosts, got 5",
    ),
    "degree_high_by_default": (
        GOOD + "[random]\ndegree = 20\n",
        ": $.random.degree: expected fewer than the 20 hosts, got 20",
    ),
    "quota": (
        GOOD + "[gossipsub]\nd_out = 5\n",
        ": $.gossipsub: expected d_out below d_lo = 4 and at most d / 2, got 5",
    ),
    "thresholds": (
        GOOD + "[gossipsub.score]\ngossip_threshold = -60\n",
        ": $.gossipsub.score: expected graylist_threshold <= publish_threshold <= gossip_threshold",
    ),
    "weight": (
        GOOD + "[gossipsub.score]\nbehaviour_penalty_weight = 1\n",
        ": $.gossipsub.score.behaviour_penalty_weight: expected a number <= 0, got 1",
    ),
    "ttl": (GOOD + "[flood]\nttl = 256\n", ": $.flood.ttl: expected an integer >= 0 and <= 255"),
    "topics_zero": (GOOD + "[workload]\ntopics = 0\n", ": $.workload.topics: expected an integer >= 1"),
    "interest": (GOOD + "[interests]\nratio = 1.2\n", ": $.interests.ratio: expected a number >= 0"),
    "no_interest": (
        GOOD + "[interests]\nratio = 0\n",
        ": $.interests: 0 of 10 topics have a subscriber that publishes, but a message needs 1",
    ),
    "interest_file_missing": (GOOD + '[interests]\nkind = "file"\n', ": $.interests.path: missing"),
    "interest_file_unused": (GOOD + '[interests]\npath = "x"\n', ': $.interests.path: kind = "independent" reads no'),
    "subscriptions": (
        GOOD + '[interests]\nkind = "popularity"\nsubscriptions_max = 11\n',
        ": $.interests.subscriptions_max: expected at most workload.topics = 10, got 11",
    ),
    "subscriptions_range": (
        GOOD + '[interests]\nkind = "popularity"\nsubscriptions_min = 5\nsubscriptions_max = 4\n',
        ": $.interests.subscriptions_min: expected at most subscriptions_max = 4, got 5",
    ),
    "graph_topics": (
        GOOD + '[underlay]\nhosts = 7\n[interests]\nkind = "follower-graph"\npath = "x"\n',
        ": $.workload.topics: expected 7 as there are hosts, since every user is a node and a topic, got 10",
    ),
    "buckets_unequal": (
        GOOD + '[interests]\nkind = "buckets"\nbuckets = 3\n',
        ": $.interests.buckets: expected a divisor of workload.topics = 10, got 3",
    ),
    "buckets_too_many": (
        GOOD + '[interests]\nkind = "buckets"\nbuckets = 5\nbuckets_per_node = 6\ntopics_per_bucket = 2\n',
        ": $.interests.buckets_per_node: expected at most buckets = 5, got 6",
    ),
    "bucket_too_small": (
        GOOD + '[interests]\nkind = "buckets"\nbuckets = 5\ntopics_per_bucket = 3\n',
        ": $.interests.topics_per_bucket: expected at most the 2 topics of a bucket, got 3",
    ),
    "window_empty": (
        GOOD + '[churn]\nkind = "sessions"\npath = "x"\norigin_s = 9\nend_s = 9\n',
        ": $.churn.end_s: expected more than origin_s = 9, got 9",
    ),
    "window_unused": (GOOD + "[churn]\nend_s = 9\n", ': $.churn.end_s: kind = "none" does not use it'),
    "silent_remote": (
        REMOTE + "[churn]\nsilent_ratio = 0.5\n",
        ': $.churn.silent_ratio: testbed = "remote" has no silent crashes',
    ),
    "vanish_remote": (
        REMOTE + VANISH,
        ': $.churn.script: testbed = "remote" has no silent crashes',
    ),
    "silent_command": (
        GOOD + '[churn]\nsilent_ratio = 0.5\n[peer]\ncommand = ["x"]\n',
        ": $.churn.silent_ratio: silent crashes need the Python peer",
    ),
    "vanish_command": (
        GOOD + VANISH + '[peer]\ncommand = ["x"]\n',
        ": $.churn.script: silent crashes need the Python peer",
    ),
    "flash_script": (
        GOOD + '[churn]\nkind = "script"\nflash_ratio = 1\n[[churn.script]]\nat_s = 1\nnode = 1\naction = "leave"\n',
        ': $.churn.flash_ratio: kind = "script" does not use it',
    ),
    "flash_late": (
        GOOD + "[churn]\nflash_ratio = 0.5\nflash_at_s = 25\n",
        ": $.churn.flash_at_s: the flash crowd does not join within the run, -5 to 33 s",
    ),
    "sessions_unused": (GOOD + '[churn]\npath = "x"\n', ': $.churn.path: kind = "none" does not use it'),
    "script_empty": (GOOD + '[churn]\nkind = "script"\n', ": $.churn.script: missing"),
    "script_unused": (
        GOOD + '[[churn.script]]\nat_s = 1\nnode = 1\naction = "leave"\n',
        ': $.churn.script: kind = "none" does not use it',
    ),
    "script_action": (
        GOOD + '[[churn.script]]\nat_s = 1\nnode = 1\naction = "die"\n',
        ': $.churn.script[0].action: expected "crash", "join", "leave", "subscribe", "unsubscribe" or "vanish", got',
    ),
    "script_field": (
        GOOD + '[[churn.script]]\nat_s = 1\nnode = 1\naction = "leave"\ntopic = 3\n',
        ": $.churn.script[0].topic: unknown field; did you mean topics?",
    ),
    "churn_busy": (
        GOOD + '[churn]\nkind = "exponential"\non_s = 1e-6\n',
        ": $.churn.on_s: expected at most 5000000 joins and leaves, got 1216000000 in",
    ),
    "crash_ratio": (GOOD + "[churn]\ncrash_ratio = 2\n", ": $.churn.crash_ratio: expected a number >= 0 and <= 1"),
    "topics_per_message": (
        GOOD + "[workload]\ntopics = 3\ntopics_per_message = 4\n",
        ": $.workload.topics_per_message: expected at most topics = 3, got 4",
    ),
    "expression": (
        GOOD + '[expressions]\nkind = "list"\ntexts = ["a&b", "a&(b|"]\n',
        ": $.expressions.texts[1]: expected an attribute or '(' at the end at position 5",
    ),
    "keyword": (
        GOOD + '[expressions]\nkind = "list"\ntexts = ["a|zz"]\n',
        ": $.expressions.texts[0]: 'zz' is not one of the keywords a to j at position 2",
    ),
    "interval": (GOOD + '[workload]\npublish_interval = "bursty"\n', ": $.workload.publish_interval: expected"),
    "rate_zero": (
        GOOD + "[workload]\npublish_rate_per_s = 0\n",
        ": $.workload.publish_rate_per_s: expected a number",
    ),
    "rate_huge": (
        GOOD + "[workload]\npublish_rate_per_s = 1e9\n",
        ": $.workload.publish_rate_per_s: expected at most 5000000 messages, got 30000000000",
    ),
    "no_message": (
        GOOD + "[workload]\npublish_rate_per_s = 1e-9\n",
        ": $.workload.publish_rate_per_s: no message is published within the window with this seed",
    ),
    "duration_zero": (GOOD + "[workload]\nduration_s = 0\n", ": $.workload.duration_s: expected a number > 0"),
    "duration_date": (GOOD + "[workload]\nduration_s = 2020-07-19\n", ": $.workload.duration_s: expected a number"),
    "payload": (GOOD + "[workload]\npayload_bytes = 2000000\n", ": $.workload.payload_bytes: expected an integer >= 0"),
    "command_item": (GOOD + "[peer]\ncommand = [1]\n", ": $.peer.command[0]: expected a string, got 1"),
    "command_empty": (GOOD + "[peer]\ncommand = []\n", ": $.peer.command: expected at least the program's name"),
    "lines_alone": (GOOD + '[peer]\nevents = "lines"\n', ': $.peer.command: missing: events = "lines" needs it'),
    "lines_running": (GOOD + LINES + 'expected_final_state = "running"\n', ": $.peer.expected_final_state: expected "),
    "lines_record": (GOOD + LINES + "record = true\n", ": $.peer.record: only events of Python peers"),
    "lines_topics": (
        GOOD + LINES + "[workload]\ntopics_per_message = 2\n",
        ": $.workload.topics_per_message: expected 1",
    ),
    "lines_says": (GOOD + LINES + 'says = ["hops"]\n', ": $.peer.says[0]: "),
    "unread_connect": (GOOD + "[peer]\nconnect = 3\n", ': $.peer.connect: events = "trace" does not use it'),
    "unread_says": (GOOD + '[peer]\nsays = ["link"]\n', ': $.peer.says: events = "trace" does not use it'),
    "running_python": (GOOD + '[peer]\nexpected_final_state = "running"\n', ": $.peer.expected_final_state: "),
    "checked hosts": (GOOD + "[capture]\nchecked_hosts = 65\n", ": $.capture.checked_hosts: expected an integer"),
    "snaplen": (GOOD + "[capture]\nsnaplen_bytes = 20\n", ": $.capture.snaplen_bytes: expected an integer >= 64"),
    "scrape": (
        GOOD + "[prometheus]\nscrape_interval_s = 0.1\n",
        ": $.prometheus.scrape_interval_s: expected a number",
    ),
    "packets": (GOOD + "[probes]\npackets_per_pair = 1\n", ": $.probes.packets_per_pair: expected an integer >= 2"),
    "verdict": (
        GOOD + "[verdict]\nlateness_p99_ms = -1\n",
        ": $.verdict.lateness_p99_ms: expected a number > 0",
    ),
    "remote_alone": (GOOD + 'testbed = "remote"\n', ': $.inventory: missing: testbed = "remote" needs it'),
    "dilation_low": (
        GOOD + "time_dilation = 0.5\n",
        ': $.time_dilation: expected a number >= 1 and <= 1000 or "auto", got 0.5',
    ),
    "dilation_remote": (
        REMOTE + "time_dilation = 2\n",
        ': $.time_dilation: expected 1 with testbed = "remote": a real network cannot be slowed down',
    ),
    "inventory_unused": (GOOD + 'inventory = "x.toml"\n', ': $.inventory: only testbed = "remote" uses it'),
}

OVERRIDES = {
    "no_equals": ("seed", "--set seed: expected key=value"),
    "no_key": ("=3", "--set =3: expected key=value"),
    "bad_value": ("seed=[1", "--set seed=[1: expected a TOML value or a bare word"),
    "decimal_comma": (
        "underlay.delay_ms=12,5",
        "expected a TOML value or a bare word after the =; write numbers with a decimal point\n",
    ),
    "injection": ("seed=1\nname='y'", "expected a TOML value or a bare word"),
    "into_value": ("name.x=1", "--set name.x=1: name is a value, not a section"),
    "unknown": ("underlay.hots=3", "--set underlay.hots=3: unknown field; did you mean hosts?"),
    "range": ("underlay.hosts=1", "--set underlay.hosts=1: expected an integer >= 2 and <= 10000, got 1"),
    "unusable": ("underlay.delay_ms=nan", "--set underlay.delay_ms=nan: expected a finite number, got nan"),
    "rule": ("inventory=x.toml", '--set inventory=x.toml: only testbed = "remote" uses it'),
    "parameter": ("random.degree=20", "--set random.degree=20: expected fewer than the 20 hosts, got 20"),
    "other_key": ("interests.kind=follower-graph", "with --set interests.kind=follower-graph: $.workload"),
    "plan": ("workload.publish_rate_per_s=1e-4", "--set workload.publish_rate_per_s=1e-4: no message is published"),
    "section": ("underlay={hosts=1}", "--set underlay={hosts=1}: $.underlay.hosts: expected an integer >= 2"),
    "in_list": (
        "adversary.nodes=[0, -1]",
        "--set adversary.nodes=[0, -1]: $.adversary.nodes[1]: expected an integer >= 0",
    ),
    "new_section": ("nosuch.key=1", "good.toml with --set nosuch.key=1: $.nosuch: unknown field"),
}


FEW = ("empty", "too_deep", "unknown_section", "hosts_low", "matrix_without_path", "no_interest", "script_action")
"""The malformed files that every verb is tried with in every run of the tests: one of each kind of problem."""


def cases() -> Iterator[Any]:
    """Yield every malformed file and every verb that reads it. All verbs load it in the same way."""
    for case in FILES:
        yield case, "check"
        for verb in ("plan", "run"):
            yield pytest.param(case, verb, marks=() if case in FEW else pytest.mark.long)


def assert_refused(capsys: pytest.CaptureFixture[str], arguments: list[str], folder: Path, text: str) -> None:
    before = sorted(folder.iterdir())
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    assert text in captured.err
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(("case", "verb"), cases())
def test_malformed_file_is_refused(
    case: str, verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text, problem = FILES[case]
    file = tmp_path / "case.toml"
    file.write_text(text)
    monkeypatch.chdir(tmp_path)
    assert_refused(capsys, [verb, str(file)], tmp_path, f"trellis {verb}: {file}{problem}")


@pytest.mark.parametrize("more", ["", 'testbed = "simulated"\n'])
@pytest.mark.parametrize("churn", [VANISH, '[churn]\nkind = "exponential"\ncrash_ratio = 1\nsilent_ratio = 0.5\n'])
def test_hosts_vanish_where_they_can(more: str, churn: str, tmp_path: Path) -> None:
    file = tmp_path / "case.toml"
    file.write_text(GOOD + more + churn)
    assert main(["check", str(file)]) == 0


@pytest.mark.parametrize("case", OVERRIDES)
def test_malformed_override_is_refused(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    override, problem = OVERRIDES[case]
    file = tmp_path / "good.toml"
    file.write_text(GOOD)
    assert_refused(capsys, ["check", str(file), "--set", override], tmp_path, problem)


def test_of_two_overrides_the_one_that_set_the_key_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "good.toml"
    file.write_text(GOOD)
    overrides = ["--set", "underlay={hosts=30}", "--set", "underlay.hosts=1", "--set", "underlay.delay_ms=5"]
    assert_refused(
        capsys, ["check", str(file), *overrides], tmp_path, "trellis check: --set underlay.hosts=1: expected"
    )


def test_a_key_of_the_file_is_blamed_on_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(GOOD + "[underlay]\nhosts = 1\n")
    place = f"trellis check: {file} with --set underlay.delay_ms=5: $.underlay.hosts: expected"
    assert_refused(capsys, ["check", str(file), "--set", "underlay.delay_ms=5"], tmp_path, place)


def test_negative_seed_option_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "good.toml"
    file.write_text(GOOD)
    assert_refused(capsys, ["check", str(file), "--seed", "-4"], tmp_path, "--seed -4: expected an integer >= 0")


def test_missing_file_directory_and_binary_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"name = '\xff'")
    assert_refused(capsys, ["check", str(tmp_path / "none.toml")], tmp_path, "none.toml: No such file or directory")
    assert_refused(capsys, ["check", str(tmp_path)], tmp_path, f"{tmp_path}: Is a directory")
    assert_refused(capsys, ["check", str(binary)], tmp_path, f"{binary}: not UTF-8 text at byte 8")


@pytest.mark.parametrize(
    ("section", "kind", "absent"),
    [
        ("underlay", "wondernetwork", "wondernetwork-2020: no such file"),
        (
            "interests",
            "follower-graph",
            "snap-ego-twitter/ego-twitter-follows.adj.gz: No such file",
        ),
        ("churn", "sessions", "skype-churn/skype-superpeers-sessions.csv.gz: No such file"),
    ],
)
def test_missing_data_is_refused(
    section: str,
    kind: str,
    absent: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "wan.toml"
    topics = "[workload]\ntopics = 20\n" if section == "interests" else ""
    file.write_text(GOOD + f'[{section}]\nkind = "{kind}"\n{topics}')
    monkeypatch.delenv("TRELLIS_DATA", raising=False)
    assert_refused(capsys, ["check", str(file)], tmp_path, f"$.{section}.path: missing, and the environment variable")
    monkeypatch.setenv("TRELLIS_DATA", str(tmp_path))
    assert_refused(capsys, ["check", str(file)], tmp_path, f"{tmp_path}/{absent}")


def test_what_cannot_fit_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.machine.capacity import Capacity
    from harness.planning import prediction

    file = tmp_path / "good.toml"
    file.write_text(GOOD)
    small = Capacity(processes=50, memory_mib=10_000, open_files=1000)
    monkeypatch.setattr(prediction, "this_machine", lambda: small)
    assert main(["check", str(file)]) == 0
    capsys.readouterr()
    text = "--set underlay.hosts=30: 30 hosts need 70 processes, this machine has 50"
    assert_refused(capsys, ["plan", str(file), "--set", "underlay.hosts=30"], tmp_path, text)
    text = "--set underlay.hosts=30: 30 hosts need 100 processes, this machine has 50"
    for crashes in ("crash", "vanish"):
        file.write_text(GOOD + VANISH.replace("vanish", crashes))
        assert_refused(capsys, ["plan", str(file), "--set", "underlay.hosts=30"], tmp_path, text)
    text = "--set underlay.hosts=1001: expected at most 1000 hosts on the emulated testbed's control network, got 1001"
    assert_refused(capsys, ["check", str(file), "--set", "underlay.hosts=1001"], tmp_path, text)


@pytest.mark.parametrize(
    ("asked", "free", "problem"),
    [
        ("", {"memory_mib": 4000}, "10000 hosts need 4130 MiB of memory, this machine has 4000"),
        (
            "loss_ratio = 0.1\njitter = 2",
            {"memory_mib": 7000},
            "10000 hosts need 7181 MiB of memory, this machine has 7000",
        ),
        ("", {"open_files": 4096}, "10000 hosts need 10064 open files in one process, this machine has 4096"),
    ],
)
def test_a_simulated_run_that_cannot_fit_is_refused(
    asked: str,
    free: dict[str, float],
    problem: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from harness.machine.capacity import Capacity
    from harness.planning import prediction

    file = tmp_path / "large.toml"
    section = f'[underlay]\nkind = "uniform"\nhosts = 10000\n{asked}\n'
    file.write_text(GOOD + 'testbed = "simulated"\n' + section)
    machine = Capacity(**({"processes": 1, "memory_mib": 1e6, "open_files": 1e6} | free))
    monkeypatch.setattr(prediction, "this_machine", lambda: machine)
    assert_refused(capsys, ["plan", str(file)], tmp_path, f"{file}: $.underlay.hosts: {problem}")
