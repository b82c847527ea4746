"""Experiments of Shadow as experiments of Trellis: the hosts, the network and the processes of a ``shadow.yaml``.

``topologies.shadow`` reads the file. The underlay reads the network from it again (``underlay.kind = "shadow"``), so an
experiment has only the path.
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from harness.errors import ExperimentError
from harness.experiment.document import apply_overrides, input_errors, naming_origin, read_toml
from peer.protocols.registry import PROTOCOLS
from topologies.shadow.form import UPWARDS, Process, ShadowFile, read_shadow

ENDINGS: Final = (".yaml", ".yml")

KIND: Final = "shadow"
"""The kind of underlay with the hosts of such a file."""

WARMUP_S: Final = 2.0
"""Time from the start of the peers to the start of the experiment, in which nothing happens."""

PROCESS_MIB: Final = 10.0
"""The memory that ``plan`` assumes for a process of a program, unless ``peer.memory_mib`` says otherwise."""


def is_shadow(path: Path) -> bool:
    """Return whether a file is meant as an experiment of Shadow: it is YAML."""
    return path.suffix in ENDINGS


def read_document(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Read an experiment as plain values, and apply the ``key=value`` overrides of the command line.

    Args:
        path: a TOML file, or a ``shadow.yaml``.
        overrides: they name keys of experiments of Trellis in both cases.

    Raises:
        ExperimentError: the file or an override is invalid.
    """
    if not is_shadow(path):
        return read_toml(path, overrides)
    with input_errors():
        shadow = read_shadow(path)
        document = _translate(path, shadow)
    apply_overrides(document, path, overrides)
    with naming_origin(path, overrides):
        _refuse_sample(document, len(shadow.hosts))
    return document


def _refuse_sample(document: dict[str, Any], hosts: int) -> None:
    """Refuse another number of hosts of the file: processes have the numbers of all of its hosts."""
    underlay = document.get("underlay")
    if not isinstance(underlay, dict) or underlay.get("kind") != KIND:
        return
    if (asked := underlay.get("hosts", hosts)) != hosts:
        problem = f"expected {hosts}, since processes run on all hosts of the file, got {asked}"
        raise ExperimentError("$.underlay.hosts", problem)


def shadow_remarks(path: Path) -> tuple[str, ...]:
    """Return a sentence for each kind of keys of a ``shadow.yaml`` that have no effect; none for other files.

    Raises:
        ExperimentError: the file is invalid.
    """
    if not is_shadow(path):
        return ()
    with input_errors():
        return read_shadow(path).remarks


def _translate(path: Path, shadow: ShadowFile) -> dict[str, Any]:
    """Return the experiment of Trellis that an experiment of Shadow means.

    Its seconds count from the start of the publishing window, in which nothing is published. The protocol is that of
    peers that do not exist: every node could know every other one.
    """
    processes = list(_processes(path, shadow))
    if not processes:
        raise ExperimentError(f"{path}: hosts", "no host has a process, so there is nothing to run")
    return {
        "name": _name(path),
        "description": f"Shadow's {path.name}",
        "protocol": next(name for name, protocol in PROTOCOLS.items() if protocol.links_all),
        "seed": shadow.seed,
        "underlay": {"kind": KIND, "path": path.name},
        "workload": {"warmup_s": WARMUP_S, "duration_s": shadow.stop_ns / 1e9, "cooldown_s": 0.0},
        "peer": {"metrics": False, "memory_mib": PROCESS_MIB, "processes": processes},
        "prometheus": {"enabled": False},
    }


def _processes(path: Path, shadow: ShadowFile) -> Iterator[dict[str, Any]]:
    """Yield the processes of all hosts. A path up to the folder of Shadow's data means the folder of the file."""
    folder = path.parent.absolute()
    upwards = partial(UPWARDS.sub, lambda _: f"{folder}/")
    for node, host in enumerate(shadow.hosts):
        for number, process in enumerate(host.processes):
            program = _find_program(f"{path}: hosts.{host.name}.processes[{number}].path", process)
            found: dict[str, Any] = {
                "node": node,
                "command": [program, *map(upwards, process.args)],
                "environment": [f"{name}={text}" for name, text in process.environment.items()],
                "start_s": process.start_ns / 1e9,
                "shutdown_signal": process.shutdown_signal,
                "expected": process.expected,
            }
            if process.shutdown_ns is not None:
                found["shutdown_s"] = process.shutdown_ns / 1e9
            yield found


def _find_program(place: str, process: Process) -> str:
    """Return the absolute path of a program, which is searched in ``PATH`` if it is a bare name.

    Raises:
        ExperimentError: there is no such program.
    """
    try:
        named = str(Path(process.path).expanduser()) if process.path.startswith("~/") else process.path
    except RuntimeError as error:
        raise ExperimentError(place, str(error)) from None
    found = shutil.which(named)
    if found is None:
        raise ExperimentError(place, f"there is no program {process.path[:80]!r} that can be run on this machine")
    return str(Path(found).absolute())


def _name(path: Path) -> str:
    """Return the name of the run's directory: that of the file, with characters that such a name may have."""
    return re.sub(r"[^a-z0-9._-]+", "-", path.stem.lower()).lstrip("._-")[:63] or "shadow"
