"""A virtual machine without hardware support, whose kernel has netem and Open vSwitch: the guest.

    python -m tests.guest_machine -- python3 -P -m pytest -q tests/guest

Every boot gets the image of ``tests.guest_image`` and the checkout as it is. The guest has no network device.

QEMU counts instructions (``-icount``): the guest's clock advances by 1 ns per instruction, and jumps to the next timer
while the guest sleeps. So the guest has time of its own: however busy the machine is, nothing in the guest is late
because of it. The clock jumps, too, while the guest waits for its disks, so a program may seem to take minutes to load;
measure only what runs in memory.

Source: QEMU, docs/devel/tcg-icount.rst.
"""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.guest_image import GuestError, make_image

ROOT = Path(__file__).parents[1]
RESULTS_BYTES = 256 << 20
MEMORY_MIB = 3072
LONGEST_S = 1800
CPU = "max,-hypervisor,-avx,-avx2"
"""No other machine takes this processor away, so no process of a run has to keep it awake. With the AVX2 of QEMU 7.2,
``numpy.argsort`` returned wrong orders."""


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
            *("qemu-system-x86_64", "-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-cpu", CPU),
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


def main(words: Sequence[str], say: Callable[[str], None] = print) -> int:
    """Run the command in the guest, print what it prints, and leave its results in a new folder."""
    results = Path(tempfile.mkdtemp(prefix="guest-"))
    status = boot(" ".join(words), results)
    say((results / "output").read_text(errors="replace"))
    say(f"results: {results}")
    return status


if __name__ == "__main__":
    sys.exit(main([word for word in sys.argv[1:] if word != "--"]))
