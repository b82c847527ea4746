"""The state of the emulated network: access links and pairs.

Pairs are made when their first frame comes, since most pairs of a large network are never used. The loss of a pair's
frames is drawn from a table by position, starting where the seed says: the k-th frame of a pair gets the same loss in
every run of a seed, however the pairs' frames interleave. Jitter is a function of time (``topologies.jitter``). A pair
without loss and jitter draws nothing, so its first frame need not compute where it starts. Which frames arrive twice or
are overtaken is a function of time, too (``topologies.disorder``).
"""

import socket
from collections.abc import Sequence
from functools import reduce
from typing import ClassVar

import numpy as np

from harness.planes.plane import BottleneckCounters
from harness.planes.userspace.trips import MS_NS, Part, Queue, make_parts
from topologies.bottlenecks import Stop
from topologies.disorder import IN_ORDER, Disorder, PairDisorder
from topologies.draws import TABLE_MASK, TABLE_SIZE, start_of_pair
from topologies.jitter import Jitter, JitterProcess
from topologies.network import Asked, Link, Network, ask_path
from topologies.timeline import Reach, find_disorder, link_with

UNLIMITED = Link()
"""A direction of an access link without rate."""


class Draws:
    """Uniform samples, drawn once, and the jitter of all pairs."""

    def __init__(self, seed: int, correlation_ms: float) -> None:
        generator = np.random.default_rng([seed, 0x64726177])
        self.seed = seed
        self.uniform: list[float] = generator.random(TABLE_SIZE).tolist()
        self.jitter = Jitter(seed, correlation_ms)


class AccessLink:
    """A host's link to the network: a rate and a drop-tail queue in each direction, and the host's device.

    Attributes:
        host: the number of the host.
        device: descriptor of the host's device.
        limited: whether the rate was ever limited. From then on frames always pass the queue, in either direction, so
            that none overtakes those that wait there.
        up_byte_ns, down_byte_ns: time to send a byte in each direction; 0 = unlimited.
        up_queue_ns, down_queue_ns: longest time that a frame may wait in each direction.
        up_free_ns, down_free_ns: when each direction has sent what it holds.
        looked_ns: the instant before the poll after which the device was last read.
        empty_ns: when its queue was last known to be empty, as of that read (``intake``).
    """

    __slots__ = (
        "device",
        "down_byte_ns",
        "down_free_ns",
        "down_queue_ns",
        "empty_ns",
        "host",
        "limited",
        "looked_ns",
        "route",
        "up_byte_ns",
        "up_free_ns",
        "up_queue_ns",
    )

    def __init__(self, host: int, device: int) -> None:
        self.host = host
        self.device = device
        self.limited = False
        self.up_free_ns = self.down_free_ns = 0
        self.looked_ns = self.empty_ns = 0
        self.route = Route(host)
        self.set_rates(UNLIMITED, UNLIMITED)

    def set_rates(self, up: Link, down: Link) -> None:
        """Change the rates and queues. Frames already in the queues leave at the old rates."""
        self.up_byte_ns, self.down_byte_ns = (8000 / each.rate_mbit if each.rate_mbit else 0.0 for each in (up, down))
        self.up_queue_ns, self.down_queue_ns = (int(each.queue_ms * MS_NS) for each in (up, down))
        self.limited = self.limited or bool(up.rate_mbit or down.rate_mbit)


