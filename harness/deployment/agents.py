"""What every machine's agent is told: the plan's peers, dealt to machines and namespaces."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import attrgetter

from msgspec import Struct

from harness.experiment import Experiment
from harness.inventory import METRICS_PORT, PEER_PORT
from harness.plan import Plan
from metrics.rundir import Timeline
from metrics.rundir.files import exits_file
from peer.files import EXITS_FILE, log_file, record_file, trace_file
from peer.runtime.spec import AgentSpec, PeerPlace

DRAIN_S = 1.0
"""From the peers' quiescing to their exit: what they sent last arrives."""

LEASE_MARGIN_S = 120.0
"""How long after the expected end of a run that was started an agent that nobody tells anything ends by itself."""


class Site(Struct, frozen=True):
    """Where one node runs, resolved: its machine, endpoints, and network namespace."""

    node: int
    machine: str
    listen: tuple[str, int]
    metrics: tuple[str, int] | None
    netns: str | None = None


def emulated_sites(plan: Plan, netns_by_host: Mapping[int, str]) -> tuple[Site, ...]:
    """The plan's own placement; ``netns_by_host`` is the testbed's path to each host's namespace."""
    return tuple(
        Site(
            place.node,
            place.machine,
            (place.wan_ip, PEER_PORT),
            (place.ctl_ip, METRICS_PORT),
            netns_by_host[place.host],
        )
        for place in plan.placement
    )


def nodes_by_machine(sites: Iterable[Site]) -> dict[str, list[int]]:
    """The nodes on each machine."""
    found: dict[str, list[int]] = {}
    for site in sites:
        found.setdefault(site.machine, []).append(site.node)
    return found


def files_of(machine: str, nodes: Iterable[int]) -> dict[str, str]:
    """What a machine's peers and its agent may leave in the run's folder there -> its path in the run directory."""
    names = [file(node) for node in nodes for file in (trace_file, log_file, record_file)]
    return {**{name: name for name in names}, EXITS_FILE: exits_file(machine)}


def build_agent_specs(
    experiment: Experiment, sites: Iterable[Site], agent_metrics: Mapping[str, tuple[str, int]] | None = None
) -> dict[str, AgentSpec]:
    """Every machine's ``agent.json``, with a new number for the run.

    ``sites`` are those of all nodes, 0 .. n-1, each once. ``agent_metrics`` says where an agent serves its metrics.
    """
    ordered = sorted(sites, key=attrgetter("node"))
    if [site.node for site in ordered] != list(range(len(ordered))):
        raise ValueError("sites must be those of the nodes 0 .. n-1, each once")
    addresses = tuple(site.listen for site in ordered)
    run = 1 << 52 | secrets.randbits(52)  # 53 bits, so that any JSON reader keeps it, and always as many
    by_machine = groupby(sorted(ordered, key=attrgetter("machine")), key=attrgetter("machine"))
    return {
        machine: _agent_spec(machine, run, list(here), addresses, experiment, (agent_metrics or {}).get(machine))
        for machine, here in by_machine
    }


def _agent_spec(
    machine: str,
    run: int,
    sites: list[Site],
    addresses: tuple[tuple[str, int], ...],
    experiment: Experiment,
    agent_metrics: tuple[str, int] | None,
) -> AgentSpec:
    planned = Timeline.plan(0, experiment.workload.spans_s)
    metrics = experiment.peer.metrics
    return AgentSpec(
        machine=machine,
        run=run,
        peers=tuple(PeerPlace(site.node, site.listen, site.metrics if metrics else None, site.netns) for site in sites),
        addresses=addresses,
        warmup_ns=planned.zero_ns,
        stop_ns=planned.stop_ns - planned.zero_ns,
        drain_ns=round(DRAIN_S * 1e9),
        send_queue_bytes=experiment.peer.send_queue_bytes,
        lease_s=(planned.stop_ns / 1e9 + DRAIN_S) * experiment.time_dilation + LEASE_MARGIN_S,
        time_dilation=experiment.time_dilation,
        record=experiment.peer.record,
        command=experiment.peer.command,
        expected_final_state=experiment.peer.expected_final_state,
        agent_metrics=agent_metrics if metrics else None,
    )
