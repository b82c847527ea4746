"""The image of the guest (``tests.guest_machine``): Debian with its cloud kernel, and the packages of this ``.venv``.

It is made once per user and version of the lock, by debootstrap, with Mininet, Open vSwitch and iperf3.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

SCRIPTS = Path(__file__).parent / "guest"
SUITE = "bookworm"
GUEST_PYTHON = (3, 11)
"""The version of Python in the suite: packages of another version's ``.venv`` do not run there."""

KERNEL = "linux-image-cloud-amd64"
PACKAGES = (
    *("python3", "iproute2", "ethtool", "tcpdump", "openvswitch-switch", "iperf3", "mininet", "openssh-server"),
    *("openssh-client", "procps", "kmod", "iputils-ping", "busybox-static", "util-linux", KERNEL),
)
LEFT_OUT = (
    *("pyspark", "moto", "botocore", "boto3", "mypy", "pandas", "matplotlib", "fontTools", "duckdb", "_duckdb*"),
    *("*mypyc*", "networkx", "flask", "zstandard", "tests", "include", "trellis-checkout.pth"),
)
"""Packages that are large and that no running stage needs; and the path of the checkout outside."""

MODULES = ("virtio_pci", "virtio_blk", "overlay")
"""Modules without which the guest has no root file system."""

IMAGE_BYTES = 2 << 30
PYTHON_PACKAGES = "usr/local/lib/python3.11/dist-packages"
"""Where the guest's Python, and so agents and peers, find the packages of this ``.venv`` before Debian's own."""


class GuestError(Exception):
    """The image could not be made, or the guest did not end as expected."""


def image_folder() -> Path:
    """Return the folder of the image, below the user's cache folder; its name depends on what the image is made of."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parts = [Path(__file__), *sorted(SCRIPTS.glob("*.sh")), Path(__file__).parents[1] / "requirements.lock"]
    digest = hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()
    return cache / f"trellis/guest-{digest[:12]}"


def make_image() -> Path:
    """Return the folder with ``root.img``, ``vmlinuz`` and ``initrd``; make them if there are none yet.

    Raises:
        GuestError: this Python's packages do not run in the guest, or a step failed.
    """
    folder = image_folder()
    if (folder / "root.img").exists():
        return folder
    if sys.version_info[:2] != GUEST_PYTHON:
        raise GuestError(f"the guest has Python {GUEST_PYTHON}, and this .venv {sys.version_info[:2]}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        root, new = Path(made, "root"), Path(made, "guest")
        _run("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(root))
        left_out = shutil.ignore_patterns(*LEFT_OUT)
        shutil.copytree(
            sysconfig.get_path("purelib"), root / PYTHON_PACKAGES, ignore=left_out, symlinks=True, dirs_exist_ok=True
        )
        shutil.copy(SCRIPTS / "init.sh", root / "sbin/guest-init")
        (root / "sbin/guest-init").chmod(0o755)
        new.mkdir()
        (kernel,) = (root / "boot").glob("vmlinuz-*")
        shutil.copy(kernel, new / "vmlinuz")
        _make_initrd(root, new / "initrd")
        shutil.rmtree(root / "boot")
        _run("mke2fs", "-q", "-t", "ext4", "-d", str(root), str(new / "root.img"), str(IMAGE_BYTES >> 10))
        new.rename(folder)
    return folder


def _make_initrd(root: Path, initrd: Path) -> None:
    """Write the archive with which the guest finds its root file system, without compression."""
    (modules,) = (root / "lib/modules").iterdir()
    lines = (modules / "modules.dep").read_text(encoding="ascii").splitlines()
    needs = {Path(path).stem: (path, words.split()) for path, _, words in (line.partition(":") for line in lines)}
    order: dict[str, None] = {}

    def add(name: str) -> None:
        path, needed = needs[name]
        for other in needed:
            add(Path(other).stem)
        order[path] = None

    for name in MODULES:
        add(name)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name in ("bin", "modules"):
            (folder / name).mkdir()
        shutil.copy(root / "bin/busybox", folder / "bin/busybox")
        shutil.copy(SCRIPTS / "initrd.sh", folder / "init")
        (folder / "init").chmod(0o755)
        for path in order:
            shutil.copy(modules / path, folder / "modules")
        (folder / "order").write_text("".join(f"{Path(path).name}\n" for path in order))
        files = "\n".join(str(path.relative_to(folder)) for path in sorted(folder.rglob("*")))
        with initrd.open("wb") as archive:
            command = [str(folder / "bin/busybox"), "cpio", "-o", "-H", "newc"]
            subprocess.run(
                command, input=files.encode(), stdout=archive, stderr=subprocess.DEVNULL, cwd=folder, check=True
            )


def _run(*argv: str) -> None:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise GuestError(f"{' '.join(argv)}: {(done.stderr or done.stdout)[-2000:]}")
