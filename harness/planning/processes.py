"""Which peers run in one process, as ``peer.per_process`` allows."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from harness.planning.plan import PlannedRun
from peer.core.schedule import Crash, Vanish

CRASHES, PAUSED, MISBEHAVES = "crashes", "is paused", "misbehaves"


def find_apart(planned: PlannedRun) -> dict[int, str]:
    """Return the nodes whose peers need processes of their own, and why.

    A crash kills a process, a pause stops one, and an adversary would act in one with honest nodes.
    """
    found = {spec.node: MISBEHAVES for spec in planned.overlay.nodes if spec.behaviour is not None}
    found |= {node: PAUSED for change in planned.changes for node in change.paused}  # node i is on host i
    found |= {action.node: CRASHES for action in planned.schedule if isinstance(action, Crash | Vanish)}
    return found


def share_processes(planned: PlannedRun) -> tuple[tuple[int, ...], ...]:
    """Return the nodes of each process that has the peers of several, all of one machine, in the order of the nodes."""
    most = planned.plan.experiment.peer.per_process
    apart = find_apart(planned)
    together: defaultdict[str, list[int]] = defaultdict(list)
    for place in planned.plan.placement:
        if place.node not in apart:
            together[place.machine].append(place.node)
    shared = [tuple(nodes[first : first + most]) for nodes in together.values() for first in range(0, len(nodes), most)]
    return tuple(nodes for nodes in shared if len(nodes) > 1)


def describe_processes(planned: PlannedRun) -> Iterator[str]:
    """Yield how the peers are divided into processes, if several share one."""
    if planned.plan.experiment.peer.per_process == 1:
        return
    shared = share_processes(planned)
    several = sum(map(len, shared))
    own = len(planned.plan.placement) - several
    yield f"{several} peers in {len(shared)} processes, at most {max(map(len, shared), default=0)} in each; {own} alone"
    reasons = Counter(find_apart(planned).values())
    yield from (f"{count} alone, since the node {reason}" for reason, count in sorted(reasons.items()))
