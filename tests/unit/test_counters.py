"""Scraped counters against the events of the traces: in which instants they must agree, and which are compared."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metrics.checks.evidence import Counters
from metrics.checks.rule import Absent
from metrics.executors.in_process import InProcess
from metrics.recorded.samples import SAMPLES
from metrics.rundir import RunDir
from metrics.rundir.files import SAMPLES_FILE
from metrics.storage.names import UnreadableError
from metrics.tables.counters import COUNTED, DURATION, weigh_counters
from metrics.tables.traces import FURTHER, TOLD
from peer.core.schedule import Crash, Vanish, encode_schedule
from tests.fabricate import Fabrication

NODES, INTERVAL_NS = 6, 5_000_000_000
AT = 100 * INTERVAL_NS

Row = dict[str, Any]


def sample(value: float, at_ns: int = AT, node: int | None = 3, metric: str = "trellis_deliveries_total") -> Row:
    return {
        "ts_ns": at_ns,
        "job": "peer",
        "instance": f"10.0.0.{node}:9100",
        "node": node,
        "metric": metric,
        "labels": [("city", "Oslo")],
        "value": value,
    }


def events(count: int, at_ns: int, name: str = "deliver", node: int = 3) -> list[Row]:
    return [{"event": name, "node": node, "ts_ns": at_ns, "message_id": number} for number in range(count)]


class Case:
    """A run of six nodes, and its staged events in two buckets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_dir = Fabrication().write(folder / "run")

    def weigh(self, samples: Iterable[Row], traced: Iterable[Row], incomplete: Iterable[int] = ()) -> Counters | Absent:
        path = self.run_dir / SAMPLES_FILE
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(list(samples), SAMPLES), path)
        traced = list(traced)
        for name, schema in (("told", TOLD), ("further", FURTHER)):
            (self.folder / name).mkdir()
            mine = [row for row in traced if (row["event"] in ("duplicate", "reject")) == (name == "further")]
            for bucket in range(2):
                rows = [row for row in mine if row["message_id"] % 2 == bucket]
                pq.write_table(pa.Table.from_pylist(rows, schema), self.folder / name / f"part-0-{bucket}.parquet")
        return self.ask(incomplete)

    def ask(self, incomplete: Iterable[int] = ()) -> Counters | Absent:
        with InProcess(1) as executor:
            return weigh_counters(executor, RunDir(self.run_dir), list(incomplete), self.folder, 2)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


@pytest.mark.parametrize(
    ("value", "off"), [(4, 1), (5, 0), (7, 0), (8, 0), (9, 1)], ids=lambda value: str(value)
)  # 5 events until an interval before the scrape, 8 until one after it
def test_a_counter_agrees_if_it_had_its_value_within_an_interval_of_the_scrape(
    case: Case, value: int, off: int
) -> None:
    traced = events(5, AT - INTERVAL_NS) + events(3, AT + INTERVAL_NS) + events(4, AT + INTERVAL_NS + 1)
    named = f"trellis_deliveries_total of node 3: {value}, traced 5 to 8" if off else ""
    assert case.weigh([sample(value)], traced) == Counters(len(COUNTED) * NODES, 1, min(off, 1), off, named)


@pytest.mark.parametrize(("value", "off"), [(4, 1), (5, 0), (9, 0), (10, 1)])
def test_a_scrape_that_took_longer_than_an_interval_may_have_counted_until_its_end(
    case: Case, value: int, off: int
) -> None:
    """Only the duration of this scrape of this node counts."""
    end = AT + 2 * INTERVAL_NS
    samples = [sample(value), sample(10.0, metric=DURATION), sample(99.0, AT - INTERVAL_NS, metric=DURATION)]
    samples.append(sample(99.0, node=2, metric=DURATION))
    found = case.weigh(samples, events(5, AT - INTERVAL_NS) + events(4, end) + events(4, end + 1))
    assert isinstance(found, Counters)
    assert (found.tested, found.failed, found.worst) == (1, off, off)


def test_the_last_sample_of_each_counter_counts(case: Case) -> None:
    samples = [sample(2), sample(0, AT - 60 * INTERVAL_NS), sample(1, node=1, metric="trellis_duplicates_total")]
    traced = events(2, AT - INTERVAL_NS) + events(1, 0, "duplicate", node=1) + events(9, 0, "reject", node=1)
    assert case.weigh(samples, traced) == Counters(len(COUNTED) * NODES, tested=2, failed=0)


def test_the_worst_counter_is_named(case: Case) -> None:
    samples = [sample(1), sample(7, metric="trellis_relays_total"), sample(3, node=0, metric="trellis_relays_total")]
    found = case.weigh(samples, events(2, 0) + events(3, 0, "relay", node=0))
    assert found == Counters(len(COUNTED) * NODES, 3, 2, 7, "trellis_relays_total of node 3: 7, traced 0 to 0")


def test_counters_that_were_set_back_or_have_no_whole_trace_are_left_out(case: Case) -> None:
    with (case.run_dir / "schedule.jsonl").open("ab") as file:
        file.write(encode_schedule([Crash(5, 1), Vanish(6, 2)]))
    found = case.weigh([sample(99, node=node) for node in (1, 2, 3, 77, None)], [], incomplete=[3])
    assert found == Counters(len(COUNTED) * 3, tested=0, failed=0)


def test_without_samples_nothing_is_compared(case: Case) -> None:
    assert case.ask() == Absent("nothing was scraped, or not kept")
    assert case.weigh([sample(1, metric="up")], []) == Absent("no peer's counters of messages were scraped")


def test_samples_that_the_manifest_counts_must_be_there(case: Case) -> None:
    path = case.run_dir / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"counters": manifest["counters"] | {"samples": 7}}))
    assert case.ask() == Absent("the file of the samples is missing", due=True)


def test_a_damaged_file_of_samples_is_refused(case: Case) -> None:
    case.weigh([], [])
    (case.run_dir / SAMPLES_FILE).write_bytes(b"no samples")
    with pytest.raises(UnreadableError, match=r"samples\.parquet"):
        case.ask()
