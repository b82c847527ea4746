"""A node's place in the groups' trees: its parent and its children in each."""

from peer.core.contract import NodeId

Group = int


class Tree:
    """A node's place in one group's tree. Without a parent it is the root, or waits to look for one again.

    Attributes:
        parent: the node that was asked to be the parent; ``heard_ns``: when it was, or was last heard from.
        children: in the order in which they came.
        depth: links from the root; None as long as nothing was heard from it.
        is_root: whether this node is the root.
        attempts: how often in a row no parent was found; ``again_ns``: when to look again.
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
    """All trees in which a node stands, and its neighbours in them.

    Attributes:
        trees: by group.
        parents, children: the groups in which each neighbour is one.
    """

    def __init__(self) -> None:
        self.trees: dict[Group, Tree] = {}
        self.parents: dict[NodeId, dict[Group, None]] = {}
        self.children: dict[NodeId, dict[Group, None]] = {}

    def follow(self, group: Group, parent: NodeId) -> None:
        """Take a node for the parent in a group in which there is none."""
        self.trees[group].parent = parent
        self.parents.setdefault(parent, {})[group] = None

    def part(self, group: Group) -> NodeId | None:
        """Have no parent in a group any more; return the one that there was."""
        tree = self.trees[group]
        parent, tree.parent, tree.depth, tree.is_root = tree.parent, None, None, False
        if parent is not None:
            _discard(self.parents, parent, group)
        return parent

    def adopt(self, group: Group, child: NodeId) -> None:
        self.trees[group].children[child] = None
        self.children.setdefault(child, {})[group] = None

    def dismiss(self, group: Group, child: NodeId) -> None:
        """Have a child no more in a group."""
        del self.trees[group].children[child]
        _discard(self.children, child, group)

    def shared_with(self, peer: NodeId) -> tuple[Group, ...]:
        """The groups in which a node is parent or child, rising."""
        return tuple(sorted({**self.parents.get(peer, {}), **self.children.get(peer, {})}))


def _discard(roles: dict[NodeId, dict[Group, None]], peer: NodeId, group: Group) -> None:
    del roles[peer][group]
    if not roles[peer]:
        del roles[peer]
