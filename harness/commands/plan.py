"""``trellis plan``: print an experiment with every default, and what its run needs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.commands.check import add_experiment_arguments, add_testbed_argument, overrides_of

if TYPE_CHECKING:
    from harness.planning.plan import PlannedRun
    from harness.planning.processors import Outlook
    from topologies.model import Underlay


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_experiment_arguments(parser)
    add_testbed_argument(parser)
    parser.add_argument("--json", action="store_true", help="print plan.json")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the plan's files into this directory")


def run(arguments: argparse.Namespace) -> int:
    """Print the plan, and write its files if asked.

    Raises:
        ExperimentError: the experiment is invalid, or its run needs more than this machine has.
    """
    from harness.experiment.loader import load_experiment
    from harness.planning import encode_plan, make_plan, write_plan

    overrides = overrides_of(arguments)
    experiment = load_experiment(arguments.file, overrides, arguments.seed)
    planned = make_plan(experiment, arguments.file, overrides)
    if arguments.out is not None:
        write_plan(planned, arguments.out)
    if arguments.json:
        sys.stdout.write(encode_plan(planned.plan).decode())
    else:
        print("\n".join(_lines(planned)))
    return 0


def _lines(planned: PlannedRun) -> Iterator[str]:
    from harness.experiment.form import resolve
    from harness.planning import remarks_on
    from harness.planning.faults import describe_faults
    from harness.planning.links import describe_links
    from harness.planning.processes import describe_processes
    from harness.planning.processors import Outlook, foresee_here
    from harness.testbeds.registry import find_lack, find_testbed
    from peer.core.schedule import Publish

    plan = planned.plan
    yield from _sections(resolve(plan.experiment))
    yield ""
    yield "# the plan"
    first, last = plan.placement[0], plan.placement[-1]
    yield f"nodes        {len(plan.placement)}: {first.wan_ip} to {last.wan_ip}"
    if processes := plan.experiment.peer.processes:
        yield f"programs     {len(processes)} processes, which know nothing of Trellis; no messages are published"
    yield from (f"peers        {line}" for line in describe_processes(planned))
    published = sum(1 for action in planned.schedule if isinstance(action, Publish))
    if not processes:
        yield f"messages     {published}"
    if changes := len(planned.schedule) - published:
        started = sum(1 for spec in planned.overlay.nodes if spec.up)
        yield f"churn        {started} nodes are up at the start; {changes} joins, leaves and other changes follow"
    faults = enumerate(describe_faults(plan.experiment, planned.changes))
    yield from (f"{f'fault {number}':<12} {text}" for number, text in faults)
    yield from (f"link class   {text}" for text in describe_links(plan.experiment, planned.underlay.hosts))
    yield from _describe_bottlenecks(planned.underlay)
    if find_lack(plan.experiment.testbed, "shape") is None:
        yield f"rtt          {_describe_rtts(planned.underlay)}"
        yield from _describe_data(planned)
    yield from (f"source       {source}" for source in planned.underlay.sources)
    outlook = None
    if find_testbed(plan.experiment.testbed).plane is not None:
        yield f"data plane   {plan.experiment.plane}"
        outlook = foresee_here(plan.experiment, plan.prediction, len(plan.placement))
    remarks = remarks_on(planned, outlook if isinstance(outlook, Outlook) else None)
    yield from (f"remark       {remark}" for remark in remarks)
    yield ""
    yield "# prediction"
    need = plan.prediction
    yield f"processes    {need.processes}"
    yield f"memory       {need.memory_mib:.0f} MiB"
    yield f"open files   {need.open_files} in one process"
    if need.wall_s is not None:
        yield f"wall time    {need.wall_s:.0f} s before the analysis"
    if outlook is not None:
        yield f"processors   {_describe_processors(outlook)}"
    if need.links_per_node is not None:
        yield f"links        {need.links_per_node:.1f} per node, on average"
    if need.frames_per_s is not None:
        yield f"frames       {need.frames_per_s:.0f} data frames/s over all links"
    elif need.links_per_node is not None:
        name = planned.overlay.nodes[0].dissemination["name"]
        yield f"frames       not predicted: there is no model of the dissemination {name}"
    yield ""
    yield "# SHA-256; equal file, overrides and seed give equal hashes"
    yield from (f"{name:<12} {digest}" for name, digest in plan.hashes.items())


def _describe_processors(outlook: Outlook | str) -> str:
    """Return how many of this machine's processors are predicted to be busy, or why it is not predicted."""
    if isinstance(outlook, str):
        return f"not predicted: {outlook}"
    calibration = outlook.calibration
    said = f"{calibration.work_us:.0f} us of work, wake-ups {calibration.late_ms:.2f} ms late at p99"
    said += "" if calibration.realtime else " without real-time priority"
    return f"{outlook.processors:.2g} of {calibration.processors:g} busy during the workload (calibrated: {said})"


def _describe_bottlenecks(underlay: Underlay) -> Iterator[str]:
    """Yield how many links of a graph have a queue that packets between hosts pass."""
    from topologies.bottlenecks import Bottlenecks

    if (found := Bottlenecks.of(underlay)) and underlay.graph is not None:
        rates = sorted({each.rate_mbit for each in found.all})
        span = f"{rates[0]:g}" if len(rates) == 1 else f"{rates[0]:g} to {rates[-1]:g}"
        yield f"bottlenecks  {len(found)} of {len(underlay.graph.links)} links, which packets share: {span} Mbit/s"


def _sections(section: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield the experiment as TOML with every default filled in. A key without a value is a comment."""
    for name, value in section.items():
        if not isinstance(value, dict):
            yield f"# {name}: none" if value is None else f"{name} = {_toml(value)}"
    for name, value in section.items():
        if isinstance(value, dict):
            yield ""
            yield f"[{path}{name}]"
            yield from _sections(value, f"{path}{name}.")


def _toml(value: object) -> str:
    """Return a value as TOML, which differs from JSON only for sections within lists."""
    import json

    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(inner)}" for name, inner in value.items() if inner is not None) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _describe_data(planned: PlannedRun) -> Iterator[str]:
    """Yield what a generated graph is, or what is in measured latencies and where they come from."""
    from harness.terminal import printable
    from topologies.link_graph import describe_graph
    from topologies.statistics import describe_delays

    if planned.plan.provenance is None:
        if (graph := planned.underlay.graph) is not None:
            yield f"graph        {describe_graph(graph)}"
        return
    described = describe_delays([host.name for host in planned.underlay.hosts], planned.underlay.delay_ms)
    yield from (f"{name:<12} {printable(described[name])}" for name in ("tails", "asymmetry", "detours"))
    yield from (f"latencies    {printable(line)}" for line in planned.plan.provenance.describe())


def _describe_rtts(underlay: Underlay) -> str:
    from topologies.statistics import rtt_statistics

    found = rtt_statistics(underlay.delay_ms)
    filled = int((underlay.filled > 0).sum())
    zeros = f", {found.zeros} directed pairs of 0 ms" if found.zeros else ""
    return (
        f"median {found.median_rtt_ms:.1f} ms, largest {found.largest_rtt_ms:.1f} ms, "
        f"{filled} directed pairs filled{zeros}"
    )
