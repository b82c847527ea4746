"""The interface of data planes, and the values that they take and give.

A data plane is the network between the emulated hosts. An implementation registers a description
(``harness.planes.description``); the testbed makes the plane and asks only for what ``Plane`` has.

A frame read from its source's device at ``tap_tx`` passes the source's access link (up), the pair's delay with the
bottlenecks on its path, and the destination's access link (down), and is written to the destination's device at
``tap_rx``:

* ``tap_tx`` is taken right after the read and ``tap_rx`` right before the write, so that at every hop
  log_send <= tap_tx <= tap_rx <= log_recv on one clock, the run's (``peer.runtime.clock``);
* the due time counts from ``tap_tx``;
* the order within a directed pair is kept, whatever the jitter, but for frames that a fault lets others overtake;
* every frame is counted: frames_in + frames_doubled = frames_out + drops + in flight.

Source: design section 4.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from msgspec import Struct

from harness.errors import TestbedError
from topologies import timeline
from topologies.network import Link, Network

DROP_CAUSES = ("loss", "queue", "cut", "cut_in_flight", "unknown_destination", "not_ip", "device_full", "overload")
"""Why the data plane can drop a frame. ``queue``: the drop-tail queue of an access link or of a bottleneck was full;
``cut``: a fault had cut the pair, so that the frame did not enter it; ``cut_in_flight``: a fault cut the pair while the
frame was on it; ``device_full``: the destination's kernel refused the frame, or its namespace is gone; ``overload``:
the data plane holds as many frames as it may."""


class Port(Struct, frozen=True):
    """The attachment of a host: the device to make, and the path of the namespace to make it in."""

    host: int
    netns: str
    address: str
    prefix: int = 16
    device: str = "wan0"
    mtu: int = 1500


def check_ports(ports: Sequence[Port], size: int) -> None:
    """Check that there is one port per host, in order.

    Raises:
        TestbedError: there is not.
    """
    if [port.host for port in ports] != list(range(size)):
        raise TestbedError("attach the hosts", f"expected one port for each of {size} hosts, in order")


class Counters(Struct, frozen=True):
    """The counters of the data plane since it was attached.

    Attributes:
        frames_in, bytes_in: read from the hosts' devices.
        frames_out, bytes_out: written to the hosts' devices.
        drops: frames by cause, for each of DROP_CAUSES.
        in_flight: frames held until their due time.
        frames_doubled: frames that entered the link of their pair twice, as a fault asks.
    """

    frames_in: int
    frames_out: int
    bytes_in: int
    bytes_out: int
    drops: dict[str, int]
    in_flight: int
    frames_doubled: int = 0

    @property
    def unaccounted(self) -> int:
        """Frames that the counters miss: always 0."""
        return self.frames_in + self.frames_doubled - self.frames_out - sum(self.drops.values()) - self.in_flight


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


class BottleneckCounters(Struct, frozen=True):
    """What a bottleneck has carried.

    Attributes:
        link: its number in the graph of the underlay.
        frames, frame_bytes: that it has sent.
        drops: frames that found its queue full.
    """

    link: int
    frames: int
    frame_bytes: int
    drops: int


class FinalCounters(Struct, frozen=True):
    """The counters at the end of a data plane.

    Attributes:
        counters: the counters after the last frame.
        lateness_ns: p50, p90, p99 and max of (actual write - due time) from start to end.
        overruns: frames that the hosts' kernels dropped because the data plane had not read earlier ones. No other
            count includes them.
        realtime: whether the forwarding process had real-time priority.
        applied_ns: from when on frames met the changes of each scheduled instant, in their order; shorter if the plane
            was closed before.
        bottlenecks: what each bottleneck has carried, by its number in the network.
    """

    counters: Counters
    lateness_ns: dict[str, int]
    overruns: int
    realtime: bool
    applied_ns: tuple[int, ...] = ()
    bottlenecks: tuple[BottleneckCounters, ...] = ()


class PairChange(Struct, frozen=True):
    """Other values for the packets of a directed pair of hosts, between their access links."""

    source: int
    destination: int
    delay_ms: float
    jitter_ms: float
    loss_ratio: float


class PairsChange(Struct, frozen=True, eq=False):
    """Other values for the packets of every directed pair: those of another network between the same hosts.

    Access links keep their rates and queues.
    """

    network: Network


class AccessChange(Struct, frozen=True):
    """Other rates and queues for the access link of a host, up and down."""

    host: int
    up: Link
    down: Link


Change = PairChange | PairsChange | AccessChange
"""What can change about a network while it carries packets."""


class Plane(Protocol):
    """A data plane, whose processes run from its making to ``close``.

    ``attach`` is called once, before all others except ``lost`` and ``close``. Hosts are numbered as in the network.
    Every method but ``lost`` can raise ``TestbedError``. A plane with the ability ``capture`` has the methods of
    ``Capturing``, too.

    Attributes:
        complaints: one sentence per process that did not end as expected; complete after ``close``.
    """

    complaints: list[str]

    def attach(self, ports: Sequence[Port]) -> None:
        """Make every host's device, address it, bring it up, and start to forward.

        Args:
            ports: one per host, in order.
        """

    def apply(self, change: Change) -> None:
        """Change the network. Frames already in flight keep their due times."""

    def counters(self) -> Counters:
        """Return a consistent snapshot of the counters."""

    def cpu_s(self) -> float:
        """Return the processor time (s) that forwarding has taken since the plane was made."""

    def lost(self) -> dict[str, str]:
        """Return the plane's processes that ended early -> how they ended. Called every second: must be cheap."""

    def close(self) -> FinalCounters:
        """Stop forwarding and remove the devices. Frames in flight are never written."""


@runtime_checkable
class Capturing(Protocol):
    """A data plane with the ability ``capture``: it records the frames that it carries."""

    def start_capture(self, folder: Path, snaplen_bytes: int, epoch_offset_ns: int) -> None:
        """Record every frame at ingress and at egress as pcapng; times are virtual + the offset.

        Args:
            folder: where the files are made.
            snaplen_bytes: how much of each frame is recorded.
            epoch_offset_ns: what to add to an instant to get one since 1970 (ns).
        """

    def stop_capture(self) -> CaptureCounts:
        """Stop the capture; return when the files are complete on disk."""


@runtime_checkable
class Scheduling(Protocol):
    """A data plane with the ability ``faults``: it changes at planned instants by itself."""

    def schedule(self, changes: Sequence[timeline.Change], zero_ns: int) -> None:
        """Schedule what faults do to the network, and let jitter and disorder count from zero (``topologies.jitter``).

        The plane applies all changes of an instant between two frames.

        A frame that is read after a cut does not enter the pair, and is in no capture. Frames that are on the pair
        arrive, or are dropped if the change says so.

        Args:
            changes: of ``topologies.timeline``.
            zero_ns: their zero, on the run's clock.
        """


class PlaneMaker(Protocol):
    """Starts a data plane."""

    def __call__(
        self,
        network: Network,
        seed: int,
        folder: Path,
        metrics: tuple[str, int] | None,
        time_dilation: float,
        late_ns: int,
    ) -> Plane:
        """Start the plane's processes.

        Args:
            network: what is asked of packets.
            seed: seed of loss and jitter.
            folder: the run directory, for ``dataplane.jsonl`` and logs.
            metrics: address and port for Prometheus; None = not served.
            time_dilation: factor by which everything runs slower; reported times are virtual.
            late_ns: frames later than this are counted and recorded as late.
        """
