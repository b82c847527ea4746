"""The SSH server of a run: OpenSSH's sshd on a private port, with keys made for this run.

For the deployment the sandbox is a machine like any other, so it needs an SSH endpoint. The machine's SSH configuration
is neither read nor changed: the server runs in a mount namespace with its own accounts and configuration.

This module works around three restrictions: sshd needs /run/sshd; without PAM it refuses accounts with a locked
password (``!``, root on Ubuntu); and as uid 0 of a user namespace it fails in setgroups, so a sandbox made without root
must keep the caller's uid (``unshare --map-current-user --keep-caps``), with which the sessions inherit the
capabilities.
"""

import contextlib
import os
import pwd
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from harness.doctor.programs import find_program
from harness.errors import TestbedError
from harness.experiment.inventory import Machine
from harness.interpreter import PYTHON, python_command
from harness.testbeds.emulated import enclosure

START_S = 20.0
PRIVILEGE_SEPARATION = Path("/run/sshd")

_CONFIG = """\
Port {port}
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
AllowUsers {user}
AuthenticationMethods publickey
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
StrictModes no
PermitUserRC no
PrintMotd no
X11Forwarding no
AllowTcpForwarding no
AllowAgentForwarding no
MaxSessions 64
MaxStartups 64
ClientAliveInterval 15
ClientAliveCountMax 4
PidFile none
"""


@dataclass(frozen=True)
class SshServer:
    """A running sshd. ``machine`` is its endpoint for the deployment."""

    machine: Machine
    process: subprocess.Popen[bytes]

    def with_key_in_memory(self) -> "SshServer":
        """Move the private key from its file into memory, where only this process can read it."""
        path = Path(self.machine.key)
        descriptor = os.memfd_create("user_key")  # open until this process ends
        os.write(descriptor, path.read_bytes())
        path.unlink()
        return replace(self, machine=msgspec.structs.replace(self.machine, key=f"/proc/self/fd/{descriptor}"))

    def stop(self) -> None:
        """End the server; its sessions end with their connections."""
        self.process.terminate()
        self.process.wait()


