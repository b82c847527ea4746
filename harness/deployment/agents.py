"""The specifications of the agents: the plan's peers by machine and namespace."""

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from harness.deployment.identities import find_peer_id
from harness.experiment.form import Experiment
from harness.experiment.implementations import assign_programs
from harness.experiment.inventory import METRICS_PORT, PEER_PORT
from harness.experiment.sections.peer import ProcessSpec
from harness.planning.plan import Plan
from metrics.rundir import Timeline
from metrics.rundir.files import exits_file
from peer.files import EXITS_FILE, log_file, output_file, record_file, trace_file
from peer.instances.spec import AgentSpec, PeerPlace, ProgramSpec
from peer.instances.spec import ProcessSpec as PeerProcess
from peer.interop import CONTRACT

DRAIN_S = 1.0
"""Time from the peers' quiescing to their exit, in which the last frames arrive."""

LEASE_MARGIN_S = 120.0
"""Time after the expected end of a run after which an agent without a command ends by itself."""

FIRST_PROCESS = 1000
"""The number of the first process of a host, as in Shadow."""


class Site(Struct, frozen=True):
    """Where a node runs: its machine, endpoints and network namespace, and the name of its host in the underlay."""

    node: int
    machine: str
    listen: tuple[str, int]
    metrics: tuple[str, int] | None
    netns: str | None = None
    name: str = ""


def emulated_sites(plan: Plan, places: Sequence[str], netns_by_host: Mapping[int, str]) -> tuple[Site, ...]:
    """Return the sites of the plan's placement.

    Args:
        plan: the plan.
        places: the name of each host in the underlay.
        netns_by_host: the path of each host's network namespace.
    """
    return tuple(
        Site(
            place.node,
            place.machine,
            (place.wan_ip, PEER_PORT),
            (place.ctl_ip, METRICS_PORT),
            netns_by_host[place.host],
            places[place.host],
        )
        for place in plan.placement
    )


def nodes_by_machine(sites: Iterable[Site]) -> dict[str, list[int]]:
    """Return the nodes on each machine."""
    found: dict[str, list[int]] = {}
    for site in sites:
        found.setdefault(site.machine, []).append(site.node)
    return found


def files_of(machine: str, nodes: Iterable[int], others: Iterable[str] = ()) -> dict[str, str]:
    """Return the files that a machine's peers and agent may write in its folder -> their paths in the run directory.

    Args:
        machine: its name.
        nodes: the nodes whose peers it runs.
        others: more files of the peers, with the same paths in both.
    """
    names = [file(node) for node in nodes for file in (trace_file, log_file, record_file, output_file)]
    names.extend(others)
    return {**{name: name for name in names}, EXITS_FILE: exits_file(machine)}


def build_agent_specs(
    experiment: Experiment,
    sites: Iterable[Site],
    agent_metrics: Mapping[str, tuple[str, int]] | None = None,
    shared: Sequence[tuple[int, ...]] = (),
) -> dict[str, AgentSpec]:
    """Return every machine's ``agent.json``, with a new number for the run.

    Args:
        experiment: with every default resolved.
        sites: one per node, 0 to n-1.
        agent_metrics: machine -> the endpoint of its agent's metrics.
        shared: the nodes of each process with several peers, all of one machine.
    """
    ordered = sorted(sites, key=attrgetter("node"))
    if [site.node for site in ordered] != list(range(len(ordered))):
        raise ValueError("expected one site for each of the nodes 0 to n-1")
    addresses, names = tuple(site.listen for site in ordered), tuple(site.name for site in ordered)
    run = 1 << 52 | secrets.randbits(52)  # exactly 53 bits, which JSON readers preserve
    by_machine = groupby(sorted(ordered, key=attrgetter("machine")), key=attrgetter("machine"))
    specs = {
        machine: _agent_spec(machine, run, list(here), addresses, names, experiment, (agent_metrics or {}).get(machine))
        for machine, here in by_machine
    }
    of_machine: dict[str, list[tuple[int, ...]]] = {machine: [] for machine in specs}
    for nodes in shared:
        of_machine[ordered[nodes[0]].machine].append(nodes)
    return {machine: replace(spec, shared=tuple(of_machine[machine])) for machine, spec in specs.items()}


def _agent_spec(
    machine: str,
    run: int,
    sites: list[Site],
    addresses: tuple[tuple[str, int], ...],
    names: tuple[str, ...],
    experiment: Experiment,
    agent_metrics: tuple[str, int] | None,
) -> AgentSpec:
    planned = Timeline.plan(0, experiment.workload.spans_s)
    metrics = experiment.peer.metrics
    scripted = experiment.peer.events == CONTRACT
    return AgentSpec(
        machine=machine,
        run=run,
        peers=tuple(PeerPlace(site.node, site.listen, site.metrics if metrics else None, site.netns) for site in sites),
        addresses=addresses,
        warmup_ns=planned.zero_ns,
        stop_ns=planned.stop_ns - planned.zero_ns,
        drain_ns=round(DRAIN_S * 1e9),
        send_queue_bytes=experiment.peer.send_queue_bytes,
        lease_s=(planned.stop_ns / 1e9 + DRAIN_S) * experiment.dilation + LEASE_MARGIN_S,
        time_dilation=experiment.dilation,
        record=experiment.peer.record,
        command=experiment.peer.command,
        events=experiment.peer.events,
        says=experiment.peer.says,
        programs=tuple(ProgramSpec(program.command, program.says) for program in experiment.peer.programs),
        assigned=assign_programs(experiment.peer, len(addresses), experiment.seed),
        connect=experiment.peer.connect,
        processes=tuple(describe_processes(experiment.peer.processes)),
        peer_ids=tuple(map(find_peer_id, range(len(addresses)))) if scripted else (),
        names=names,
        expected_final_state=experiment.peer.expected_final_state,
        agent_metrics=agent_metrics if metrics else None,
    )


def describe_processes(processes: Sequence[ProcessSpec]) -> Iterator[PeerProcess]:
    """Yield the processes as peers know them, each with the name of its output files: its program and a number.

    As in Shadow, the processes of a host have the numbers 1000, 1001, ... in the order in which they are started.
    """
    started = sorted(enumerate(processes), key=lambda each: (each[1].node, each[1].start_s, each[0]))
    numbers: Counter[int] = Counter()
    for _, process in started:
        number = FIRST_PROCESS + numbers[process.node]
        numbers[process.node] += 1
        yield PeerProcess(
            node=process.node,
            name=f"{Path(process.command[0]).name}.{number}",
            command=process.command,
            environment=process.environment,
            start_ns=round(process.start_s * 1e9),
            shutdown_ns=None if process.shutdown_s is None else round(process.shutdown_s * 1e9),
            shutdown_signal=process.shutdown_signal,
            expected=process.expected,
        )
