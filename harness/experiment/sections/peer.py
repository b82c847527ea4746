"""The section ``peer`` of an experiment: the process of a node, and the implementations that it may be."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from harness.experiment.sections.values import ON_LINE, Count, FilePath, Span
from peer.interop import Contract, Events

Reported: TypeAlias = Literal["duplicate", "link", "graft"]

SCRIPTED_SAYS: tuple[Reported, ...] = ("duplicate",)
"""What every program of gossipsub-interop reports."""


class MixSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """An implementation of some nodes."""

    implementation: str
    """As ``peer.implementation``."""
    share: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    """Its share of the nodes that no ``nodes`` name, relative to the other shares. The seed draws which they are."""
    nodes: tuple[Annotated[int, Meta(ge=0)], ...] = ()
    """The numbers of its nodes, instead of a share."""


class ProgramSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """An implementation of the run, as its file says."""

    implementation: str
    """Its name."""
    version: str
    """Its version."""
    sha256: str
    """The hash of its file and of the lists of packages that its file names."""
    transport: Literal["tcp", "udp"]
    """The transport of its links."""
    command: tuple[str, ...]
    """As ``peer.command``."""
    contract: Contract = "lines"
    """How it is driven: ``peer.events``."""
    says: tuple[Reported, ...] = ()
    """As ``peer.says``. ``peer.says`` of a mix has what all its implementations report."""
    memory_mib: float = 0.0
    """As ``peer.memory_mib``, which in a mix is the mean by the shares, or the largest if nodes are named."""
    start_cpu_s: float = 0.0
    """Likewise."""
    idle_cpu_ms_per_s: float | None = None
    """Processor time of a peer without messages, in ms per second ([programs.md](programs.md#processor-time)); none:
    not known."""
    copy_cpu_us: float | None = None
    """Processor time that a copy of a message takes, sender and receiver together; none: not known."""


class ProcessSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """A process of a program that knows nothing of Trellis ([shadow.md](shadow.md))."""

    node: Annotated[int, Meta(ge=0)]
    """The node on whose host it runs; a node may have several processes, or none."""
    command: Annotated[tuple[str, ...], Meta(min_length=1)]
    """The program and its arguments."""
    environment: tuple[Annotated[str, Meta(pattern=rf"^(?:(?!=){ON_LINE})+={ON_LINE}*\Z")], ...] = ()
    """Variables besides those of the user who started the run, such as `LANG=C`."""
    start_s: Span = 0.0
    """When it is started, in seconds after the start of the publishing window."""
    shutdown_s: Span | None = None
    """When it gets ``shutdown_signal``. Default: never."""
    shutdown_signal: Annotated[str, Meta(pattern=r"^SIG[A-Z0-9]+\Z")] = "SIGTERM"
    """The name of a signal."""
    expected: Annotated[str, Meta(pattern=r"^(running|exited [0-9]{1,3}|signalled SIG[A-Z0-9]+)\Z")] = "exited 0"
    """Its required state at the end of the publishing window and the cool-down: still running, or how it ended. Another
    state makes the run ``invalid``."""


class PeerSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """The process of a node."""

    send_queue_bytes: Count = 1 << 20
    """Most bytes that wait for a neighbour; further frames to it are dropped, and traced as such."""
    per_process: Annotated[int, Meta(ge=1, le=1000)] = 1
    """Most peers in one process. Several peers in a process need less memory and less processor time each, but one that
    computes delays the others, and what the process uses is known for all of them together
    ([emulated-testbed.md](emulated-testbed.md#several-peers-in-a-process)). A node that crashes, is paused or
    misbehaves always has its own process. With programs it must be 1."""
    metrics: bool = True
    """Serve Prometheus metrics on the control network; ``false``: neither peers nor agents do."""
    record: bool = False
    """Record every event of the node, for `trellis replay`. ``simulated`` refuses it."""
    command: tuple[str, ...] | None = None
    """A program to run instead of the Python peer; ``{node}`` is filled in, with ``events = "trace"`` also ``{spec}``
    and ``{trace}``. It runs as the user who started the run, without capabilities. ``simulated`` refuses it."""
    events: Events = "trace"
    """How the program tells what happens to its node. ``trace``: it reads the schedule and writes the trace itself.
    ``lines``: it reads orders and writes reports ([programs.md](programs.md)). ``gossipsub-interop``: it follows a
    script and prints lines of JSON ([gossipsub-interop.md](gossipsub-interop.md)). ``none``: it tells nothing, and no
    messages are published; set ``processes`` instead ([shadow.md](shadow.md))."""
    says: tuple[Reported, ...] = ()
    """What the program reports besides publications and deliveries (``lines``): ``duplicate`` copies, physical links
    (``link``), logical links (``graft``). What it does not report is absent from tables and results. Programs of
    ``gossipsub-interop`` report duplicates."""
    implementation: str | None = None
    """The implementation that the peers are: the name of one that Trellis knows (`trellis fetch` lists them), or the
    path of a file, relative to this file ([programs.md](programs.md#implementations)). It sets ``command``, ``says``,
    ``memory_mib`` and ``start_cpu_s``, and ``events`` if that is ``trace``."""
    mix: tuple[MixSpec, ...] = ()
    """Several implementations in one run, instead of ``implementation``."""
    processes: tuple[ProcessSpec, ...] = ()
    """Processes of programs that know nothing of Trellis, instead of peers ([shadow.md](shadow.md)). They set
    ``command`` and ``events``. The emulated testbed can run them, others cannot."""
    programs: tuple[ProgramSpec, ...] = ()
    """What the files of the implementations say. Trellis fills it in."""
    memory_mib: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    """Memory (PSS) of a program, or of each of ``processes``. `plan` adds it to that of the process that drives it."""
    start_cpu_s: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    """Processor time that a program needs until it is ready. `plan` refuses a run whose programs cannot be ready in
    time."""
    connect: Count = 4
    """Number of other nodes that a program is told to connect to (``lines``, ``gossipsub-interop``). They are drawn
    among those that are up."""
    script: FilePath | None = None
    """A ``params.json`` of your own (``gossipsub-interop``), relative to this file. It sets the workload and the
    interests. Default: Trellis makes one of the schedule."""
    connect_at_s: Annotated[int, Meta(ge=0, le=3600)] = 10
    """Time after the start of the programs before which none of them opens a connection (``gossipsub-interop``). All
    must listen by then: some programs end if a connection is refused. Programs that start slowly need more."""
    expected_final_state: Literal["exited", "running"] = "exited"
    """Required state of a peer's process at the end: exited with status 0 after the stop, or still running."""
