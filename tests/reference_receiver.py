"""A TCP receiver that handles one byte at a time: slow, obvious, independent of the code it judges."""

from dataclasses import dataclass, field


@dataclass
class Receiver:
    """The receiving side of one direction of a connection, at one place of the network.

    ``first_seen`` says when each byte (by stream offset) was first seen, ``available`` when it could have been read.
    """

    initial_sequence: int
    next_offset: int = 0
    data: dict[int, int] = field(default_factory=dict)
    first_seen: dict[int, int] = field(default_factory=dict)
    available: dict[int, int] = field(default_factory=dict)
    carriers: dict[int, list[int]] = field(default_factory=dict)  # byte -> numbers of the packets that carried it
    repeats: set[int] = field(default_factory=set)  # packets that carried a byte seen before
    last_offset: int = 0
    packets: int = 0

    def segment(self, ts_ns: int, sequence: int, payload: bytes) -> None:
        number = self.packets
        self.packets += 1
        distance = (sequence - self.initial_sequence - 1 - self.last_offset) & 0xFFFFFFFF
        if distance >= 1 << 31:
            distance -= 1 << 32
        self.last_offset += distance
        for index, byte in enumerate(payload):
            offset = self.last_offset + index
            self.carriers.setdefault(offset, []).append(number)
            if offset in self.first_seen:
                self.repeats.add(number)
                continue
            self.first_seen[offset] = ts_ns
            self.data[offset] = byte
        while self.next_offset in self.first_seen:
            self.available[self.next_offset] = ts_ns
            self.next_offset += 1

    def readable(self) -> bytes:
        return bytes(self.data[offset] for offset in range(self.next_offset))

    def sighting(self, off: int, length: int, in_order: bool) -> tuple[int, int, int, int] | None:
        """(first byte's time, last byte's time, packets, repeating packets) of a frame, None if a byte is missing."""
        offsets = range(off, off + length)
        if any(offset not in self.first_seen for offset in offsets):
            return None
        if in_order and offsets[-1] not in self.available:
            return None
        numbers = {number for offset in offsets for number in self.carriers[offset]}
        last = (self.available if in_order else self.first_seen)[offsets[-1]]
        return self.first_seen[off], last, len(numbers), len(numbers & self.repeats)
