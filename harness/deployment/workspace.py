"""A machine's work folder, seen from the machine: this file's text is run there by its Python.

    prepare WORK            make the work folder where it is missing, check who can write to it; its absolute path
    package FOLDER SHA256   whether the package is there; one whose content is not what its name says is refused
    place PART FOLDER SHA256    give an unpacked package its name, in one step
    make FOLDER             make a run's folder
    hold FOLDER             the same, and wait for the end of standard input; then ``remove``, unless it said "keep"
    remove FOLDER           end what a run has left running, and remove its folder
    clean WORK              the same for every run below the work folder that has no agent and is an hour old

The answer is JSON. It uses the standard library alone, and nothing of this project.
"""

from __future__ import annotations

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
"""In the environment of a run's processes: the run's folder."""

SETTLED_S = 3600.0
"""In a folder that changed later than this, an agent may be about to start, or its run about to collect."""

AGENT_S = 40.0
"""How long an agent that has lost its lifeline may take to end its peers and itself."""

SOCKET_PATH_BYTES = 107
END_S = 10.0


class Refused(Exception):
    """The folder cannot be used; says why."""


def check_path(path: str) -> None:
    """Check that nobody but this user and the machine's owner can change what is found under a path.

    Raises:
        Refused: somebody else owns it, a folder or a link above it, or may write to one of these.
    """
    parts = path.split("/")
    for end in range(1, len(parts) + 1):
        _check_one("/".join(parts[:end]) or "/")
    real = os.path.realpath(path)
    if real != path:
        check_path(real)


def _check_one(path: str) -> None:
    entry = os.lstat(path)
    # In a user namespace root is shown as somebody else: whoever owns / is the machine's owner.
    if entry.st_uid not in (os.geteuid(), 0, os.lstat("/").st_uid):
        raise Refused(f"{path} belongs to {_user(entry.st_uid)}, not to {_user(os.geteuid())}")
    if stat.S_ISLNK(entry.st_mode):
        return
    others = entry.st_mode & stat.S_IWOTH or (entry.st_mode & stat.S_IWGRP and not _is_private_group(entry.st_gid))
    if others and not (stat.S_ISDIR(entry.st_mode) and entry.st_mode & stat.S_ISVTX):
        raise Refused(f"others may write to {path} (mode {stat.S_IMODE(entry.st_mode):o})")


def _is_private_group(number: int) -> bool:
    """Whether a group is the user's own and nobody else's, as many distributions make one for each user."""
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
    """Make the work folder where it is missing; its absolute path.

    Raises:
        Refused: others can change it, or its path is too long for the agents' sockets.
    """
    path = os.path.normpath(os.path.expanduser(work))
    os.makedirs(path, mode=0o700, exist_ok=True)
    check_path(path)
    if not stat.S_ISDIR(os.stat(path).st_mode) or os.stat(path).st_uid != os.geteuid():
        raise Refused(f"{path} is not a folder of {_user(os.geteuid())}")
    if len(f"{path}/{'0' * 16}/agent.sock".encode()) > SOCKET_PATH_BYTES:
        raise Refused(f"{path} is too long a path for the agents' sockets; set a shorter `work`")
    return path


def digest(folder: str) -> str:
    """``hash_files`` of a package's folder.

    Raises:
        Refused: something in it is neither a file nor a folder, or others own it or may write to it.
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
    """The SHA-256 over each file's name, length and content, in the order of the names."""
    total = hashlib.sha256()
    for name, content in sorted(contents.items()):
        total.update(b"%s\0%d\0" % (os.fsencode(name), len(content)) + content)
    return total.hexdigest()


def _raise(error: OSError) -> None:
    raise error


def package(folder: str, sha256: str) -> bool:
    """Whether the package is there.

    Raises:
        Refused: something else is, or others can change it.
    """
    if not os.path.lexists(folder):
        os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
        check_path(os.path.dirname(folder))
        return False
    check_path(folder)
    if not os.path.isdir(folder) or os.path.islink(folder) or digest(folder) != sha256:
        raise Refused(f"{folder} does not have the content that its name says; remove it")
    return True


def place(part: str, folder: str, sha256: str) -> bool:
    """Rename an unpacked package, unless another run has placed the same one meanwhile."""
    if digest(part) != sha256:
        raise Refused(f"{part} was not unpacked as it was sent")
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
    """Make a run's folder and keep it until standard input ends, however that comes about: then remove it.

    So nothing of a run is left on a machine, whatever has ended the run or its agent.
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
    """Whether an agent listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        try:
            link.connect(os.path.join(folder, "agent.sock"))
        except OSError:
            return False
    return True


def processes_of(folder: str) -> list[int]:
    """The processes of this user that say in their environment that they belong to the run."""
    wanted = f"{RUN_VARIABLE}={folder}".encode()
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as environment:
                if wanted in environment.read().split(b"\0") and int(name) != os.getpid():
                    found.append(int(name))
        except OSError:
            continue  # somebody else's, or ended
    return found


def remove(folder: str) -> bool:
    """End what the run has left running, and remove its folder; whether there was anything.

    Raises:
        Refused: its agent runs.
    """
    if has_agent(folder):
        raise Refused(f"{folder} has an agent that runs")
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
    """Remove what ended runs have left: ``removed``; ``kept`` is what has an agent, or changed lately."""
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
    """When the folder or something right in it changed last; seconds since the epoch."""
    return max(os.lstat(path).st_mtime for path in (folder, *(entry.path for entry in os.scandir(folder))))


VERBS: dict[str, Callable[..., object]] = {
    "prepare": prepare, "package": package, "place": place, "make": make, "hold": hold, "remove": remove, "clean": clean
}  # fmt: skip


def main(arguments: list[str]) -> int:
    """Do what the first argument says with the others."""
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
