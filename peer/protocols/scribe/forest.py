"""A node's place in the groups' trees: its parent and its children in each."""

from peer.core.contract import NodeId

Group = int


class Tree:
    """A node's place in one group's tree. Without a parent, the node is the root, or waits to look for a parent again.

    Attributes:
        parent: the node that was asked to be the parent.
        heard_ns: when it was asked, or when its latest heartbeat arrived (ns).
        children: the children in the order in which they joined.
        depth: number of links from the root; None before the first heartbeat.
        is_root: whether this node is the root.
        attempts: number of failures in a row to find a parent.
        again_ns: when to look for a parent again (ns).
    """

    __slots__ = ("again_ns", "attempts", "children", "depth", "heard_ns", "is_root", "parent")

    def __init__(self) -> None:
        self.parent: NodeId | None = None
        self.children: dict[NodeId, None] = {}
        self.depth: int | None = None
        self.is_root = False
        self.heard_ns = 0
        self.attempts = 0
        self.again_ns = 0


class Forest:
    """All trees that a node is in, and its neighbours in them.

    Attributes:
        trees: the trees by group.
        parents: the groups in which each neighbour is the parent.
        children: the groups in which each neighbour is a child.
    """

    def __init__(self) -> None:
        self.trees: dict[Group, Tree] = {}
        self.parents: dict[NodeId, dict[Group, None]] = {}
        self.children: dict[NodeId, dict[Group, None]] = {}

    def follow(self, group: Group, parent: NodeId) -> None:
        """Make a node the parent in a group without a parent."""
        self.trees[group].parent = parent
        self.parents.setdefault(parent, {})[group] = None

    def part(self, group: Group) -> NodeId | None:
        """Remove the parent in a group, and return it."""
        tree = self.trees[group]
        parent, tree.parent, tree.depth, tree.is_root = tree.parent, None, None, False
        if parent is not None:
            _discard(self.parents, parent, group)
        return parent

    def adopt(self, group: Group, child: NodeId) -> None:
        self.trees[group].children[child] = None
        self.children.setdefault(child, {})[group] = None

    def dismiss(self, group: Group, child: NodeId) -> None:
        """Remove a child in a group."""
        del self.trees[group].children[child]
        _discard(self.children, child, group)

    def shared_with(self, peer: NodeId) -> tuple[Group, ...]:
        """Return the groups in which a node is parent or child, in rising order."""
        return tuple(sorted({**self.parents.get(peer, {}), **self.children.get(peer, {})}))


def _discard(roles: dict[NodeId, dict[Group, None]], peer: NodeId, group: Group) -> None:
    del roles[peer][group]
    if not roles[peer]:
        del roles[peer]
