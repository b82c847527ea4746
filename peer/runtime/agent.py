"""The agent: starts the peers of one machine, holds them at the barrier, and reports how each ended.

``python -m peer.runtime.agent FOLDER`` reads ``agent.json``, ``overlay.json`` and ``schedule.jsonl`` in the folder
once, and forks a process for every peer, or for several (``AgentSpec.shared``), so that the peers share the documents
and modules in memory. It listens on ``FOLDER/agent.sock``.
``python -m peer.runtime.agent FOLDER --call VERB [ARGUMENT]`` calls it:

    status [pss]        show the state of each peer, and how many are in each state; ``pss``: also their memory
    start ZERO          lift the barrier: the workload's zero in real ns since the epoch, in this machine's time
    stop                end all peers now
    wait                answer when all peers have ended

Standard input is the agent's lifeline: when it ends, the agent ends its peers and itself, so a lost SSH connection
leaves nothing behind. The agent also ends when all peers have ended, when a peer ends before the start, and when its
lease runs out. Its exit status is 0 if every peer ended as expected.
"""

import json
import socket
import sys
from pathlib import Path
from typing import Any

SOCKET = "agent.sock"


def call(folder: Path, words: list[str]) -> dict[str, Any]:
    """Call the agent of a folder, and return its answer.

    Raises:
        OSError: no agent listens there.
        ValueError: the agent ended before it answered.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.connect(str(folder / SOCKET))
        link.sendall(json.dumps(words).encode() + b"\n")
        answer: dict[str, Any] = json.loads(link.makefile("rb").readline())
    return answer


def _call_and_print(folder: Path, words: list[str]) -> int:
    try:
        answer = call(folder, words)
    except (OSError, ValueError) as error:
        print(f"no agent answers in {folder}: {error}", file=sys.stderr)
        return 1
    if "error" in answer:
        print(answer["error"], file=sys.stderr)
        return 1
    print(json.dumps(answer))
    return 0


def main(arguments: list[str]) -> int:
    """Run the agent of a folder, or call it."""
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    if arguments[1:2] == ["--call"]:
        return _call_and_print(folder, arguments[2:])
    from peer.runtime.supervisor import run_agent  # imported late, since a call does not need it and must be fast

    return run_agent(folder, folder / SOCKET)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
