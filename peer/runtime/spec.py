"""What a machine's agent and its peers are told, as the files in the machine's work folder.

``agent.json`` is an ``AgentSpec``, ``overlay.json`` an ``OverlayDocument``, and ``schedule.jsonl`` has one line per
action (``peer.core.schedule``). The agent reads them once, before it forks, so that all peers of a machine share the
memory.
"""

from typing import Any

from msgspec import Struct, field


class NodeSpec(Struct, frozen=True):
    """A node of the overlay.

    ``membership``, ``overlay`` and ``dissemination`` name the parts and hold their parameters, such as
    ``{"name": "random", "degree": 5}``. ``interests`` says whether it tells its neighbours what it subscribes to.
    ``bootstrap`` lists the nodes it may hear of; None = all others. ``up``: whether it runs from the start; one that
    does not has no topics here and may join later, by the schedule. ``behaviour``: how it misbehaves, such as
    ``{"name": "dropper", "drop_ratio": 0.5}``; None = it is honest. ``processing_ns``: how long after its arrival it
    handles a frame. ``nodes``: how many nodes the plan has, also such as join later; 0 = it is not said.
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
        run: the number in the Hello of simulated nodes; those of other testbeds are given a secret one, by
            ``AgentSpec.run``.
        protocol: its name.
        nodes: a specification a node, in the order of their numbers.
        discloses: whether the bootstrap service tells nodes what others subscribe to.
        refresh_ns: how often, at most, it tells everybody of changes.
    """

    run: int
    protocol: str
    nodes: tuple[NodeSpec, ...]
    discloses: bool = True
    refresh_ns: int = 5_000_000_000


class PeerPlace(Struct, frozen=True):
    """A peer that the agent starts here. ``netns`` is a path such as /proc/123/ns/net; None = the machine's own.

    ``listen`` and ``metrics`` are (address, port); ``metrics`` None = no endpoint.
    """

    node: int
    listen: tuple[str, int]
    metrics: tuple[str, int] | None
    netns: str | None = None


class ProgramSpec(Struct, frozen=True):
    """Another program than the Python peer: its words, and what it reports besides publications and deliveries."""

    command: tuple[str, ...]
    says: tuple[str, ...]


class AgentSpec(Struct, frozen=True):
    """``agent.json``: the peers of this machine and how to run them.

    Attributes:
        run: the number that the run's peers put into their Hello, drawn for each run. Other users of a machine
            that carries peers can learn it (docs/remote-testbed.md).
        addresses: the (address, port) of every node of the run, index = node.
        warmup_ns: peers start this long before the workload's zero.
        stop_ns: from the workload's zero to the instant at which peers quiesce: they fire no more timers and publish no
            more, but still receive and forward.
        drain_ns: from quiescing to closing the links and exiting.
        lease_s: the agent ends itself and its peers after this real time, come what may.
        time_dilation: real seconds in a second of virtual time, which all other durations and instants here are of.
        record: whether peers write down what their nodes are told (``record/<node>.msgpack``).
        command: another program than the Python peer, with its arguments.
        events: how it tells what happens to its node: it writes the ``trace`` itself, or ``lines`` (``peer.lines``).
        says: what it reports besides publications and deliveries, if it reads lines.
        programs: those of a mix of implementations, instead of ``command`` and ``says``.
        assigned: which of them each node is, index = node.
        connect: how many other nodes it is told to connect to, if it reads lines.
        names: that of each node's place in the underlay, index = node, for its hosts file.
        agent_metrics: where the agent serves its own metrics.
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
    names: tuple[str, ...] = ()
    expected_final_state: str = "exited"
    agent_metrics: tuple[str, int] | None = None

    @property
    def drives(self) -> bool:
        """Whether the peers are processes that drive another program by lines."""
        return self.command is not None and self.events == "lines"

    def program_of(self, node: int) -> ProgramSpec:
        """Return the program of a node that is one."""
        assert self.command is not None, "the caller asks only where there is one"
        return self.programs[self.assigned[node]] if self.programs else ProgramSpec(self.command, self.says)

    @property
    def executes(self) -> bool:
        """Whether the peers become another program, which knows the files of Trellis."""
        return self.command is not None and not self.drives
