"""The sandbox: nothing gets out of it, nothing stays behind."""

import os
import select
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from harness.errors import TestbedError
from harness.machine import sandbox

pytestmark = pytest.mark.root

ENTERING = """
import sys
from pathlib import Path
from harness.machine import sandbox
sys.exit(sandbox.run(sys.argv[2:], keep=[Path(sys.argv[1])]))
"""


def entering(folder: Path, *argv: str) -> list[str]:
    return [sys.executable, "-c", ENTERING, str(folder), *argv]


def run_inside(folder: Path, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = entering(folder, "sh", "-c", script)
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **variables}, timeout=300
    )


def processes_with(marker: str) -> list[int]:
    """Processes whose environment carries the marker."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if marker.encode() in environment.read_bytes():
                found.append(int(environment.parent.name))
        except OSError:
            continue
    return found


def test_sees_loopback_only_and_no_route_out(tmp_path: Path) -> None:
    inside = run_inside(tmp_path, "ip -o link; ip route show table main")
    lines = inside.stdout.splitlines()
    assert [line.split(":")[1].strip() for line in lines] == ["lo"]
    assert "UP" in lines[0]


def test_first_process_and_nobody_else(tmp_path: Path) -> None:
    assert run_inside(tmp_path, "echo $$; ls -d /proc/[0-9]*").stdout.split()[:2] == ["1", "/proc/1"]


def test_hides_temporary_folders_but_shows_what_is_kept(tmp_path: Path) -> None:
    kept, hidden = tmp_path / "kept", tmp_path / "hidden"
    kept.mkdir()
    hidden.write_text("secret")
    inside = run_inside(
        kept, f"echo new > {kept}/file; touch /tmp/left /run/left /dev/shm/left /var/tmp/left; cat {hidden}"
    )
    assert (kept / "file").read_text() == "new\n"
    assert "No such file" in inside.stderr
    assert not any(Path(folder, "left").exists() for folder in sandbox.PRIVATE_FOLDERS)


def test_keeps_a_file_of_a_hidden_folder(tmp_path: Path) -> None:
    (tmp_path / "only").write_text("kept")
    (tmp_path / "other").write_text("hidden")
    assert run_inside(tmp_path / "only", f"ls {tmp_path}; cat {tmp_path}/only").stdout == "only\nkept"


def test_returns_the_status_and_passes_the_environment(tmp_path: Path) -> None:
    inside = run_inside(tmp_path, "echo $GIVEN; exit 7", GIVEN="value")
    assert (inside.stdout, inside.returncode) == ("value\n", 7)


def test_says_when_a_signal_ended_it(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match=r"signal \d+ ended it"):
        sandbox.run([sys.executable, "-c", "import os; os.abort()"], keep=[tmp_path])


def test_says_which_program_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TestbedError, match="setpriv is not installed"):
        sandbox.enter(["true"])


def test_says_what_the_kernel_refuses() -> None:
    """In a user namespace that may have no network namespaces."""
    program = (
        "from harness.machine import sandbox\ntry: sandbox.enter(['true'])\nexcept Exception as error: print(error)"
    )
    forbid = 'echo 0 > /proc/sys/user/max_net_namespaces; exec "$@"'
    limited = ["unshare", "--user", "--map-root-user", "sh", "-c", forbid, "sh"]
    done = subprocess.run([*limited, sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("make namespaces for a sandbox as uid 0: unshare")
    assert done.stdout.endswith("(trellis doctor says what is missing)\n")


def test_kill_of_the_caller_ends_everything_inside(tmp_path: Path) -> None:
    """A background daemon in a session and namespace of its own dies with the caller, and so does the namespace."""
    marker = uuid.uuid4().hex
    script = "setsid unshare --net sh -c 'readlink /proc/self/ns/net; sleep 1000' & sleep 1000"
    caller = subprocess.Popen(
        entering(tmp_path, "sh", "-c", script), stdout=subprocess.PIPE, text=True, env={**os.environ, "MARKER": marker}
    )
    assert caller.stdout is not None
    namespace = caller.stdout.readline().strip()
    inside = [os.pidfd_open(process) for process in processes_with(marker) if process != caller.pid]
    assert len(inside) >= 3, "unshare, the first process inside, and the one in the inner namespace"
    caller.kill()
    caller.wait()
    for descriptor in inside:
        _await_end(descriptor)
    assert processes_with(marker) == []
    assert namespace.startswith("net:[")
    assert namespace not in {_link(path) for path in Path("/proc").glob("[0-9]*/ns/net")}


def test_an_interrupted_caller_returns_when_nothing_is_left_inside(tmp_path: Path) -> None:
    """Even where what runs inside heeds no signal."""
    marker = uuid.uuid4().hex
    caller = subprocess.Popen(
        entering(tmp_path, "sh", "-c", "trap '' INT TERM; setsid sleep 1000 & echo up; sleep 1000; sleep 1000"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "MARKER": marker},
        start_new_session=True,
    )
    assert caller.stdout is not None
    assert caller.stdout.readline() == "up\n"
    os.killpg(caller.pid, signal.SIGINT)
    assert caller.wait(300) == -signal.SIGINT
    assert processes_with(marker) == []


def test_two_sandboxes_do_not_see_each_other(tmp_path: Path) -> None:
    """Both at once make the same interface and the same file."""
    outputs = [
        subprocess.Popen(
            entering(tmp_path, "sh", "-ec", f"ip link add twin type bridge; echo {n} > /tmp/twin; cat /tmp/twin"),
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(2)
    ]
    assert [process.communicate(timeout=300)[0] for process in outputs] == ["0\n", "1\n"]


def _await_end(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(60_000), "a process of the sandbox survived its caller"
    os.close(descriptor)


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""
