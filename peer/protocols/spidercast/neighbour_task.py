"""A neighbour maintenance task: SpiderCast's Figures 1 to 4, for one of a node's two sets of neighbours.

The task decides which nodes are neighbours. Its ``Aim`` determines whether it needs more neighbours and which node it
asks next. The overlay manages the links.
"""

from random import Random
from typing import Protocol

from peer.core.bitset import bitset
from peer.core.contract import NodeId, TopicId
from peer.core.membership.interface import Membership
from peer.core.parts import State, Turn
from peer.protocols.spidercast.coverage import Interest
from peer.protocols.spidercast.frames import (
    SpiderConnect,
    SpiderConnectOk,
    SpiderDisconnect,
    SpiderDisconnectOk,
    SpiderLeave,
    SpiderRedirect,
)
from peer.protocols.spidercast.maintenance import SECOND_NS, Aim, MaintenanceParameters


class Overlay(Protocol):
    """What a task needs of its overlay: the node's state and interest, and links.

    Attributes:
        state, membership, draws: the node's.
        interest: the node's topics, rising.
        version: how often the interest changed.
    """

    state: State
    membership: Membership
    draws: Random
    interest: tuple[TopicId, ...]
    version: int

    def reach(self, turn: Turn, peer: NodeId) -> bool:
        """Return whether there is a link to a node; if not, ask for one."""
        ...

    def is_closing(self, peer: NodeId) -> bool:
        """Return whether a link to a node is about to end."""
        ...

    def release(self, turn: Turn, peer: NodeId, reason: str, parted: bool = False) -> None:
        """Close the link to a node if nothing needs it; ``parted``: the other side does not need it either."""

    def changed(self, turn: Turn, peer: NodeId, reason: str) -> None:
        """Update the logical links to a node that has become or is no longer a neighbour of a task."""


class Record:
    """The state of a neighbour (Figure 1), and when its latest heartbeat arrived.

    Attributes:
        unsparing: the largest degree at which the neighbour refused to disconnect; -1 = it was not asked.
    """

    __slots__ = ("degree", "heard_ns", "interest", "target", "unsparing", "version")

    def __init__(self, degree: int, target: int, version: int, interest: Interest, heard_ns: int) -> None:
        self.degree = degree
        self.target = target
        self.version = version
        self.interest = interest
        self.heard_ns = heard_ns
        self.unsparing = -1


