"""The groups of nodes that faults and links name: from ``[groups]``, from the underlay, or drawn from the seed."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property

from harness.errors import ExperimentError
from harness.experiment.faults import EVERYWHERE, REST
from harness.experiment.form import Experiment
from harness.experiment.hints import suggest
from harness.experiment.sections.faults import GroupSpec
from harness.experiment.sections.values import Group
from peer.core.randomness import NETWORK, substream
from topologies.geography import find_continents
from topologies.model import Host

Nodes = frozenset[int]


class Groups:
    """The groups of an experiment's nodes. Node i is on host i.

    A name is that of a section ``[groups]``, or else of all nodes, of a continent, or of a city of the underlay. Nodes
    that a section asks for by number or share are drawn once, so that a name means the same nodes in every entry.

    Args:
        experiment: with ``groups`` and the seed.
        hosts: the underlay's.
    """

    def __init__(self, experiment: Experiment, hosts: Sequence[Host]) -> None:
        self._seed = experiment.seed
        self._hosts = hosts
        self._named = {
            name: self._of_section(f"$.groups.{name}", name, group) for name, group in experiment.groups.items()
        }

    @property
    def everyone(self) -> Nodes:
        return frozenset(range(len(self._hosts)))

    def find(self, group: Group, place: str) -> Nodes:
        """Return the nodes of a group.

        Args:
            group: its name, a number of nodes to draw, or the nodes themselves.
            place: the key that names it; what is drawn depends on it.

        Raises:
            ExperimentError: there is no such group, or it has no node.
        """
        if isinstance(group, int):
            return self._draw(group, place, place)
        if not isinstance(group, str):
            return self._checked(group, place)
        known = {**self._cities, **self._continents, EVERYWHERE: self.everyone, **self._named}
        if (found := known.get(group, known.get(spell(group)))) is None:
            meant = suggest(group, list(known))
            hint = f"; did you mean {meant[0]}?" if meant else ""
            raise ExperimentError(place, f"no group, continent or city is called {group!r}{hint}")
        return found

    def several(self, groups: Sequence[Group], place: str) -> list[Nodes]:
        """Return the nodes of groups that a key names in a list; the rest is what no other one has.

        Args:
            groups: as for ``find``, or the rest.
            place: the key.

        Raises:
            ExperimentError: there is no such group, or it has no node.
        """
        found = {number: self.find(group, f"{place}[{number}]") for number, group in enumerate(groups) if group != REST}
        rest = self.everyone.difference(*found.values())
        if REST in groups and not rest:
            raise ExperimentError(place, "no node is left for the rest")
        return [found.get(number, rest) for number in range(len(groups))]

    @cached_property
    def _cities(self) -> dict[str, Nodes]:
        """The nodes of each city of the underlay."""
        return _collect((spell(host.site), node) for node, host in enumerate(self._hosts))

    @cached_property
    def _continents(self) -> dict[str, Nodes]:
        """The nodes on each continent that has any; nodes without position are on none."""
        placed = {
            node: (host.latitude, host.longitude)
            for node, host in enumerate(self._hosts)
            if host.latitude is not None and host.longitude is not None
        }
        names = find_continents(*zip(*placed.values(), strict=True)) if placed else []
        return _collect(zip(names, placed, strict=True))

    def _of_section(self, place: str, name: str, group: GroupSpec) -> Nodes:
        if group.nodes is not None:
            return self._checked(group.nodes, f"{place}.nodes")
        if group.number is not None:
            return self._draw(group.number, f"{place}.number", name)
        if group.share is not None:
            return self._draw(max(1, round(group.share * len(self._hosts))), f"{place}.share", name)
        if group.region is not None:
            return self._in(group.region, self._continents, f"{place}.region")
        return self._in(group.city or "", self._cities, f"{place}.city")

    def _in(self, name: str, places: dict[str, Nodes], place: str) -> Nodes:
        """Return the nodes in a continent or city."""
        if (found := places.get(spell(name))) is None:
            meant = suggest(name, list(places))
            hint = f"; did you mean {meant[0]}?" if meant else ""
            raise ExperimentError(place, f"no host of the underlay is in {name!r}{hint}")
        return found

    def _draw(self, number: int, place: str, purpose: str) -> Nodes:
        """Draw nodes from the seed, independently for each purpose."""
        if number > len(self._hosts):
            raise ExperimentError(place, f"expected at most {len(self._hosts)} nodes, got {number}")
        return frozenset(substream(self._seed, NETWORK, f"group {purpose}").sample(range(len(self._hosts)), number))

    def _checked(self, nodes: Sequence[int], place: str) -> Nodes:
        if unknown := [node for node in nodes if node >= len(self._hosts)]:
            raise ExperimentError(place, f"expected nodes from 0 to {len(self._hosts) - 1}, got {unknown}")
        if not nodes:
            raise ExperimentError(place, "expected at least one node, got []")
        return frozenset(nodes)


def _collect(members: Iterable[tuple[str, int]]) -> dict[str, Nodes]:
    """Return the nodes of each group."""
    found: dict[str, set[int]] = {}
    for name, node in members:
        found.setdefault(name, set()).add(node)
    return {name: frozenset(nodes) for name, nodes in found.items()}


def spell(name: str) -> str:
    """Return a name as groups are called: ``São Paulo`` is ``sao-paulo``."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-") or name
