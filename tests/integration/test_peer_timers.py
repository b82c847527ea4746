"""A node's timers, at the clock's own speed and slowed down."""

import asyncio
import time
from pathlib import Path

import pytest

from peer.core.contract import Effect, Event, SetTimer, Started, TimerFired
from peer.core.randomness import substream
from peer.runtime.addresses import AddressBook
from peer.runtime.clock import Clock
from peer.runtime.driver import Driver
from peer.runtime.pool import ConnectionPool
from peer.runtime.tracefile import TraceFile
from tests.event_loop import LIMIT_S, run

DELAY_NS = 20_000_000


class Sleeper:
    """A node that sets one timer, and keeps the instants at which it did and at which it fired."""

    def __init__(self) -> None:
        self.instants: list[int] = []
        self.fired = asyncio.Event()

    def handle(self, now_ns: int, event: Event) -> list[Effect]:
        self.instants.append(now_ns)
        if isinstance(event, TimerFired):
            self.fired.set()
            return []
        return [SetTimer("test/nap", now_ns + DELAY_NS)]


@pytest.mark.parametrize("dilation", [1, 12.5, 80])
def test_a_timer_fires_at_its_virtual_instant_and_as_much_later_in_real_time(dilation: float, tmp_path: Path) -> None:
    clock = Clock(dilation)

    async def scenario() -> None:
        node = Sleeper()
        trace = TraceFile(tmp_path / "0.jsonl", 0, (), clock.now_ns())
        driver = Driver(node, trace, clock)
        book = AddressBook((("127.0.0.1", 1),))
        driver.links = ConnectionPool(driver, 0, 7, book, "127.0.0.1", 1, substream(1, 0, "runtime"), None, clock)
        before_s = time.monotonic()
        driver.feed(Started())
        async with asyncio.timeout(LIMIT_S):
            await node.fired.wait()
        took_s = time.monotonic() - before_s
        trace.close(clock.now_ns())
        set_ns, fired_ns = node.instants
        assert fired_ns >= set_ns + DELAY_NS
        assert took_s >= clock.real_s(DELAY_NS / 1e9) - 1e-6

    run(scenario)
