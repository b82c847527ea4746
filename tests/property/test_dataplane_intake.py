"""The bounds of frames' waits against the waits themselves, on a simulated clock and a loop like the data plane's."""

from collections import deque
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from harness.planes.userspace.intake import AT_ONCE_NS, LOOK_NS, PROMPT_NS, Intake
from harness.planes.userspace.lateness import bucket, upper_bound_ns
from harness.planes.userspace.links import AccessLink

LATE_NS = 500_000
BURST = 3
AT_ONCE = 2
"""Devices that a poll lists at most."""


@dataclass
class Loop:
    """Reads frames that come by themselves at given instants. Every step takes a time that the test draws."""

    arrivals: list[tuple[int, int]]
    steps: list[int]
    hosts: int = 4
    now_ns: int = 0
    waits: list[tuple[int, int]] = field(default_factory=list)
    """Of every burst the longest real wait, and the bucket of the bound."""

    def __post_init__(self) -> None:
        self.links = [AccessLink(host, host) for host in range(self.hosts)]
        self.coming = deque(sorted(self.arrivals))
        self.queues: list[deque[int]] = [deque() for _ in self.links]
        self.turn = 0
        self.intake = Intake(LATE_NS)

    def take(self, step_ns: int | None = None) -> None:
        """Let time pass."""
        self.turn += 1
        self.now_ns += self.steps[self.turn % len(self.steps)] if step_ns is None else step_ns
        while self.coming and self.coming[0][0] <= self.now_ns:
            at_ns, host = self.coming.popleft()
            self.queues[host].append(at_ns)

    def run(self) -> None:
        """Until all frames are read."""
        while self.coming or any(self.queues):
            self.intake.looked_ns = looked_ns = self.now_ns
            waiting = [host for host, queue in enumerate(self.queues) if queue]
            first = self.turn % len(waiting) if waiting else 0
            ready = [*waiting[first:], *waiting[:first]][:AT_ONCE]
            all_seen = all_drained = len(ready) < AT_ONCE
            self.take()
            for host in ready:
                all_drained &= self.read(host)
            if all_seen:
                self.intake.empty_ns = looked_ns
            self.take()
            if all_drained:
                self.sleep()

    def read(self, host: int) -> bool:
        """A burst; whether nothing is left."""
        queue, read_ns, earliest_ns, frames = self.queues[host], 0, self.queues[host][0], 0
        while queue and frames < BURST:
            queue.popleft()
            frames += 1
            self.take()
            read_ns = self.now_ns
        before = list(self.intake.histogram)
        self.intake.count(self.links[host], frames, read_ns, frames < BURST)
        [(index, grown)] = [
            (index, count - before[index]) for index, count in enumerate(self.intake.histogram) if count > before[index]
        ]
        assert grown == frames
        self.waits.append((read_ns - earliest_ns, index))
        return frames < BURST

    def sleep(self) -> None:
        """Until a frame comes or for the longest time. Waking takes a step, but not where a frame was there before."""
        slept_ns, until_ns = self.now_ns, self.now_ns + LOOK_NS
        if any(self.queues):
            self.take(AT_ONCE_NS // 2)
        else:
            comes_ns = self.coming[0][0] if self.coming else until_ns
            self.take(min(comes_ns, until_ns) - self.now_ns)
            self.take()
        self.intake.wake(slept_ns, until_ns, self.now_ns, by_frame=any(self.queues))


instants = st.lists(st.tuples(st.integers(1, 20_000_000), st.integers(0, 3)), min_size=1, max_size=40)


@given(instants, st.lists(st.integers(1, 3_000_000), min_size=1, max_size=7))
def test_no_wait_is_above_its_bound_but_for_what_a_wake_up_hides(
    arrivals: list[tuple[int, int]], steps: list[int]
) -> None:
    loop = Loop(arrivals, steps)
    loop.run()
    assert sum(loop.intake.histogram) == len(arrivals)
    for waited_ns, index in loop.waits:
        assert waited_ns < upper_bound_ns(index) + LOOK_NS + PROMPT_NS


@given(instants, st.integers(1, 1000))
def test_a_loop_that_keeps_up_has_small_bounds(arrivals: list[tuple[int, int]], step_ns: int) -> None:
    """Every device of the few is drained a few steps after a frame came; only a burst's length and a round count."""
    loop = Loop(arrivals, [step_ns])
    loop.run()
    most_frames = max(sum(1 for other, _ in arrivals if abs(other - at) < 1_000_000) for at, _ in arrivals)
    assert loop.intake.waited_max_ns <= (4 + 4 * most_frames) * 4 * step_ns + AT_ONCE_NS
    assert loop.intake.frames_waited == 0 or loop.intake.waited_max_ns > LATE_NS


def test_every_frame_read_after_a_stop_is_counted() -> None:
    """Ten frames came while the loop did not run: each has the bound, not only one sample."""
    loop = Loop([(1_000, host % 4) for host in range(10)], [10_000_000])
    loop.run()
    assert loop.intake.frames_waited == 10
    assert sum(frames for _, _, frames in loop.intake.bursts) == 10
    assert all(read_ns - empty_ns > LATE_NS for empty_ns, read_ns, _ in loop.intake.bursts)
    assert loop.intake.waited_max_ns >= 10_000_000


def test_a_device_that_is_never_drained_waits_since_it_was_empty() -> None:
    intake, link = Intake(LATE_NS), AccessLink(0, 0)
    intake.empty_ns = 1_000
    for look_ns in (2_000, 1_000_000, 2_000_000):
        intake.looked_ns = look_ns
        intake.count(link, 3, look_ns + 500, False)
        intake.empty_ns = look_ns
    assert intake.bursts == [(1_000, 1_000_500, 3), (1_000, 2_000_500, 3)]
    for look_ns in (3_000_000, 3_200_000):
        intake.looked_ns = look_ns
        intake.count(link, 1, look_ns + 100, True)
        intake.empty_ns = look_ns
    assert intake.histogram[bucket(200_000)] == 1
