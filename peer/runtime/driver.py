"""The driver: a node's clock, timers and links on an asyncio loop."""

import asyncio
from collections.abc import Callable

from peer.core import contract
from peer.core.contract import Effect, Event, Node
from peer.runtime.clock import Clock
from peer.runtime.pool import ConnectionPool
from peer.runtime.tracefile import TraceFile


class Driver:
    """Feeds one instance of a node with events and carries out its effects.

    Only ``feed`` calls the node, so a recording of the events in ``feed`` suffices to replay the node.

    Args:
        node: the node.
        trace: the file for trace events.
        clock: the clock of the node's timers.

    Attributes:
        links: the node's connections. The code that makes the driver must set it.
        node: the node.
        trace: writes a trace event.
    """

    links: ConnectionPool

    def __init__(self, node: Node, trace: TraceFile, clock: Clock) -> None:
        self._clock = clock
        self.node = node
        self.trace = trace.write
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._quiet = False
        self._over = False
        self._apply: dict[type[Effect], Callable[..., None]] = {
            contract.Send: lambda effect: self.links.send(effect.peer, effect.frame),
            contract.SendEach: lambda effect: self.links.send_each(effect.peers, effect.frame),
            contract.Deliver: lambda effect: None,  # there is no application; a trace event records the delivery
            contract.SetTimer: lambda effect: self._set_timer(effect.name, effect.at_ns),
            contract.CancelTimer: lambda effect: self._cancel_timer(effect.name),
            contract.Connect: lambda effect: self.links.table.connect(effect.peer),
            contract.Disconnect: lambda effect: self.links.table.disconnect(effect.peer, effect.reason),
        }

    def feed(self, event: Event) -> None:
        """Give the node an event and carry out its effects. Do nothing if the instance has ended."""
        if self._over:
            return
        for effect in self.node.handle(self._clock.now_ns(), event):
            if isinstance(effect, contract.Trace):  # the most frequent effect
                self.trace(effect.event)
            else:
                self._apply[type(effect)](effect)

    def quiesce(self) -> None:
        """Stop firing timers and opening connections. The node still receives and forwards frames."""
        self._quiet = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.links.quiesce()

    def stop(self) -> None:
        """End the instance. The ends of its links may still be traced."""
        self.quiesce()
        self._over = True

    def _set_timer(self, name: str, at_ns: int) -> None:
        self._cancel_timer(name)
        if not self._quiet:
            delay_s = max(0.0, self._clock.wait_s(at_ns))
            self._timers[name] = asyncio.get_running_loop().call_later(delay_s, self._fire, name, at_ns)

    def _cancel_timer(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()

    def _fire(self, name: str, at_ns: int) -> None:
        if self._clock.now_ns() < at_ns:  # not due yet: a part of a long timer, or the loop rounded down to ms
            self._set_timer(name, at_ns)
            return
        del self._timers[name]
        self.feed(contract.TimerFired(name))
