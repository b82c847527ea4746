"""What the trace events of a node add up to, for its metrics."""

from collections.abc import Mapping, Sequence
from typing import Final

from peer.trace import TraceEvent

_LOGICAL: Final = {"graft": 1, "prune": -1}
"""The changes of a number of logical links by trace events."""


class Counts:
    """The numbers of a node since its process started. A trace file adds the events that it writes (``add``).

    So no frame costs more for being counted; the numbers are behind by the events that the file holds.

    Args:
        events: the events that count from 0, even before there is one.

    Attributes:
        events: trace events by name.
        sent_frames, sent_bytes, received_frames, received_bytes: frames and their bytes by kind.
        logical_links: logical links by topic, of every topic that has had any.
        dropped, rejected: frames that were not sent and connections that were refused, by reason. The pool counts
            them when it happens.
    """

    def __init__(self, events: Mapping[str, int] | None = None) -> None:
        self.events: dict[str, int] = dict(events or {})
        self.sent_frames: dict[int, int] = {}
        self.sent_bytes: dict[int, int] = {}
        self.received_frames: dict[int, int] = {}
        self.received_bytes: dict[int, int] = {}
        self.logical_links: dict[int, int] = {}
        self.dropped: dict[str, int] = {}
        self.rejected: dict[str, int] = {}

    def add(self, events: Sequence[TraceEvent]) -> None:
        """Count trace events."""
        for event in events:
            name = event.event
            self.events[name] = self.events.get(name, 0) + 1
            if name == "send":
                _count_frame(self.sent_frames, self.sent_bytes, event)
            elif name == "receive":
                _count_frame(self.received_frames, self.received_bytes, event)
            elif change := _LOGICAL.get(name):
                for topic in event.topics or ():
                    self.logical_links[topic] = self.logical_links.get(topic, 0) + change


def _count_frame(frames: dict[int, int], sizes: dict[int, int], event: TraceEvent) -> None:
    kind, len_bytes = event.kind, event.len_bytes
    assert kind is not None, "events of frames have their kind"
    assert len_bytes is not None, "events of frames have their length"
    frames[kind] = frames.get(kind, 0) + 1
    sizes[kind] = sizes.get(kind, 0) + len_bytes
