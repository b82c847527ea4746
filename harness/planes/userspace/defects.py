"""Deliberate defects, for tests and benchmarks of the checks that find them. No run of an experiment has one."""

import contextlib
import os
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from harness.planes.userspace.forwarder import READ_BURST, Forwarder
from harness.planes.userspace.links import AccessLink, EmulatedNetwork, Pair
from topologies.network import Network
from topologies.timeline import Reach

_TCP, _UDP = b"\x06", b"\x11"


class LateFirsts(Struct, frozen=True, tag=True):
    """A defect that delays first frames.

    Attributes:
        of: ``pairs``: the first frame of each directed pair; ``hosts``: the first frame that each host sends.
        late_ms: the delay in virtual ms.
        every: n = only every n-th pair or host has the defect, in order of their first frames.
    """

    of: Literal["pairs", "hosts"]
    late_ms: float = 1.5
    every: int = 1


class Firsts:
    """The first frames that the defect delays."""

    def __init__(self, defect: LateFirsts) -> None:
        self._defect = defect
        self._met: set[int | tuple[int, int]] = set()

    def extra_ns(self, source: int, destination: int) -> int:
        """Return the delay of this frame between the two hosts."""
        key = source if self._defect.of == "hosts" else (source, destination)
        if key in self._met:
            return 0
        self._met.add(key)
        return 0 if len(self._met) % self._defect.every else round(self._defect.late_ms * 1e6)


class LateFirstsNetwork(EmulatedNetwork):
    """A network with that defect. Only first frames look up their route, so later ones cost nothing."""

    def __init__(self, network: Network, seed: int, defect: LateFirsts) -> None:
        super().__init__(network, seed)
        self._firsts = Firsts(defect)

    def connect(self, source: int, address: bytes) -> Pair:
        """Return the pair of a frame without a known route. Forget a delayed pair, so its next frame is not late."""
        pair = super().connect(source, address)
        if pair.dead_end:
            return pair
        destination = pair.destination.host
        extra_ns = self._firsts.extra_ns(source, destination)
        if extra_ns:
            pair.delay_ns += extra_ns
            self._forget(source, destination)
        return pair


class HiddenDefect(Struct, frozen=True, tag=True):
    """A defect at the hosts' devices that the data plane's own record does not show.

    Attributes:
        at: ``read``: between the device and the data plane's record that it has read a frame; ``write``: between its
            record that it has written a frame and the device.
        late_ms: how long each frame waits there, in virtual ms.
        drop_every: n = every n-th frame vanishes there, of each host; 0 = none does.
    """

    at: Literal["read", "write"]
    late_ms: float = 0.0
    drop_every: int = 0


class UnaskedDrops(Struct, frozen=True, tag=True):
    """A defect that drops TCP packets, and counts them under a cause for which no experiment asks.

    Attributes:
        cause: one of ``plane.DROP_CAUSES``.
        every: n = every n-th packet that was read is dropped.
    """

    cause: str
    every: int


class UnaskedCopies(Struct, frozen=True, tag=True):
    """A defect that lets UDP packets arrive twice, and counts them as if a fault had asked for it.

    Attributes:
        every: n = every n-th packet that was read arrives twice.
    """

    every: int


class WrongRates(Struct, frozen=True, tag=True):
    """A defect that applies other access rates than those that the scheduled changes ask for.

    Attributes:
        factor: of the rate that is asked for; 0 = the change of the rate is not applied.
    """

    factor: float


class WrongRatesNetwork(EmulatedNetwork):
    """A network with that defect."""

    def __init__(self, network: Network, seed: int, defect: WrongRates) -> None:
        super().__init__(network, seed)
        self._factor = defect.factor

    def change(self, changes: tuple[Reach, ...]) -> None:
        """Let these changes hold, with other rates."""
        wrong = (replace(each.change, rate_mbit=each.change.rate_mbit * self._factor) for each in changes)
        super().change(tuple(Reach(change, len(self.links)) for change in wrong))


Defect = LateFirsts | HiddenDefect | UnaskedDrops | UnaskedCopies | WrongRates


class _Waiting:
    """The frames that wait for the defect, in the order in which they came, by device."""

    def __init__(self, defect: HiddenDefect, clock: Callable[[], int]) -> None:
        self._late_ns, self._drop_every, self._clock = round(defect.late_ms * 1e6), defect.drop_every, clock
        self._frames: dict[int, deque[tuple[int, bytes]]] = {}
        self._met: Counter[int] = Counter()

    def put(self, device: int, frame: bytes) -> None:
        """Add a frame, unless it vanishes."""
        self._met[device] += 1
        if not self._drop_every or self._met[device] % self._drop_every:
            self._frames.setdefault(device, deque()).append((self._clock() + self._late_ns, frame))

    def take(self, device: int) -> bytes | None:
        """Remove and return the next frame of the device; None if none has waited long enough."""
        frames = self._frames.get(device)
        return frames.popleft()[1] if frames and frames[0][0] <= self._clock() else None

    @property
    def due_ns(self) -> dict[int, int]:
        """When the next frame of each device has waited long enough."""
        return {device: frames[0][0] for device, frames in self._frames.items() if frames}


