"""The supervisor: starts the peers of one machine, holds them at the barrier, and reports how each ended."""

import asyncio
import contextlib
import gc
import os
import shutil
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from peer import files
from peer.core.schedule import Action, decode_schedule
from peer.instances.bootstrap import Step, first_directory, timeline
from peer.instances.spec import AgentSpec, OverlayDocument
from peer.interop.script import decode_script
from peer.runtime.addresses import AddressBook
from peer.runtime.agent_metrics import collect_agent, read_pss_bytes
from peer.runtime.children import Child, Exit, end_descendants, reap_orphans, start_child
from peer.runtime.clock import Clock
from peer.runtime.exposition import serve_metrics
from peer.runtime.limits import allow_open_files
from peer.runtime.names import HOSTS_FILE, describe_hosts
from peer.runtime.namespaces import adopt_orphans
from peer.runtime.peer_process import Orders
from peer.runtime.scripted import Part, fit_script

Document = TypeVar("Document")

STOP_S = 8.0
"""The time within which peers must end after SIGTERM before they are killed (s)."""

ORPHANS_S = 1.0
"""The time between two waits for ended processes that a peer's program has started and left behind (s)."""

START_LEASE_S = 3600.0
"""How much longer the lease is until the peers start, since the network is probed before, for minutes if large (s)."""


def read_orders(folder: Path) -> Orders:
    """Read the documents of the work folder.

    Raises:
        OSError: a document is missing.
        ValueError: a document is malformed, or they do not fit together; the message names the document.
    """
    agent = _read(folder / files.AGENT_FILE, msgspec.json.Decoder(AgentSpec).decode)
    overlay = _read(folder / files.OVERLAY_FILE, msgspec.json.Decoder(OverlayDocument).decode)
    schedule = _read(folder / files.SCHEDULE_FILE, decode_schedule)
    if [spec.node for spec in overlay.nodes] != list(range(len(agent.addresses))):
        raise ValueError("expected the nodes 0 .. n-1 in order in overlay.json, and an address of each in agent.json")
    steps: dict[int, list[Step]] = defaultdict(list)
    refreshes = []
    try:
        for step in timeline(overlay, sorted(schedule, key=lambda action: action.at_ns), -agent.warmup_ns):
            if step.action is None:
                refreshes.append(step)
            else:
                steps[step.action.node].append(step)
    except ValueError as error:
        raise ValueError(f"schedule.jsonl: {error}") from None
    own_steps = {node: tuple(own) for node, own in steps.items()}
    part = _read_script(folder, agent, schedule) if agent.scripted else None
    book, directory = AddressBook(agent.addresses), first_directory(overlay)
    orders = Orders(agent, overlay, directory, own_steps, tuple(refreshes), book, folder, part)
    for nodes in agent.shared:
        if own := [node for node in nodes if agent.command is not None or orders.ends_process(node)]:
            raise ValueError(f"agent.json: nodes {own} need processes of their own")
    agent.divide()
    for place in agent.peers:
        if orders.vanishes(place.node) and (place.netns is None or agent.command is not None):
            needed = "a network namespace of its own and the Python peer"
            raise ValueError(f"schedule.jsonl: node {place.node} vanishes, which needs {needed}")
    return orders


def _read_script(folder: Path, agent: AgentSpec, schedule: list[Action]) -> Part:
    """Read the script.

    Raises:
        ValueError: it does not fit to the other documents.
    """
    path, ordered = folder / files.SCRIPT_FILE, sorted(schedule, key=lambda action: action.at_ns)
    try:
        return fit_script(decode_script(path.read_bytes()), ordered, len(agent.addresses), agent.warmup_ns)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None


def _read(path: Path, decode: Callable[[bytes], Document]) -> Document:
    try:
        return decode(path.read_bytes())
    except msgspec.DecodeError as error:
        raise ValueError(f"{path.name}: {error}") from None


