"""LEAVE: cohabitants or neighbours take over the extents of a leaving node."""

from collections.abc import Callable, Mapping

from peer.core.contract import NodeId
from peer.core.parts import Turn
from peer.protocols.implicit_groups.addressing.region import Region, intersection
from peer.protocols.implicit_groups.encoding import pack_all
from peer.protocols.implicit_groups.frames import GroupLeave, GroupWelcome
from peer.protocols.implicit_groups.joining import JoiningOverlay
from peer.protocols.implicit_groups.surface import NOWHERE, Surface, cells, touching


class LeavingOverlay(JoiningOverlay):
    """Hands over its extents to a cohabitant or, if there is none, to neighbours.

    Source: section 3.3. The choice of the neighbour that manages the least is ours.
    """

    def _hand_off(self, turn: Turn) -> None:
        """Give all extents to the first cohabitant, or each to the adjacent neighbour that manages the least."""
        surface = self.surface
        if not surface.extents:
            return
        heirs = self._choose_heirs()
        self._welcome_heirs(turn, heirs, surface.neighbours, tuple(self.cohabitants))
        if heirs:
            turn.send_each(self._linked(), GroupLeave(self._entries(heirs)))

    def _welcome_heirs(
        self,
        turn: Turn,
        heirs: Mapping[NodeId, Region],
        around: Mapping[NodeId, Region],
        cohabitants: tuple[NodeId, ...],
    ) -> None:
        """Give heirs their extents, and name the managers of adjacent extents.

        Args:
            turn: the present turn.
            heirs: the extents that each heir gets.
            around: the other extents of nodes. If this node is among them, it tells the heirs that it stays.
            cohabitants: the cohabitants at the address that the first heir gets.
        """
        for heir, region in heirs.items():
            others = {node: extents for node, extents in heirs.items() if node != heir}
            for node, extents in around.items():
                if node != heir:
                    others[node] = others.get(node, NOWHERE) | extents
            entries = touching(others, region)
            if self.state.node in around:
                entries.setdefault(self.state.node, NOWHERE)
            turn.send(heir, GroupWelcome(pack_all(region), self._entries(entries), cohabitants))

    def _choose_heirs(self) -> dict[NodeId, Region]:
        for cohabitant in self.cohabitants:
            if cohabitant in self.state.neighbours:
                return {cohabitant: self.surface.extents}
        return self._share_out(self.surface.extents)

    def _share_out(
        self, extents: Region, is_fair: Callable[[int, int], bool] = lambda load, size: True
    ) -> dict[NodeId, Region]:
        """Return the heirs of own extents: each extent goes to the adjacent neighbour that manages the least.

        Args:
            extents: the extents to give away.
            is_fair: returns whether a neighbour takes an extent, given the size of its extents before and the size of
                the extent (``surface.cells``).
        """
        surface, depth = self.surface, self._space.depth
        managed = {node: region for node, region in surface.neighbours.items() if node in self.state.neighbours}
        loads = {node: cells(region, depth) for node, region in managed.items()}
        heirs: dict[NodeId, Region] = {}
        waiting = sorted(extents)
        while waiting and loads:
            rest = []
            for extent in waiting:
                size = cells((extent,), depth)
                near = touching(managed, frozenset({extent}))
                heir = min(near, key=lambda node: (loads[node], node), default=None)
                if heir is None or not is_fair(loads[heir], size):
                    rest.append(extent)
                    continue
                loads[heir] += size
                managed[heir] |= {extent}
                heirs[heir] = heirs.get(heir, NOWHERE) | {extent}
            if len(rest) == len(waiting):
                break
            waiting = rest
        return heirs

    def _forget_all(self) -> None:
        """Reset the state to that of a node that has not joined."""
        self.surface = Surface(self._space, self.address)
        self.cohabitants, self.host = {}, None
        self._given.clear()

    def _take_leave(self, turn: Turn, peer: NodeId, entries: Mapping[NodeId, Region]) -> None:
        """Forget a neighbour that leaves, and note the new managers of its extents.

        Args:
            turn: the present turn.
            peer: the neighbour.
            entries: the new managers.
        """
        given = self.surface.neighbours.get(peer, NOWHERE)
        was_host = peer == self.host
        self.cohabitants.pop(peer, None)
        self._heard_of_itself.pop(peer, None)
        self.surface.forget(peer)
        for node, region in entries.items():
            if node == self.state.node or intersection(region, given) != region:
                continue
            if was_host:
                self.host = node
                self.surface.keep(node, region)
                self._greet(turn, node)
            else:
                self._hear_of(turn, node, self.surface.neighbours.get(node, NOWHERE) | region, replace=True)
        if was_host and self.host == peer:
            self.host = None
            self._seek(turn)

    def _move(self, turn: Turn) -> None:
        """Leave and join at the new address if the change of attributes changed the address."""
        self.address = self._make_address()
        own = self._space.extent(self.address)
        if own == self.surface.own:
            return
        if not self.surface.neighbours and not self.cohabitants:  # it is alone, or has not joined
            self.surface.own = own
            return
        self._hand_off(turn)
        before = (*self.surface.neighbours, *self.cohabitants)
        self._forget_all()
        self._seek(turn)
        for peer in before:
            self._close_unused(turn, peer)
