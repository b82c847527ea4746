"""Opens the SSH connection to a machine, and says in one line why it cannot be opened."""

import logging
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path

import fabric
import paramiko  # type: ignore[import-untyped]
from cryptography.exceptions import UnsupportedAlgorithm
from paramiko.ssh_exception import NoValidConnectionsError  # type: ignore[import-untyped]

from harness.deployment.answers import StepError
from harness.deployment.known_hosts import known_as, read_host_keys
from harness.experiment.inventory import Machine

CONNECT_S = 20.0
KEEPALIVE_S = 10
LOST_S = 30
"""A machine that does not answer for this long counts as lost."""

PAUSES_S = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 5.0)
"""Pauses between the attempts to connect to a server that drops connections, each within half and one and a half of
this. A busy sshd drops connections that have not logged in yet (``MaxStartups``)."""

_DROPPED = ("Error reading SSH protocol banner", "Negotiation failed")

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # it would print tracebacks of errors that it raises


def make_connection(machine: Machine) -> fabric.Connection:
    """Return a connection that is not open yet."""
    return fabric.Connection(
        machine.host,
        user=machine.user,
        port=machine.port,
        connect_timeout=CONNECT_S,
        config=fabric.Config(lazy=True),  # reads no file
        connect_kwargs={
            "allow_agent": False,
            "look_for_keys": False,
            "banner_timeout": CONNECT_S,
            "auth_timeout": CONNECT_S,
        },
    )


def open_connection(
    connection: fabric.Connection, machine: Machine, pause: Callable[[float], object] = time.sleep
) -> None:
    """Connect and log in. A machine with a host key that is not in its ``known_hosts`` is refused.

    Raises:
        StepError: a key cannot be read, the machine's key is not known, the login failed, or the server dropped every
            attempt.
        OSError: the machine cannot be reached.
        paramiko.SSHException: the machine shows another host key, or does not speak SSH as expected.
    """
    connection.connect_kwargs["pkey"] = load_key(machine.key)
    _trust(connection, machine)
    try:
        _open_patiently(connection, pause)
    except paramiko.AuthenticationException as error:
        problem = f"Authentication failed for user {machine.user!r} with the key {machine.key}"
        raise StepError(f"{problem}: {error}" if str(error) != "Authentication failed." else problem) from None
    except NoValidConnectionsError as error:
        reasons = {reason.strerror or str(reason) for reason in error.errors.values()}
        place = f"port {machine.port} of {machine.host}"
        raise StepError(f"{place}: {', '.join(sorted(reasons))}; does sshd listen there?") from None
    except UnicodeError:
        raise StepError(f"{machine.host!r} is no host name") from None
    transport = connection.transport
    transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LOST_S * 1000)
    transport.set_keepalive(KEEPALIVE_S)


def load_key(path: str) -> paramiko.PKey:
    """Read a private key, and its certificate (``<path>-cert.pub``) if there is one.

    Raises:
        StepError: it cannot be used; says why.
    """
    try:
        return paramiko.PKey.from_path(path)
    except OSError as error:
        problem = error.strerror or str(error)
    except (TypeError, paramiko.PasswordRequiredException):
        problem = "the key is encrypted; use one without a passphrase, since nobody is asked during a run"
    except UnsupportedAlgorithm:
        problem = "keys of this type, such as those on security keys (sk-...), are not supported; use a key in a file"
    except (ValueError, paramiko.SSHException):
        problem = "not a whole private key in OpenSSH or PEM format"
    raise StepError(f"{path}: {problem}")


class _Refusal(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """Refuses a machine that shows a key which its file does not have."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        """Say which key is missing, and how to see it.

        Raises:
            StepError: always.
        """
        machine = self._machine
        missing = f"{machine.known_hosts} has no {key.get_name()} key of {hostname}"
        raise StepError(f"{missing}; `ssh-keyscan -p {machine.port} {machine.host}` prints what it shows: compare it")


def _trust(connection: fabric.Connection, machine: Machine) -> None:
    """Let the client accept the keys of the machine's file only. Fabric's default accepts any key."""
    keys: dict[str, paramiko.PKey] = {}
    for key in read_host_keys(Path(machine.known_hosts), machine.host, machine.port):
        keys.setdefault(key.get_name(), key)  # Paramiko compares one key of each type: the first one counts
    name = known_as(machine.host, machine.port)
    trusted = connection.client.get_host_keys()
    for kind, key in keys.items():
        trusted.add(name, kind, key)
    connection.client.set_missing_host_key_policy(_Refusal(machine))


def _open_patiently(connection: fabric.Connection, pause: Callable[[float], object]) -> None:
    for longest_s in (*PAUSES_S, None):
        try:
            connection.open()
            return
        except (paramiko.SSHException, EOFError, ConnectionError) as error:
            if not _was_dropped(error):
                raise
        if longest_s is not None:
            pause(longest_s * random.uniform(0.5, 1.5))
    attempts = len(PAUSES_S) + 1
    raise StepError(f"the server dropped the connection before the login, {attempts} times in a row (MaxStartups?)")


def _was_dropped(error: Exception) -> bool:
    """Return whether the server ended a connection before it had said who it is."""
    if isinstance(error, paramiko.SSHException):
        return str(error).startswith(_DROPPED)
    return isinstance(error, (EOFError, ConnectionResetError))
