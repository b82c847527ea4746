"""A disk that becomes full: who says so. Small file systems in memory, in mount namespaces of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.test_agent import Machine, machine, until

__all__ = ["machine"]

pytestmark = pytest.mark.root

TRACES_ON_SMALL_DISK = 'mkdir "$1/trace"; mount -t tmpfs -o size=24k tmpfs "$1/trace"; shift; exec "$@"'
ALL_ON_SMALL_DISK = (
    'mkdir "$1.disk"; mount -t tmpfs -o size=256k tmpfs "$1.disk"; cp -a "$1/." "$1.disk"; '
    'mount --bind "$1.disk" "$1"; shift; exec "$@"'
)


def on_disk(script: str, folder: Path) -> tuple[str, ...]:
    return "unshare", "--mount", "sh", "-ec", script, "sh", str(folder)


def test_peers_whose_traces_do_not_fit_end_with_the_reason(machine, tmp_path: Path) -> None:
    """Each trace has a page; some have no room for a second, which shows when they flush, not only at the end."""
    m: Machine = machine(5, under=on_disk(TRACES_ON_SMALL_DISK, tmp_path), stop_ns=6_000_000_000)
    m.await_ready()
    zero_ns = m.start()
    assert m.wait() == 1
    failed = [one for one in m.exits().values() if one["status"]]
    assert failed
    assert all(one["at_ns"] < zero_ns + m.spec.stop_ns for one in failed)
    assert {(one["state"], one["status"], one["detail"]) for one in failed} == {
        ("exited", os.EX_IOERR, "the disk is full")
    }
    assert all("No space left" in (tmp_path / f"logs/{one['process'][5:]}.log").read_text() for one in failed)


def test_an_agent_ends_in_time_on_a_full_disk_and_says_why(machine, tmp_path: Path) -> None:
    """Neither how peers end can be noted, nor do their own words fit."""
    m: Machine = machine(5, under=on_disk(ALL_ON_SMALL_DISK, tmp_path))
    until(lambda: Path(f"/proc/{m.process.pid}/comm").read_text().startswith("python"))
    m.folder = Path(f"/proc/{m.process.pid}/root{tmp_path}")
    m.await_ready()
    with (m.folder / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space left"):
        while True:
            filler.write(bytes(4096))
    m.start()
    exits = m.folder / "exits.jsonl"
    descriptor = os.open(exits, os.O_RDONLY)
    assert m.wait() == 1
    words = m.process.stderr.read().decode()
    assert words.count("not noted") == 5
    assert "No space left" in words
    assert os.read(descriptor, 100) == b""
    os.close(descriptor)


RESERVE = """
import json, shutil, sys
from pathlib import Path
from harness.errors import TestbedError
from harness.machine.disk_reserve import RESERVE_BYTES, Reserve
folder, said = Path(sys.argv[1]), []
reserve = Reserve(folder)
said.append(RESERVE_BYTES <= shutil.disk_usage(folder).used)
said.append(reserve.release())
reserve = Reserve(folder)
said.append(reserve.lost())
try:
    (folder / "filler").write_bytes(bytes(64 << 20))
except OSError as error:
    said.append(error.strerror)
said.append(reserve.lost())
said.append(reserve.release())
said.append(RESERVE_BYTES <= shutil.disk_usage(folder).free)
(folder / "last words").write_bytes(bytes(1 << 20))
(folder / "filler").write_bytes(bytes(12 << 20))
try:
    Reserve(folder)
except TestbedError as error:
    said.append(str(error))
said.append(sorted(path.name for path in folder.iterdir()))
print(json.dumps(said))
"""


def test_a_reserve_leaves_space_for_last_words(tmp_path: Path) -> None:
    on_small_disk = 'mount -t tmpfs -o size=16m tmpfs "$1"; exec "$2" -c "$3" "$1"'
    command = ["unshare", "--mount", "sh", "-ec", on_small_disk, "sh", str(tmp_path), sys.executable, RESERVE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [
        True,
        False,
        {},
        "No space left on device",
        {f"the disk of {tmp_path}": "no space left"},
        True,
        True,
        f"reserve 4 MiB in {tmp_path}: No space left on device",
        ["filler", "last words"],
    ]
