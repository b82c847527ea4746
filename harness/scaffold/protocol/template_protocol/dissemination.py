"""How messages spread: each node forwards a new message to a few neighbours."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from peer.core.contract import NodeId
from peer.core.dissemination.spread import MOST_HOPS, Spreading
from peer.core.frames import Data
from peer.core.parts import State, Turn
from peer.core.randomness import substream

SEEN_MESSAGES = 1 << 16
"""Number of latest messages that a node remembers."""


class TemplateProtocolParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """The section ``[template_protocol]`` of an experiment."""

    fanout: Annotated[int, Meta(ge=1)] = 4
    """Most neighbours that a node forwards a new message to."""


class TemplateProtocol(Spreading):
    """Forwards each new message to ``fanout`` neighbours, drawn at random for each message."""

    Parameters = TemplateProtocolParameters
    __slots__ = ("_draws", "_fanout")

    def __init__(self, state: State, parameters: TemplateProtocolParameters) -> None:
        super().__init__(state, SEEN_MESSAGES)
        self._fanout = parameters.fanout
        self._draws = substream(state.seed, state.node, "template-protocol")

    @staticmethod
    def copies_follow_links(parameters: Mapping[str, Any], *, told: bool, several: bool) -> bool:
        """See ``Part``: neighbours announce their subscriptions, so every shared topic is a logical link."""
        return told

    def send_own(self, turn: Turn, copy: Data) -> None:
        self._forward(turn, None, copy)

    def receive_copy(self, turn: Turn, peer: NodeId, copy: Data) -> None:
        if self.take(turn, peer, copy) is not None:
            return  # a duplicate
        self.remember(copy.message_id, copy.topics)
        hops = min(copy.hops + 1, MOST_HOPS)
        self._forward(turn, peer, Data(copy.message_id, copy.topics, hops, copy.ttl, copy.payload))

    def _forward(self, turn: Turn, source: NodeId | None, copy: Data) -> None:
        others = sorted(peer for peer in self.state.neighbours if peer != source)
        turn.send_each(self._draws.sample(others, min(self._fanout, len(others))), copy)
