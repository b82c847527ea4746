"""Compare the counters that Prometheus scraped from the peers with the events in the peers' traces.

A sample has the instant at which its scrape began. A scrape takes up to one interval, or longer on a busy machine: its
sample of ``DURATION`` says how long. So a counter is compared with the numbers of events from one interval before that
instant until the scrape was over, or until one interval had passed.
"""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.checks.evidence import Counters
from metrics.checks.rule import Absent
from metrics.executors import Executor
from metrics.pcap.walk import Ints
from metrics.recorded.samples import read_samples
from metrics.reported import DUPLICATE, RELAY, find_missing
from metrics.rundir import RunDir
from metrics.storage import Place
from metrics.tables.buckets import read_bucket
from metrics.tables.columns import Column, numbers
from metrics.tables.shares import Share, all_shares
from metrics.tables.tallies import Tally, add_tallies, tally
from metrics.tables.traces import FURTHER, TOLD

COUNTED: Final = {
    "publish": "trellis_publications_total",
    "deliver": "trellis_deliveries_total",
    "duplicate": "trellis_duplicates_total",
    "relay": "trellis_relays_total",
}
"""The counters of peers, by the event that each counts. A crash ends the process, so they begin at 0 after it."""

DURATION: Final = "scrape_duration_seconds"
"""How long a scrape took (s of real time), as Prometheus has measured it."""

_EVENTS: Final = pa.array(COUNTED)
_NEEDS: Final = {"duplicate": DUPLICATE, "relay": RELAY}
"""Events that not all programs report."""

_COLUMNS: Final = ["event", "node", "ts_ns"]
_NEVER: Final = np.iinfo(np.int64).min


class Bracket(NamedTuple):
    """The events that a counter counts."""

    events: int
    before: int  # events up to one interval before the scrape
    until: int  # events until one interval after it, or until it was over


class Scrape(NamedTuple):
    """The last sample of a counter."""

    at_ns: int
    value: int
    took_s: float  # 0 = not known


class CounterSources(NamedTuple):
    """Where the events are, and when each counter was scraped."""

    told: Place  # ``TOLD``, in buckets
    further: Place  # ``FURTHER``, likewise
    at_ns: Ints  # when each counter was scraped, ``_EVENTS`` per node; ``_NEVER`` = not compared
    until_ns: Ints  # until when it may have counted, likewise
    interval_ns: int


