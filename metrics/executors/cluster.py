"""What a cluster's executors get, and whether its workers can do the work at all."""

import re
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from metrics.rundir.reading import RunDirError
from metrics.storage import Place, StorePath

if TYPE_CHECKING:
    from metrics.executors import Executor

HEAP_MIB: Final = 1024
"""The most memory of an executor that its Java virtual machine takes: no row passes through it."""

TASK_MIB: Final = 2048
"""The memory of a task by default. The largest task measured, of a run with 10 million packets, took half of it."""

LEAST_MIB: Final = 1024

_SIZE = re.compile(r"(\d+)([mg])", re.IGNORECASE)

_COUNT = r"(\d+|\*)"
_MASTER = re.compile(
    rf"here|local(\[{_COUNT}(, *\d+)?\])?|local-cluster\[\d+, *\d+, *\d+\]|spark://\S+:\d+|sc://[^\s:/;]+(:\d+)?(/;\S*)?|k8s://\S+|yarn",
    re.ASCII,
)


@dataclass(frozen=True)
class ExecutorOptions:
    """The resources of each executor of a cluster; None = the default.

    Attributes:
        memory_mib: its memory, of which the Java virtual machine takes at most ``HEAP_MIB``. The default is enough for
            one task per core, ``TASK_MIB`` each. Only YARN and Kubernetes limit Python processes to it.
        cores: its cores, each for one task; by default one on YARN and Kubernetes, and all of the worker's elsewhere.
        python: the path of its Python, which needs NumPy, pyarrow and msgspec; by default ``PYSPARK_PYTHON`` if that is
            set, otherwise the path of this Python.
        conf: other settings of Spark, as ``KEY=VALUE``; they have priority over the settings of Trellis.
    """

    memory_mib: int | None = None
    cores: int | None = None
    python: str | None = None
    conf: tuple[str, ...] = ()

    def settings(self) -> dict[str, str]:
        """Return the configuration of Spark for a cluster."""
        memory = self.memory_mib or HEAP_MIB + TASK_MIB * (self.cores or 1)
        heap = min(HEAP_MIB, memory // 2)
        found = {"spark.executor.memory": f"{heap}m", "spark.executor.memoryOverhead": f"{memory - heap}m"}
        found |= {"spark.executor.cores": str(self.cores)} if self.cores else {}
        return found | dict(map(parse_setting, self.conf))


DEFAULTS: Final = ExecutorOptions()


def parse_memory(text: str) -> int:
    """Return a size such as ``512m`` or ``4g`` in MiB.

    Raises:
        ValueError: it is not such a size, or less than ``LEAST_MIB``.
    """
    found = _SIZE.fullmatch(text)
    size = int(found[1]) * (1024 if found[2].lower() == "g" else 1) if found else 0
    if size < LEAST_MIB:
        raise ValueError(f"expected a size of at least {LEAST_MIB >> 10}g, such as 4g or 3072m, got '{text}'")
    return size


def parse_setting(text: str) -> tuple[str, str]:
    """Return a setting of Spark, such as ``spark.eventLog.enabled=true``, as its name and its value.

    Raises:
        ValueError: it is not a setting.
    """
    name, given, value = text.partition("=")
    if not (given and name.startswith("spark.")):
        raise ValueError(f"expected a setting of Spark, such as spark.eventLog.enabled=true, got '{text}'")
    return name, value


def check_master(text: str) -> str:
    """Return a master if its form is one that Spark knows, or if it stands for this process.

    Raises:
        ValueError: it has no such form.
    """
    if not _MASTER.fullmatch(text):
        raise ValueError(
            f"expected 'here', 'local[*]', spark://HOST:PORT, sc://HOST:PORT, k8s://URL or yarn, got '{text}'"
        )
    return text


def is_connect(master: str) -> bool:
    """Return whether a master is a Spark Connect server, which has its own executors."""
    return master.startswith("sc://")


class WorkersError(RunDirError):
    """The workers of a cluster cannot analyse a run."""


class MasterError(RunDirError):
    """The master of a cluster does not give a session."""

    def __init__(self, master: str, why: str = "does a master answer at this address?") -> None:
        Exception.__init__(self, f"{master}: Spark cannot begin: {why}")


def require_workers(executor: "Executor", master: str, run_dir: Place, folder: Place) -> None:
    """Let a task on every core show that Python runs there, and that it and this process see each other's files.

    Args:
        executor: the executor of the cluster.
        master: the master of the cluster.
        run_dir: the run.
        folder: the folder in which the results of the run are made.

    Raises:
        WorkersError: a worker cannot; the message says which worker and what to do.
    """
    marker, content = folder / f".seen-{secrets.token_hex(8)}", secrets.token_bytes(16)
    marker.write_bytes(content)
    try:
        try:
            answers = executor.map(partial(_answer, marker, content), range(executor.workers))
        except Exception as error:
            raise WorkersError(
                run_dir, f"no task runs on the workers of {master}: {_cause(error)}; {_REMEDY}"
            ) from None
        blind = {host for host, sees, wrote in answers if not sees or not (wrote is not None and wrote.exists())}
        if blind:
            raise WorkersError(run_dir, _describe(master, sorted(blind), in_store=isinstance(folder, StorePath)))
    finally:
        for left in folder.glob(f"{marker.name}*"):
            left.unlink(missing_ok=True)


_REMEDY = "they need Python at the same path or at --executor-python, with NumPy, pyarrow and msgspec"


def _answer(marker: Place, content: bytes, number: int) -> tuple[str, bool, Place | None]:
    """Run as the task: return this machine's name, whether it sees the marker, and the file written beside it."""
    host, mine = socket.gethostname(), marker.with_name(f"{marker.name}-{number}")
    try:
        sees = marker.read_bytes() == content
        if sees:
            mine.write_bytes(content)
    except OSError:
        return host, False, None
    return host, sees, mine if sees else None


def _describe(master: str, hosts: Sequence[str], *, in_store: bool) -> str:
    workers = f"the workers of {master} on {', '.join(hosts)}"
    if in_store:
        return f"{workers} cannot read and write it; they need keys of their own (AWS_ACCESS_KEY_ID, ... or a role)"
    return (
        f"{workers} do not see it at this path, or cannot write there. Put it on a file system that they share, or "
        "copy it to a store (trellis copy RUN s3://bucket/run) and name that URI"
    )


def _cause(error: Exception) -> str:
    """Return the line of an error of Spark that says what happened on the worker, from Python or else from Java."""
    said = str(error)
    found = _OF_PYTHON.findall(said) or _OF_JAVA.findall(said) or said.splitlines()
    return str(found[-1]).strip() if found else type(error).__name__


_OF_PYTHON = re.compile(r"^[\w.]+(?:Error|Exception): .*$", re.MULTILINE)
"""The last line of a traceback; frames of a stack are indented."""
_OF_JAVA = re.compile(r"most recent failure: Lost task .*?\(TID \d+\) \(.*?\): (.*)$", re.MULTILINE)
