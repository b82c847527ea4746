"""Measures of what the processes of peers used, from a run's manifest."""

from msgspec import Struct

from metrics.measures.measure import Family, ratio


class Resources(Struct, frozen=True):
    """What the processes in the hosts used: a program that is a peer, and the process that drives it, too."""

    nodes: int
    workload_s: float  # virtual time
    memory_mib: float | None  # of all peers, at the end of the run; pages that processes share count once (PSS)
    cpu_s: float | None  # of all peers, in the workload


RESOURCES = Family[Resources]("the processes of the peers")
RESOURCES.add(
    "peer_memory_mib",
    "MiB",
    "memory per peer at the end of the run; pages that processes share count once (PSS)",
    lambda it: None if it.memory_mib is None else ratio(it.memory_mib, it.nodes),
)
RESOURCES.add(
    "peer_cpu_ratio",
    "ratio",
    "processor time per peer in the workload over the workload's length",
    lambda it: None if it.cpu_s is None else ratio(it.cpu_s, it.nodes * it.workload_s),
)
