"""Injected faults, for tests and benchmarks of the checks that find them. No run of an experiment has one."""

import contextlib
import os
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from harness.planes.userspace.forwarder import READ_BURST, Forwarder
from harness.planes.userspace.links import AccessLink, EmulatedNetwork, Pair
from topologies.network import Network

_TCP = b"\x06"


class LateFirsts(Struct, frozen=True, tag=True):
    """A fault that delays first frames.

    Attributes:
        of: ``pairs``: the first frame of each directed pair; ``hosts``: the first frame that each host sends.
        late_ms: the delay in virtual ms.
        every: n = only every n-th pair or host has the fault, in order of their first frames.
    """

    of: Literal["pairs", "hosts"]
    late_ms: float = 1.5
    every: int = 1


class Firsts:
    """The first frames that the fault delays."""

    def __init__(self, fault: LateFirsts) -> None:
        self._fault = fault
        self._met: set[int | tuple[int, int]] = set()

    def extra_ns(self, source: int, destination: int) -> int:
        """Return the delay of this frame between the two hosts."""
        key = source if self._fault.of == "hosts" else (source, destination)
        if key in self._met:
            return 0
        self._met.add(key)
        return 0 if len(self._met) % self._fault.every else round(self._fault.late_ms * 1e6)


class LateFirstsNetwork(EmulatedNetwork):
    """A network with that fault. Only first frames look up their route, so later ones cost nothing."""

    def __init__(self, network: Network, seed: int, fault: LateFirsts) -> None:
        super().__init__(network, seed)
        self._firsts = Firsts(fault)

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


class HiddenFault(Struct, frozen=True, tag=True):
    """A fault at the hosts' devices that the data plane's own record does not show.

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
    """A fault that drops TCP packets, and counts them under a cause for which no experiment asks.

    Attributes:
        cause: one of ``plane.DROP_CAUSES``.
        every: n = every n-th packet that was read is dropped.
    """

    cause: str
    every: int


Fault = LateFirsts | HiddenFault | UnaskedDrops


class _Waiting:
    """The frames that wait for the fault, in the order in which they came, by device."""

    def __init__(self, fault: HiddenFault, clock: Callable[[], int]) -> None:
        self._late_ns, self._drop_every, self._clock = round(fault.late_ms * 1e6), fault.drop_every, clock
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


class HiddenFaultForwarder(Forwarder):
    """A forwarder with that fault, which knows of the frames only before, or only after, they meet it."""

    def __init__(self, fault: HiddenFault, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - a forwarder's
        super().__init__(*arguments, **options)
        self._waiting = _Waiting(fault, self._clock)
        self._is_at_read = fault.at == "read"
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


class UnaskedDropsForwarder(Forwarder):
    """A forwarder with that fault."""

    def __init__(self, fault: UnaskedDrops, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - a forwarder's
        super().__init__(*arguments, **options)
        self._fault = fault
        self._met = 0

    def _admit(self, now_ns: int, link: AccessLink, frame: bytes) -> bool | None:
        """Drop the frame if it is due to be dropped."""
        if frame[9:10] == _TCP:
            self._met += 1
            if self._met % self._fault.every == 0:
                self.drops[self._fault.cause] += 1
                return None
        return super()._admit(now_ns, link, frame)


def emulate(network: Network, seed: int, fault: Fault | None) -> EmulatedNetwork:
    """Return the emulated network, with the fault if it is one of networks."""
    if isinstance(fault, LateFirsts):
        return LateFirstsNetwork(network, seed, fault)
    return EmulatedNetwork(network, seed)


def make_forwarder(
    network: EmulatedNetwork, clock: Callable[[], int], frame_bytes: int, late_ns: int, fault: Fault | None
) -> Forwarder:
    """Return a forwarder of real devices, with the fault if it is one of forwarders."""
    if isinstance(fault, HiddenFault):
        return HiddenFaultForwarder(fault, network, clock, os.read, os.write, frame_bytes, late_ns)
    if isinstance(fault, UnaskedDrops):
        return UnaskedDropsForwarder(fault, network, clock, os.read, os.write, frame_bytes, late_ns)
    return Forwarder(network, clock, os.read, os.write, frame_bytes, late_ns)
