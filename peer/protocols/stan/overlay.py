"""StAN: one random overlay per topic, aligned so that the overlays share physical links."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any

from peer.core.bitset import Bitset, members, sample
from peer.core.contract import Directory, NodeId, TopicId
from peer.core.directory import NOTHING
from peer.core.frames import Frame
from peer.core.membership.interface import Membership
from peer.core.observed_links import ObservedLinks
from peer.core.parts import Part, State, Turn
from peer.core.randomness import substream
from peer.protocols.stan.aligned_views import NOBODY, AlignedViews
from peer.protocols.stan.frames import StanCollect, StanQuit, StanReply, StanRide
from peer.protocols.stan.observed_links import RidingTopics
from peer.protocols.stan.parameters import PlacedStanParameters

WALK = "overlay/walk"

UNUSED = "unused"
"""The reason with which a node closes a link that neither side uses, as far as the node knows."""

MOST_WALKS = 16
"""Most walks of a topic that await their answers at a time. A lost walk gets no answer."""

MOST_DIALS = 2
"""Most links that a node opens in a period to answer an originator's walks in a topic. An honest one has one walk."""

_parse_members: Callable[[str], Bitset] = lru_cache(1 << 12)(lambda digits: int(digits, 16))
_name_members: Callable[[Bitset], frozenset[NodeId]] = lru_cache(1 << 9)(lambda bits: frozenset(members(bits)))
"""The two functions cache their results, so that the nodes of a process share equal lists."""


