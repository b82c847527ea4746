"""A real quota of processor time on this machine's cgroups, of whichever version they are."""

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.root

LOOK = """
import json, multiprocessing, os, time
from harness.machine import awake, pressure
from metrics.processors import find_groups, processor_quota, read_throttling, usable_processors
from peer.runtime.clock import UNDILATED
from pathlib import Path

LOG = Path("{log}")

def spin():
    # Until the log has it: imports alone may use up the quota, and other work on the machine may keep it from being
    # used up for some time.
    until = time.monotonic() + 30
    while not (LOG.exists() and "throttled_periods" in (text := LOG.read_text()) and "throttled_us" in text):
        if time.monotonic() > until:
            break

awake.is_virtual = lambda: True
os.environ.pop(awake.KEEP_AWAKE_VARIABLE, None)
log = pressure.PressureLog(LOG, UNDILATED)
before = read_throttling(find_groups())
log.start()
busy = [multiprocessing.Process(target=spin) for _ in range(2)]
[process.start() for process in busy]
[process.join() for process in busy]
log.stop()
throttled = read_throttling(find_groups()).since(before)
quotas = processor_quota(find_groups()), usable_processors()
print(json.dumps([*quotas, awake.make_keep_awake() is None, throttled.periods, throttled.time_us]))
"""


@pytest.fixture
def quota() -> Iterator[Path]:
    """A cgroup that half a processor was given to; gone afterwards."""
    name = f"trellis-test-{uuid.uuid4().hex[:8]}"
    version_1, version_2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
    if version_1.is_dir():
        group = version_1 / name
        group.mkdir()
        (group / "cpu.cfs_quota_us").write_text("50000")
    else:
        (version_2 / "cgroup.subtree_control").write_text("+cpu")
        group = version_2 / name
        group.mkdir()
        (group / "cpu.max").write_text("50000 100000")
    yield group
    deadline = time.monotonic() + 300
    while (group / "cgroup.procs").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    group.rmdir()


@pytest.mark.parametrize("sandboxed", [False, True], ids=["outside", "in the sandbox"])
def test_a_quota_is_found_kept_clear_of_and_its_use_recorded(quota: Path, tmp_path: Path, sandboxed: bool) -> None:
    """Half a processor is less than any machine has; two busy processes use it up."""
    program = LOOK.format(log=tmp_path / "pressure.jsonl")
    if sandboxed:
        inner = f"sys.exit(sandbox.run([sys.executable, '-c', {program!r}], keep=[Path({str(tmp_path)!r})]))"
        program = f"import sys\nfrom pathlib import Path\nfrom harness.machine import sandbox\n{inner}"
    command = ["sh", "-ec", 'echo $$ >"$1"; shift; exec "$@"', "sh", str(quota / "cgroup.procs")]
    done = subprocess.run([*command, sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found_quota, usable, nobody_awake, periods, throttled_us = json.loads(done.stdout)
    assert (found_quota, usable, nobody_awake) == (0.5, 0.5, True)
    assert periods > 0
    assert throttled_us > 0
    lines = [json.loads(line) for line in (tmp_path / "pressure.jsonl").read_text().splitlines()]
    assert 0 < sum(line.get("throttled_periods", 0) for line in lines) <= periods
    assert 0 < sum(line.get("throttled_us", 0) for line in lines) <= throttled_us
