"""What a report says first, from tables that are written out here."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest
from msgspec import structs

from harness.commands.run import print_outcome
from metrics.measures.registry import FIRST_NUMBERS, HEADLINE
from metrics.report.findings import advise, find_quiet, find_striking
from metrics.report.page import closest, expectation, judged
from metrics.report.run import Run
from metrics.report.slow import SlowRow
from metrics.rundir import FAILED, NOT_APPLICABLE, NOT_JUDGED, PASSED, Check, RunDir, Scope, Summary
from metrics.totals import CopyCounts, RowCount, Totals
from tests.fabricated_totals import make_totals
from tests.grouped_tables import grouped

ZERO_NS = 10**9
ADVERSARY = 4

NOTHING_ODD: dict[str, Any] = {
    "deliveries": {
        "node": [0, 1, 2, 3],
        "topic": [5, 5, 6, 6],
        "publish_ns": [ZERO_NS] * 4,
        "delivered_ns": [ZERO_NS] * 4,
        "latency_ms": [1.0, 2.0, 3.0, 40.0],
        "direct_delay_ms": [1.0] * 4,
        "copies": [1] * 4,
    },
    "overlay_topics": {"topic": [5, 6], "components": [1, 1]},
    "stalls": {"source": [], "phase": [], "start_ns": [], "end_ns": []},
}


class Shown(Run):
    """A run that has the tables given, and no files."""

    def __init__(self, sent: dict[int, int] | None = None, hidden: bool = False, nameless: int = 0, **tables: Any):
        self._tables = {name: pd.DataFrame(columns) for name, columns in {**NOTHING_ODD, **tables}.items()}
        self._sent, self._hidden, self._nameless = sent or {}, hidden, nameless
        self.adversaries = frozenset({ADVERSARY})
        self.verdict, self.protocol = "valid", "random"
        self.peer: dict[str, Any] = {"command": None}
        self.repeated = 0

    zero_ns = ZERO_NS
    settle_ns = 0
    has_expressions = False
    nodes = [0, 1, 2, 3, ADVERSARY]  # noqa: RUF012 - a property of the class that it stands for
    grouped = grouped
    manifest = SimpleNamespace(counters={"processors_watched": 2})
    stalls = SimpleNamespace(host=[(1, 2)])
    plan = SimpleNamespace(name="quickstart")

    @property
    def summary(self) -> Any:
        return SimpleNamespace(headline={"degree_mean": 4.0}, verdict=self.verdict)

    @property
    def experiment(self) -> dict[str, Any]:
        return {
            "protocol": self.protocol,
            "peer": self.peer,
            "underlay": {"hosts": 40},
            "interests": {"kind": "independent", "ratio": 0.5},
            "workload": {"topics": 9},
            "membership": {"kind": "full"},
        }

    def hides(self, *_: str) -> bool:
        return self._hidden

    def last(self, name: str) -> pd.DataFrame | None:
        return self.table(name)

    def table(self, name: str) -> pd.DataFrame | None:
        return self._tables.get(name)

    def name_node(self, node: int | None) -> str:
        return f"node {node}"

    @property
    def totals(self) -> Totals:
        made = make_totals(ZERO_NS, self._tables["deliveries"], adversaries=self.adversaries)
        sent = {node: RowCount(rows) for node, rows in self._sent.items()}
        received = {0: CopyCounts(sum(self._sent.values()) + self._nameless, 0, 0, 0)}
        messages = structs.replace(
            made.messages, copies_by_sender=sent, copies_by_node=received, repeated=self.repeated
        )
        return structs.replace(made, messages=messages)


def said(run: Run, slow: list[SlowRow] | None = None) -> list[str]:
    return [finding.text for finding in find_striking(run, slow or [])]


WAITING = (
    "These nodes wait longest for a message, on average: node 3 40 ms, node 2 3 ms, node 1 2 ms; "
    "the median node waits 2.5 ms."
)


def test_a_quiet_run_says_what_was_looked_for() -> None:
    run = Shown()
    assert said(run) == [WAITING]
    assert find_quiet(run) == (
        "No expected delivery is missing, no topic is partitioned and no processor stood still during the workload."
    )


def test_what_is_not_known_is_not_said() -> None:
    run = Shown(hidden=True, overlay_topics={"topic": [5, 6], "components": [None, None]})
    run.manifest = SimpleNamespace(counters={})
    assert find_quiet(run) == "No expected delivery is missing."
    assert said(run) == [WAITING]


def test_missing_deliveries_are_counted_with_the_topic_that_lacks_most() -> None:
    deliveries = NOTHING_ODD["deliveries"] | {"delivered_ns": [ZERO_NS, None, None, None]}
    run = Shown(deliveries=deliveries)
    assert said(run)[0] == "3 of 4 expected deliveries were not made. Topic 6 lacks the most: 2."
    assert "delivery" not in find_quiet(run)


def test_deliveries_that_were_made_again_are_counted() -> None:
    run = Shown()
    run.repeated = 3
    assert said(run)[0] == "Applications got a message again 3 times, after the first delivery to their node."


def test_partitioned_topics_are_named_by_their_components() -> None:
    topics = {"topic": [5, 6, 7, 8, 9, 10], "components": [1, 2, 4, 2, 1, 3]}
    assert said(Shown(overlay_topics=topics))[0] == (
        "4 of 6 topics are partitioned at the workload's end: above all 7 (4 components), 10 (3 components), "
        "6 (2 components)."
    )
    assert said(Shown(hidden=True, overlay_topics=topics)) == [WAITING], "peers do not report their links"


def test_nodes_that_wait_longest_are_named_from_four_nodes_on() -> None:
    """Equal ones are in the order of nodes, and a delivery that was not made does not count."""
    deliveries = NOTHING_ODD["deliveries"] | {"latency_ms": [5.0, 5.0, 5.0, 5.0], "node": [3, 2, 1, 0]}
    assert said(Shown(deliveries=deliveries)) == [
        "These nodes wait longest for a message, on average: node 0 5 ms, node 1 5 ms, node 2 5 ms; "
        "the median node waits 5 ms."
    ]
    assert said(Shown(deliveries=deliveries | {"latency_ms": [5.0, 5.0, 5.0, None]})) == []
    twice = {"node": [0, 1, 2, 3, 3], "latency_ms": [1.0, 2.0, 3.0, 4.0, 10.0]}
    others = {name: [*values, values[0]] for name, values in NOTHING_ODD["deliveries"].items()}
    assert "node 3 7 ms, node 2 3 ms" in said(Shown(deliveries=others | twice))[0]


def test_stalls_of_the_workload_are_counted_by_source() -> None:
    stalls = {
        "source": ["host", "host", "plane", "host"],
        "phase": ["workload", "workload", "workload", "cooldown"],
        "start_ns": [0, 10_000_000, 0, 0],
        "end_ns": [2_000_000, 15_000_000, 1_500_000, 90_000_000],
    }
    run = Shown(stalls=stalls)
    sentences = [
        "A processor stood still 2 times during the workload, for 5 ms at most.",
        "The data plane stood still once during the workload, for 1.5 ms at most.",
    ]
    assert said(run)[-2:] == [f"{each} No check failed for it." for each in sentences]
    run.verdict = "suspect"
    assert said(run)[:2] == sentences
    assert "stood still" not in find_quiet(run)


def test_the_most_loaded_node_is_an_honest_one() -> None:
    assert said(Shown(sent={0: 10, 1: 10, 2: 35, ADVERSARY: 900}))[-1] == (
        "Node 2 sends the most copies of messages: 35, 3.5 times as many as the median node."
    )
    assert said(Shown(sent={2: 35}))[-1] == "Node 2 sends the most copies of messages: 35."
    assert said(Shown(sent={ADVERSARY: 900})) == [WAITING], "no honest node sent any"
    assert said(Shown(sent={0: 10, 2: 35}, nameless=1)) == [WAITING], "another node may have sent the rest"


@pytest.mark.parametrize(
    ("path", "way"),
    [(("a", "b", "c"), ", via b"), (("a", "c"), ", straight"), ((), "")],
)
def test_the_slowest_delivery_is_told_with_its_path(path: tuple[str, ...], way: str) -> None:
    row = SlowRow(7, "a", "c", 233.4, 180.0, path, "replay.html#m=7&n=1" if path else None)
    found = find_striking(Shown(), [row])[0]
    assert found.text == f"The slowest delivery took 233 ms: from a to c{way}. The direct path takes 180 ms."
    assert found.href == (row.replay or "#slowest")


def test_advice_names_the_other_protocols_and_repeats_after_stalls() -> None:
    run = Shown()
    first = advise(run)[0]
    assert first.command == "trellis run FILE --set protocol=NAME"
    assert "complete" in first.reason and "random" not in first.reason
    run.verdict = "suspect"
    assert advise(run)[0].command.endswith("--retry-host-stalls 2")


def test_advice_begins_with_the_seeds_that_a_comparison_needs() -> None:
    run = Shown()
    baseline = cast("RunDir", SimpleNamespace(summary=SimpleNamespace(protocol="stan")))
    first = advise(run, baseline)[0]
    assert first.command == (
        "trellis run FILE --repeat 5 --set protocol=random; trellis run FILE --repeat 5 --set protocol=stan; "
        "trellis compare runs/quickstart/*"
    )
    assert "random and stan" in first.reason
    run.protocol = "stan"
    assert advise(run, baseline)[0].command == "trellis run FILE --set protocol=NAME", "the same protocol again"


@pytest.mark.parametrize(
    ("outcomes", "sentence"),
    [
        ([PASSED] * 3, "3 of 3 checks passed, none had to be left unjudged, and none do not apply to this run."),
        (
            [PASSED, NOT_JUDGED, NOT_APPLICABLE],
            "1 of 1 checks passed, 1 had to be left unjudged, and 1 does not apply to this run.",
        ),
    ],
)
def test_the_reason_of_the_verdict_counts_checks(outcomes: list[str], sentence: str) -> None:
    checks = tuple(Check("a", 1, 0, 0.0, 0.0, "", "invalid", outcome=outcome) for outcome in outcomes)
    assert judged(Summary("valid", (), {}, checks, "run", "run", 1, "random")) == sentence


def test_the_checks_that_nearly_failed_are_named_with_their_limits() -> None:
    values = {
        "far_away": (1.0, 100.0, "ms", PASSED), "plane_lateness": (0.25, 0.5, "ms", PASSED),
        "cpu_busy": (0.9, 0.95, "ratio", PASSED), "nothing": (0.0, 1.0, "ms", PASSED),
        "at_limit": (2.0, 2.0, "s", PASSED), "failed": (9.0, 10.0, "ms", FAILED), "at_least": (3.0, 2.0, "ms", PASSED),
    }  # fmt: skip
    checks = tuple(
        Check(name, 1, 0, worst, limit, unit, "invalid", outcome=outcome)
        for name, (worst, limit, unit, outcome) in values.items()
    )
    summary = Summary("valid", (), {}, checks, "run", "run", 1, "random")
    assert closest(summary) == (
        "Closest to their limits: at limit 2 s (limit 2 s), cpu busy 90 % (limit 95 %) and plane lateness 0.25 ms "
        "(limit 0.5 ms)."
    )
    assert closest(structs.replace(summary, checks=checks[3:4])) == ""


def test_the_reason_of_the_verdict_says_what_was_checked() -> None:
    scope = Scope(network="judged", machine="judged", frames="not judged", deliveries="judged")
    text = judged(Summary("valid", (), {}, (), "run", "run", 1, "random", scope=scope))
    assert text.endswith("They check network, machine and deliveries. Not judged: frames. Not applicable: packets.")


@pytest.mark.parametrize(
    ("peer", "words"),
    [
        ({"command": None}, ["--set", "--repeat", "compare", "replay"]),
        ({"command": ["x"], "events": "lines", "says": []}, ["--repeat", "compare", "replay"]),
        ({"command": ["x"], "events": "none", "says": []}, ["--repeat", "compare"]),
    ],
)
def test_advice_fits_what_programs_report(peer: dict[str, Any], words: list[str]) -> None:
    run = Shown()
    run.peer = peer
    commands = [each.command for each in advise(run)]
    assert len(commands) == len(words)
    assert all(word in command for word, command in zip(words, commands, strict=True))


@pytest.mark.parametrize(("events", "starts"), [("lines", "A delivery is expected of each node"), ("none", None)])
def test_deliveries_are_expected_of_what_reports_messages(events: str, starts: str | None) -> None:
    run = Shown()
    run.peer = {"command": ["x"], "events": events, "says": []}
    told = expectation(run)
    assert told is None if starts is None else (told or "").startswith(starts)


def test_ten_numbers_are_printed_unless_all_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(FIRST_NUMBERS) == 10 and set(FIRST_NUMBERS) <= set(HEADLINE)
    known: dict[str, Any] = {name: place for place, name in enumerate(HEADLINE)}
    summary = Summary("valid", (), known | {"rtt_error_ms_p99": None}, (), "run", "run", 1, "random")
    monkeypatch.setattr(RunDir, "__init__", lambda self, path: None)
    monkeypatch.setattr(RunDir, "manifest", SimpleNamespace(machine=""))
    monkeypatch.setattr(RunDir, "results", tmp_path, raising=False)
    shown = []
    for all_numbers in (False, True):
        print_outcome(Path("r"), summary, as_json=False, all_numbers=all_numbers)
        lines = capsys.readouterr().out.splitlines()
        words = [line.split() for line in lines]
        shown.append([each[0] for each in words if len(each) == 2 and each[0] in known])
        page = tmp_path / "report/index.html"
        assert lines[-1] == (f"report: {page}" if all_numbers else "no report: trellis report r writes it")
        page.parent.mkdir(exist_ok=True)
        page.touch()
        assert (f"{len(HEADLINE) - 10} more numbers: r/summary.json, the report, or --all" in lines) == (
            not all_numbers
        )
    assert shown == [
        [name for name in FIRST_NUMBERS if name != "rtt_error_ms_p99"],
        [name for name in HEADLINE if name != "rtt_error_ms_p99"],
    ]
