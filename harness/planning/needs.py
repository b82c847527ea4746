"""Estimates what a run needs of the machines that it runs on: sums over the constants below.

docs/experiment-spec.md lists the constants.
"""

from collections.abc import Callable
from math import ceil
from pkgutil import resolve_name
from typing import NamedTuple

from harness.experiment.form import Experiment
from harness.experiment.sections.underlay import UnderlaySpec
from harness.experiment.sections.workload import ChurnSpec
from harness.machine.capacity import Capacity
from harness.testbeds.registry import TESTBEDS
from peer.runtime.limits import SUPPORT_FILES, needed_files
from topologies.kinds import carried_by

PEER_MIB = 7.0
"""Memory (PSS) of a forked Python peer with its sockets, trace buffer and metrics endpoint."""

SHARED_PEER_MIB = 0.5
"""Memory of each further peer of a process that has several."""

SUPPORT_MIB = 400.0
"""Memory of the processes that a run has once: launcher, data plane, the agent and its parent, sshd, Prometheus."""

PAIR_BYTES = 400
"""Memory per directed pair of hosts: 180 bytes each in the launcher and in the running stage, 40 in the data plane."""

SIMULATOR_MIB = 150.0
"""Memory of a process that plans or simulates, without hosts."""

SIMULATED_NODE_MIB = 0.15
"""Memory of an idle simulated node with its trace buffer. Protocols and long runs need more."""

SIMULATED_PAIR_BYTES = 26
"""Memory per directed pair of hosts in a simulated run, in the process that needs most: `plan` sorts the round-trip
times for the median."""

SIMULATED_EXTRA_BYTES = 16
"""Additional memory per directed pair with jitter, and again with loss: the number, and a copy while it is rounded."""

HOST_PROCESSES = 2
"""Processes per host: the peer, and the one that keeps the host's namespace. A peer that shares a process has a thread
of it, which counts like a process."""

CRASHING_PROCESSES = 1
"""Additional processes per host if nodes crash: the parent of the node's processes."""

SUPPORT_PROCESSES = 10
"""Processes that a run has once."""

BOOT_S = 3.0
"""Wall time to make the sandbox and to start the processes that a run has once."""

HOST_BOOT_S = 0.02
"""Wall time to make a host with its interfaces and to start its peer."""

PROBES_PER_S = 8_000
"""Echo requests per second while all pairs are probed."""

INTRODUCTION_S = 4.0
"""Longest wall time in which hosts exchange their first packets."""

INTRODUCED_PER_S = 10.0
"""Pairs of hosts per second of that time, if there are few pairs."""

COLLECT_S = 4.0
"""Wall time to stop the peers, collect their files and close the run, without the analysis."""


class Needs(NamedTuple):
    """What a run needs.

    Attributes:
        capacity: as if all its processes were on one machine.
        wall_s: how long it takes, without the analysis; None = not known.
        dilation: real seconds per virtual second.
    """

    capacity: Capacity
    wall_s: float | None
    dilation: float


Estimate = Callable[[Experiment, int], Needs]
"""A function of the experiment and the number of hosts."""


def estimate_needs(experiment: Experiment, hosts: int) -> Needs:
    """Return what the experiment's run needs on its testbed."""
    estimate: Estimate = resolve_name(TESTBEDS[experiment.testbed].estimate)
    return estimate(experiment, hosts)


def estimate_processes(experiment: Experiment, hosts: int) -> Needs:
    """Return the needs of a run with processes of peers, and of those that peers start."""
    own = experiment.peer.processes
    programs_mib = (len(own) if own else hosts) * experiment.peer.memory_mib
    per_host = HOST_PROCESSES + _may_crash(experiment.churn) * CRASHING_PROCESSES
    capacity = Capacity(
        processes=hosts * per_host + len(own) + SUPPORT_PROCESSES,
        memory_mib=round(SUPPORT_MIB + _peers_mib(experiment, hosts) + programs_mib + hosts**2 * PAIR_BYTES / 2**20, 1),
        open_files=needed_files(hosts, min(experiment.peer.per_process, hosts)),
    )
    return Needs(capacity, _wall_s(experiment, hosts), experiment.dilation)


def estimate_simulation(experiment: Experiment, hosts: int) -> Needs:
    """Return the needs of a simulated run. Its virtual time is never dilated, and its wall time depends on events."""
    pair_bytes = SIMULATED_PAIR_BYTES + _extras(experiment.underlay) * SIMULATED_EXTRA_BYTES
    capacity = Capacity(
        processes=1,
        memory_mib=round(SIMULATOR_MIB + hosts * SIMULATED_NODE_MIB + hosts**2 * pair_bytes / 2**20, 1),
        open_files=hosts + SUPPORT_FILES,
    )
    return Needs(capacity, wall_s=None, dilation=1.0)


def _may_crash(churn: ChurnSpec) -> bool:
    return churn.crash_ratio > 0 or any(entry.action in ("crash", "vanish") for entry in churn.script)


def count_peer_processes(experiment: Experiment, hosts: int) -> int:
    """Return how many processes have the peers. Where some need processes of their own, it is as if all had one."""
    paused = any(fault.pause is not None for fault in experiment.faults)
    apart = _may_crash(experiment.churn) or paused or experiment.adversary.kind != "none"
    return hosts if apart else ceil(hosts / experiment.peer.per_process)


def _peers_mib(experiment: Experiment, hosts: int) -> float:
    """Return the memory of the peers (MiB)."""
    processes = count_peer_processes(experiment, hosts)
    return processes * PEER_MIB + (hosts - processes) * SHARED_PEER_MIB


def _extras(underlay: UnderlaySpec) -> int:
    """Return how many matrices the underlay has, or may have, besides the delays."""
    carries = carried_by(underlay.kind)
    jitter = "jitter" in carries if underlay.jitter == "measured" else underlay.jitter not in ("none", 0)
    return jitter + ("loss" in carries if underlay.loss_ratio == "measured" else underlay.loss_ratio > 0)


def _wall_s(experiment: Experiment, hosts: int) -> float:
    probing_s = hosts * (hosts - 1) / PROBES_PER_S  # two sweeps of every pair of hosts
    probing_s += min(INTRODUCTION_S, hosts * (hosts - 1) / 2 / INTRODUCED_PER_S)
    running_s = experiment.workload.length_s * experiment.dilation
    starting_s = hosts * (HOST_BOOT_S + experiment.peer.start_cpu_s)
    return round(BOOT_S + starting_s + probing_s + running_s + COLLECT_S, 1)
