"""A machine's work folder. The machine's Python runs the text of this file.

    prepare WORK            make the work folder if it is missing, check who can write to it; print its absolute path
    package FOLDER SHA256   whether the package is there; refuse one whose content does not match its name
    place PART FOLDER SHA256    rename an unpacked package, in one step
    make FOLDER             make a run's folder
    hold FOLDER             the same, and wait for the end of standard input; then ``remove``, unless it was "keep"
    remove FOLDER           end the processes of a run, and remove its folder
    clean WORK              the same for every run below the work folder that has no agent and is an hour old

The answer is JSON. The file uses only the standard library.
"""

import grp
import hashlib
import json
import os
import pwd
import shutil
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable

RUN_VARIABLE = "TRELLIS_RUN"
"""The environment variable of a run's processes with the run's folder."""

SETTLED_S = 3600.0
"""A folder that changed within this time may be in use: before its agent starts, or before its files are collected."""

AGENT_S = 40.0
"""Time that an agent without its lifeline has to end its peers and itself."""

SOCKET_PATH_BYTES = 107
END_S = 10.0


class Refused(Exception):
    """The folder cannot be used; the message says why."""


def check_path(path: str) -> None:
    """Check that only this user and the machine's owner can change a path.

    Raises:
        Refused: another user owns it, or a folder or a link above it, or may write to one of these.
    """
    parts = path.split("/")
    for end in range(1, len(parts) + 1):
        _check_one("/".join(parts[:end]) or "/")
    real = os.path.realpath(path)
    if real != path:
        check_path(real)


def _check_one(path: str) -> None:
    entry = os.lstat(path)
    # In a user namespace root has another number: the owner of / is the machine's owner.
    if entry.st_uid not in (os.geteuid(), 0, os.lstat("/").st_uid):
        raise Refused(f"{path} belongs to {_user(entry.st_uid)}, not to {_user(os.geteuid())}")
    if stat.S_ISLNK(entry.st_mode):
        return
    others = entry.st_mode & stat.S_IWOTH or (entry.st_mode & stat.S_IWGRP and not _is_private_group(entry.st_gid))
    if others and not (stat.S_ISDIR(entry.st_mode) and entry.st_mode & stat.S_ISVTX):
        raise Refused(f"others may write to {path} (mode {stat.S_IMODE(entry.st_mode):o})")


def _is_private_group(number: int) -> bool:
    """Return whether a group has only this user as a member, such as the private groups of many distributions."""
    try:
        group, user = grp.getgrgid(number), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return number == user.pw_gid and group.gr_name == user.pw_name and not set(group.gr_mem) - {user.pw_name}


def _user(number: int) -> str:
    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"


def prepare(work: str) -> str:
    """Make the work folder if it is missing, and return its absolute path.

    Raises:
        Refused: other users can change it, or its path is too long for the agents' sockets.
    """
    path = os.path.normpath(os.path.expanduser(work))
    os.makedirs(path, mode=0o700, exist_ok=True)
    check_path(path)
    if not stat.S_ISDIR(os.stat(path).st_mode) or os.stat(path).st_uid != os.geteuid():
        raise Refused(f"{path} is not a folder of {_user(os.geteuid())}")
    if len(f"{path}/{'0' * 16}/agent.sock".encode()) > SOCKET_PATH_BYTES:
        raise Refused(f"the path {path} is too long for the agents' sockets; set a shorter `work`")
    return path


def digest(folder: str) -> str:
    """Return ``hash_files`` of a package's folder.

    Raises:
        Refused: it has an entry that is neither a file nor a folder, or that other users own or may write to.
    """
    names = []
    for parent, folders, files in os.walk(folder, onerror=_raise):
        for name in [*folders, *files]:
            path = os.path.join(parent, name)
            mode = os.lstat(path).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise Refused(f"{path} is neither a file nor a folder")
            _check_one(path)
        names += [os.path.relpath(os.path.join(parent, name), folder) for name in files]
    contents = {}
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            contents[name] = file.read()
    return hash_files(contents)


