"""Forwards frames between the devices of hosts.

This is the hot path: it takes no lock, logs nothing and never waits. Reading, writing and the clock are arguments, so
that tests run the same code with a simulated clock.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from harness.planes.pcapng import INBOUND, OUTBOUND
from harness.planes.plane import DROP_CAUSES, Counters
from harness.planes.userspace.capture import CaptureRecorder
from harness.planes.userspace.intake import Burst, Intake
from harness.planes.userspace.lateness import BUCKETS, bucket
from harness.planes.userspace.links import AccessLink, EmulatedNetwork, Pair
from harness.planes.userspace.trips import Part
from topologies.disorder import PairDisorder
from topologies.timeline import Reach

FRAME_BYTES = 65_535
READ_BURST = range(16)
"""Most frames read from a device before the next device is read."""

WRITE_BURST = 64
"""Most due frames written before devices are read again. Reading has priority: a frame should wait here, where its
lateness is known, and not in a device's queue."""

MAX_IN_FLIGHT = 1 << 18
"""Most frames held, about 400 MB of frames of 1,500 bytes; further frames are dropped as ``overload``."""

LATE_NS = 500_000
"""Default limit: each frame that is later than this is recorded."""

Entry = tuple[int, int, Pair | Part, bytes, bool]
"""Due time, ordinal (equal times keep their order), pair, frame, and whether it has passed the destination's link.

A frame on a path with bottlenecks or disorder has the part of the path that it passes, instead of the pair."""


