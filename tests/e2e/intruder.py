"""A program that runs as a peer and tries what a hostile one would. It prints what it could do, as a line of JSON.

Usage: intruder.py SPEC RUN_DIR FILE_OF_THE_USER FILE_IN_TMP LAIDERC

The last word is a credential of the user, backwards: this command line is no place for it.
"""

import ctypes
import errno
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET = 0x10000000, 0x20000, 0x40000000
GATEWAY, SSH_PORT, METRICS_PORT = "172.16.255.254", 2222, 9100
CONNECT_S = 1.0
LIBC = ctypes.CDLL(None, use_errno=True)
PATHS = [Path(word) for word in sys.argv[1:5]]
SPEC, RUN_DIR, USERS_FILE, FILE_IN_TMP = PATHS
CREDENTIAL = sys.argv[5][::-1].encode()


def answer_of(address: str, port: int) -> str:
    """How an endpoint answers: connected, refused (a host is there), or not at all."""
    try:
        socket.create_connection((address, port), CONNECT_S).close()
    except ConnectionRefusedError:
        return "refused"
    except OSError:
        return "no answer"
    return "connected"


def can_open(path: Path, flags: int = os.O_RDONLY) -> bool:
    try:
        os.close(os.open(path, flags | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def in_a_fork(action: Callable[[], bool]) -> bool:
    """Whether an action works, in a process whose changes to itself are of no consequence."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if action() else 1)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def others() -> Iterator[Path]:
    """The folders in /proc of all processes but this one."""
    return (path for path in Path("/proc").iterdir() if path.name.isdigit() and int(path.name) != os.getpid())


def capabilities() -> dict[str, int]:
    lines = Path("/proc/self/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1], 16) for line in lines if line.startswith(("Cap", "NoNewPrivs"))}


def peers() -> set[Path]:
    """The other peers, which run this program, with what they have forked."""
    return {process for process in others() if b"intruder.py" in command_of(process)}


def parts_of_the_run() -> set[Path]:
    """The processes of the harness: the running stage, the data plane, the agent and so on.

    What has no command line has no memory: it has ended, and nobody has waited for it yet.
    """
    commands = {process: command_of(process) for process in others()}
    return {process for process, command in commands.items() if command and b"intruder.py" not in command}


def command_of(process: Path) -> bytes:
    """The command line of a process; empty if it has ended."""
    return contents(process / "cmdline")


def contents(path: Path) -> bytes:
    """What is in a file; nothing where this process may not read it, or where it has gone meanwhile."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def finds_the_key() -> bool:
    files = [*Path("/run").rglob("*key"), *(file for process in others() for file in descriptors(process))]
    return any(can_open(file) and b"PRIVATE KEY" in contents(file)[:100] and "host" not in file.name for file in files)


def descriptors(process: Path) -> list[Path]:
    try:
        return list((process / "fd").iterdir())
    except OSError:
        return []


def reaches_the_server() -> bool:
    addresses = ["127.0.0.1", GATEWAY, *(f"172.16.0.{host + 1}" for host in range(3))]
    return "connected" in {answer_of(address, SSH_PORT) for address in addresses}


def reaches_another_host_undelayed() -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as towards:
        towards.connect((GATEWAY, 1))
        own = towards.getsockname()[0]
    answers = [answer_of(f"172.16.0.{host + 1}", METRICS_PORT) for host in range(3) if f"172.16.0.{host + 1}" != own]
    return answers != ["no answer"] * 2


def reaches_another_host() -> bool:
    spec = json.loads(SPEC.read_text())
    address, port = spec["addresses"][(spec["node"]["node"] + 1) % 3]
    return answer_of(address, port) != "no answer"


def mounts() -> bool:
    return LIBC.mount(b"tmpfs", b"/mnt", b"tmpfs", 0, None) == 0


def enters(kind: str, process: Path) -> bool:
    try:
        descriptor = os.open(process / "ns" / kind, os.O_RDONLY)
    except OSError:
        return False
    return LIBC.setns(descriptor, 0) == 0


def in_own_namespace(action: Callable[[], bool], also: int = 0) -> bool:
    """Whether an action works with all capabilities over a user namespace of one's own."""
    return in_a_fork(lambda: LIBC.unshare(CLONE_NEWUSER | also) == 0 and action())


def opens_raw_socket() -> bool:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
    return True


def changes_files_again() -> bool:
    """Whether remounting, which a mount namespace of one's own allows for one's own mounts, gives write access."""
    LIBC.mount(None, b"/", None, 32 | 4096, None)  # MS_REMOUNT | MS_BIND, without MS_RDONLY
    return can_open(USERS_FILE, os.O_WRONLY)


def can_signal(process: Path) -> bool:
    try:
        os.kill(int(process.name), 0)
    except ProcessLookupError:
        return True  # it has just ended
    except PermissionError:
        return False
    return True


def calls_the_agent() -> bool:
    with socket.socket(socket.AF_UNIX) as link:
        try:
            link.connect(str(SPEC.parents[1] / "agent.sock"))
        except OSError as error:
            return error.errno not in (errno.EACCES, errno.ENOENT)
        link.sendall(b'["status"]\n')
        return b"counts" in link.recv(1 << 16)


ATTEMPTS: dict[str, Callable[[], bool]] = {
    "read the key of the run's SSH server's user": finds_the_key,
    "connect to the run's SSH server": reaches_the_server,
    "connect to the metrics of the agent and the data plane": lambda: (
        "connected" in {answer_of(GATEWAY, port) for port in (9101, 9102)}
    ),
    "reach other hosts over the control network": reaches_another_host_undelayed,
    "reach other hosts over the emulated network": reaches_another_host,
    "reach an address outside the run": lambda: answer_of("192.0.2.1", 9) != "no answer",
    "have or gain a capability over the run's namespaces": lambda: bool(
        {name: value for name, value in capabilities().items() if value} != {"NoNewPrivs": 1}
    ),
    "mount a file system": lambda: in_a_fork(mounts),
    "open a raw socket": lambda: in_a_fork(opens_raw_socket),
    "enter the namespaces of the running stage": lambda: any(
        in_a_fork(lambda kind=kind: enters(kind, Path("/proc/1"))) for kind in ("net", "mnt", "user")
    ),
    "open a raw socket on its host, in a user namespace of its own": lambda: in_own_namespace(opens_raw_socket),
    "write the user's files, in a user and mount namespace of its own": lambda: in_own_namespace(
        changes_files_again, CLONE_NEWNS
    ),
    "see the run directory": lambda: any(RUN_DIR.iterdir()),
    "write the run directory": lambda: can_open(RUN_DIR / "manifest.json", os.O_WRONLY | os.O_CREAT),
    "read the user's files, such as those in the home folder": lambda: can_open(USERS_FILE),
    "write the user's files": lambda: (
        can_open(USERS_FILE, os.O_WRONLY) or can_open(USERS_FILE.with_name("new"), os.O_WRONLY | os.O_CREAT)
    ),
    "write settings of the kernel": lambda: can_open(Path("/proc/sys/kernel/core_pattern"), os.O_WRONLY),
    "see other files in /tmp, /var/tmp, /run and /dev/shm of the machine": lambda: can_open(FILE_IN_TMP),
    "write files of its own in /tmp": lambda: can_open(Path(f"/tmp/of-{os.getpid()}"), os.O_WRONLY | os.O_CREAT),
    "read and write the traces and logs of other peers": lambda: all(
        can_open(path, os.O_RDWR) for path in (SPEC.parents[1] / "logs").glob("*.log")
    ),
    "send signals to other peers": lambda: any(can_signal(process) for process in peers()),
    "send signals to the parts of the run, and so end it": lambda: all(map(can_signal, parts_of_the_run())),
    "call the agent, and so end the run": calls_the_agent,
    "read the environment of other peers": lambda: any(can_open(process / "environ") for process in peers()),
    "read the environment or memory of a part of the run": lambda: any(
        can_open(process / name) for process in parts_of_the_run() for name in ("environ", "mem", "maps")
    ),
    "find the user's credentials in an environment": lambda: any(
        CREDENTIAL in contents(process / "environ") for process in Path("/proc").glob("[0-9]*")
    ),
}

if __name__ == "__main__":
    print(json.dumps({name: attempt() for name, attempt in ATTEMPTS.items()}), flush=True)
    signal.pause()
