"""The processes of an emulated run by what they do, for those who kill one."""

from pathlib import Path

from peer.runtime.children import descendants

PARTS = {
    "agent": ("peer.runtime.agent", 0),
    "peer": ("peer.runtime.agent", 1),
    "process": ("userspace.process", 0),
    "monitor": ("userspace.monitor", 0),
    "writer": ("userspace.writer", 0),
    "capture": ("host_capture.process", 0),
    "prober": ("harness.stages.execution", -1),
    "prometheus": ("prometheus --config", 0),
}
"""A part -> words in its command line, and which of the processes with them it is, by age. Peers are forks of the
agent, and the prober is one of the running stage, so they share their command lines."""


def find_part(run: int, part: str) -> int:
    """The process of a part below a run's process.

    Raises:
        LookupError: there is none.
    """
    words, place = PARTS[part]
    return sorted((process for process in descendants(run) if words in _command(process)), key=_started)[place]


def _started(process: int) -> int:
    """When a process was started, in ticks of the kernel. Numbers of processes do not say it: they begin again."""
    return int(Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