class Forwarder:
    """Reads frames, holds them until they are due, and writes them."""

    def __init__(
        self,
        network: EmulatedNetwork,
        clock: Callable[[], int],
        read: Callable[[int, int], bytes],
        write: Callable[[int, bytes], int],
        frame_bytes: int = FRAME_BYTES,
        late_ns: int = LATE_NS,
    ) -> None:
        """Begin without frames.

        Args:
            network: the hosts.
            clock: returns the current instant in ns.
            read: reads a packet from a device.
            write: writes a packet to a device.
            frame_bytes: length of the longest frame.
            late_ns: each frame that is later than this is recorded.
        """
        self.network = network
        self.recorder: CaptureRecorder | None = None
        self.histogram = [0] * BUCKETS
        self.lateness_max_ns = self.frames_late = 0
        self.late: list[Burst] = []
        self.intake = Intake(late_ns)
        self.drops = dict.fromkeys(DROP_CAUSES, 0)
        self.frames_in = self.frames_out = self.bytes_in = self.bytes_out = self.frames_doubled = 0
        self._clock, self._read, self._write = clock, read, write
        self._frame_bytes, self._late_ns = frame_bytes, late_ns
        self._held: list[Entry] = []
        self._ordinal = 0

    @property
    def next_due_ns(self) -> int | None:
        """Return when the next frame is due; None if none is held."""
        return self._held[0][0] if self._held else None

    def counters(self) -> Counters:
        return Counters(
            self.frames_in,
            self.frames_out,
            self.bytes_in,
            self.bytes_out,
            dict(self.drops),
            len(self._held),
            self.frames_doubled,
        )

    def take_in(self, link: AccessLink) -> bool:
        """Read a burst from a host's device; return whether the device is empty.

        Raises:
            OSError: the device is gone.
        """
        read, clock, device, frame_bytes = self._read, self._clock, link.device, self._frame_bytes
        recorder = self.recorder
        now_ns = frames = 0
        drained = False
        for frames in READ_BURST:  # noqa: B007 - the number of frames read so far
            try:
                frame = read(device, frame_bytes)
            except BlockingIOError:
                drained = True
                break
            now_ns = clock()
            self.frames_in += 1
            self.bytes_in += len(frame)
            if not self._admit(now_ns, link, frame) and recorder:
                recorder.add(link.host, OUTBOUND, now_ns, frame)
        else:
            frames += 1
        if frames:
            self.intake.count(link, frames, now_ns, drained)
        return drained

    def _admit(self, now_ns: int, link: AccessLink, frame: bytes) -> bool | None:
        """Compute when a frame is due, or drop it; return whether a cut kept it from entering the network."""
        if frame[0] & 0xF0 != 0x40:
            self.drops["not_ip"] += 1
            return None
        pair = link.route[frame[16:20]]
        if pair.dead_end:
            self.drops[pair.dead_end] += 1
            return pair.dead_end == "cut"
        read_ns = now_ns
        if link.limited:
            wait_ns = link.up_free_ns - now_ns
            if wait_ns > link.up_queue_ns:
                self.drops["queue"] += 1
                return None
            now_ns += int(len(frame) * link.up_byte_ns) + (wait_ns if wait_ns > 0 else 0)
            link.up_free_ns = now_ns
        delay_ns: int | None = pair.delay_ns
        if pair.uneven:
            first = pair.first
            if first is not None:
                if pair.disorder is not None:
                    first = self._disorder(pair.disorder, pair, read_ns, now_ns, frame)
                self._enter(first, now_ns, frame)
                return None
            delay_ns = pair.draw_delay_ns(self.network.draws, now_ns)
        if delay_ns is None:
            self.drops["loss"] += 1
            return None
        due_ns = now_ns + delay_ns
        if due_ns < pair.last_due_ns:
            due_ns = pair.last_due_ns
        pair.last_due_ns = due_ns
        held = self._held
        if len(held) >= MAX_IN_FLIGHT:
            self.drops["overload"] += 1
            return None
        self._ordinal += 1
        heappush(held, (due_ns, self._ordinal, pair, frame, False))
        return None

    def _disorder(self, disorder: PairDisorder, pair: Pair, read_ns: int, now_ns: int, frame: bytes) -> Part:
        """Return the part that a frame enters first. If the frame is to arrive twice, the other one enters it here."""
        is_doubled, is_overtaken = disorder.choose(read_ns)
        part = pair.overtaken if is_overtaken else pair.first
        assert part is not None, "a pair with disorder has both"
        if is_doubled:
            self.frames_doubled += 1
            self._enter(part, now_ns, frame)
        return part

    def _enter(self, part: Part, now_ns: int, frame: bytes) -> None:
        """Let a frame enter a part of a path with bottlenecks or disorder, or drop it."""
        passed_ns, held = part.pass_ns(self.network.draws, now_ns), self._held
        if passed_ns is None or len(held) >= MAX_IN_FLIGHT:
            self.drops["loss" if passed_ns is None else "overload"] += 1
            return
        self._ordinal += 1
        heappush(held, (passed_ns, self._ordinal, part, frame, False))

    def let_out(self) -> None:
        held, clock, write, histogram, recorder = self._held, self._clock, self._write, self.histogram, self.recorder
        late_ns, late, first_due_ns, last_ns = self._late_ns, 0, 0, 0
        end_ns = clock()
        for _ in range(WRITE_BURST):
            if not held or held[0][0] > end_ns:
                break
            due_ns, _, pair, frame, at_exit = heappop(held)
            link = pair.destination
            if (link.limited or pair.ahead) and not at_exit:
                self._queue(due_ns, pair, frame)
                continue
            now_ns = clock()
            try:
                write(link.device, frame)
            except OSError:
                self.drops["device_full"] += 1
                continue
            lateness_ns = now_ns - due_ns
            square = lateness_ns * lateness_ns
            histogram[(square * square).bit_length()] += 1
            if lateness_ns > late_ns:
                late += 1
                first_due_ns, last_ns = first_due_ns or due_ns, now_ns
            if lateness_ns > self.lateness_max_ns:
                self.lateness_max_ns = lateness_ns
            self.frames_out += 1
            self.bytes_out += len(frame)
            if recorder:
                recorder.add(link.host, INBOUND, now_ns, frame)

        if late:
            self.frames_late += late
            self.late.append((first_due_ns, last_ns, late))

    def _queue(self, arrival_ns: int, pair: Pair | Part, frame: bytes) -> None:
        """Put a frame into the queue ahead at the time at which it was due there."""
        if pair.ahead is None:
            self._queue_down(arrival_ns, pair, frame)
            return
        queue, following = pair.ahead
        left_ns = queue.send(arrival_ns, len(frame))
        if left_ns is None:
            self.drops["queue"] += 1
        else:
            self._enter(following, left_ns, frame)

    def _queue_down(self, arrival_ns: int, pair: Pair | Part, frame: bytes) -> None:
        """Put a frame into the destination's access queue at the time at which it was due there."""
        link = pair.destination
        wait_ns = link.down_free_ns - arrival_ns
        if wait_ns > link.down_queue_ns:
            self.drops["queue"] += 1
            return
        due_ns = arrival_ns + int(len(frame) * link.down_byte_ns) + (wait_ns if wait_ns > 0 else 0)
        link.down_free_ns = due_ns
        self._ordinal += 1
        heappush(self._held, (due_ns, self._ordinal, pair, frame, True))

    def reach_links(self, until_ns: int) -> None:
        """Let the frames that are due at a queue until an instant meet it as it is now; write none."""
        held, passed = self._held, []
        while held and held[0][0] <= until_ns:
            due_ns, ordinal, pair, frame, at_exit = heappop(held)
            if (pair.destination.limited or pair.ahead) and not at_exit:
                self._queue(due_ns, pair, frame)
            else:
                passed.append((due_ns, ordinal, pair, frame, True))
        for entry in passed:
            heappush(held, entry)

    def drop_in_flight(self, change: Reach) -> None:
        """Drop the frames that are on the links of the pairs that a change reaches, not those that have passed them."""
        held = self._held
        kept = [
            entry
            for entry in held
            if entry[4] or not change.reaches_pair(entry[2].source.host, entry[2].destination.host)
        ]
        self.drops["cut_in_flight"] += len(held) - len(kept)
        heapify(kept)
        held[:] = kept

    def note_lateness(self, lateness_ns: int) -> None:
        """Count a lateness of the loop that ends now and delayed no frame."""
        now_ns = self._clock()
        if lateness_ns > self._late_ns:
            self.frames_late += 1
            self.late.append((now_ns - lateness_ns, now_ns, 1))
        self.histogram[bucket(lateness_ns)] += 1
        self.lateness_max_ns = max(self.lateness_max_ns, lateness_ns)
