"""The peer of a node whose program follows a script and prints lines of JSON: gossipsub-interop (``peer.interop``).

The process of the peer holds the program ready before, starts it when the peers start, reads what it prints, and writes
the trace. It keeps the lines as they are, too. The program prints no publications. They are traced at the instants of
the script, counted from the start of the program's process, if the program runs. A program that cannot carry out an
instruction has to end with an error, which ends the peer.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from peer.core import contract
from peer.core.directory import Directory
from peer.core.identifiers import MessageId, TopicId
from peer.core.schedule import Action, Publish
from peer.files import SCRIPT_FILE, output_file
from peer.interop.output import MAX_LINE_BYTES, TOLERANCE_NS, Identity, Placing, Receipt, read_line
from peer.interop.script import Script, check_script, find_ends, list_publications
from peer.lines import LineError, Splitter
from peer.runtime.clock import epoch_offset_ns
from peer.runtime.counts import Counts
from peer.runtime.line_programs import Setting
from peer.runtime.piped_program import Program, ProgramError, describe_status
from peer.runtime.tracefile import TraceFile
from peer.trace import TraceEvent

LAST_S: Final = 20.0
"""The time within which a program must exit after the end of the plan (s). Its clock starts later than its process, by
seconds if a virtual machine starts first."""


class Part(Struct, frozen=True):
    """What the peers of a machine know of the script.

    Attributes:
        ends_s: when each node has carried out its last instruction (s since the program's start), indexed by node.
        messages: the messages by their ``messageID``.
        due_s: when each message is published (s since the program's start).
    """

    ends_s: tuple[int, ...]
    messages: dict[int, MessageId]
    due_s: dict[MessageId, int]


def fit_script(script: Script, schedule: Sequence[Action], nodes: int, warmup_ns: int) -> Part:
    """Find the messages of the schedule in the script.

    Args:
        script: the script.
        schedule: the actions of the run, in the order of their instants.
        nodes: the number of nodes.
        warmup_ns: the time from the start of the programs to the zero of the schedule (ns).

    Raises:
        ValueError: nodes cannot carry out the script, or the schedule has other publications.
    """
    check_script(script, nodes)
    asked = list_publications(script, nodes)
    planned = [action for action in schedule if isinstance(action, Publish)]
    one = [(each.at_s * 1_000_000_000 - warmup_ns, each.node, each.publish.size_bytes) for each in asked]
    if one != [(action.at_ns, action.node, action.payload_bytes) for action in planned]:
        raise ValueError("its publications are not those of the schedule")
    pairs = list(zip(asked, planned, strict=True))
    return Part(
        find_ends(script, nodes),
        {each.publish.message_id: action.message_id for each, action in pairs},
        {action.message_id: each.at_s for each, action in pairs},
    )


class Scripted:
    """The node's slot, with one instance: from the start of the peers until its program exits.

    Args:
        setting: the settings of the program.
        part: what is known of the script.
        folder: the work folder.
        trace: the node's trace file.
        failed: called with the reason why the peer cannot go on.
        last_s: the time within which the program must exit after the end of the plan (s).

    Attributes:
        events: trace events by name.
    """

    def __init__(
        self,
        setting: Setting,
        part: Part,
        folder: Path,
        trace: TraceFile,
        failed: Callable[[ProgramError], None],
        last_s: float = LAST_S,
    ) -> None:
        counts = Counts(dict.fromkeys(("deliver", "duplicate", "publish", "relay"), 0))
        self.events = counts.events
        trace.observe = counts.add
        self._setting = setting
        self._part = part
        self._folder = folder.absolute()
        self._trace = trace.write
        self._failed = failed
        self._last_s = last_s
        self._nodes = {peer_id: node for node, peer_id in enumerate(setting.agent.peer_ids)}
        self._topics = set(setting.overlay.nodes[setting.node].topics)
        self._seen = {message for message in part.due_s if message >> 32 == setting.node}
        self._splitter = Splitter(MAX_LINE_BYTES)
        self._program: Program | None = None
        self._identity: Identity | None = None
        self._faulty = self._cut = False

    async def listen(self) -> None:
        """Prepare the start of the program. All programs are started at the same instant: their clocks begin then.

        Raises:
            ProgramError: it cannot be started.
        """
        setting = self._setting
        words = [*setting.words, "--params", str(self._folder / SCRIPT_FILE)]
        self._output = (self._folder / output_file(setting.node)).open("wb", buffering=0)
        self._program = Program(words, setting.environment, setting.temporary, self._hear, self._fail, held=True)

    async def begin(self, directory: Directory) -> None:
        """Start the program."""
        assert self._program is not None, "it is held"
        self._epoch_offset_ns = epoch_offset_ns()
        self._began_ns = self._setting.clock.now_ns()  # before the start, so that no time of the program is earlier
        self._placing = Placing(self._began_ns, self._epoch_offset_ns)
        self._program.release()
        self._program.ended.add_done_callback(self._judge_end)

    async def await_end(self) -> None:
        """Wait until the program has carried out its script and has exited."""
        assert self._program is not None, "it was started"
        ended, _ = await asyncio.wait([self._program.ended], timeout=self._last_s)
        if not ended:
            self._fail(ProgramError(f"did not exit within {self._last_s:g} s after the end of its script"))

    async def join(self, topics: Sequence[TopicId], directory: Directory) -> None:
        """Refuse a join.

        Raises:
            ValueError: always.
        """
        raise ValueError("a script has no joins")

    def leave(self) -> None:
        """Refuse a leave.

        Raises:
            ValueError: always.
        """
        raise ValueError("a script has no leaves")

    crash = vanish = leave

    def feed(self, event: contract.Event) -> None:
        """Trace an action of the schedule, which the program finds in its script."""
        if self._faulty:
            return
        node = self._setting.node
        match event:
            case contract.Publish(topics=topics, message_id=message, payload=payload):
                at_ns = self._began_ns + self._part.due_s[message] * 1_000_000_000
                size = len(payload)
                self._trace(TraceEvent("publish", at_ns, node, message_id=message, topics=topics, len_bytes=size))
            case contract.Subscribe(topic):
                self._topics.add(topic)
                self._trace(TraceEvent("join", self._setting.clock.now_ns(), node, topics=(topic,)))
            case contract.PeerList():  # the script names the nodes to connect to
                pass
            case _:
                raise ValueError(f"no instruction has the action {event}")

    def quiesce(self) -> None:
        """Do nothing: the program ends by its script."""

    async def close(self) -> None:
        """Kill the program if it runs, and wait for its end."""
        if self._program is not None:
            self._cut = True
            self._program.kill()
            await self._program.ended
            self._output.close()

    def _hear(self, data: bytes) -> None:
        self._output.write(data)
        if self._faulty:
            return
        try:
            for line in self._splitter.feed(data):
                match read_line(line):
                    case Identity() as identity:
                        self._identify(identity)
                    case Receipt() as receipt:
                        self._trace(self._explain(receipt))
        except LineError as error:
            self._fail(ProgramError(str(error)))

    def _identify(self, identity: Identity) -> None:
        """Check that a program knows which node it is, and has that node's key."""
        node = self._setting.node
        expected = self._setting.agent.peer_ids[node]
        if (identity.node, identity.peer_id) != (node, expected):
            got = f"node {identity.node} with the peer ID {identity.peer_id}"
            raise LineError(f"printed that it is {got}, expected node {node} with {expected}")
        self._placing.place(identity.time, self._setting.clock.now_ns())
        self._identity = identity

    def _explain(self, receipt: Receipt) -> TraceEvent:
        """Return the trace event of a copy."""
        message = self._part.messages.get(receipt.message)
        if message is None:
            raise LineError(f"printed that it received message {receipt.message}, which its script does not have")
        topics = self._setting.messages[message]
        event = "deliver" if self._topics.intersection(topics) else "relay"
        event = "duplicate" if message in self._seen else event
        self._seen.add(message)
        at_ns = self._placing.place(receipt.time, self._setting.clock.now_ns())
        sender = None if receipt.sender is None else self._nodes.get(receipt.sender)
        return TraceEvent(event, at_ns, self._setting.node, sender, message_id=message, topics=topics)

    def _judge_end(self, ended: asyncio.Future[int]) -> None:
        """Report what is wrong with the end of the program."""
        if self._cut:
            return
        status, end_s = ended.result(), self._part.ends_s[self._setting.node]
        lived_s = (self._setting.clock.now_ns() - self._began_ns) / 1e9
        step_ns = epoch_offset_ns() - self._epoch_offset_ns
        if status != 0:
            self._fail(ProgramError(f"{describe_status(status)} {lived_s:.1f} s after its start"))
        elif lived_s + TOLERANCE_NS / 1e9 < end_s:
            self._fail(ProgramError(f"exited {lived_s:.1f} s after its start, but its script has {end_s} s"))
        elif self._identity is None:
            self._fail(ProgramError("printed no line with the msg PeerID"))
        elif abs(step_ns) > TOLERANCE_NS:
            text = f"printed times of a clock that was set by {step_ns / 1e9:+.3f} s during the run"
            self._fail(ProgramError(text))

    def _fail(self, error: ProgramError) -> None:
        """End the program and report why. Only the first fault counts, since the others follow from it."""
        if not self._faulty:
            self._faulty = self._cut = True
            if self._program is not None:
                self._program.kill()
            self._failed(error)
