"""The driver: a node's clock, timers and links on an asyncio loop."""

import asyncio
from collections.abc import Callable

from peer.core import contract
from peer.core.contract import Effect, Event, Node
from peer.runtime.clock import Clock
from peer.runtime.pool import LinkPool
from peer.runtime.tracefile import TraceFile
from peer.trace import TraceEvent

MAX_TIMER_S = 1.0
"""A longer timer is set again after this time: see ``process.NAP_S``."""


class Driver:
    """Feeds one node with events and carries out its effects, for one of its instances.

    ``feed`` is the only place that calls the node, so recording what it passes is enough to replay the node.

    Args:
        node: the node.
        trace: where trace events go.
        events: trace events by name, counted for the metrics.
        clock: what the node's timers go by.

    Attributes:
        links: the node's connections; whoever makes the driver makes its pool, too.
        node: the node.
    """

    links: LinkPool

    def __init__(self, node: Node, trace: TraceFile, events: dict[str, int], clock: Clock) -> None:
        self._clock = clock
        self._events = events
        self.node = node
        self._trace_file = trace
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._quiet = False
        self._over = False
        self._apply: dict[type[Effect], Callable[..., None]] = {
            contract.Send: lambda effect: self.links.send(effect.peer, effect.frame),
            contract.SendEach: self._send_each,
            contract.Trace: lambda effect: self.trace(effect.event),
            contract.Deliver: lambda effect: None,  # nobody listens; its Trace tells that it happened
            contract.SetTimer: lambda effect: self._set_timer(effect.name, effect.at_ns),
            contract.CancelTimer: lambda effect: self._cancel_timer(effect.name),
            contract.Connect: lambda effect: self.links.table.connect(effect.peer),
            contract.Disconnect: lambda effect: self.links.table.disconnect(effect.peer, effect.reason),
        }

    def feed(self, event: Event) -> None:
        """Give the node an event and carry out what it answers; nothing reaches an instance that has ended."""
        if self._over:
            return
        for effect in self.node.handle(self._clock.now_ns(), event):
            self._apply[type(effect)](effect)

    def _send_each(self, effect: contract.SendEach) -> None:
        for peer in effect.peers:
            self.links.send(peer, effect.frame)

    def quiesce(self) -> None:
        """Fire no more timers and open no more connections; frames are still received and forwarded."""
        self._quiet = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.links.quiesce()

    def stop(self) -> None:
        """The instance has ended; what is left of its links may still be traced."""
        self.quiesce()
        self._over = True

    def trace(self, event: TraceEvent) -> None:
        self._events[event.event] = self._events.get(event.event, 0) + 1
        self._trace_file.write(event)

    def _set_timer(self, name: str, at_ns: int) -> None:
        self._cancel_timer(name)
        if not self._quiet:
            delay_s = min(max(0.0, self._clock.left_s(at_ns)), MAX_TIMER_S)
            self._timers[name] = asyncio.get_running_loop().call_later(delay_s, self._fire, name, at_ns)

    def _cancel_timer(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()

    def _fire(self, name: str, at_ns: int) -> None:
        if self._clock.now_ns() < at_ns:  # not due yet: a long timer's nap, or the loop's milliseconds rounded down
            self._set_timer(name, at_ns)
            return
        del self._timers[name]
        self.feed(contract.TimerFired(name))
