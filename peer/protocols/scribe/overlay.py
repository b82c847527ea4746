"""The Scribe overlay: one tree per group, from the routes of its members' JOINs to the group's root."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from peer.core.bitset import Bitset, bitset
from peer.core.contract import Directory, NodeId, TopicId, publisher_of
from peer.core.frames import Data, Frame, Subscriptions
from peer.core.membership.interface import Membership
from peer.core.observed_links import ObservedLinks
from peer.core.parts import Part, State, Turn
from peer.core.randomness import substream
from peer.protocols.scribe.forest import Forest, Group, Tree
from peer.protocols.scribe.frames import ScribeHeartbeat, ScribeJoin, ScribeLeave, ScribeRedirect
from peer.protocols.scribe.observed_links import TreeTopics
from peer.protocols.scribe.parameters import ScribeParameters
from peer.protocols.scribe.pastry import Pastry, make_key

HEARTBEAT, RETRY = "overlay/heartbeat", "overlay/retry"
UNUSED = "unused"
SECOND_NS = 1_000_000_000

RETRY_NS = SECOND_NS
MOST_DOUBLINGS = 5
"""Doublings of the pause after which a node without a parent looks again: 1, 2, 4, ... 32 s."""

PASSED_OVER_NS = 30 * SECOND_NS
"""How long routes avoid a node whose link ended (ns)."""

MOST_DEPTH = 64
"""A heartbeat that has passed more nodes than this travels in a circle."""


class Scribe(Part):
    """Keeps the node's place in the trees of its groups, and of other groups whose JOINs it receives.

    To join a group, a node sends JOIN to the next node on Pastry's way to the group's key. That node accepts it as a
    child, and sends its own JOIN unless it is in the tree. The root sends heartbeats down the tree. A node that
    receives none joins again. A node that is not a member and has no children leaves.

    Degrees are bounded. A full node that receives a JOIN sends a child of its largest group to the child's siblings, or
    sends the new node to the children of the group, or refuses it.

    Source: Castro, Druschel, Kermarrec, Rowstron, SCRIBE (IEEE JSAC 20(8), 2002), membership management, repair and
    bottleneck remover; Topiary section V-B3 for the groupings.
    """

    Parameters = ScribeParameters
    frames: ClassVar[tuple[type[Frame], ...]] = (ScribeJoin, ScribeLeave, ScribeRedirect, ScribeHeartbeat)
    overhears = (Subscriptions,)
    writes = frozenset({"logical"})

    def __init__(self, state: State, membership: Membership, parameters: ScribeParameters) -> None:
        Part.__init__(self, state)
        self._membership = membership
        self._p = parameters
        self._by_topic = parameters.grouping == "topic"
        self._period_ns = round(parameters.heartbeat_s * SECOND_NS)
        self._draws = substream(state.seed, state.node, "overlay")
        self._pastry = Pastry(state.node, parameters.digit_bits, parameters.leaf_set)
        self._random_group = self._drawn(state.node)
        self._keys: dict[Group, int] = {}
        self._lost: dict[NodeId, int] = {}
        self.forest = Forest()

    @staticmethod
    def observe_links(parameters: Mapping[str, Any]) -> type[ObservedLinks] | None:
        """Return ``TreeTopics`` for groups by topic. Frames do not show the topics of a link in random groups."""
        return TreeTopics if parameters.get("grouping", "topic") == "topic" else None

    # ------------------------------------------------------------------------------------------------- groups

    def groups_of(self, copy: Data) -> list[tuple[Group, tuple[TopicId, ...]]]:
        """Return the groups in which a copy travels, each with the copy's topics there."""
        if self._by_topic:
            return [(topic, (topic,)) for topic in copy.topics]
        return [(self._drawn(publisher_of(copy.message_id)), copy.topics)]

    def receivers(self, group: Group, source: NodeId | None) -> tuple[bool, Iterable[NodeId]]:
        """Return whether a copy goes down the tree of a group next, and the nodes that get it.

        A copy from the parent goes down to the children. Any other copy goes up to the parent, or down if this node is
        the root. A node outside the tree passes it to a neighbour on Pastry's way.
        """
        tree = self.forest.trees.get(group)
        if tree is not None and tree.parent is not None and tree.parent in self.state.neighbours:
            return (True, tree.children) if source == tree.parent else (False, (tree.parent,))
        if tree is not None and (tree.is_root or tree.children):
            return True, tree.children
        hop = self._pastry.nearer(self._key(group), (peer for peer in self.state.neighbours if peer != source))
        return False, () if hop is None else (hop,)

    def _drawn(self, node: NodeId) -> Group:
        """Return a node's random group, which every node can compute."""
        return make_key(f"member/{node}") % self._p.groups

    def own_groups(self) -> list[Group]:
        """Return the groups that this node is a member of, in rising order."""
        return sorted(self.state.topics) if self._by_topic else [self._random_group]

    def _is_member(self, group: Group) -> bool:
        return group in self.state.topics if self._by_topic else group == self._random_group

    def _key(self, group: Group) -> int:
        if group not in self._keys:
            self._keys[group] = make_key(f"group/{group}")
        return self._keys[group]

    # ------------------------------------------------------------------------------------------------- events

    def start(self, turn: Turn) -> None:
        turn.set_timer(HEARTBEAT, turn.now_ns + 1 + self._draws.randrange(self._period_ns))

    def meet(self, turn: Turn, directory: Directory) -> None:
        """Join the groups in random order, so that chance decides which ones if the degree does not suffice.

        Stop asking nodes that are down. They may come back, and count as new then.
        """
        self._lost = {peer: until_ns for peer, until_ns in self._lost.items() if directory.nodes >> peer & 1}
        for peer in tuple(self.forest.parents):
            if not (directory.nodes >> peer & 1 or peer in self.state.neighbours):
                turn.disconnect(peer, "gone")
                self._do_without(turn, peer)
        groups = self.own_groups()
        self._draws.shuffle(groups)
        for group in groups:
            self._join(turn, group)

    def subscribe(self, turn: Turn, topic: TopicId) -> None:
        if self._by_topic:
            self._join(turn, topic)

    def unsubscribe(self, turn: Turn, topic: TopicId) -> None:
        """Leave the topic's group, unless other nodes need this node in its tree."""
        if self._by_topic:
            self._leave_if_idle(turn, topic)

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        self._lost.pop(peer, None)
        if groups := self.forest.parents.get(peer):
            turn.send(peer, ScribeJoin(tuple(groups)))
        self._relink(turn, peer, self.state.neighbours[peer].interests)

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Find other parents in place of a lost one. Routes avoid the lost node for ``PASSED_OVER_NS``."""
        if retrying:
            turn.disconnect(peer, "lost")
        if reason != UNUSED:
            self._lost[peer] = turn.now_ns + PASSED_OVER_NS
        self._do_without(turn, peer)

    def _do_without(self, turn: Turn, peer: NodeId) -> None:
        """Remove a node as parent and child in all groups."""
        orphaned, deserted = tuple(self.forest.parents.get(peer, ())), tuple(self.forest.children.get(peer, ()))
        for group in deserted:
            self.forest.dismiss(group, peer)
        for group in orphaned:
            self.forest.part(group)
        for group in dict.fromkeys((*orphaned, *deserted)):
            if not self._leave_if_idle(turn, group) and group in orphaned:
                self._seek(turn, group)

    def overhear(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """Update the topics of a neighbour's link, which are its interests if groups are random."""
        assert isinstance(frame, Subscriptions)
        self._relink(turn, peer, frozenset(frame.topics))

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        match frame:
            case ScribeJoin(groups):
                for group in groups:
                    self._take_join(turn, peer, group)
            case ScribeLeave(groups):
                for group in groups:
                    self._take_leave(turn, peer, group)
            case ScribeRedirect(group, nodes):
                self._take_redirect(turn, peer, group, nodes)
            case ScribeHeartbeat(groups, depth):
                self._take_heartbeat(turn, peer, groups, depth)

    def fire(self, turn: Turn, name: str) -> None:
        """Send heartbeats, or look for parents again."""
        if name == HEARTBEAT:
            self._lost = {peer: until_ns for peer, until_ns in self._lost.items() if until_ns > turn.now_ns}
            for group in tuple(self.forest.trees):
                self._check(turn, group)
            self._beat(turn, [group for group, tree in self.forest.trees.items() if tree.is_root], 1)
            turn.set_timer(HEARTBEAT, turn.now_ns + self._period_ns)
        else:
            for group, tree in tuple(self.forest.trees.items()):
                if _waits(tree) and tree.again_ns <= turn.now_ns:
                    self._seek(turn, group)
            self._wait_for_earliest(turn)

    # ------------------------------------------------------------------------------------------------ parents

    def _join(self, turn: Turn, group: Group) -> None:
        """Enter a group's tree, unless this node is in it."""
        if group not in self.forest.trees:
            self.forest.trees[group] = Tree()
            self._seek(turn, group)

    def _seek(self, turn: Turn, group: Group) -> None:
        """Ask the next node on Pastry's way to be the parent. Become the root if there is none."""
        tree = self.forest.trees[group]
        hop = self._route(group)
        tree.is_root = hop is None
        if hop is None:
            tree.attempts = 0
            self._beat(turn, [group], 1)
            return
        if not self._has_room_above(hop):
            others = [peer for peer in self.forest.parents if peer not in tree.children]
            hop = self._pastry.nearer(self._key(group), others)
        if hop is None:
            self._give_up(turn, group)
        else:
            self._ask(turn, group, hop)

    def _route(self, group: Group) -> NodeId | None:
        return self._pastry.next_hop(self._key(group), self._reachable, self.forest.trees[group].attempts)

    @property
    def _reachable(self) -> Bitset:
        return self._membership.known & ~bitset(self._lost)

    def _has_room_above(self, parent: NodeId) -> bool:
        return parent in self.forest.parents or len(self.forest.parents) < self._p.degree

    def _ask(self, turn: Turn, group: Group, parent: NodeId) -> None:
        tree = self.forest.trees[group]
        if parent in tree.children:
            self._send_down(turn, group, parent, ())
        self.forest.follow(group, parent)
        tree.heard_ns = turn.now_ns
        if parent in self.state.neighbours:
            turn.send(parent, ScribeJoin((group,)))
            self._relink(turn, parent, self.state.neighbours[parent].interests)
        else:
            turn.connect(parent)

    def _give_up(self, turn: Turn, group: Group) -> None:
        """Send the children away, since no parent was found. A member of the group looks again later."""
        tree = self.forest.trees[group]
        for child in tuple(tree.children):
            self._send_down(turn, group, child, ())
        if self._is_member(group):
            tree.again_ns = turn.now_ns + (RETRY_NS << min(tree.attempts, MOST_DOUBLINGS))
            tree.attempts += 1
            self._wait_for_earliest(turn)
        else:
            del self.forest.trees[group]

    def _wait_for_earliest(self, turn: Turn) -> None:
        waiting = [tree.again_ns for tree in self.forest.trees.values() if _waits(tree)]
        if waiting:
            turn.set_timer(RETRY, max(min(waiting), turn.now_ns + 1))

    def _leave_parent(self, turn: Turn, group: Group) -> None:
        parent = self.forest.part(group)
        if parent is not None:
            if parent in self.state.neighbours:
                turn.send(parent, ScribeLeave((group,)))
            self._release(turn, parent)

    def _leave_if_idle(self, turn: Turn, group: Group) -> bool:
        """Leave a tree in which no node needs this one. Return whether this node is outside the tree now."""
        tree = self.forest.trees.get(group)
        if tree is None or tree.children or self._is_member(group):
            return tree is None
        self._leave_parent(turn, group)
        del self.forest.trees[group]
        return True

    def _check(self, turn: Turn, group: Group) -> None:
        """Leave a tree that does not need this node, and a silent parent. Stop being root if a closer node is known."""
        if self._leave_if_idle(turn, group):
            return
        tree = self.forest.trees[group]
        if tree.is_root:
            if self._route(group) is not None:
                self._seek(turn, group)
        elif tree.parent is not None and turn.now_ns - tree.heard_ns > self._p.heartbeats_missed * self._period_ns:
            self._leave_parent(turn, group)
            tree.attempts += 1
            self._seek(turn, group)

    def _take_redirect(self, turn: Turn, peer: NodeId, group: Group, nodes: tuple[NodeId, ...]) -> None:
        tree = self.forest.trees.get(group)
        if tree is None or tree.parent != peer:
            return
        self.forest.part(group)
        self._release(turn, peer)
        known = self._reachable
        fit = [node for node in nodes if known >> node & 1 and node not in tree.children and self._has_room_above(node)]
        if fit:
            self._ask(turn, group, self._draws.choice(fit))
        else:
            self._give_up(turn, group)

    def _take_heartbeat(self, turn: Turn, peer: NodeId, groups: tuple[Group, ...], depth: int) -> None:
        followed = self.forest.parents.get(peer, {})
        mine = [group for group in groups if group in followed]
        if len(mine) < len(groups):
            turn.send(peer, ScribeLeave(tuple(group for group in groups if group not in mine)))
        if depth > MOST_DEPTH:
            return
        for group in mine:
            tree = self.forest.trees[group]
            tree.heard_ns, tree.depth, tree.attempts = turn.now_ns, depth, 0
        self._beat(turn, mine, depth + 1)

    # ----------------------------------------------------------------------------------------------- children

    def _take_join(self, turn: Turn, peer: NodeId, group: Group) -> None:
        tree = self.forest.trees.get(group)
        if tree is not None and (tree.parent == peer or _waits(tree)):
            turn.send(peer, ScribeRedirect(group, ()))
            return
        if not self._make_room_below(turn, group, peer):
            turn.send(peer, ScribeRedirect(group, tuple(tree.children) if tree is not None else ()))
            return
        if tree is None:
            tree = self.forest.trees[group] = Tree()
        self.forest.adopt(group, peer)
        self._relink(turn, peer, self.state.neighbours[peer].interests)
        if tree.is_root or tree.depth is not None:
            turn.send(peer, ScribeHeartbeat((group,), 1 + (tree.depth or 0)))
        elif tree.parent is None:
            self._seek(turn, group)

    def _make_room_below(self, turn: Turn, group: Group, newcomer: NodeId) -> bool:
        """Make room for a child, and return whether there is room.

        If a larger group than the newcomer's has a child that is in no other group, that child is sent to its siblings.

        Args:
            turn: the present turn.
            group: the newcomer's group.
            newcomer: the node that wants to be a child.

        Source: Scribe's bottleneck remover. Distances are not known here, so the child that joined last is sent away.
        """
        children = self.forest.children
        if newcomer in children or len(children) < self._p.children:
            return True
        trees = self.forest.trees
        own = 1 + len(trees[group].children) if group in trees else 1
        spare = [(only, child) for child, [only, *more] in reversed(children.items()) if not more]
        only, child = max(spare, key=lambda place: len(trees[place[0]].children), default=(group, newcomer))
        if only == group or len(trees[only].children) <= own:
            return False
        self._send_down(turn, only, child, tuple(peer for peer in trees[only].children if peer != child))
        return True

    def _take_leave(self, turn: Turn, peer: NodeId, group: Group) -> None:
        if group in self.forest.children.get(peer, ()):
            self.forest.dismiss(group, peer)
            self._relink(turn, peer, self.state.neighbours[peer].interests)
            self._leave_if_idle(turn, group)

    def _send_down(self, turn: Turn, group: Group, child: NodeId, siblings: tuple[NodeId, ...]) -> None:
        """Remove a child, which may ask its siblings. It closes the link if it does not need it.

        Args:
            turn: the present turn.
            group: the group.
            child: the child.
            siblings: the nodes that it may ask.
        """
        self.forest.dismiss(group, child)
        turn.send(child, ScribeRedirect(group, siblings))
        self._relink(turn, child, self.state.neighbours[child].interests)

    def _beat(self, turn: Turn, groups: Iterable[Group], depth: int) -> None:
        """Send heartbeats to the children in these groups, which are at this depth."""
        told: dict[NodeId, list[Group]] = {}
        for group in groups:
            for child in self.forest.trees[group].children:
                told.setdefault(child, []).append(group)
        for child, shared in told.items():
            turn.send(child, ScribeHeartbeat(tuple(shared), depth))

    # -------------------------------------------------------------------------------------------------- links

    def _release(self, turn: Turn, peer: NodeId) -> None:
        """Update the topics of a neighbour after it left a tree. Close its link if they share no tree."""
        if peer in self.state.neighbours:
            self._relink(turn, peer, self.state.neighbours[peer].interests)
        if peer not in self.forest.parents and peer not in self.forest.children:
            turn.disconnect(peer, UNUSED)

    def _relink(self, turn: Turn, peer: NodeId, theirs: frozenset[TopicId]) -> None:
        """Update the logical links with a neighbour: topics with shared trees, or all shared topics in random groups.

        Args:
            turn: the present turn.
            peer: the neighbour.
            theirs: the topics that it subscribes to.
        """
        shared = self.forest.shared_with(peer)
        topics = shared if self._by_topic or not shared else tuple(sorted(self.state.topics & theirs))
        self.set_logical(turn, peer, topics, "regrouped")


def _waits(tree: Tree) -> bool:
    """Return whether a node found no parent and will look for one again."""
    return tree.parent is None and not tree.is_root