class Task:
    """One neighbour maintenance task of a node.

    At most one request to become a neighbour is open at a time. It has one ``connect_timeout`` to get a link and
    another one to get an answer. After a request to disconnect, the task does not count on that neighbour in other such
    decisions until the timeout, so that two requests at the same time never leave topics uncovered. If the neighbour
    did not disconnect, the task does not ask it again until its degree rises or one of the two interests changes.

    Attributes:
        neighbours: the task's neighbours, in the order in which they became neighbours.
        limit: L_max in the latest round.
        target: L, the adaptive target for the number of neighbours.
        asked: the node whose answer to CONNECT the task awaits.

    Source: SpiderCast section 2.3.
    """

    __slots__ = (
        "_asked_until_ns",
        "_code",
        "_excess",
        "_margin",
        "_overlay",
        "_parting",
        "_quarantine",
        "_quarantine_ns",
        "_redirects",
        "_timeout_ns",
        "_timer",
        "aim",
        "asked",
        "limit",
        "neighbours",
        "running",
        "target",
    )

    def __init__(self, code: int, timer: str, aim: Aim, overlay: Overlay, parameters: MaintenanceParameters) -> None:
        self.aim = aim
        self.neighbours: dict[NodeId, Record] = {}
        self.running = False
        self.asked: NodeId | None = None
        self._asked_until_ns = 0
        self._redirects: dict[NodeId, Interest] = {}
        self._quarantine: dict[NodeId, int] = {}
        self._parting: dict[NodeId, int] = {}
        self._code = code
        self._timer = timer
        self._overlay = overlay
        self._margin = parameters.margin
        self._excess = 0 if parameters.disconnect_from == "covered" else 1
        self._timeout_ns = round(parameters.connect_timeout_s * SECOND_NS)
        self._quarantine_ns = round(parameters.quarantine_s * SECOND_NS)
        self.limit = self.target = 0

    def start(self, turn: Turn) -> None:
        """Begin the rounds at a random instant within the first timeout."""
        self.running = True
        self.limit = self.target = self.aim.limit
        turn.set_timer(self._timer, turn.now_ns + self._overlay.draws.randrange(self._timeout_ns))

    # ------------------------------------------------------------------------------------ the rounds (Figure 2)

    def maintain(self, turn: Turn) -> None:
        """Run one round of MAINTAINNEIGHBORS (lines 4-13)."""
        turn.set_timer(self._timer, turn.now_ns + self._timeout_ns)
        self._give_up(turn)
        self.limit = self.aim.limit
        gap = 0
        missing = self.aim.missing()
        if missing > 0:
            self.target = self.limit
            gap = self.target - len(self.neighbours)
            if gap > 0:
                self._connect(turn)
        if missing == 0 or gap < 0:
            self._disconnect(turn)

    def _connect(self, turn: Turn) -> None:
        """Ask another node to become a neighbour: CONNECT (lines 14-20)."""
        if self.asked is not None:
            return
        peer = self._next_redirected(turn.now_ns)
        if peer is None:
            peer = self._next_chosen(turn.now_ns)
        if peer is not None:
            self.asked = peer
            self._quarantine[peer] = turn.now_ns + self._quarantine_ns
            self._reach(turn, peer)

    def _next_redirected(self, now_ns: int) -> NodeId | None:
        """Return the oldest candidate from a REDIRECT that the task may still ask and that helps to reach the aim."""
        while self._redirects:
            peer = next(iter(self._redirects))
            interest = self._redirects.pop(peer)
            barred = peer in self.neighbours or self._quarantine.get(peer, 0) > now_ns or self._overlay.is_closing(peer)
            if not barred and self.aim.gains_by(interest):
                return peer
        return None

    def _next_chosen(self, now_ns: int) -> NodeId | None:
        self._quarantine = {peer: until for peer, until in self._quarantine.items() if until > now_ns}
        membership = self._overlay.membership
        among = membership.known & ~bitset([*self.neighbours, *self._quarantine])
        peer = self.aim.next_node(membership, among, self._overlay.draws)
        return None if peer is None or self._overlay.is_closing(peer) else peer

    def _reach(self, turn: Turn, peer: NodeId) -> None:
        self._asked_until_ns = turn.now_ns + self._timeout_ns
        if self._overlay.reach(turn, peer):
            self._request(turn, peer)

    def _request(self, turn: Turn, peer: NodeId) -> None:
        self._asked_until_ns = turn.now_ns + self._timeout_ns
        own = (self._code, len(self.neighbours), self.target, self._overlay.version, self._overlay.interest)
        turn.send(peer, SpiderConnect(*own))

    def _give_up(self, turn: Turn) -> None:
        """Give up the open request after its timeout."""
        if (peer := self.asked) is not None and turn.now_ns >= self._asked_until_ns:
            self.asked = None
            self._overlay.release(turn, peer, "no_answer")

    def _disconnect(self, turn: Turn) -> None:
        """Ask a neighbour to disconnect if it is not needed: DISCONNECT (lines 21-30)."""
        self.target = min(self.limit, len(self.neighbours))
        gone = self._parting_interests(turn.now_ns)
        peer, lost = self._disconnect_candidate(gone)
        if peer is None:
            return
        over = len(self.neighbours) - len(gone) - self.target
        if over > 0 or (not lost and self.aim.missing([*gone, self.neighbours[peer].interest]) == 0):
            self._parting[peer] = turn.now_ns + self._timeout_ns
            self.neighbours[peer].unsparing = self.neighbours[peer].degree
            turn.send(peer, SpiderDisconnect(self._code))

    def _disconnect_candidate(self, gone: list[Interest]) -> tuple[NodeId | None, int]:
        """Return a neighbour whose loss uncovers the fewest topics, and how many: DISCONNECTCANDIDATE (Figure 3).

        Without a neighbour, its critical topics would be uncovered besides the topics that are uncovered already. The
        latter are the same for all neighbours.

        Source: lines 8-22.
        """
        candidates: list[NodeId] = []
        least = 0
        critical, excess, parting = self.aim.critical(gone), self._excess, self._parting
        for peer, record in self.neighbours.items():
            degree = record.degree
            if degree > record.unsparing and degree >= record.target + excess and peer not in parting:
                lost = len(critical & record.interest)
                if lost < least or not candidates:
                    candidates, least = [peer], lost
                elif lost == least:
                    candidates.append(peer)
        return (self._overlay.draws.choice(candidates) if candidates else None), least

    def _parting_interests(self, now_ns: int, but: NodeId | None = None) -> list[Interest]:
        """Return the interests of the neighbours that the task asked to disconnect, except one."""
        if not self._parting:
            return []
        self._parting = {peer: until for peer, until in self._parting.items() if until > now_ns}
        return [self.neighbours[peer].interest for peer in self._parting if peer != but]

    # ---------------------------------------------------------------------------------- the handlers (Figure 4)

    def take_connect(self, turn: Turn, peer: NodeId, frame: SpiderConnect, version: int, interest: Interest) -> None:
        """Accept a node as a neighbour, or redirect it. Confirm again to a node that is one already.

        Args:
            turn: the present turn.
            peer: the node that asks.
            frame: its request.
            version: the version of its newest known interest.
            interest: its newest known interest.

        Source: lines 1-9.
        """
        record = Record(frame.degree, frame.target, version, interest, turn.now_ns)
        if peer in self.neighbours or len(self.neighbours) < self.limit + self._margin:
            known = peer in self.neighbours
            self._add(turn, peer, record)
            own = (self._code, len(self.neighbours), self.target, self._overlay.version, self._overlay.interest)
            turn.send(peer, SpiderConnectOk(*own))
            if not known:
                self._raise_target()
        else:
            node = self._redirection(interest)
            topics = tuple(sorted(self.neighbours[node].interest)) if node is not None else ()
            turn.send(peer, SpiderRedirect(self._code, node, topics))

    def _redirection(self, interest: Interest) -> NodeId | None:
        """Return the neighbour that shares the most topics and has room for another neighbour (lines 7 and 8)."""
        shared = {
            peer: len(record.interest & interest)
            for peer, record in self.neighbours.items()
            if record.degree < record.target + self._margin
        }
        best = [peer for peer, count in shared.items() if count == max(shared.values())]
        return self._overlay.draws.choice(best) if best else None

    def take_redirect(self, turn: Turn, peer: NodeId, frame: SpiderRedirect) -> None:
        """Note the node that a redirection names as a candidate, unless the number cannot be a node's.

        Args:
            turn: the present turn.
            peer: the node that redirects.
            frame: its answer.

        Source: lines 10 and 11.
        """
        if peer == self.asked:
            self.asked = None
            state = self._overlay.state
            if frame.node is not None and frame.node != state.node and state.may_be_node(frame.node):
                self._redirects[frame.node] = frozenset(frame.interest)
            self._overlay.release(turn, peer, "redirected")

    def take_connect_ok(
        self, turn: Turn, peer: NodeId, frame: SpiderConnectOk, version: int, interest: Interest
    ) -> None:
        """Take a node that accepted as a neighbour. Refuse it if there is no room, or if this task did not ask it.

        Args:
            turn: the present turn.
            peer: the node that accepted.
            frame: its answer.
            version: the version of its newest known interest.
            interest: its newest known interest.

        Source: lines 12-18.
        """
        known, wanted = peer in self.neighbours, peer == self.asked
        if wanted:
            self.asked = None
        if known or (wanted and len(self.neighbours) < self.limit + self._margin):
            self._add(turn, peer, Record(frame.degree, frame.target, version, interest, turn.now_ns))
            if not known:
                self._raise_target()
        else:
            turn.send(peer, SpiderLeave(self._code))
            self._overlay.release(turn, peer, "unneeded")

    def take_leave(self, turn: Turn, peer: NodeId) -> None:
        """Remove a neighbour that leaves (lines 19 and 20)."""
        if peer in self.neighbours:
            self._remove(turn, peer, "leave")
        self._overlay.release(turn, peer, "leave", parted=True)

    def take_disconnect(self, turn: Turn, peer: NodeId) -> None:
        """Remove the neighbour. Confirm again to a node that is not one.

        Source: lines 21-27.
        """
        if peer not in self.neighbours:
            turn.send(peer, SpiderDisconnectOk(self._code))
            return
        gone = self._parting_interests(turn.now_ns, but=peer)
        missing = self.aim.missing([*gone, self.neighbours[peer].interest])
        if len(self.neighbours) - len(gone) > self.target or missing == 0:
            self._remove(turn, peer, "disconnect")
            turn.send(peer, SpiderDisconnectOk(self._code))
            if missing == 0:
                self.target = len(self.neighbours)
            self._overlay.release(turn, peer, "disconnect")

    def take_disconnect_ok(self, turn: Turn, peer: NodeId) -> None:
        """Remove a neighbour that agreed to disconnect: lines 27 and 28 (the figure's second 27)."""
        if peer in self.neighbours:
            self._remove(turn, peer, "disconnect")
        self._overlay.release(turn, peer, "disconnect")

    def suspect_silent(self, turn: Turn, since_ns: int) -> None:
        """Remove every neighbour whose latest heartbeat is older than ``since_ns``.

        Source: FAILUREDETECTIONSUSPECT (lines 29 and 30).
        """
        for peer in [peer for peer, record in self.neighbours.items() if record.heard_ns < since_ns]:
            self._remove(turn, peer, "suspect")
            self._overlay.release(turn, peer, "suspect", parted=True)

    def _add(self, turn: Turn, peer: NodeId, record: Record) -> None:
        """Add a neighbour, or replace the record of a neighbour."""
        if (old := self.neighbours.get(peer)) is not None:
            self.aim.remove(old.interest)
        self.neighbours[peer] = record
        self.aim.add(record.interest)
        self._overlay.changed(turn, peer, "unsubscribed")

    def _raise_target(self) -> None:
        """Raise the target after a new neighbour (lines 4-5 and 15-16)."""
        if self.target < self.limit and len(self.neighbours) < self.target + self._margin:
            self.target += 1

    def _remove(self, turn: Turn, peer: NodeId, reason: str) -> None:
        """Remove a neighbour, and run a round if the task needs another one: REMOVECONNECTION (lines 34-38)."""
        self.aim.remove(self.neighbours.pop(peer).interest)
        self._parting.pop(peer, None)
        self._overlay.changed(turn, peer, reason)
        if self.running and (len(self.neighbours) < self.target or self.aim.missing() > 0):
            turn.set_timer(self._timer, turn.now_ns)

    # ------------------------------------------------------------------------------------- links and heartbeats

    def uses(self, peer: NodeId) -> bool:
        """Return whether the task needs a link to the peer."""
        return peer in self.neighbours or peer == self.asked

    def hear(self, turn: Turn, peer: NodeId, degree: int, target: int) -> None:
        """Note the state in a neighbour's heartbeat.

        Args:
            turn: the present turn.
            peer: the node that sent it.
            degree: its number of neighbours in this task.
            target: its target.
        """
        if (record := self.neighbours.get(peer)) is not None:
            record.degree, record.target, record.heard_ns = degree, target, turn.now_ns
            record.unsparing = min(record.unsparing, degree)

    def learn(self, peer: NodeId, version: int, interest: Interest) -> None:
        """Replace the interest of a neighbour.

        Args:
            peer: the node, which need not be a neighbour.
            version: the version of its interest.
            interest: its new interest.
        """
        if (record := self.neighbours.get(peer)) is not None:
            self.aim.remove(record.interest)
            record.version, record.interest, record.unsparing = version, interest, -1
            self.aim.add(interest)

    def reset_aim(self, own: Interest) -> None:
        """Recompute the aim for the node's new interest."""
        for record in self.neighbours.values():
            record.unsparing = -1
        self.aim.recount(own, (record.interest for record in self.neighbours.values()))

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        if peer == self.asked:
            self._request(turn, peer)

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool, own: bool) -> None:
        """Remove the neighbour whose link ended, or handle a request that used the link.

        The other side may close a link that it opened without knowing of the request. Then the request gets a link that
        this node opens.

        Args:
            turn: the present turn.
            peer: the node at the other end.
            reason: why the link ended.
            retrying: whether the driver redials.
            own: whether this node had asked for the link.
        """
        if peer in self.neighbours:
            self._remove(turn, peer, reason)
        if peer == self.asked:
            if own and not retrying:
                self.asked = None
            elif not own:
                self._reach(turn, peer)
