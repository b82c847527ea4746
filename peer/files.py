"""The files of an agent's work folder: its documents, and the files that the agent and its peers write.

The harness collects the latter into the run directory, under the same names unless it defines others.
"""

AGENT_FILE = "agent.json"
OVERLAY_FILE = "overlay.json"
SCHEDULE_FILE = "schedule.jsonl"
EXITS_FILE = "exits.jsonl"

TRACE_FOLDER = "trace"
LOGS_FOLDER = "logs"
RECORD_FOLDER = "record"
TEMPORARY_FOLDER = "tmp"
"""Is not collected, and is removed when the peers have ended."""


def trace_file(node: int) -> str:
    """Return the path of a node's trace in the folder."""
    return f"{TRACE_FOLDER}/{node}.jsonl"


def log_file(node: int) -> str:
    """Return the path of the output of a node's process in the folder."""
    return f"{LOGS_FOLDER}/{node}.log"


def record_file(node: int) -> str:
    """Return the path of a node's recording in the folder."""
    return f"{RECORD_FOLDER}/{node}.msgpack"


def spec_file(node: int) -> str:
    """Return the path of the document for a peer that is not a Python program, in the folder."""
    return f"spec/{node}.json"


def temporary_folder(node: int) -> str:
    """Return the path of the folder for temporary files of a node's programs, in the folder."""
    return f"{TEMPORARY_FOLDER}/{node}"


def host_folder(host: str) -> str:
    """Return the folder of a host's processes, in which they run, in the folder. ``host``: its host name."""
    return f"hosts/{host}"


def output_files(host: str, process: str) -> tuple[str, str]:
    """Return the paths of a process's standard output and standard error in the folder."""
    return f"{host_folder(host)}/{process}.stdout", f"{host_folder(host)}/{process}.stderr"


def ends_file(host: str) -> str:
    """Return the path of the file in the folder that says how each process of a host ended."""
    return f"{host_folder(host)}/processes.jsonl"