class Supervisor:
    """The peers of one machine, from their forks to their ends.

    ``start_children`` forks every process before there is a loop or a thread. ``serve`` then reacts to four kinds of
    events: a child is ready or has ended (its control pipe, its pidfd), a call arrives on the agent's socket, standard
    input ends (the lifeline: the program that started the agent has ended), or the lease runs out (the run should have
    ended long ago). It ends when all children have ended, or as soon as the lifeline, the lease or a signal ends the
    run early.

    Peers wait at the barrier until ``start`` gives them the workload's zero, once. A peer that ends before that ends
    the run early; a later end is only reported. Every end is one line of ``exits.jsonl``. ``serve`` ends all children
    and their descendants before it returns.
    """

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._clock = Clock(orders.agent.time_dilation)
        self._children: list[Child] = []
        self._done = asyncio.Event()
        self._cut_short = False
        self._zero_ns: int | None = None
        self._lease: asyncio.TimerHandle | None = None

    def start_children(self) -> None:
        """Fork every peer. No loop and no thread may exist yet."""
        allow_open_files(len(self._orders.agent.addresses))  # also for the peers, which inherit it
        for name in (files.TRACE_FOLDER, files.LOGS_FOLDER, files.RECORD_FOLDER, files.OUTPUT_FOLDER):
            (self._orders.folder / name).mkdir(exist_ok=True)
        (self._orders.folder / files.EXITS_FILE).touch()
        if self._orders.agent.drives and any(place.netns for place in self._orders.agent.peers):
            (self._orders.folder / HOSTS_FILE).write_text(describe_hosts(self._orders.agent), encoding="ascii")
        adopt_orphans()
        gc.collect()
        gc.freeze()
        for places in self._orders.agent.divide():
            self._children.append(start_child(places, self._orders, self._children))

    async def serve(self, socket_path: Path) -> int:
        """Watch the peers and answer calls until all peers have ended, or the lifeline or the lease ends.

        Returns:
            The exit status.
        """
        self._watch()
        agent = self._orders.agent
        if agent.agent_metrics is not None:
            await serve_metrics(*agent.agent_metrics, lambda: collect_agent(self.count_states, self.running_pids))
        server = await asyncio.start_unix_server(self._answer, path=socket_path)
        if not self._children:
            self._done.set()
        await self._done.wait()
        await self._end_children()
        if left := end_descendants():
            print(f"agent: these processes did not end: {left}", file=sys.stderr, flush=True)
        shutil.rmtree(self._orders.folder / files.TEMPORARY_FOLDER, ignore_errors=True)  # of peers that were killed
        server.close()
        expected = agent.expected_final_state
        fine = all(child.state == expected and not any(exit.status for exit in child.exits) for child in self._children)
        return 0 if fine and not self._cut_short else 1

    def count_states(self) -> dict[str, int]:
        return dict(Counter(child.state for child in self._children for _ in child.nodes))

    def running_pids(self) -> list[int]:
        """Return the ids of the processes that have not ended, and of their children."""
        return [pid for child in self._children if not child.exits for pid in child.processes()]

    def status(self, with_pss: bool = False) -> dict[str, Any]:
        children = self._children
        account: dict[str, Any] = {
            "ready": all(child.ready for child in children),
            "zero_ns": self._zero_ns,
            "counts": self.count_states(),
            "not_ready": [node for child in children if not child.ready for node in child.nodes],
            "peers": {
                str(node): {"pid": child.pid, "state": child.state} for child in children for node in child.nodes
            },
            "exits": [exit for child in children for exit in child.exits],
        }
        if with_pss:
            account["pss_bytes"] = read_pss_bytes(self.running_pids())
        return account

    def start(self, zero_epoch_ns: int) -> dict[str, Any]:
        """Lift the barrier.

        Returns:
            ``zero_ns``: the workload's zero as a virtual instant; ``lead_ns``: the virtual time between the last peer's
            notification and the start of the peers. A negative value means that the call came too late.

        Raises:
            ValueError: the barrier was lifted before, or a peer is not ready.
        """
        if self._zero_ns is not None:
            raise ValueError("started already")
        if missing := [node for child in self._children if child.state != "ready" for node in child.nodes]:
            raise ValueError(f"not ready: nodes {missing}")
        agent = self._orders.agent
        self._zero_ns = self._clock.virtual_ns(zero_epoch_ns - (time.time_ns() - time.monotonic_ns()))
        self._renew_lease()
        for child in self._children:
            child.begin(self._zero_ns)
        # It is measured after the last notification, so it is the shortest lead of all peers.
        lead_ns = self._zero_ns - agent.warmup_ns - self._clock.now_ns()
        if agent.executes:
            # Other programs do not know when the plan ends, so the agent ends them.
            left_s = self._clock.left_s(self._zero_ns + agent.stop_ns + agent.drain_ns)
            asyncio.get_running_loop().call_later(left_s, self._done.set)
        return {"zero_ns": self._zero_ns, "lead_ns": lead_ns}

    def stop(self) -> dict[str, Any]:
        for child in self._children:
            child.signal(signal.SIGTERM)
        return self.count_states()

    # ---------------------------------------------------------------------------------------------- the calls

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one call. The call is a JSON list of words, the answer a JSON object on a line."""
        try:
            answer = await self._run_call(msgspec.json.decode(await reader.readline(), type=list[str]))
        except ValueError as error:  # msgspec's errors are ValueErrors too
            answer = {"error": str(error)}
        writer.write(msgspec.json.encode(answer) + b"\n")
        writer.close()

    async def _run_call(self, words: list[str]) -> dict[str, Any]:
        match words:
            case ["status", *details]:
                return self.status("pss" in details)
            case ["start", zero]:
                return self.start(int(zero))
            case ["stop"]:
                return self.stop()
            case ["wait"]:
                await self._done.wait()
                return self.status()
        raise ValueError(f"no such call: {' '.join(words)}")

    # ------------------------------------------------------------------------------------------- the children

    def _watch(self) -> None:
        """Register everything that may happen with the loop."""
        loop = asyncio.get_running_loop()
        for child in self._children:
            loop.add_reader(child.pidfd, self._reap, child)
            loop.add_reader(child.control, self._note_ready, child)
        try:
            loop.add_reader(0, self._hold_lifeline)
        except PermissionError:
            self._cut("standard input is the lifeline: give the agent a pipe, a terminal or a channel")
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._cut, f"got {number.name}")
        self._renew_lease(START_LEASE_S)
        if self._orders.agent.command is not None:
            self._reap_orphans()

    def _reap_orphans(self) -> None:
        reap_orphans(self.running_pids())
        asyncio.get_running_loop().call_later(ORPHANS_S, self._reap_orphans)

    def _renew_lease(self, more_s: float = 0.0) -> None:
        """Restart the lease: from now on it lasts the agent's time plus ``more_s``."""
        if self._lease is not None:
            self._lease.cancel()
        loop = asyncio.get_running_loop()
        self._lease = loop.call_later(self._orders.agent.lease_s + more_s, self._cut, "the lease has run out")

    def _note_ready(self, child: Child) -> None:
        asyncio.get_running_loop().remove_reader(child.control)
        child.read_ready()

    def _reap(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(child.pidfd)
        loop.remove_reader(child.control)
        child.reap(self._orders.agent.expected_final_state, self._clock)
        for ended in child.exits:
            self._note(ended)
        if self._zero_ns is None:
            ended = child.exits[0]
            count = len(child.nodes) - 1
            others = f" and {count} other {'peer' if count == 1 else 'peers'} of its process" if count else ""
            how = f"{ended.state} ({ended.status}) before the start"
            self._cut(f"{ended.process}{others} {how}: {self._last_line(child)}")
        if all(other.exits for other in self._children):
            self._done.set()

    def _last_line(self, child: Child) -> str:
        path = self._orders.folder / files.log_file(child.nodes[0])
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "no output")

    def _note(self, ended: Exit) -> None:
        line = msgspec.json.encode(ended) + b"\n"
        with (self._orders.folder / files.EXITS_FILE).open("ab", buffering=0) as exits:
            end = exits.seek(0, os.SEEK_END)
            try:
                written = exits.write(line)
            except OSError as error:
                self._say(f"{ended.process} {ended.state}: not noted, {error.strerror}")
            else:
                if written < len(line):  # the disk is full, and half a line would make the file invalid
                    exits.truncate(end)
                    self._say(f"{ended.process} {ended.state}: not noted, the disk is full")

    def _hold_lifeline(self) -> None:
        if not os.read(0, 4096):
            asyncio.get_running_loop().remove_reader(0)
            self._cut("the lifeline has ended")

    def _cut(self, why: str) -> None:
        """End the run before the plan does."""
        if not self._done.is_set():
            self._cut_short = True
            self._done.set()
            self._say(why)

    def _say(self, words: str) -> None:
        with contextlib.suppress(OSError):  # the reader may have ended with the lifeline
            print(f"agent: {words}", file=sys.stderr, flush=True)

    async def _end_children(self) -> None:
        """End the running peers by SIGTERM, then by SIGKILL. Note those that should run to the end as running."""
        running = [child for child in self._children if not child.exits]
        expected = self._orders.agent.expected_final_state
        if not self._cut_short and expected == "running":
            await self._kill_noted(running)
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            for child in running:
                child.signal(number)
            deadline = time.monotonic() + self._clock.real_s(STOP_S)
            while any(not child.exits for child in running) and time.monotonic() < deadline:
                await asyncio.sleep(0.02)

    async def _kill_noted(self, running: list[Child]) -> None:
        """Note the processes as running, then end them."""
        loop = asyncio.get_running_loop()
        for child in running:
            loop.remove_reader(child.pidfd)
            child.signal(signal.SIGKILL)
            child.reap_running(self._clock)
            for ended in child.exits:
                self._note(ended)


def run_agent(folder: Path, socket_path: Path) -> int:
    """Run the agent of a folder, and answer calls on the socket.

    Returns:
        The exit status: 0 if every peer ended as expected, 2 if the documents are invalid.
    """
    try:
        orders = read_orders(folder)
    except (OSError, ValueError) as error:
        print(f"agent: {folder}: {error}", file=sys.stderr)
        return 2
    supervisor = Supervisor(orders)
    supervisor.start_children()
    return asyncio.run(supervisor.serve(socket_path))
