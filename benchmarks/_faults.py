"""Faults of a run that its verdict must find: of its network while it runs (``LIVE``), and of what was recorded of it.

A live fault is a network that differs from the one that the documents ask for, or a defect of the data plane. A
recorded fault is a change to a copy of a run directory (``RECORDED``). Each has the checks of which at least one must
fail.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import _edited_runs as edited
from harness.planes.userspace.defects import Defect, HiddenDefect, LateFirsts, UnaskedDrops, WrongRates
from topologies.network import Network

Change = Callable[[Network], Network]


def _as_asked(_: float) -> Change:
    return lambda network: network


@dataclass(frozen=True)
class LiveFault:
    """A fault of the network of a run.

    Attributes:
        text: what is wrong; ``{:g}`` stands for the size.
        sizes: the size that must be found each time, then smaller ones.
        found_by: checks of which at least one must fail.
        settings: of the experiment, for example the loss that is asked for.
        change: of a size, makes the network that the data plane gets from the one that is asked for.
        plane: of a size, a defect of the data plane.
    """

    text: str
    sizes: tuple[float, ...]
    found_by: tuple[str, ...]
    settings: tuple[str, ...] = ()
    change: Callable[[float], Change] = _as_asked
    plane: Callable[[float], Defect | None] = lambda _: None


def _slower(pairs: Callable[[int], list[tuple[int, int]]], ms: float) -> Change:
    """Some directed pairs have a longer delay."""

    def change(network: Network) -> Network:
        asked = network.asked_of_pairs()
        delay_ms = np.array(asked.delay_ms)
        for source, destination in pairs(network.size):
            delay_ms[source, destination] += ms
        return network.with_pairs(asked._replace(delay_ms=delay_ms))

    return change


def _scaled(name: str, factor: float) -> Change:
    """What is asked of all pairs is multiplied."""

    def change(network: Network) -> Network:
        asked = network.asked_of_pairs()
        return network.with_pairs(asked._replace(**{name: getattr(asked, name) * factor}))

    return change


def _faster(factor: float) -> Change:
    """The rates of all access links are multiplied."""

    def change(network: Network) -> Network:
        rate_mbit = [factor * each for each in network.rate_mbit]
        return Network.of_pairs(network.asked_of_pairs(), rate_mbit=rate_mbit, queue_ms=network.queue_ms)

    return change


def _from_and_to(host: int) -> Callable[[int], list[tuple[int, int]]]:
    return lambda size: [pair for other in range(size) if other != host for pair in ((host, other), (other, host))]


def _towards_all(ms: float) -> Change:
    return _slower(lambda size: [(one, other) for one in range(size) for other in range(size) if one != other], ms)


_LOSS, _RATE, _JITTER = ("underlay.loss_ratio=0.01",), ("underlay.rate_mbit=10",), ("underlay.jitter=2",)
_LOWER_RATE = ("faults=[{at_s=2, for_s=8, degrade={rate_mbit=1}}]",)
_PAIRS = ("rtt_error_pairs_before", "rtt_error_pairs_after")
_HOSTS = ("rtt_error_hosts_before", "rtt_error_hosts_after")

LIVE: dict[str, LiveFault] = {
    "overload": LiveFault(
        "every {:g}th TCP packet dropped as `overload`",
        (10, 1000),
        ("plane_drops", "packets_arrive"),
        plane=lambda size: UnaskedDrops("overload", int(size)),
    ),
    "device full": LiveFault(
        "every {:g}th TCP packet dropped as `device_full`",
        (50, 1000),
        ("plane_drops", "packets_arrive"),
        plane=lambda size: UnaskedDrops("device_full", int(size)),
    ),
    "slow pair": LiveFault(
        "one pair of hosts {:g} ms slower in each direction",
        (50, 10, 3),
        _PAIRS,
        change=lambda size: _slower(lambda _: [(1, 2), (2, 1)], size),
    ),
    "slow host": LiveFault(
        "one host {:g} ms slower from and to all others",
        (1, 0.5),
        _HOSTS,
        change=lambda size: _slower(_from_and_to(3), size),
    ),
    "too little loss": LiveFault(
        "{:g} % of the packets lost where 1 % was asked for",
        (0.3, 0.6),
        ("packet_loss",),
        _LOSS,
        change=lambda size: _scaled("loss_ratio", size),
    ),
    "too much loss": LiveFault(
        "{:g} % of the packets lost where 1 % was asked for",
        (2, 1.5),
        ("packet_loss",),
        _LOSS,
        change=lambda size: _scaled("loss_ratio", size),
    ),
    "another rate": LiveFault(
        "access rates of {:g} Mbit/s where 10 were asked for",
        (5, 8),
        ("access_rate",),
        _RATE,
        change=lambda size: _faster(size / 10),
    ),
    "rate not lowered": LiveFault(
        "access rates that a fault does not lower to 1 Mbit/s for 8 s",
        (0,),
        ("access_rate",),
        _LOWER_RATE,
        plane=WrongRates,
    ),
    "rate lowered too little": LiveFault(
        "access rates of {:g} Mbit/s for 8 s where a fault was to lower them to 1",
        (1.5,),
        ("access_rate",),
        _LOWER_RATE,
        plane=WrongRates,
    ),
    "too little jitter": LiveFault(
        "jitter of {:g} ms where 2 ms were asked for",
        (1.5, 1.75),
        ("jitter",),
        _JITTER,
        change=lambda size: _scaled("jitter_ms", size / 2),
    ),
    "slow under jitter": LiveFault(
        "all delays {:g} ms longer where jitter of 2 ms was asked for",
        (1, 0.5),
        ("jitter",),
        _JITTER,
        change=_towards_all,
    ),
    "late before the record": LiveFault(
        "every packet {:g} ms late before the data plane records it",
        (2, 1),
        ("host_capture_outbound",),
        plane=lambda size: HiddenDefect("read", late_ms=size),
    ),
    "lost before the record": LiveFault(
        "every {:g}th packet of a host lost before the data plane records it",
        (50, 500),
        ("host_capture_packets",),
        plane=lambda size: HiddenDefect("read", drop_every=int(size)),
    ),
    "late after the record": LiveFault(
        "every packet {:g} ms late after the data plane recorded it",
        (2, 1),
        ("host_capture_inbound",),
        plane=lambda size: HiddenDefect("write", late_ms=size),
    ),
    "lost after the record": LiveFault(
        "every {:g}th packet of a host lost after the data plane recorded it",
        (50, 500),
        ("host_capture_packets",),
        plane=lambda size: HiddenDefect("write", drop_every=int(size)),
    ),
    "late first packets": LiveFault(
        "the first packet of each pair of hosts {:g} ms late",
        (1.5,),
        ("first_packet",),
        ("underlay.hosts=20",),
        plane=lambda size: LateFirsts("pairs", size),
    ),
}
"""By name. The runs have few hosts and a short workload (``verdict.FAULT_SETTINGS``)."""


@dataclass(frozen=True)
class RecordedFault:
    """A fault of what was recorded of a run.

    Attributes:
        text: what is wrong; ``{:g}`` stands for the size.
        found_by: checks of which at least one must fail, or be not judged.
        edit: changes a copy of the run directory, and returns how many things it changed.
        sizes: as of ``LiveFault``; (0,) if it has none.
    """

    text: str
    found_by: tuple[str, ...]
    edit: Callable[[Path, float], int]
    sizes: tuple[float, ...] = (0,)


Edit = Callable[[Path, float], int]


def _lines(name: str, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Edit:
    """Change the lines of a recorded file."""

    def edit(run_dir: Path, _: float) -> int:
        path = run_dir / name
        before = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        after = change([dict(line) for line in before])
        path.write_text("".join(json.dumps(line) + "\n" for line in after), encoding="utf-8")
        return sum(one != other for one, other in zip(before, after, strict=False)) + abs(len(before) - len(after))

    return edit


def _document(name: str, change: Callable[[dict[str, Any], float], None]) -> Edit:
    """Change a document."""

    def edit(run_dir: Path, size: float) -> int:
        path = run_dir / name
        before = path.read_bytes()
        document = json.loads(before)
        change(document, size)
        path.write_text(json.dumps(document), encoding="utf-8")
        return int(json.loads(before) != document)

    return edit


def _slow_probes(chosen: Callable[[int, int], bool]) -> Edit:
    """Some pairs of hosts have a longer RTT in both sweeps of the idle network."""

    def edit(run_dir: Path, ms: float) -> int:
        path = run_dir / "achieved.parquet"
        table = pq.read_table(path)
        rows = table.to_pylist()
        wrong = [row for row in rows if row["phase"] != "during" and chosen(row["src"], row["dst"])]
        for row in wrong:
            row["rtt_ms"] += ms
        pq.write_table(pa.Table.from_pylist(rows, table.schema), path)
        return len(wrong)

    return edit


def _raise_limits(plan: dict[str, Any], _: float) -> None:
    verdict = plan["experiment"]["verdict"]
    verdict |= {name: 1e9 for name in verdict if name.endswith("_ms")}


def _name_another_protocol(plan: dict[str, Any], _: float) -> None:
    plan["experiment"]["protocol"] = "complete"


def _move_delay(underlay: dict[str, Any], ms: float) -> None:
    underlay["delay_ms"][0][1] += ms


def _drop_in_plane(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    stop = len(lines) // 2
    for line in lines[stop:]:
        line["drops"] = line["drops"] | {"overload": line["drops"].get("overload", 0) + 1}
    return lines


def _leave_gap(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    middle = len(lines) // 2
    return lines[: middle - 1] + lines[middle + 4 :]


def _cut_half(name: str) -> Edit:
    def edit(run_dir: Path, _: float) -> int:
        path = min(run_dir.glob(name))
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        return len(content) - len(content) // 2

    return edit


def _remove(name: str) -> Edit:
    def edit(run_dir: Path, _: float) -> int:
        found = list(run_dir.glob(name))
        for path in found:
            path.unlink()
        return len(found)

    return edit


_NODE = 3
"""The node whose trace or host is wrong, where it is one."""

RECORDED: dict[str, RecordedFault] = {
    "deliveries left out": RecordedFault(
        "one node's trace without half of its deliveries",
        ("copies_accounted",),
        lambda run, _: edited.half_of_delivers(run, _NODE),
    ),
    "duplicates left out": RecordedFault(
        "no trace has a duplicate", ("copies_accounted",), lambda run, _: edited.no_duplicates(run)
    ),
    "relays called deliveries": RecordedFault(
        "all relays are traced as deliveries",
        ("copies_accounted",),
        lambda run, _: edited.relays_as_delivers(run),
    ),
    "deliveries twice": RecordedFault(
        "every {:g}th delivery is traced twice",
        ("copies_accounted",),
        lambda run, size: edited.repeated_delivers(run, int(size)),
        (10, 100),
    ),
    "links left out": RecordedFault(
        "one in {:g} logical links is in no trace",
        ("logical_link_frames",),
        lambda run, size: edited.links_left_out(run, int(size)),
        (3, 30, 100),
    ),
    "late deliveries": RecordedFault(
        "all deliveries {:g} ms later than they were", ("node_handling_delay",), edited.deliveries_later, (8, 4, 2, 1)
    ),
    "late reading": RecordedFault(
        "one node reads its frames {:g} ms late",
        ("node_receive_delay",),
        lambda run, ms: edited.node_reads_late(run, _NODE, ms),
        (5, 3, 2, 1),
    ),
    "late sending": RecordedFault(
        "one node's frames wait {:g} ms before the data plane",
        ("node_send_delay",),
        lambda run, ms: edited.node_sends_late(run, _NODE, ms),
        (8, 4, 2, 1),
    ),
    "clock ahead": RecordedFault(
        "one node's clock {:g} ms ahead",
        ("causal_order", "delay_order"),
        lambda run, ms: edited.clock_moved(run, _NODE, ms),
        (5, 0.5, 0.05),
    ),
    "clock behind": RecordedFault(
        "one node's clock {:g} ms behind",
        ("causal_order", "delay_order"),
        lambda run, ms: edited.clock_moved(run, _NODE, -ms),
        (5, 0.5, 0.05),
    ),
    "no trace": RecordedFault("one node's trace is missing", ("traces_complete",), _remove(f"trace/{_NODE}.jsonl")),
    "half a trace": RecordedFault(
        "one node's trace is cut in half", ("traces_complete",), _cut_half(f"trace/{_NODE}.jsonl")
    ),
    "half a capture": RecordedFault(
        "a capture file is cut in half", ("capture_drops", "conservation"), _cut_half("capture/*.pcapng")
    ),
    "no captures": RecordedFault("the captures are missing", ("captured",), _remove("capture/*.pcapng")),
    "no captures in hosts": RecordedFault(
        "the captures in hosts are missing", ("host_capture_packets",), _remove("host_capture/*")
    ),
    "another protocol": RecordedFault(
        "plan.json names another protocol",
        ("documents_unchanged",),
        _document("plan.json", _name_another_protocol),
    ),
    "raised limits": RecordedFault(
        "the limits in plan.json are raised", ("documents_unchanged",), _document("plan.json", _raise_limits)
    ),
    "another delay": RecordedFault(
        "one delay in underlay.json differs by {:g} ms",
        ("documents_unchanged",),
        _document("underlay.json", _move_delay),
        (1,),
    ),
    "another schedule": RecordedFault(
        "the last line of schedule.jsonl is missing",
        ("documents_unchanged",),
        _lines("schedule.jsonl", lambda lines: lines[:-1]),
    ),
    "a drop": RecordedFault(
        "the data plane counts one frame as dropped by `overload`",
        ("plane_drops",),
        _lines("dataplane.jsonl", _drop_in_plane),
    ),
    "silence": RecordedFault(
        "five lines of dataplane.jsonl are missing", ("plane_present",), _lines("dataplane.jsonl", _leave_gap)
    ),
    "slow pair in the sweeps": RecordedFault(
        "the RTT of one directed pair {:g} ms longer in both sweeps",
        _PAIRS,
        _slow_probes(lambda src, dst: (src, dst) == (1, 2)),
        (10, 6, 3),
    ),
    "slow host in the sweeps": RecordedFault(
        "all RTTs of one host {:g} ms longer in both sweeps",
        _HOSTS,
        _slow_probes(lambda src, dst: _NODE in (src, dst)),
        (2, 1, 0.5),
    ),
    "no certificate": RecordedFault("achieved.parquet is missing", ("certificate",), _remove("achieved.parquet")),
}
"""By name."""
