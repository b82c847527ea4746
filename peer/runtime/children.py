"""The processes that an agent starts, each with one peer or several, in the network namespace of the first one's host.

Processes that a peer's program has started end with the peer's agent, even if they have another parent by then.
"""

import contextlib
import errno
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec
from msgspec import Struct

from peer.core.schedule import to_line
from peer.files import log_file, spec_file, trace_file
from peer.instances.spec import PeerPlace
from peer.runtime.clock import Clock
from peer.runtime.host_sockets import make_in_host
from peer.runtime.limits import allow_open_files
from peer.runtime.names import HOSTS_FILE, own_names, take_name
from peer.runtime.namespaces import CAP_NET_ADMIN, die_with_parent, drop_privileges, enter_network
from peer.runtime.peer_process import READY, Orders, run_peer, run_peers
from peer.runtime.piped_program import ProgramError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
DISK_FULL_STATUS = os.EX_IOERR
"""The exit status of a Python peer that could not write its trace, since its log may be on the same disk."""

MAX_REASON_BYTES = 4096
"""The longest reason that the agent reads from a process that drives a program."""

END_S = 10.0


class Exit(Struct, frozen=True):
    """A line of ``exits.jsonl``. ``state``: exited, signalled or running; ``at_ns`` is a virtual instant (ns)."""

    process: str
    expected: str
    state: str
    status: int | None = None
    at_ns: int | None = None
    detail: str = ""