class Pair:
    """A directed pair of hosts.

    Attributes:
        cursor: where in the table of draws the latest one was.
        stride: how far the next draw is from it; 0 until the pair had loss.
        dead_end: the cause for which every frame is dropped; None = frames pass.
        jitter: how its delay deviates from ``delay_ns``; None = it does not.
        last_due_ns: due time of the latest frame; no later frame is due earlier, even if the delay was changed.
        uneven: whether the pair has loss, jitter, disorder or bottlenecks.
        disorder: which frames arrive twice, and which are overtaken; None = no frame.
        first: the first part of its path, if that has bottlenecks or disorder; None = frames take the delay at once.
        overtaken: the same for frames that are overtaken.
        passed_ns: when the latest frame has passed each part of that path, by its number.
        ahead: nothing: a frame that is held with its pair, not with a part of a path, meets no bottleneck.
    """

    ahead: ClassVar[None] = None

    __slots__ = (
        "cursor",
        "dead_end",
        "delay_ns",
        "destination",
        "disorder",
        "first",
        "jitter",
        "last_due_ns",
        "loss_ratio",
        "overtaken",
        "passed_ns",
        "source",
        "stride",
        "uneven",
    )

    def __init__(self, source: AccessLink, destination: AccessLink) -> None:
        self.source = source
        self.destination = destination
        self.dead_end: str | None = None
        self.last_due_ns = 0
        self.cursor = 0
        self.stride = 0
        self.delay_ns = 0
        self.loss_ratio = 0.0
        self.jitter: JitterProcess | None = None
        self.uneven = False
        self.disorder: PairDisorder | None = None
        self.first: Part | None = None
        self.overtaken: Part | None = None
        self.passed_ns: dict[int, int] = {}

    def set(
        self, asked: Asked, draws: Draws, stops: Sequence[Stop], queues: Sequence[Queue], disorder: Disorder = IN_ORDER
    ) -> None:
        """Take what is asked of its packets, and the bottlenecks on its path.

        Where the draws begin depends only on the seed and on the pair: a pair that gets its loss or jitter late draws
        the same as one that had it from the start.
        """
        ends = self.source.host, self.destination.host
        self.delay_ns = round(asked.delay_ms * MS_NS)
        self.jitter = draws.jitter.process(*ends, asked.delay_ms, asked.jitter_ms) if asked.jitter_ms else None
        self.loss_ratio = asked.loss_ratio
        self.uneven = bool(asked.jitter_ms or asked.loss_ratio)
        self.dead_end = "cut" if asked.is_cut else None
        if asked.loss_ratio and not self.stride:
            self.cursor, self.stride, _ = start_of_pair(draws.seed, *ends)
        if disorder != IN_ORDER or self.disorder is not None:
            self._set_disorder(disorder, draws, stops, queues)
        if stops or self.disorder is not None:
            self.first, self.uneven = make_parts(self, stops, queues), True

    def _set_disorder(self, asked: Disorder, draws: Draws, stops: Sequence[Stop], queues: Sequence[Queue]) -> None:
        """Begin or end disorder. Frames with a path in parts keep the order of those without, and the reverse."""
        last = len(stops)  # the number of the part behind the last bottleneck
        self.last_due_ns = self.passed_ns[last] = max(self.last_due_ns, self.passed_ns.get(last, 0))
        self.disorder = self.first = self.overtaken = None
        if asked != IN_ORDER:
            ends = self.source.host, self.destination.host
            self.disorder = PairDisorder(draws.seed, *ends, draws.jitter.zero_ns, asked)
            self.overtaken = make_parts(self, stops, queues, self.disorder.reorder_ns)

    def is_lost(self, draws: Draws, loss_ratio: float) -> bool:
        """Draw whether its next frame is lost."""
        self.cursor = cursor = (self.cursor + self.stride) & TABLE_MASK
        return draws.uniform[cursor] < loss_ratio

    def draw_delay_ns(self, draws: Draws, at_ns: int) -> int | None:
        """Draw the delay (>= 0) of a frame that enters at an instant; None if it is lost."""
        if self.loss_ratio and self.is_lost(draws, self.loss_ratio):
            return None
        return self.delay_ns if self.jitter is None else self.delay_ns + self.jitter.offset_ns(at_ns)


class Route(dict[bytes, Pair]):
    """The pairs of a source, by the destination's packed IPv4 address."""

    def __init__(self, host: int) -> None:
        super().__init__()
        self.host = host
        self.network: EmulatedNetwork

    def __missing__(self, address: bytes) -> Pair:
        """Make the pair, or return one that drops every frame."""
        return self.network.connect(self.host, address)


