"""The sandbox without root: a plain user in a user namespace, on this kernel."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.run_experiment import PATIENT, QUICKLY, ROOT, trellis, write_brief, write_experiment

pytestmark = pytest.mark.root

UID = 12_345

BECOME_PLAIN = f"""
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /mnt
mknod /mnt/tun c 10 200; chmod "$1" /mnt/tun; mount --bind /mnt/tun /dev/net/tun
mkdir -p "/mnt/base$2"; mount --rbind "$2" "/mnt/base$2"
case "$2" in /root/*) mount --rbind /mnt/base/root /root;; esac
echo "plain:x:{UID}:{UID}::/mnt:/bin/sh" | cat - /etc/passwd > /mnt/passwd; mount --bind /mnt/passwd /etc/passwd
mount --bind "$PYTHONPATH" "$PYTHONPATH"; mount -o remount,bind,ro "$PYTHONPATH"; cd "$PYTHONPATH"
shift 2
exec setpriv --reuid {UID} --regid {UID} --clear-groups "$@"
"""
"""In a mount namespace of its own: a TUN device of the wanted mode, a Python that everybody may read, an account, and
a checkout that nobody may write to."""

MAKE_HOSTS = """
from harness.testbeds.emulated.mininet_net import EmulatedNet
net = EmulatedNet()
for number in range(2):
    net.addHost(f"h{number}", number=number, ctl_ip=f"172.16.0.{number + 1}")
net.build()
print(net["h0"].cmd("id -u; ip -o -4 address show dev ctl0").strip())
"""

IN_A_SANDBOX = f"""
import sys
from harness.machine import sandbox
sys.exit(sandbox.run([sys.executable, "-c", {MAKE_HOSTS!r}]))
"""


def as_plain_user(tun_mode: str, command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["unshare", "--mount", "sh", "-ec", BECOME_PLAIN, "sh", tun_mode, sys.base_prefix, *command],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": "/mnt", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


def test_a_plain_user_gets_hosts_and_keeps_the_own_uid() -> None:
    made = as_plain_user("0666", [sys.executable, "-c", IN_A_SANDBOX])
    assert made.stdout.splitlines()[0].strip() == str(UID), made.stderr
    assert "172.16.0.1/16" in made.stdout


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder for everybody, not below that of pytest: another pytest on this machine closes that for other users."""
    with tempfile.TemporaryDirectory(prefix="trellis-test-") as made:
        folder = Path(made)
        folder.chmod(0o777)
        yield folder


def test_a_tun_device_that_the_user_may_not_open_is_named_with_the_remedy(open_path: Path) -> None:
    refused = as_plain_user("0600", trellis("run", write_experiment(open_path), *QUICKLY, "--out", open_path / "run"))
    assert refused.returncode == 1
    assert "/dev/net/tun" in refused.stderr.splitlines()[-1]
    assert "permission denied" in refused.stderr.splitlines()[-1].lower()


@pytest.mark.parametrize(
    "options", [QUICKLY, pytest.param((), marks=[pytest.mark.spark, pytest.mark.long])], ids=["here", "Spark"]
)
def test_a_plain_user_gets_a_whole_run_from_a_read_only_checkout(open_path: Path, options: tuple[str, ...]) -> None:
    refused = as_plain_user("0666", ["touch", str(ROOT / "file")])
    assert "Read-only file system" in refused.stderr
    command = trellis("run", write_brief(open_path), *PATIENT, *options, "--out", open_path / "run", "--json")
    done = as_plain_user("0666", command)
    assert (open_path / "run" / "summary.json").exists(), done.stderr
    assert '"delivery_ratio": 1' in (open_path / "run" / "summary.json").read_text()