class Stan(Part):
    """Keeps a directed view for each topic, and replaces its members by the nodes that weigh least for this node.

    The weight of a node is a hash of this node's name and the other node's, and is the same in all topics. So the
    overlays share more and more neighbours. But the behaviour of a node in one overlay does not depend on its other
    topics and does not disclose them.

    A physical link carries any number of topics of both ends' views. Each end tells the other which of its views use
    the link (``StanRide``), and the link closes when none does. A link that was only opened to answer a walk carries no
    topic, so it closes after the answer. The logical links of a node are the members of its own views.

    A node that is not in the list of a topic's subscribers, or that unsubscribed, is a *stranger* in that topic. A
    stranger gets no answer, no walk and no message on the topic. This node refuses its messages on the topic, and it
    changes no view. Any frame of a stranger has the same effects whether this node subscribes to the topic or not. This
    node ignores strangers in walks and answers.

    Attributes:
        views: this node's views.
        replies: the answers that wait for a link to their originator, by originator and topic.

    Source: StAN section 2.1, Listing 1; the list and its consequences are ours.
    """

    Parameters = PlacedStanParameters
    frames = (StanCollect, StanReply, StanRide, StanQuit)
    writes = frozenset({"forwards", "logical", "brief", "admits"})
    __slots__ = (
        "_around",
        "_awaited",
        "_dials",
        "_draws",
        "_lists",
        "_lost",
        "_membership",
        "_parameters",
        "_period_ns",
        "_postponed",
        "_reopened",
        "_riders",
        "_subscribers",
        "_used",
        "replies",
        "views",
    )

    def __init__(self, state: State, membership: Membership, parameters: PlacedStanParameters) -> None:
        super().__init__(state)
        self.views = AlignedViews(state.node, [given for given in parameters.views if given[0] in state.topics])
        self._membership = membership
        self._parameters = parameters
        self._period_ns = round(parameters.period_s * 1e9)
        self._draws = substream(state.seed, state.node, "overlay")
        self._used: dict[NodeId, tuple[TopicId, ...]] = {}
        self._riders: dict[NodeId, tuple[TopicId, ...]] = {}
        self._around: dict[TopicId, tuple[NodeId, ...]] = {}  # valid results of _linked
        self.replies: dict[NodeId, dict[TopicId, StanReply]] = {}
        self._lost: set[NodeId] = set()
        self._dials: dict[tuple[NodeId, TopicId], int] = {}  # in this period, to answer an originator in a topic
        self._reopened: set[NodeId] = set()  # redialled in this period, since they closed the link as unused
        self._postponed: set[NodeId] = set()  # to be redialled in the next period
        self._awaited: dict[TopicId, int] = {}  # number of own walks without an answer yet
        self._lists: dict[TopicId, Bitset] = {}
        self._subscribers: dict[TopicId, frozenset[NodeId]] = {}  # the same as sets, for fast access
        for topic, digits in parameters.members:
            self._list(topic, _parse_members(digits))
        self.write(admits=self._is_subscriber)

    @staticmethod
    def observe_links(parameters: Mapping[str, Any]) -> type[ObservedLinks]:
        return RidingTopics

    @staticmethod
    def ask_interests(node: NodeId, topics: tuple[TopicId, ...]) -> Iterator[Frame]:
        """Yield frames that claim that the receiver is in the views of all topics, and a walk that ends in each."""
        yield StanRide(topics)
        for topic in topics:
            yield StanCollect(node, topic, 0, ())
            yield StanReply(topic, (node,))

    # --------------------------------------------------------------------------------------------------- topics

    def start(self, turn: Turn) -> None:
        """Begin walks at a random instant within every period."""
        turn.set_timer(WALK, turn.now_ns + self._draws.randrange(self._period_ns))

    def meet(self, turn: Turn, directory: Directory) -> None:
        """Open the links of the views. Create missing views if the bootstrap service discloses members."""
        for topic in sorted(self.state.topics):
            self._enter(topic)
        self._settle(turn)

    def subscribe(self, turn: Turn, topic: TopicId) -> None:
        """Enter a topic's overlay, if its members are disclosed."""
        if not self._enter(topic):
            turn.trace("reject", topics=(topic,), reason="no_members_known")
        self._settle(turn)

    def unsubscribe(self, turn: Turn, topic: TopicId) -> None:
        """Leave a topic's overlay, and tell the nodes that have this node in their view."""
        self.views.end(topic)
        self._awaited.pop(topic, None)
        for peer, topics in self._riders.items():
            if topic in topics:
                turn.send(peer, StanQuit((topic,)))
                self._riders[peer] = _without(topics, (topic,))
                self._relink(turn, peer)
        self._settle(turn)

    def _enter(self, topic: TopicId) -> bool:
        """Draw a first view of a topic from the disclosed members. Return whether there is a view.

        A view that is empty, because no other node subscribed when it was drawn, is drawn again.
        """
        known = self._membership.subscribers(topic)
        if known:
            self._list(topic, self._lists.get(topic, 0) | known)
        if known and self.views.is_empty(topic):
            size = max(1, round(self._parameters.degree_factor * math.log(known.bit_count() + 1)))
            self.views.begin(topic, members(sample(known, size, self._draws)))
        return topic in self.views

    def _is_subscriber(self, node: NodeId, topic: TopicId) -> bool:
        """Return whether a node is in the topic's list. A topic without a list has no subscribers."""
        return node in self._subscribers.get(topic, NOBODY)

    def _list(self, topic: TopicId, subscribers: Bitset) -> None:
        """Replace the list of a topic by these nodes."""
        self._lists[topic] = subscribers
        self._subscribers[topic] = _name_members(subscribers)

    # ---------------------------------------------------------------------------------------------------- walks

    def fire(self, turn: Turn, name: str) -> None:
        """Begin a walk in every topic. Source: StAN Listing 1, lines 1-3."""
        turn.set_timer(WALK, turn.now_ns + self._period_ns)
        self._dials.clear()
        self._reopen_postponed(turn)
        for topic in self.views.topics:
            if (target := self._step(topic)) is not None:
                self._awaited[topic] = min(self._awaited.get(topic, 0) + 1, MOST_WALKS)
                turn.send(target, StanCollect(self.state.node, topic, self._parameters.walk_ttl, ()))
            elif not self.views.present(topic):
                self._try_again(turn, topic)

    def _try_again(self, turn: Turn, topic: TopicId) -> None:
        """Redial the members of a view that were lost without unsubscribing, since all members are gone."""
        lost = [peer for peer in self.views[topic] if peer in self._lost and self._is_subscriber(peer, topic)]
        back = [peer for peer in lost if self.views.trust(peer, (topic,))]
        if back:
            self._settle(turn)

    def _linked(self, topic: TopicId) -> tuple[NodeId, ...]:
        """Return the linked members of a view, in rising order."""
        linked = self._around.get(topic)
        if linked is None:
            neighbours = self.state.neighbours
            linked = tuple([peer for peer in self.views.present(topic) if peer in neighbours])
            self._around[topic] = linked
        return linked

    def _forget_linked(self, topics: tuple[TopicId, ...]) -> None:
        """Forget the linked members of these topics' views after a change."""
        for topic in topics:
            self._around.pop(topic, None)

    def _step(self, topic: TopicId) -> NodeId | None:
        """Return a random linked member of the view, or if there is none, a node with this node in its view."""
        around = self._linked(topic) or [peer for peer, topics in self._riders.items() if topic in topics]
        return self._draws.choice(around) if around else None

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        match frame:
            case StanCollect() | StanReply():
                if (reason := self._objection(peer, frame)) is not None:
                    turn.trace("reject", peer=peer, kind=frame.kind, reason=reason)
                elif isinstance(frame, StanCollect):
                    self._walk_on(turn, frame)
                else:
                    self._awaited[frame.topic] -= 1
                    self._align(turn, frame.topic, self._listed(frame))
            case StanRide():
                self._take_ride(turn, peer, frame.topics)
            case StanQuit():
                self._take_quit(turn, peer, frame.topics)

    def _objection(self, peer: NodeId, frame: StanCollect | StanReply) -> str | None:
        """Return why a walk or an answer is refused; None if it is accepted."""
        subscribers = self._subscribers.get(frame.topic, NOBODY)
        if peer not in subscribers:
            return "stranger"
        if frame.topic not in self.views:
            return "not_subscribed"
        if isinstance(frame, StanReply):
            return None if self._awaited.get(frame.topic) else "unasked"
        if frame.origin not in subscribers:
            return "stranger"
        return "walk_too_long" if frame.ttl > self._parameters.walk_ttl else None

    def _listed(self, frame: StanCollect | StanReply) -> tuple[NodeId, ...]:
        """Return the nodes of a walk or an answer that are not strangers."""
        subscribers = self._subscribers[frame.topic]
        if subscribers.issuperset(frame.nodes):
            return frame.nodes
        return tuple([node for node in frame.nodes if node in subscribers])

    def _walk_on(self, turn: Turn, walk: StanCollect) -> None:
        """Add this node's view to a walk, and forward the walk or end it.

        A node adds only linked members of its view. So only nodes that notice the end of a link themselves name a node
        that is gone, and its id disappears.

        Source: StAN Listing 1, lines 5-14; line 8 adds nodeId, as in the text, unless ``literal``.
        """
        topic, listed = walk.topic, self._listed(walk)
        if self._parameters.learn_from_walks:
            self._align(turn, topic, (walk.origin, *listed))
        nodes = {*listed, self.state.node}
        if not self._parameters.literal:
            nodes.update(self._linked(topic))
        collected = tuple(sorted(nodes))
        target = self._step(topic) if walk.ttl > 0 else None
        if target is not None:
            turn.send(target, StanCollect(walk.origin, topic, walk.ttl - 1, collected))
        elif walk.origin == self.state.node and self._awaited.get(topic):
            self._awaited[topic] -= 1
            self._align(turn, topic, collected)
        elif walk.origin == self.state.node:
            turn.trace("reject", kind=walk.kind, reason="unasked")
        else:
            self._reply(turn, walk.origin, StanReply(topic, collected))

    def _reply(self, turn: Turn, origin: NodeId, reply: StanReply) -> None:
        """Answer the originator directly, if necessary over a new link, with one answer per topic.

        ``MOST_DIALS`` bounds how often a node that names an originator again and again makes this node dial it.

        Args:
            turn: the present turn.
            origin: the originator.
            reply: the answer.
        """
        if origin in self.state.neighbours:
            turn.send(origin, reply)
            return
        if origin not in self.replies:
            dials = self._dials.get((origin, reply.topic), 0)
            if dials == MOST_DIALS:
                turn.trace("reject", peer=origin, kind=StanCollect.kind, reason="too_many_walks")
                return
            self._dials[origin, reply.topic] = dials + 1
            turn.connect(origin)
        self.replies.setdefault(origin, {})[reply.topic] = reply

    def _align(self, turn: Turn, topic: TopicId, nodes: tuple[NodeId, ...]) -> None:
        if self.views.align(topic, nodes):
            self._settle(turn)

    # ---------------------------------------------------------------------------------------------------- links

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        """Send the answers that waited for the link, and tell the neighbour which topics use the link."""
        self._lost.discard(peer)
        self._forget_linked(self._used.get(peer, ()))
        for reply in self.replies.pop(peer, {}).values():
            turn.send(peer, reply)
        if peer in self._used or self.state.neighbours[peer].outbound:
            self._announce(turn, peer)
        else:
            self.write(peer, brief=True)  # until a view of either side needs it

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Redial a node whose link is still used, or note that it is gone."""
        self._riders.pop(peer, None)
        self._forget_linked(self._used.get(peer, ()))
        if retrying and peer not in self._used and peer not in self.replies:
            turn.disconnect(peer, UNUSED)
        if retrying:
            return
        self.replies.pop(peer, None)
        if peer in self._used and reason == UNUSED:
            self._reopen(turn, peer)  # the peer did not know yet that the link is used
        elif peer in self._used:
            self._lost.add(peer)
            self._part(turn, peer, self._used[peer])

    def _reopen(self, turn: Turn, peer: NodeId) -> None:
        """Redial a node: at once the first time in a period, otherwise in the next period."""
        if peer in self._reopened:
            self._postponed.add(peer)
        else:
            self._reopened.add(peer)
            turn.connect(peer)

    def _reopen_postponed(self, turn: Turn) -> None:
        """Open the links that waited for a new period and are still used."""
        postponed, self._postponed, self._reopened = self._postponed, set(), set()
        for peer in sorted(postponed):
            if peer in self._used and peer not in self.state.neighbours:
                self._reopen(turn, peer)

    def _settle(self, turn: Turn) -> None:
        """Update the links for the views: open and close links, and tell the neighbours which topics use them."""
        changes = []
        for peer in self.views.take_moved():
            before, topics = self._used.pop(peer, ()), self.views.topics_of(peer)
            if topics:
                self._used[peer] = topics
            if topics != before:
                self._forget_linked((*before, *topics))
                changes.append((not topics, (topics or before)[0], peer, not before))
        for is_unused, _, peer, is_new in sorted(changes):
            if is_new:
                turn.connect(peer)
            if peer in self.state.neighbours:
                self._announce(turn, peer)
            elif is_unused and peer not in self.replies:
                turn.disconnect(peer, UNUSED)

    def _announce(self, turn: Turn, peer: NodeId) -> None:
        """Tell a neighbour which topics use its link. It closes a link that neither side uses."""
        turn.send(peer, StanRide(self._used.get(peer, ())))
        self._relink(turn, peer)

    def _take_ride(self, turn: Turn, peer: NodeId, topics: tuple[TopicId, ...]) -> None:
        """Note the topics with which a neighbour uses the link. Close the link if neither side uses it.

        A node tells only nodes that may know of its former subscription to a topic that it ended.

        Args:
            turn: the present turn.
            peer: the neighbour.
            topics: the topics.
        """
        shared = tuple(dict.fromkeys([topic for topic in topics if self._is_subscriber(peer, topic)]))
        if left := tuple([topic for topic in shared if topic not in self.state.topics]):
            turn.send(peer, StanQuit(left))  # the peer has an old view
        self._riders[peer] = _without(shared, left)
        if self.views.trust(peer, shared):
            self._settle(turn)
        self._relink(turn, peer)
        if not topics and peer not in self._used:
            turn.disconnect(peer, UNUSED)

    def _take_quit(self, turn: Turn, peer: NodeId, topics: tuple[TopicId, ...]) -> None:
        """Make a node that unsubscribed a stranger in these topics until the bootstrap service lists it again.

        Args:
            turn: the present turn.
            peer: the node.
            topics: the topics.
        """
        for topic in topics:
            if self._is_subscriber(peer, topic) and not self._membership.subscribers(topic) >> peer & 1:
                self._list(topic, self._lists[topic] & ~(1 << peer))
        self._riders[peer] = _without(self._riders.get(peer, ()), topics)
        self._part(turn, peer, topics)
        self._relink(turn, peer)

    def _part(self, turn: Turn, peer: NodeId, topics: tuple[TopicId, ...]) -> None:
        """Note that a node is gone from these topics."""
        if self.views.miss(peer, topics):
            self._settle(turn)

    def _relink(self, turn: Turn, peer: NodeId) -> None:
        """Set the logical links to this node's views, and the forwarded topics, which may include the neighbour's."""
        own, riders = self._used.get(peer, ()), self._riders.get(peer, ())
        riding = riders if self._parameters.both_directions else ()
        forwards = frozenset((*riding, *own)) if riding or own else NOTHING
        self.write(peer, forwards=forwards, brief=not own and not riders)
        self.set_logical(turn, peer, own, "aligned")


def _without(topics: tuple[TopicId, ...], others: Collection[TopicId]) -> tuple[TopicId, ...]:
    return tuple([topic for topic in topics if topic not in others]) if others else topics