def hash_files(contents: dict[str, bytes]) -> str:
    """Return the SHA-256 over each file's name, length and content, in the order of names."""
    total = hashlib.sha256()
    for name, content in sorted(contents.items()):
        total.update(b"%s\0%d\0" % (os.fsencode(name), len(content)) + content)
    return total.hexdigest()


def _raise(error: OSError) -> None:
    raise error


def package(folder: str, sha256: str) -> bool:
    """Return whether the package exists.

    Raises:
        Refused: its content is different, or other users can change it.
    """
    if not os.path.lexists(folder):
        os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
        check_path(os.path.dirname(folder))
        return False
    check_path(folder)
    if not os.path.isdir(folder) or os.path.islink(folder) or digest(folder) != sha256:
        raise Refused(f"the content of {folder} does not match its name; remove it")
    return True


def place(part: str, folder: str, sha256: str) -> bool:
    """Rename an unpacked package, unless another run has placed the same package meanwhile."""
    if digest(part) != sha256:
        raise Refused(f"the content of {part} differs from what was sent")
    try:
        os.rename(part, folder)
    except OSError:
        shutil.rmtree(part)
    return package(folder, sha256)


def make(folder: str) -> bool:
    """Make a run's folder, which must not exist."""
    os.mkdir(folder, mode=0o700)
    return True


def hold(folder: str) -> None:
    """Make a run's folder, and remove it when standard input ends for any reason.

    So nothing of a run is left on a machine, however the run or its agent ended.
    """
    make(folder)
    print("true", flush=True)
    if sys.stdin.read().strip() == "keep":
        return
    deadline = time.monotonic() + AGENT_S
    while has_agent(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    _remove(folder)


def has_agent(folder: str) -> bool:
    """Return whether an agent listens in the folder."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        try:
            link.connect(os.path.join(folder, "agent.sock"))
        except OSError:
            return False
    return True


def processes_of(folder: str) -> list[int]:
    """Return this user's processes that belong to the run according to their environment."""
    wanted = f"{RUN_VARIABLE}={folder}".encode()
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as environment:
                if wanted in environment.read().split(b"\0") and int(name) != os.getpid():
                    found.append(int(name))
        except OSError:
            continue  # another user's, or ended
    return found


def remove(folder: str) -> bool:
    """End the processes of a run and remove its folder. Return whether there was a folder or a process.

    Raises:
        Refused: its agent still runs.
    """
    if has_agent(folder):
        raise Refused(f"{folder} has a running agent")
    return _remove(folder)


def _remove(folder: str) -> bool:
    there = os.path.lexists(folder)
    deadline = time.monotonic() + END_S
    while (left := processes_of(folder)) and time.monotonic() < deadline:
        there = True
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)
    if os.path.lexists(folder):
        shutil.rmtree(folder)
    return there


def clean(work: str) -> dict[str, list[str]]:
    """Remove the folders of ended runs: ``removed``. ``kept``: those that have an agent or changed recently."""
    path = prepare(work)
    names = sorted(name for name in os.listdir(path) if len(name) == 16 and not set(name) - set("0123456789abcdef"))
    removed, kept = [], []
    for folder in (os.path.join(path, name) for name in names):
        if time.time() - _changed_s(folder) < SETTLED_S or has_agent(folder):
            kept.append(folder)
        else:
            remove(folder)
            removed.append(folder)
    return {"removed": removed, "kept": kept}


def _changed_s(folder: str) -> float:
    """Return when the folder or an entry of it changed last, in seconds since the epoch."""
    return max(os.lstat(path).st_mtime for path in (folder, *(entry.path for entry in os.scandir(folder))))


VERBS: dict[str, Callable[..., object]] = {
    "prepare": prepare, "package": package, "place": place, "make": make, "hold": hold, "remove": remove, "clean": clean
}  # fmt: skip


def main(arguments: list[str]) -> int:
    """Run the verb of the first argument with the others."""
    try:
        answer = VERBS[arguments[0]](*arguments[1:])
    except (Refused, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    if answer is not None:
        print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
