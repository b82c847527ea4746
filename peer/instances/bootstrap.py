"""The bootstrap service: what it tells each node about the others, and when. It follows from the plan alone.

The service is an oracle without delay: its directory has exactly the nodes that are up at the instant, and no crashed
node. A node that joins gets the directory of that instant. All nodes that are up get the present directory at every
*refresh*. Refreshes are at whole multiples of ``refresh_ns`` after the peers' start, and only if the directory changed
since the last one.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from peer.core.bitset import Bitset, bitset
from peer.core.directory import Directory, PeerInfo
from peer.core.schedule import Action, Join, Population, Publish
from peer.instances.spec import NodeSpec, OverlayDocument


class Step(Struct, frozen=True):
    """An event at an instant (ns from the workload's zero).

    ``action``: an action of the schedule; None = a refresh for all nodes that are up. ``directory``: the service's
    answer, at joins and refreshes.
    """

    at_ns: int
    action: Action | None = None
    directory: Directory | None = None


def first_directory(overlay: OverlayDocument) -> Directory:
    """Return the directory of the nodes that are up from the start."""
    return Directory(PeerInfo(spec.node, _told(overlay, spec.topics)) for spec in overlay.nodes if spec.up)


def timeline(overlay: OverlayDocument, schedule: Iterable[Action], start_ns: int) -> Iterator[Step]:
    """Yield the actions of the schedule and the service's answers after the first, in the order of their instants.

    Each directory shares the unchanged entries with the one before. At the same instant, a refresh comes after the
    actions.

    Args:
        overlay: the nodes that are up at the start, whether interests are disclosed, and the time between refreshes.
        schedule: the schedule of the run, in the order of its instants.
        start_ns: the instant at which the peers start (ns).

    Raises:
        ValueError: the schedule has a change that cannot happen (``Population``).
    """
    directory = first_directory(overlay)
    population = Population({spec.node: spec.topics for spec in overlay.nodes if spec.up})
    pending: dict[int, PeerInfo | None] = {}
    refresh_due_ns: int | None = None
    for action in schedule:
        if refresh_due_ns is not None and action.at_ns > refresh_due_ns:
            directory = directory.changed(pending)
            yield Step(refresh_due_ns, None, directory)
            pending, refresh_due_ns = {}, None
        if isinstance(action, Publish):
            yield Step(action.at_ns, action)
            continue
        population.apply(action)
        topics = population.interests.get(action.node)
        pending[action.node] = None if topics is None else PeerInfo(action.node, _told(overlay, topics))
        if refresh_due_ns is None:
            refresh_due_ns = _next_refresh(action.at_ns, start_ns, overlay.refresh_ns)
        if isinstance(action, Join):
            directory, pending = directory.changed(pending), {}
            yield Step(action.at_ns, action, directory)
        else:
            yield Step(action.at_ns, action)
    if refresh_due_ns is not None:
        yield Step(refresh_due_ns, None, directory.changed(pending))


def tell(spec: NodeSpec, directory: Directory) -> Directory:
    """Return the part of a directory that a node gets: if its specification lists nodes, only these."""
    if spec.bootstrap is None:
        return directory
    known: Bitset = bitset(spec.bootstrap)
    return Directory(info for info in directory if known >> info.node & 1)


def _next_refresh(at_ns: int, start_ns: int, refresh_ns: int) -> int:
    """Return the first instant of a refresh at or after this instant."""
    return start_ns - (start_ns - at_ns) // refresh_ns * refresh_ns


def _told(overlay: OverlayDocument, topics: Iterable[int]) -> tuple[int, ...] | None:
    return tuple(topics) if overlay.discloses else None
