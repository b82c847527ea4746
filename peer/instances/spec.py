"""The documents for a machine's agent and its peers, as files in the machine's work folder.

``agent.json`` is an ``AgentSpec``, ``overlay.json`` an ``OverlayDocument``, and ``schedule.jsonl`` has one line per
action (``peer.core.schedule``). The agent reads them once, before it forks, so that all peers of a machine share the
memory.
"""

from typing import Any

from msgspec import Struct, field

from peer.interop import CONTRACT


class NodeSpec(Struct, frozen=True):
    """A node of the overlay.

    ``membership``, ``overlay`` and ``dissemination`` have the names of the parts and their parameters, such as
    ``{"name": "random", "degree": 5}``. ``interests`` is the name of the part that decides whether the node tells its
    neighbours its subscriptions. ``bootstrap`` lists the nodes that the bootstrap service may name to it; None = all
    others. ``up``: whether it runs from the start; a node that does not has no topics here and may join later by the
    schedule. ``behaviour``: how it misbehaves, such as ``{"name": "dropper", "drop_ratio": 0.5}``; None = it is honest.
    ``processing_ns``: how long after its arrival the node handles a frame (ns). ``nodes``: the number of nodes in the
    plan, including those that join later; 0 = unknown.
    """

    node: int
    seed: int
    topics: tuple[int, ...]
    overlay: dict[str, Any]
    dissemination: dict[str, Any]
    bootstrap: tuple[int, ...] | None = None
    membership: dict[str, Any] = field(default_factory=lambda: {"name": "full"})
    interests: str = "announced"
    up: bool = True
    behaviour: dict[str, Any] | None = None
    processing_ns: int = 0
    nodes: int = 0


class OverlayDocument(Struct, frozen=True):
    """``overlay.json``: every node of the run.

    Attributes:
        run: the number in the Hello of simulated nodes. The nodes of other testbeds use the secret number
            ``AgentSpec.run``.
        protocol: the name of the protocol.
        nodes: one specification per node, in the order of their numbers.
        discloses: whether the bootstrap service discloses the interests of nodes.
        refresh_ns: the shortest time between two refreshes of the bootstrap service (ns).
    """

    run: int
    protocol: str
    nodes: tuple[NodeSpec, ...]
    discloses: bool = True
    refresh_ns: int = 5_000_000_000


class PeerPlace(Struct, frozen=True):
    """A peer that the agent starts on this machine.

    ``listen`` and ``metrics`` are (address, port); ``metrics`` None = no endpoint. ``netns`` is the path of its network
    namespace, such as /proc/123/ns/net; None = the machine's own.
    """

    node: int
    listen: tuple[str, int]
    metrics: tuple[str, int] | None
    netns: str | None = None


class ProgramSpec(Struct, frozen=True):
    """Another program than the Python peer: its command, and its reports besides publications and deliveries."""

    command: tuple[str, ...]
    says: tuple[str, ...]


class ProcessSpec(Struct, frozen=True):
    """A process that the peer of a node starts, of a program that knows nothing of Trellis.

    Attributes:
        node: the node.
        name: the name of its output files without their endings, such as ``curl.1000``.
        command: the program and its arguments.
        environment: its variables, such as ``LANG=C``.
        start_ns: when it is started, after the workload's zero.
        shutdown_ns: when it gets ``shutdown_signal``; None = never.
        shutdown_signal: the name of a signal.
        expected: the required state at the stop: ``running``, ``exited STATUS`` or ``signalled SIGNAL``.
    """

    node: int
    name: str
    command: tuple[str, ...]
    environment: tuple[str, ...] = ()
    start_ns: int = 0
    shutdown_ns: int | None = None
    shutdown_signal: str = "SIGTERM"
    expected: str = "exited 0"


class AgentSpec(Struct, frozen=True):
    """``agent.json``: the peers of this machine and how to run them.

    Attributes:
        run: the number in the Hello of the run's peers, drawn for each run. Other users of a machine with peers can
            learn it (docs/remote-testbed.md).
        addresses: the (address, port) of every node of the run, indexed by node.
        warmup_ns: peers start this long before the workload's zero.
        stop_ns: the time from the workload's zero until peers quiesce: they stop firing timers and publishing, but
            still receive and forward.
        drain_ns: the time from quiescing until peers close their links and exit.
        lease_s: the agent ends itself and its peers after this real time in any case.
        time_dilation: real seconds per second of virtual time. All other durations and instants are in virtual time.
        record: whether peers record the events of their nodes (``record/<node>.msgpack``).
        command: another program than the Python peer, with its arguments.
        events: how it reports the events of its node: it writes the ``trace`` itself, ``lines`` (``peer.lines``), or
            the lines of JSON of ``gossipsub-interop`` (``peer.interop``). ``none``: the peers start ``processes``.
        says: its reports besides publications and deliveries, unless it writes the trace.
        programs: the programs of a mix of implementations, instead of ``command`` and ``says``.
        assigned: the index in ``programs`` of each node's program, indexed by node.
        connect: the number of other nodes that it must connect to, if it reads lines.
        processes: the processes of all nodes, if ``events`` is ``none``.
        peer_ids: the libp2p peer ID of each node, indexed by node, for programs of gossipsub-interop.
        names: the name of each node's place in the underlay, indexed by node, for its hosts file.
        agent_metrics: the (address, port) at which the agent serves its own metrics.
        shared: the nodes of each process that has the peers of several nodes. Every other peer has its own process.
    """

    machine: str
    run: int
    peers: tuple[PeerPlace, ...]
    addresses: tuple[tuple[str, int], ...]
    warmup_ns: int
    stop_ns: int
    drain_ns: int
    send_queue_bytes: int
    lease_s: float
    time_dilation: float = 1.0
    record: bool = False
    command: tuple[str, ...] | None = None
    events: str = "trace"
    says: tuple[str, ...] = ()
    programs: tuple[ProgramSpec, ...] = ()
    assigned: tuple[int, ...] = ()
    connect: int = 4
    processes: tuple[ProcessSpec, ...] = ()
    peer_ids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    expected_final_state: str = "exited"
    agent_metrics: tuple[str, int] | None = None
    shared: tuple[tuple[int, ...], ...] = ()

    def divide(self) -> list[tuple[PeerPlace, ...]]:
        """Return the peers of each process.

        Raises:
            ValueError: ``shared`` names a node twice, or one that is not on this machine.
        """
        places = {place.node: place for place in self.peers}
        named = [node for nodes in self.shared for node in nodes]
        together = set(named)
        if len(together) < len(named) or not places.keys() >= together:
            raise ValueError("agent.json: expected nodes of this machine in shared, each at most once")
        alone = [(place,) for place in self.peers if place.node not in together]
        return [*(tuple(places[node] for node in nodes) for nodes in self.shared), *alone]

    @property
    def drives(self) -> bool:
        """Whether the peers are processes that start other programs, read what they print, and write the trace."""
        return self.command is not None and self.events != "trace"

    @property
    def scripted(self) -> bool:
        """Whether that program follows a script, instead of orders."""
        return self.drives and self.events == CONTRACT

    def program_of(self, node: int) -> ProgramSpec:
        """Return the program of a node that is not a Python peer."""
        assert self.command is not None, "the caller asks only where there is one"
        return self.programs[self.assigned[node]] if self.programs else ProgramSpec(self.command, self.says)

    @property
    def executes(self) -> bool:
        """Whether the peers become another program, which reads and writes the files of Trellis."""
        return self.command is not None and not self.drives
