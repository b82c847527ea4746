"""The files of an agent's work folder: its documents, and what the agent and its peers write.

The harness collects what they write into the run directory, under the same names unless it says otherwise.
"""

AGENT_FILE = "agent.json"
OVERLAY_FILE = "overlay.json"
SCHEDULE_FILE = "schedule.jsonl"
EXITS_FILE = "exits.jsonl"

TRACE_FOLDER = "trace"
LOGS_FOLDER = "logs"
RECORD_FOLDER = "record"


def trace_file(node: int) -> str:
    """Return where the trace of a node is."""
    return f"{TRACE_FOLDER}/{node}.jsonl"


def log_file(node: int) -> str:
    """Return where the output of a node's process is."""
    return f"{LOGS_FOLDER}/{node}.log"


def record_file(node: int) -> str:
    """Return where the recording of a node is."""
    return f"{RECORD_FOLDER}/{node}.msgpack"


def spec_file(node: int) -> str:
    """Return where a peer that is no Python program finds what it has to do."""
    return f"spec/{node}.json"
