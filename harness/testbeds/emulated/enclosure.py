"""What the SSH server of a machine, and so the agent and the peers, see of the file system.

    python -m harness.testbeds.emulated.enclosure FOLDER [--own-work DIR] [--writable DIR --hidden DIR ...] -- COMMAND

Run it in a mount namespace of its own. The machine gets the accounts of FOLDER. With ``--writable``, everything else
is read-only, except the folders that are private to the sandbox. Peers cannot undo this: remounting needs capabilities
over the namespace, which they do not have. It matters most in a run as root, because many files are root's, and the
kernel lets their owner write them without any capability: /etc/cron.d, or /proc/sys/kernel/core_pattern, which names a
program that the kernel starts with all capabilities.

Source: mount(2), mount_namespaces(7), proc_pid_mountinfo(5).
"""

import argparse
import os
import re
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.errors import TestbedError
from harness.machine.sandbox import MS_BIND, MS_NODEV, MS_NOSUID, PRIVATE_FOLDERS, mount

MS_RDONLY, MS_NOEXEC, MS_REMOUNT = 1, 8, 32

_KEPT_FLAGS = {"nosuid": MS_NOSUID, "nodev": MS_NODEV, "noexec": MS_NOEXEC}
"""Flags that a remount must repeat: without them it would clear them, or be refused in a user namespace."""

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class MountPoint:
    """A line of /proc/self/mountinfo: where a file system is mounted, and with which flags."""

    number: int
    path: Path
    options: tuple[str, ...]


def protect(writable: Collection[Path], hidden: Collection[Path] = ()) -> None:
    """Make the file system read-only, except some mount points.

    Args:
        writable: mount points that stay as they are.
        hidden: folders that become empty.

    Raises:
        TestbedError: the kernel refused a mount.
    """
    for point in mount_points():
        if point.path not in writable and "ro" not in point.options:
            kept = sum(flag for option, flag in _KEPT_FLAGS.items() if option in point.options)
            mount(None, str(point.path), None, MS_REMOUNT | MS_BIND | MS_RDONLY | kept)
    for path in hidden:
        mount("tmpfs", str(path), "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "mode=755")


def mount_points() -> Iterator[MountPoint]:
    """Yield the mount points of this namespace that a path leads to: not those below another one."""
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        number, _, _, _, path, options = line.split()[:6]
        point = MountPoint(
            int(number), Path(_OCTAL.sub(lambda found: chr(int(found[1], 8)), path)), tuple(options.split(","))
        )
        if _is_reachable(point):
            yield point


def _is_reachable(point: MountPoint) -> bool:
    try:
        descriptor = os.open(point.path, os.O_PATH)
    except OSError:
        return False  # nobody with our rights can use it
    try:
        fields = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="ascii").split()
    finally:
        os.close(descriptor)
    return int(fields[fields.index("mnt_id:") + 1]) == point.number


def main(arguments: list[str] | None = None) -> None:
    """Make the machine's view of the file system, then execute the command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--own-work", type=Path)
    parser.add_argument("--writable", type=Path, action="append", default=[])
    parser.add_argument("--hidden", type=Path, action="append", default=[])
    parser.add_argument("command", nargs="+")
    given = parser.parse_args(arguments)
    try:
        for name in ("passwd", "shadow"):
            mount(str(given.folder / name), f"/etc/{name}", None, MS_BIND)
        if given.own_work is not None:
            mount("tmpfs", str(given.own_work), "tmpfs", 0, "mode=755")
        if given.writable:
            protect([*map(Path, PRIVATE_FOLDERS), *given.writable], given.hidden)
    except TestbedError as error:
        sys.exit(str(error))
    os.execvp(given.command[0], given.command)


if __name__ == "__main__":
    main()
