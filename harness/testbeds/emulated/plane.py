"""What a data plane does, and the values that it takes and gives; it is the network between the emulated hosts.

A frame read from its source's device at ``tap_tx`` passes the source's access link (up), the pair's delay, and the
destination's access link (down), and is written to the destination's device at ``tap_rx``:

* ``tap_tx`` is taken right after the read and ``tap_rx`` right before the write, so that at every hop
  log_send <= tap_tx <= tap_rx <= log_recv on one clock, the run's (``peer.runtime.clock``);
* the due time counts from ``tap_tx``;
* the order within a directed pair is kept, whatever the jitter;
* every frame is counted: frames_in = frames_out + drops + in flight.

Source: design section 4.
"""

from pathlib import Path

from msgspec import Struct

DROP_CAUSES = ("loss", "queue", "unknown_destination", "not_ip", "device_full", "overload")
"""Why the data plane can drop a frame. ``queue``: an access link's drop-tail queue was full;
``device_full``: the destination's kernel refused the frame, or its namespace is gone; ``overload``: the data plane
holds as many frames as it may."""


class Port(Struct, frozen=True):
    """The attachment of a host: the device to make, and the path of the namespace to make it in."""

    host: int
    netns: str
    address: str
    prefix: int = 16
    device: str = "wan0"
    mtu: int = 1500


class Counters(Struct, frozen=True):
    """The counters of the data plane since it was attached.

    Attributes:
        frames_in, bytes_in: read from the hosts' devices.
        frames_out, bytes_out: written to the hosts' devices.
        drops: frames by cause, for each of DROP_CAUSES.
        in_flight: frames held until their due time.
    """

    frames_in: int
    frames_out: int
    bytes_in: int
    bytes_out: int
    drops: dict[str, int]
    in_flight: int

    @property
    def unaccounted(self) -> int:
        """Frames that the counters miss: always 0."""
        return self.frames_in - self.frames_out - sum(self.drops.values()) - self.in_flight


class CaptureCounts(Struct, frozen=True):
    """A finished capture.

    Attributes:
        files: the pcapng files; all records of a host are in one of them.
        records_written: on disk, outbound and inbound together.
        records_dropped: not captured because the writer was too slow; the forwarding loop never waits for it.
        frames_in, frames_out: counted by the forwarding loop during the capture, so that records_written +
            records_dropped = frames_in + frames_out.
    """

    files: tuple[Path, ...]
    records_written: int
    records_dropped: int
    frames_in: int
    frames_out: int


class FinalCounters(Struct, frozen=True):
    """The counters at the end of a data plane.

    Attributes:
        counters: the counters after the last frame.
        lateness_ns: p50, p90, p99 and max of (actual write - due time) from start to end.
        overruns: frames that the hosts' kernels dropped because the data plane had not read earlier ones. No other
            count includes them.
        realtime: whether the forwarding process had real-time priority.
    """

    counters: Counters
    lateness_ns: dict[str, int]
    overruns: int
    realtime: bool
