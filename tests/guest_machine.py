"""A virtual machine without hardware support, whose kernel has netem and Open vSwitch: the guest.

    python -m tests.guest_machine -- python3 -P -m pytest -q tests/guest

The image is made once per user and version of the lock, by debootstrap, with Debian's cloud kernel, the packages of
this checkout's ``.venv``, Mininet, Open vSwitch and iperf3. Every boot gets the checkout as it is. The guest has no
network device.

QEMU counts instructions (``-icount``): the guest's clock advances by 1 ns per instruction, and jumps to the next timer
while the guest sleeps. So the guest has time of its own: however busy the machine is, nothing in the guest is late
because of it. The clock jumps, too, while the guest waits for its disks, so a program may seem to take minutes to load;
measure only what runs in memory.

Source: QEMU, docs/devel/tcg-icount.rst.
"""

import hashlib
import io
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "tests/guest"
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
    *("*mypyc*", "networkx", "flask", "zstandard", "tests", "include", "trellis-checkout.pth", "__pycache__"),
)
"""Packages that are large and that no running stage needs; and the path of the checkout outside."""

MODULES = ("virtio_pci", "virtio_blk", "overlay")
"""Modules without which the guest has no root file system."""

IMAGE_BYTES = 2 << 30
RESULTS_BYTES = 256 << 20
MEMORY_MIB = 3072
LONGEST_S = 1800


class GuestError(Exception):
    """The image could not be made, or the guest did not end as expected."""


def image_folder() -> Path:
    """Return the folder of the image, below the user's cache folder; its name depends on what the image is made of."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parts = [Path(__file__), *sorted(SCRIPTS.glob("*.sh")), ROOT / "requirements.lock"]
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
        shutil.copytree(sysconfig.get_path("purelib"), root / "opt/python", ignore=left_out, symlinks=True)
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


def boot(order: str, results: Path, longest_s: float = LONGEST_S) -> int:
    """Boot the guest, let it run an order in the checkout, and return the order's exit status.

    Args:
        order: commands of bash. What they write to ``$TRELLIS_RESULTS`` comes back, and ``output``, what they print.
        results: a folder that gets that.
        longest_s: real time after which the guest is ended.

    Raises:
        GuestError: the guest ended without results.
    """
    image = make_image()
    with tempfile.TemporaryDirectory() as made:
        given, back = Path(made, "given.tar"), Path(made, "back.tar")
        _pack(order, given)
        back.touch()
        os.truncate(back, RESULTS_BYTES)
        disks = [(image / "root.img", "on"), (given, "on"), (back, "off")]
        command = [
            *("qemu-system-x86_64", "-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-cpu", "max"),
            *("-smp", "1", "-m", str(MEMORY_MIB), "-nic", "none", "-nographic", "-no-reboot"),
            *("-kernel", str(image / "vmlinuz"), "-initrd", str(image / "initrd")),
            *("-append", "console=ttyS0 quiet panic=-1 tsc=reliable no_timer_check mitigations=off"),
        ]
        for path, read_only in disks:
            command += ["-drive", f"file={path},if=virtio,format=raw,readonly={read_only}"]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=longest_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise GuestError(f"the guest did not end within {longest_s:g} s") from error
        try:
            with tarfile.open(back) as archive:
                archive.extractall(made, filter="data")
            shutil.copytree(Path(made, "results"), results, dirs_exist_ok=True)
        except (tarfile.TarError, OSError) as error:
            raise GuestError(f"the guest wrote no results: {done.stdout[-2000:]}{done.stderr}") from error
    return int((results / "status").read_text())


def _pack(order: str, archive: Path) -> None:
    """Write the archive that the guest unpacks: the order, and the checkout's files as they are."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = [name for name in listed.stdout.split("\0") if name and not name.startswith(("docs/", "tests/golden/"))]
    with tarfile.open(archive, "w") as packed:
        for name in files:
            if (ROOT / name).exists():
                packed.add(ROOT / name, f"checkout/{name}")
        entry = tarfile.TarInfo("order.sh")
        entry.size = len(order.encode())
        packed.addfile(entry, io.BytesIO(order.encode()))


def _run(*argv: str) -> None:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise GuestError(f"{' '.join(argv)}: {(done.stderr or done.stdout)[-2000:]}")


def main(words: Sequence[str], say: Callable[[str], None] = print) -> int:
    """Run the command in the guest, print what it prints, and leave its results in a new folder."""
    results = Path(tempfile.mkdtemp(prefix="guest-"))
    status = boot(" ".join(words), results)
    say((results / "output").read_text(errors="replace"))
    say(f"results: {results}")
    return status


if __name__ == "__main__":
    sys.exit(main([word for word in sys.argv[1:] if word != "--"]))