class Child:
    """A started process.

    Args:
        nodes: the nodes of its peers.
        pid: its id.
        control: the agent's end of its control socket.

    Attributes:
        exits: how each of its peers ended; empty while it runs.
    """

    def __init__(self, nodes: tuple[int, ...], pid: int, control: socket.socket) -> None:
        self.nodes = nodes
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.control = control
        self.ready = False
        self.exits: tuple[Exit, ...] = ()

    @property
    def state(self) -> str:
        """``created``, ``ready`` (at the barrier or past it), or how it ended."""
        if self.exits:
            return self.exits[0].state
        return "ready" if self.ready else "created"

    def processes(self) -> list[int]:
        """Return the ids of the process and its children, such as the present process of a node that crashes."""
        try:
            below = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text(encoding="ascii").split()
        except OSError:
            return [self.pid]
        return [self.pid, *map(int, below)]

    def read_ready(self) -> None:
        """Note whether the process has reported that it is ready."""
        # The byte stays in the socket, since any other one is the beginning of a reason (``reap``).
        self.ready = self.control.recv(1, socket.MSG_PEEK) == READY

    def begin(self, zero_ns: int) -> None:
        with contextlib.suppress(OSError):  # it has just ended, which its exit shows
            self.control.sendall(b"%d\n" % zero_ns)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and the other processes in its process group, unless it has ended.

        Stopped processes are continued, since they would not handle it otherwise.
        """
        if self.exits:
            return
        for each in (number, signal.SIGCONT):
            try:
                os.killpg(self.pid, each)
            except ProcessLookupError:  # it has left its group
                signal.pidfd_send_signal(self.pidfd, each)

    def _read_reason(self) -> str:
        """Return why the process has ended, if it drives a program and reported a reason."""
        try:
            return self.control.recv(MAX_REASON_BYTES, socket.MSG_DONTWAIT).removeprefix(READY).decode(errors="replace")
        except OSError:
            return ""

    def reap(self, expected: str, clock: Clock) -> None:
        """Wait for the process, which has ended or is about to, and note how."""
        _, status = os.waitpid(self.pid, 0)
        now_ns = clock.now_ns()
        detail = self._read_reason()
        os.close(self.pidfd)
        self.control.close()
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            self._note(expected, "signalled", number, now_ns, signal.Signals(number).name)
        else:
            exit_status = os.WEXITSTATUS(status)
            detail = "the disk is full" if exit_status == DISK_FULL_STATUS else detail
            self._note(expected, "exited", exit_status, now_ns, detail)

    def reap_running(self, clock: Clock) -> None:
        """Do what ``reap`` does, but note that the process ran until its end, as it should."""
        self.reap("running", clock)
        self._note("running", "running", None, clock.now_ns(), "")

    def _note(self, expected: str, state: str, status: int | None, at_ns: int, detail: str) -> None:
        self.exits = tuple(Exit(f"peer-{node}", expected, state, status, at_ns, detail) for node in self.nodes)


def start_child(places: Sequence[PeerPlace], orders: Orders, earlier: Iterable[Child]) -> Child:
    """Fork a process with the peers of some places. No thread or event loop may exist yet.

    Its output goes to ``logs/<node>.log`` of the first one's node.

    Args:
        places: the places.
        orders: the documents that all peers of the machine share.
        earlier: the children so far. The new child closes their descriptors, which it inherits.
    """
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        ours.close()
        for child in earlier:
            child.control.close()
            os.close(child.pidfd)
        _be_child(places, orders, theirs, parent)
    theirs.close()
    _lead_group(pid)
    return Child(tuple(place.node for place in places), pid, ours)


def _be_child(places: Sequence[PeerPlace], orders: Orders, control: socket.socket, parent: int) -> NoReturn:
    """Run the forked process from its start to its end."""
    place, *others = places
    status = 1
    try:
        die_with_parent(parent)
        _lead_group(os.getpid())
        _redirect(orders.folder / log_file(place.node))
        makers = [make_in_host(other.netns) if other.netns is not None else None for other in others]
        if place.netns is not None:
            enter_network(place.netns)
            if orders.agent.drives:
                take_name(own_names(orders.agent)[place.node], orders.folder / HOSTS_FILE)
        drop_privileges(kept=[CAP_NET_ADMIN] if orders.vanishes(place.node) else [])
        if orders.agent.executes:
            _execute(place, orders, control)
        elif others:
            allow_open_files(len(orders.agent.addresses), len(places))
            run_peers([(place, None), *zip(others, makers, strict=True)], orders, control)
        else:
            run_peer(place, orders, control)
        status = 0
    except ProgramError as error:
        with contextlib.suppress(OSError):
            reason = f"the program {error}"
            print(reason, file=sys.stderr)
            control.sendall(reason.encode())
    except BaseException as error:
        # The error goes to this peer's own log, and the exit status tells the agent. A forked process must never
        # return into the agent's code.
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            status = DISK_FULL_STATUS
        with contextlib.suppress(OSError):
            traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(status)


def _lead_group(process: int) -> None:
    """Give a peer its own process group. Parent and child both do it, so that it has one whichever is first."""
    with contextlib.suppress(PermissionError, ProcessLookupError):  # it has become another program, or has ended
        os.setpgid(process, process)


def _redirect(log: Path) -> None:
    """Redirect standard input to /dev/null, and output and error to the log."""
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for source, target in ((null, 0), (out, 1), (out, 2)):
        os.dup2(source, target)


def _execute(place: PeerPlace, orders: Orders, control: socket.socket) -> None:
    """Become another program when the peers start. A file gives it the information of a Python peer."""
    control.sendall(READY)
    line = control.recv(64)
    if not line:
        return  # the agent has ended
    zero_ns = int(line)
    spec = orders.folder / spec_file(place.node)
    spec.parent.mkdir(exist_ok=True)
    spec.write_bytes(msgspec.json.encode(_document(place, orders, zero_ns)))
    trace = orders.folder / trace_file(place.node)
    command = orders.agent.program_of(place.node).command
    words = [_fill_in(word, node=str(place.node), spec=str(spec), trace=str(trace)) for word in command]
    time.sleep(max(0.0, Clock(orders.agent.time_dilation).left_s(zero_ns - orders.agent.warmup_ns)))
    os.execvp(words[0], words)


def _fill_in(word: str, **values: str) -> str:
    """Replace the names in braces by their values. Other braces (of JSON, of a shell) stay."""
    for name, value in values.items():
        word = word.replace("{" + name + "}", value)
    return word


def _document(place: PeerPlace, orders: Orders, zero_ns: int) -> dict[str, object]:
    agent = orders.agent
    return {
        "node": orders.overlay.nodes[place.node],
        "place": place,
        "run": agent.run,
        "addresses": agent.addresses,
        "actions": [to_line(step.action) for step in orders.steps.get(place.node, ()) if step.action is not None],
        "zero_ns": zero_ns,
        "stop_ns": agent.stop_ns,
        "drain_ns": agent.drain_ns,
        "time_dilation": agent.time_dilation,
        "send_queue_bytes": agent.send_queue_bytes,
    }


def descendants(process: int) -> dict[int, int]:
    """Return all descendants of a process, each with its parent, including ended ones that no process waited for."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The second field, the program's name in brackets, may hold anything.
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
    found: dict[int, int] = {}
    frontier = {process}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier}
        found |= {child: parents[child] for child in frontier}
    return found


def reap_orphans(known: Collection[int]) -> None:
    """Wait for this process's ended children, except the ``known`` ones, for which other code waits."""
    with contextlib.suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in known:
                return  # other code waits for it soon, and the next call goes on
            os.waitpid(ended.si_pid, os.WNOHANG)


def end_descendants() -> list[int]:
    """Kill all descendants of this process, which adopts orphans (``namespaces.adopt_orphans``).

    Returns:
        The processes that are left after ``END_S``: none, unless the kernel itself blocks them.
    """
    deadline = time.monotonic() + END_S
    while (left := descendants(os.getpid())) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        reap_orphans(())
        time.sleep(0.02)
    return list(left)