def weigh_counters(
    executor: Executor, run: RunDir, incomplete: Collection[int], staging: Place, buckets: int
) -> Counters | Absent:
    """Compare the counters of peers with their traces.

    Args:
        executor: runs the tasks.
        run: the run.
        incomplete: nodes whose trace is missing or cut off.
        staging: has the events.
        buckets: how many there are.
    """
    found = read_last(run)
    if isinstance(found, Absent):
        return found
    crashed = {action["node"] for action in run.schedule() if action["action"] in ("crash", "vanish")}
    comparable = set(run.nodes) - set(incomplete) - crashed
    scrapes = {counter: scrape for counter, scrape in found.items() if counter // len(_EVENTS) in comparable}
    at_ns = np.full(len(_EVENTS) * (max(run.nodes, default=-1) + 1), _NEVER)
    at_ns[list(scrapes)] = [scrape.at_ns for scrape in scrapes.values()]
    virtual_ns = 1e9 / run.manifest.time_dilation
    interval_ns = round(run.experiment["prometheus"]["scrape_interval_s"] * virtual_ns)
    until_ns = at_ns.copy()
    for counter, scrape in scrapes.items():
        until_ns[counter] += max(interval_ns, round(scrape.took_s * virtual_ns))
    sources = CounterSources(staging / "told", staging / "further", at_ns, until_ns, interval_ns)
    counted = add_tallies(executor.map(partial(count_events, sources), all_shares(buckets)))
    missing = find_missing(run)
    reported = [event for event in COUNTED if _NEEDS.get(event) not in missing]
    return judge_counters(scrapes, counted, len(reported) * len(comparable))


def read_last(run: RunDir) -> dict[int, Scrape] | Absent:
    """Return the last sample of each counter, by ``_EVENTS`` per node.

    Raises:
        DamagedError: the samples cannot be read.
    """
    samples = read_samples(run.path, [*COUNTED.values(), DURATION])
    if samples is None:
        due = bool(run.manifest.counters.get("samples"))
        return Absent("the file of the samples is missing" if due else "nothing was scraped, or not kept", due)
    of_nodes = samples.filter(pc.is_in(samples["node"], pa.array(run.nodes, pa.int32())))
    is_duration = pc.equal(of_nodes["metric"], DURATION)
    known, durations = of_nodes.filter(pc.invert(is_duration)), of_nodes.filter(is_duration)
    if not len(known):
        return Absent("no peer's counters of messages were scraped")
    counter = _number(known["node"], pc.index_in(known["metric"], pa.array(COUNTED.values())))
    order = np.argsort(numbers(known["ts_ns"]), kind="stable")
    columns = counter[order], numbers(known["ts_ns"])[order], known["value"].to_numpy()[order].astype(np.int64)
    scrapes = zip(durations["node"].to_pylist(), durations["ts_ns"].to_pylist(), strict=True)
    took_s = dict(zip(scrapes, durations["value"].to_pylist(), strict=True))
    return {
        number: Scrape(at_ns, value, took_s.get((number // len(_EVENTS), at_ns), 0.0))
        for number, at_ns, value in zip(*map(np.ndarray.tolist, columns), strict=True)
    }


def count_events(sources: CounterSources, share: Share) -> Tally[Bracket]:
    """Count the events of a share of the messages, by counter."""
    told = read_bucket(sources.told, TOLD, share, _COLUMNS)
    further = read_bucket(sources.further, FURTHER, share, _COLUMNS)
    rows = pa.concat_tables((told, further))
    event = pc.index_in(rows["event"], _EVENTS)
    is_counted = pc.and_(pc.is_valid(event), pc.less(rows["node"], len(sources.at_ns) // len(_EVENTS)))
    rows, event = rows.filter(is_counted), event.filter(is_counted)
    counter, ts_ns = _number(rows["node"], event), numbers(rows["ts_ns"])
    at_ns = sources.at_ns[counter]
    compared = at_ns != _NEVER
    counter, ts_ns, at_ns = counter[compared], ts_ns[compared], at_ns[compared]
    return tally(Bracket, counter, ts_ns <= at_ns - sources.interval_ns, ts_ns <= sources.until_ns[counter])


def judge_counters(scrapes: Mapping[int, Scrape], counted: Mapping[int, Bracket], counters: int) -> Counters:
    """Compare each counter with the number of its events.

    Args:
        scrapes: the last sample of each counter.
        counted: the events of each counter; absent = none.
        counters: how many there should be.
    """
    off = {}
    for counter, scrape in scrapes.items():
        bracket = counted.get(counter, Bracket(0, 0, 0))
        off[counter] = max(bracket.before - scrape.value, scrape.value - bracket.until, 0)
    worst = max(off, key=lambda counter: off[counter], default=None)
    named = "" if worst is None or not off[worst] else _describe(worst, scrapes[worst], counted.get(worst))
    return Counters(
        counters=counters,
        tested=len(scrapes),
        failed=sum(1 for each in off.values() if each),
        worst=0 if worst is None else off[worst],
        worst_counter=named,
    )


def _describe(counter: int, scrape: Scrape, bracket: Bracket | None) -> str:
    node, event = divmod(counter, len(_EVENTS))
    name = COUNTED[_EVENTS[event].as_py()]
    before, until = (0, 0) if bracket is None else bracket[1:]
    return f"{name} of node {node}: {scrape.value:,}, traced {before:,} to {until:,}"


def _number(node: Column, event: Column) -> Ints:
    """Return the numbers of counters."""
    return numbers(node) * len(_EVENTS) + numbers(event)