class EmulatedNetwork:
    """All hosts' links, and the configuration of every pair.

    Attributes:
        links: the access links, by host.
        draws: of loss and jitter.
        queues: of the bottlenecks, by their number in the network.
    """

    def __init__(self, network: Network, seed: int) -> None:
        """Start without hosts.

        Args:
            network: what is asked of packets.
            seed: of loss and jitter.
        """
        self.links: list[AccessLink] = []
        self.draws = Draws(seed, network.jitter_correlation_ms)
        self.queues = [Queue(bottleneck) for bottleneck in network.bottlenecks.all]
        self._network = network
        self._bottlenecks = network.bottlenecks
        self._own: dict[tuple[int, int], Link] = {}
        self._addresses: list[bytes] = []
        self._host_of: dict[bytes, int] = {}
        nobody = AccessLink(-1, -1)
        self._nowhere = Pair(nobody, nobody)
        self._nowhere.dead_end = "unknown_destination"
        self._earlier: list[Route] = []
        self._access: list[tuple[Link, Link]] = []
        self._changes: tuple[Reach, ...] = ()

    def add(self, link: AccessLink, address: str) -> None:
        """Add a host by the address at which others reach it; its link gets the rates and queues of the network."""
        earlier = Route(link.host)
        link.route.network = earlier.network = self
        self.links.append(link)
        self._earlier.append(earlier)
        up, down = self._network.access(link.host)
        self._access.append((self._network.link(up), self._network.link(down)))
        self._set_rates(link.host)
        self._addresses.append(socket.inet_aton(address))
        self._host_of[self._addresses[-1]] = link.host

    def bottleneck_counters(self) -> tuple[BottleneckCounters, ...]:
        """Return what each bottleneck has carried so far."""
        found = zip(self._bottlenecks.all, self.queues, strict=True)
        return tuple(
            BottleneckCounters(each.link, queue.frames, queue.frame_bytes, queue.drops) for each, queue in found
        )

    def connect(self, source: int, address: bytes) -> Pair:
        """Return the pair for a destination missing in the source's route; unknown destinations are not kept."""
        destination = self._host_of.get(address)
        if destination is None:
            return self._nowhere
        pair = self._earlier[source].pop(address, None)
        if pair is None:
            pair = Pair(self.links[source], self.links[destination])
        stops = self._bottlenecks.stops(source, destination)
        disorder = find_disorder(self._changes, source, destination)
        pair.set(self._ask(source, destination), self.draws, stops, self.queues, disorder)
        self.links[source].route[address] = pair
        return pair

    def _ask(self, source: int, destination: int) -> Asked:
        """Return what is asked of a pair now."""
        network, own = self._network, self._own.get((source, destination))
        if own is not None:
            changes = (each.change for each in self._changes if each.reaches_pair(source, destination))
            return ask_path([reduce(lambda link, change: change.alter(link), changes, own)])
        for each in self._changes:
            if each.reaches_pair(source, destination):
                numbers = network.inner_path(source, destination)
                return ask_path([link_with(self._changes, network, number) for number in numbers])
        return network.asked(source, destination)

    def set_pair(self, source: int, destination: int, link: Link) -> None:
        """Let the packets of a pair cross one link, with this delay, jitter and loss, between the access links.

        Bottlenecks on its path divide that delay as they divided its own.
        """
        self._own[source, destination] = link
        self._forget(source, destination)

    def set_pairs(self, network: Network) -> None:
        """Give all pairs the values of another network, with the same rates and queues.

        Each is made again when its next frame comes.
        """
        self._network = network
        self._own.clear()
        self._forget_all()

    def set_access(self, host: int, up: Link, down: Link) -> None:
        """Change a host's access link."""
        self._access[host] = (up, down)
        self._set_rates(host)

    def set_zero(self, zero_ns: int) -> None:
        """Let jitter and disorder count from this instant. Each pair is made again when its next frame comes."""
        self.draws.jitter.zero_ns = zero_ns
        self._forget_all()

    def change(self, changes: tuple[Reach, ...]) -> None:
        """Let these changes hold, and no others. Each pair is made again when its next frame comes."""
        reached = {host for each in (*self._changes, *changes) for host in (*each.change.up, *each.change.down)}
        self._changes = changes
        self._forget_all()
        for host in reached:
            self._set_rates(host)

    def _set_rates(self, host: int) -> None:
        up, down = self._access[host]
        for each in self._changes:
            up = each.change.alter(up) if host in each.change.up else up
            down = each.change.alter(down) if host in each.change.down else down
        self.links[host].set_rates(up, down)

    def _forget_all(self) -> None:
        """Remove all pairs; of a host's routes, those in use and those removed before, the smaller set is moved."""
        for link, earlier in zip(self.links, self._earlier, strict=True):
            route = link.route
            if len(earlier) < len(route):
                for address, pair in earlier.items():
                    route.setdefault(address, pair)
                earlier.clear()
                link.route, self._earlier[link.host] = earlier, route
            else:
                earlier.update(route)
                route.clear()

    def _forget(self, source: int, destination: int) -> None:
        """Remove a pair, so that it is made again when its next frame comes."""
        address = self._addresses[destination]
        pair = self.links[source].route.pop(address, None)
        if pair is not None:
            self._earlier[source][address] = pair
