"""The bootstrap service: what every node is told of the others, and when. It follows from the plan alone.

The service is an oracle without delay: its directory has exactly the nodes that are up at the instant, a crashed one no
longer. A node that joins gets the directory of that instant. All nodes that are up get the present one at every
*refresh*, which comes at whole multiples of ``refresh_ns`` after the peers' start, and only where something has changed
since the one before.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from peer.core.bitset import Bitset, bitset
from peer.core.directory import Directory, PeerInfo
from peer.core.schedule import Action, Join, Population, Publish
from peer.runtime.spec import NodeSpec, OverlayDocument


class Step(Struct, frozen=True):
    """What happens at an instant (ns from the workload's zero).

    ``action``: what the schedule says; None = a refresh, which everybody who is up is told. ``directory``: the
    service's answer, at joins and refreshes.
    """

    at_ns: int
    action: Action | None = None
    directory: Directory | None = None


def first_directory(overlay: OverlayDocument) -> Directory:
    """The nodes that are up from the start."""
    return Directory(PeerInfo(spec.node, _told(overlay, spec.topics)) for spec in overlay.nodes if spec.up)


def timeline(overlay: OverlayDocument, schedule: Iterable[Action], start_ns: int) -> Iterator[Step]:
    """The schedule with the service's answers after the first, in the order of their instants.

    Directories are made one by one, and each shares what it can with the one before. At the same instant a refresh
    comes after the actions.

    Args:
        overlay: who is up at the start, what is disclosed and how often is refreshed.
        schedule: the run's, in the order of its instants.
        start_ns: the instant at which the peers start.

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
    """A directory as one node gets it: where its specification lists whom it hears of, only those."""
    if spec.bootstrap is None:
        return directory
    known: Bitset = bitset(spec.bootstrap)
    return Directory(info for info in directory if known >> info.node & 1)


def _next_refresh(at_ns: int, start_ns: int, refresh_ns: int) -> int:
    """The first instant of a refresh at or after this one."""
    return start_ns - (start_ns - at_ns) // refresh_ns * refresh_ns


def _told(overlay: OverlayDocument, topics: Iterable[int]) -> tuple[int, ...] | None:
    return tuple(topics) if overlay.discloses else None
