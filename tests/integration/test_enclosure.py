"""The file system that the agent and the peers see: read-only, except the folders that are theirs."""

import subprocess
from pathlib import Path

import pytest

from harness.interpreter import python_command
from tests.integration.deployment_machines import sandboxed

pytestmark = pytest.mark.root

TRY = 'for path; do if touch "$path/new" 2>/dev/null; then echo "can $path"; else echo "cannot $path"; fi; done'


def enclosed(folder: Path, *options: str, script: str = TRY, paths: tuple[Path, ...] = ()) -> list[str]:
    """What a script says in the enclosure about some folders, one line each."""
    for name in ("passwd", "shadow"):
        (folder / name).write_text("root:x:0:0::/:/bin/sh\n")
    inside = python_command("-m", "harness.testbeds.emulated.enclosure", str(folder), *options, "--")
    command = ["unshare", "--mount", "--propagation", "private", *inside, "sh", "-c", script, "sh", *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@sandboxed
def test_only_the_work_folder_and_private_folders_can_be_written(tmp_path: Path):
    folder, work, odd, below = (
        tmp_path / name for name in ("m", "work", "odd name\\with signs", "odd name\\with signs/b")
    )
    for path in (folder, work, odd):
        path.mkdir()
    subprocess.run(["mount", "--bind", str(work), str(work)], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nosuid,noexec", "tmpfs", str(odd)], check=True)
    below.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(below)], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(odd)], check=True)  # the two mounts before are out of reach
    checkout, settings = Path(__file__).parents[2], Path("/proc/sys/kernel/core_pattern")
    private = tuple(map(Path, ("/tmp", "/run", "/dev/shm", "/var/tmp")))
    paths = (checkout, Path("/etc"), odd, *private, work)
    said = enclosed(folder, f"--writable={work}", paths=paths)
    assert [line.split()[0] for line in said] == ["cannot"] * 3 + ["can"] * 5
    writes = f'sh -c "echo core > {settings}" 2>/dev/null || echo refused; echo here > /dev/null && echo fine'
    assert enclosed(folder, f"--writable={work}", script=writes) == ["refused", "fine"]
    flags = enclosed(folder, f"--writable={work}", script="grep ' /proc ' /proc/self/mountinfo | tail -1")
    assert flags[0].split()[5].startswith("ro,nosuid,nodev,noexec"), "the other flags stay"


@sandboxed
def test_a_hidden_folder_is_empty(tmp_path: Path):
    folder, work, secret = (tmp_path / name for name in ("m", "work", "secret"))
    for path in (folder, work, secret):
        path.mkdir()
    (secret / "file").touch()
    subprocess.run(["mount", "--bind", str(work), str(work)], check=True)
    options = (f"--writable={work}", f"--hidden={secret}")
    assert enclosed(folder, *options, script=f"ls {secret}; touch {secret}/new || echo refused") == ["refused"]


@sandboxed
def test_an_open_machine_has_its_accounts_and_its_own_work_folder(tmp_path: Path):
    folder, work = tmp_path / "m", tmp_path / "work"
    for path in (folder, work):
        path.mkdir()
    (work / "file").touch()
    said = enclosed(folder, f"--own-work={work}", script=f"ls {work}; cat /etc/passwd; touch {tmp_path}/x && echo can")
    assert said == ["root:x:0:0::/:/bin/sh", "can"]
