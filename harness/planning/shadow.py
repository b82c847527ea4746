"""Writes an experiment as one of Shadow: ``shadow.yaml`` and ``graph.gml``.

The graph has a node per host and an edge for every directed pair, which packets take (``use_shortest_path: false``), so
measured latencies stay as they are.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from harness.errors import ExperimentError
from harness.experiment.sections.peer import ProcessSpec
from harness.planning.plan import PlannedRun
from peer.runtime.names import name_hosts
from topologies.bottlenecks import Bottlenecks
from topologies.model import DOWN, UP, Underlay
from topologies.shadow.form import LARGEST_SEED
from topologies.shadow.quantities import write_rate, write_time

FASTEST: Final = "1 Tbit"
"""The bandwidth of hosts without a limit, since Shadow requires one."""

LOOP: Final = "1 us"
"""The latency of an edge from a node to itself. Shadow requires the edge, but no packet takes it: each host has a node
of its own."""


class _Dumper(yaml.SafeDumper):  # type: ignore[misc] # PyYAML has no types
    """Writes every text in quotes, since YAML 1.1 and 1.2 differ in which ones need them."""


_Dumper.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


def write_shadow(planned: PlannedRun, folder: Path) -> list[str]:
    """Write ``shadow.yaml`` and ``graph.gml`` into a new folder.

    Returns:
        A sentence for everything of the experiment that the files do not have.

    Raises:
        ExperimentError: the folder is there already, or cannot be written.
    """
    try:
        folder.mkdir(parents=True)
        with (folder / "graph.gml").open("w", encoding="utf-8") as graph:
            graph.writelines(_graph(planned.underlay))
        text = yaml.dump(_config(planned), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**9)
        (folder / "shadow.yaml").write_text(text, encoding="utf-8")
    except OSError as error:
        raise ExperimentError(str(error.filename or folder), error.strerror or "cannot be written") from None
    return list(_left_out(planned))


def _config(planned: PlannedRun) -> dict[str, Any]:
    experiment, underlay = planned.plan.experiment, planned.underlay
    workload = experiment.workload
    processes: dict[int, list[dict[str, Any]]] = {}
    for process in experiment.peer.processes:
        processes.setdefault(process.node, []).append(_process(process))
    return {
        "general": {
            "stop_time": write_time(round((workload.duration_s + workload.cooldown_s) * 1e9)),
            "seed": experiment.seed & LARGEST_SEED,
        },
        "network": {"graph": {"type": "gml", "file": {"path": "graph.gml"}}, "use_shortest_path": False},
        "hosts": {
            name: {"network_node_id": node, "processes": processes.get(node, [])}
            for node, name in enumerate(_names(underlay))
        },
    }


def _process(process: ProcessSpec) -> dict[str, Any]:
    kind, _, what = process.expected.partition(" ")
    state: object = kind
    if kind == "exited":
        state = {"exited": int(what)}
    elif kind == "signalled":
        state = {"signaled": what}
    found: dict[str, Any] = {
        "path": process.command[0],
        "args": list(process.command[1:]),
        "environment": dict(text.split("=", 1) for text in process.environment),
        "start_time": write_time(round(process.start_s * 1e9)),
        "expected_final_state": state,
    }
    if process.shutdown_s is not None:
        found["shutdown_time"] = write_time(round(process.shutdown_s * 1e9))
        found["shutdown_signal"] = process.shutdown_signal
    return found


def _names(underlay: Underlay) -> list[str]:
    """Return the host names that processes on these hosts have in a run of Trellis, too."""
    return name_hosts([host.name for host in underlay.hosts])


def _graph(underlay: Underlay) -> Iterator[str]:
    """Yield the lines of the graph."""
    yield "graph [\n  directed 1\n"
    for node, name in enumerate(_names(underlay)):
        up, down = (
            write_rate(rate) if rate else FASTEST for rate in (underlay.rate_mbit[side, node] for side in (UP, DOWN))
        )
        yield f'  node [ id {node} label "{name}" host_bandwidth_up "{up}" host_bandwidth_down "{down}" ]\n'
    for source in range(underlay.size):
        for target in range(underlay.size):
            latency, loss = f"{max(1, round(underlay.delay_ms[source, target] * 1e6))} ns", 0.0
            if source == target:
                latency = LOOP
            else:
                loss = float(underlay.loss_ratio[source, target])
            yield f'  edge [ source {source} target {target} latency "{latency}" packet_loss {loss:.9f} ]\n'
    yield "]\n"


def _left_out(planned: PlannedRun) -> Iterator[str]:
    experiment, underlay = planned.plan.experiment, planned.underlay
    if not experiment.peer.processes:
        yield "the hosts have no processes: peers of Trellis need its agent; add processes of your own"
    if experiment.seed > LARGEST_SEED:
        yield f"seed: only its lowest 32 bits, {experiment.seed & LARGEST_SEED}"
    if underlay.jitter_ms.any():
        yield "jitter: Shadow has none"
    if not underlay.rate_mbit.all():
        yield f"hosts without a limit of their rate have {FASTEST}, since Shadow requires one"
    if (underlay.delay_ms == 0).sum() > underlay.size:
        yield "delays of 0 are 1 ns, since Shadow requires more than 0"
    if links := len(Bottlenecks.of(underlay)):
        yield f"the rates of {links:,} links within the network: in Shadow, only hosts have rates"
    if underlay.rate_mbit.any():
        yield "the lengths of queues: Shadow has its own"
    if planned.changes:
        yield "faults: Shadow has none"