class HiddenDefectForwarder(Forwarder):
    """A forwarder with that defect, which knows of the frames only before, or only after, they meet it."""

    def __init__(self, defect: HiddenDefect, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - a forwarder's
        super().__init__(*arguments, **options)
        self._waiting = _Waiting(defect, self._clock)
        self._is_at_read = defect.at == "read"
        self._device_read, self._device_write = self._read, self._write
        if self._is_at_read:
            self._read = self._read_waiting
        else:
            self._write = self._put_waiting

    @property
    def next_due_ns(self) -> int | None:
        """Return when the next frame is due, or has waited long enough; None if there is none."""
        return min([*self._waiting.due_ns.values(), *([self._held[0][0]] if self._held else [])], default=None)

    def take_in(self, link: AccessLink) -> bool:
        """Read a burst from a device; return whether the device is empty."""
        if not self._is_at_read:
            return super().take_in(link)
        for _ in READ_BURST:
            try:
                self._waiting.put(link.device, self._device_read(link.device, self._frame_bytes))
            except BlockingIOError:
                return True
        return False

    def let_out(self) -> None:
        """Forward; frames that have waited long enough go on."""
        if self._is_at_read:
            due = self._due_devices()
            for link in [link for link in self.network.links if link.device in due]:
                super().take_in(link)
        super().let_out()
        if not self._is_at_read:
            for device in self._due_devices():
                while (frame := self._waiting.take(device)) is not None:
                    with contextlib.suppress(OSError):  # the device is full or gone
                        self._device_write(device, frame)

    def _due_devices(self) -> set[int]:
        now_ns = self._clock()
        return {device for device, due_ns in self._waiting.due_ns.items() if due_ns <= now_ns}

    def _read_waiting(self, device: int, _: int) -> bytes:
        frame = self._waiting.take(device)
        if frame is None:
            raise BlockingIOError
        return frame

    def _put_waiting(self, device: int, frame: bytes) -> int:
        self._waiting.put(device, frame)
        return len(frame)


class _NthPacketForwarder(Forwarder):
    """A forwarder whose defect meets every n-th packet of a protocol."""

    _protocol: bytes

    def __init__(self, defect: UnaskedDrops | UnaskedCopies, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        super().__init__(*arguments, **options)
        self._defect = defect
        self._met = 0

    def _is_due(self, frame: bytes) -> bool:
        """Count the frame if it is of the protocol, and return whether the defect meets it."""
        if frame[9:10] != self._protocol:
            return False
        self._met += 1
        return self._met % self._defect.every == 0


class UnaskedDropsForwarder(_NthPacketForwarder):
    """A forwarder with that defect."""

    _defect: UnaskedDrops
    _protocol = _TCP

    def _admit(self, now_ns: int, link: AccessLink, frame: bytes) -> bool | None:
        """Drop the frame if it is due to be dropped."""
        if self._is_due(frame):
            self.drops[self._defect.cause] += 1
            return None
        return super()._admit(now_ns, link, frame)


class UnaskedCopiesForwarder(_NthPacketForwarder):
    """A forwarder with that defect."""

    _protocol = _UDP

    def _admit(self, now_ns: int, link: AccessLink, frame: bytes) -> bool | None:
        """Let the frame enter a second time if it is due to arrive twice."""
        if self._is_due(frame):
            self.frames_doubled += 1
            super()._admit(now_ns, link, frame)
        return super()._admit(now_ns, link, frame)


def emulate(network: Network, seed: int, defect: Defect | None) -> EmulatedNetwork:
    """Return the emulated network, with the defect if it is one of networks."""
    if isinstance(defect, LateFirsts):
        return LateFirstsNetwork(network, seed, defect)
    if isinstance(defect, WrongRates):
        return WrongRatesNetwork(network, seed, defect)
    return EmulatedNetwork(network, seed)


def make_forwarder(
    network: EmulatedNetwork, clock: Callable[[], int], frame_bytes: int, late_ns: int, defect: Defect | None
) -> Forwarder:
    """Return a forwarder of real devices, with the defect if it is one of forwarders."""
    if isinstance(defect, HiddenDefect):
        return HiddenDefectForwarder(defect, network, clock, os.read, os.write, frame_bytes, late_ns)
    if isinstance(defect, UnaskedDrops):
        return UnaskedDropsForwarder(defect, network, clock, os.read, os.write, frame_bytes, late_ns)
    if isinstance(defect, UnaskedCopies):
        return UnaskedCopiesForwarder(defect, network, clock, os.read, os.write, frame_bytes, late_ns)
    return Forwarder(network, clock, os.read, os.write, frame_bytes, late_ns)