def start_sshd(
    folder: Path,
    address: str,
    port: int,
    *,
    name: str = "local",
    work: Path | None = None,
    own_work: bool = False,
    work_here: Path | None = None,
    enter: Sequence[str] = (),
    shell: str = "/bin/sh",
    settings: Sequence[str] = (),
    hidden: Sequence[Path] | None = None,
) -> SshServer:
    """Start an sshd that accepts one key made here, and wait until it listens.

    Call it in a sandbox, whose /run is private and which ends the server; ``stop`` ends it earlier.

    Args:
        folder: a folder for keys, configuration and log; must not exist.
        address: an address of the network namespace in which the server runs.
        port: a free TCP port there.
        name: the machine's name.
        work: the machine's work folder; default: ``folder/work``.
        own_work: give the server an empty, private work folder.
        work_here: the path of the work folder on this computer, if files are to be moved from there.
        enter: a command prefix that enters the machine's namespaces (``nsenter ...``).
        shell: the user's login shell, whose home is ``folder``.
        settings: lines of sshd_config(5), which replace this server's of the same keyword.

        hidden: confine the machine (``enclosure``): it cannot write outside the work folder and the sandbox's private
            folders, and these folders are empty there; None = it is not confined.

    Raises:
        TestbedError: the server did not start; the message has its log.
    """
    PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)
    work = work or folder / "work"
    machine = prepare_server(folder, address, port, name, shell, settings)
    work.mkdir(parents=True, exist_ok=True)
    view = [f"--own-work={work}"] if own_work else []
    if hidden is not None:
        view += [f"--writable={work}", *(f"--hidden={path}" for path in hidden)]
    inside = python_command("-m", enclosure.__name__, str(folder), *view, "--", *server_command(folder), "-D")
    command = [*enter, "unshare", "--mount", "--propagation", "private", *inside]
    with (folder / "sshd.log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log, stdin=subprocess.DEVNULL)
    _await_listening(process, folder / "sshd.log", f"sshd on {address}:{port}")
    here = str(work_here or "")
    return SshServer(msgspec.structs.replace(machine, work=str(work), work_here=here), process)


def prepare_server(
    folder: Path, address: str, port: int, name: str, shell: str = "/bin/sh", settings: Sequence[str] = ()
) -> Machine:
    """Make a server's keys, accounts and configuration in a new folder, and return its endpoint.

    See ``start_sshd`` for the arguments. ``enclosure`` gives the accounts to the machine.
    """
    folder.mkdir(mode=0o755, parents=True)
    user = pwd.getpwuid(os.getuid()).pw_name
    _write_keys(folder, address, port)
    _write_accounts(folder, user, shell)
    config = _CONFIG.format(port=port, address=address, folder=folder, user=user)
    (folder / "sshd_config").write_text(_replace_lines(config, settings), encoding="utf-8")
    return Machine(
        name=name,
        host=address,
        port=port,
        user=user,
        key=str(folder / "user_key"),
        known_hosts=str(folder / "known_hosts"),
        python=PYTHON,
        own_clock=False,
    )


def server_command(folder: Path) -> list[str]:
    """Return the command of a prepared server: with ``-D`` it listens, with ``-i`` it serves one connection.

    Raises:
        TestbedError: there is no sshd.
    """
    return [_find_sshd(), "-e", "-f", str(folder / "sshd_config")]


@contextlib.contextmanager
def serving_ssh(folder: Path, address: str, port: int, **options: object) -> Iterator[Machine]:
    """Use ``start_sshd`` as a context: yield the machine, and stop the server at the end."""
    server = start_sshd(folder, address, port, **options)  # type: ignore[arg-type]
    try:
        yield server.machine
    finally:
        server.stop()


def _find_sshd() -> str:
    """Return the absolute path of sshd, which executes itself again for every connection."""
    path = find_program("sshd")
    if path is None:
        raise TestbedError("start an SSH server", "the program sshd is not installed (trellis doctor --fix)")
    return str(Path(path).absolute())


def _replace_lines(config: str, settings: Sequence[str]) -> str:
    replaced = {line.split()[0] for line in settings}
    kept = [line for line in config.splitlines() if line.split()[0] not in replaced]
    return "\n".join([*kept, *settings]) + "\n"


def _write_keys(folder: Path, address: str, port: int) -> None:
    for name in ("host_key", "user_key"):
        arguments = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "trellis", "-f", str(folder / name)]
        subprocess.run(arguments, check=True)
    public = (folder / "host_key.pub").read_text(encoding="utf-8")
    known_as = address if port == 22 else f"[{address}]:{port}"
    (folder / "known_hosts").write_text(f"{known_as} {public}", encoding="utf-8")


def _write_accounts(folder: Path, user: str, shell: str) -> None:
    """Write the accounts for sshd: the host's, with the user unlocked, this shell, and ``folder`` as its home.

    With that home, sessions do not read the user's shell start-up files.
    """
    lines = Path("/etc/passwd").read_bytes().splitlines()  # users' real names may be in any encoding
    account = pwd.getpwnam(user)
    ours = f"{user}:x:{account.pw_uid}:{account.pw_gid}::{folder}:{shell}"
    kept = [line for line in lines if not line.startswith(f"{user}:".encode())]
    (folder / "passwd").write_bytes(b"\n".join([ours.encode(), *kept]) + b"\n")
    (folder / "shadow").write_bytes(f"{user}:*:19000:0:99999:7:::\nsshd:*:19000:0:99999:7:::\n".encode())


def _await_listening(process: subprocess.Popen[bytes], log: Path, asked: str) -> None:
    deadline = time.monotonic() + START_S
    while b"Server listening" not in (words := log.read_bytes()):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            process.wait()
            raise TestbedError(asked, words.decode(errors="replace").strip() or f"not listening after {START_S:g} s")
        time.sleep(0.01)
