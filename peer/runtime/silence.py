"""A silent host: no TCP packet leaves it from the address of its peer, as if the host had vanished.

A rule of the kernel's routing policy finds no route for these packets
(``ip rule add from ADDRESS ipproto tcp blackhole``). Without the rule, the kernel would end the connections of a killed
process by FIN or RST, and answer later segments and SYNs by RST. The rule affects established connections at once,
because a new rule invalidates their cached routes. It does not affect other traffic: the control network, and ICMP, by
which the testbed measures the network and not its peers. Dropped packets never reach the host's device, so they are in
no capture and no counter of the data plane.

The rule ends with its network namespace, and so with the run.

Source: rtnetlink(7), linux/fib_rules.h, ip-rule(8).
"""

import os
import socket
import struct
from pathlib import Path

_RTM_NEWRULE, _RTM_DELRULE = 32, 33
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_EXCL, _NLM_F_CREATE = 0x1, 0x4, 0x200, 0x400
_FRA_SRC, _FRA_PRIORITY, _FRA_IP_PROTO = 2, 6, 22
_FR_ACT_BLACKHOLE = 6
_PRIORITY = 1
"""The position of the rule: after the table of local addresses (0), before the main table (32766)."""

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence number, port
_RULE = struct.Struct("=BBBBBxxBI")  # family, prefix lengths of destination and source, tos, table, action, flags
_ANSWER_BYTES = 4096
_ANSWER_S = 10.0

_RESET = struct.pack("ii", 1, 0)
"""``SO_LINGER`` on, with a time of 0."""


class Silence:
    """Makes a host silent, and lets it answer again. Every call needs CAP_NET_ADMIN."""

    def __init__(self, address: str) -> None:
        """Open a netlink socket in this process's network namespace, and test the rule.

        Args:
            address: the host's address, from which no TCP packet may leave.

        Raises:
            OSError: the kernel refused, or does not support such rules (``CONFIG_IP_MULTIPLE_TABLES``).
        """
        self._address = address
        self._kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._kernel.settimeout(_ANSWER_S)
        self.set(True)
        self.set(False)

    def set(self, silent: bool) -> None:
        """Add or remove the rule. The change is in effect when this returns.

        Raises:
            OSError: the kernel refused.
        """
        kind, flags = (_RTM_NEWRULE, _NLM_F_CREATE | _NLM_F_EXCL) if silent else (_RTM_DELRULE, 0)
        rule = _RULE.pack(socket.AF_INET, 0, 32, 0, 0, _FR_ACT_BLACKHOLE, 0)
        rule += _attribute(_FRA_SRC, socket.inet_aton(self._address))
        rule += _attribute(_FRA_PRIORITY, struct.pack("=I", _PRIORITY))
        rule += _attribute(_FRA_IP_PROTO, struct.pack("=B", socket.IPPROTO_TCP))
        length = _HEADER.size + len(rule)
        self._kernel.send(_HEADER.pack(length, kind, _NLM_F_REQUEST | _NLM_F_ACK | flags, 0, 0) + rule)
        (error,) = struct.unpack_from("=i", self._kernel.recv(_ANSWER_BYTES), _HEADER.size)
        if error:
            asked = f"{'add' if silent else 'remove'} the rule that silences {self._address}"
            raise OSError(-error, os.strerror(-error), asked)


def forget_connections(address: str) -> None:
    """Make the kernel forget this process's TCP connections from an address when the process ends.

    By default it would keep unsent bytes, and continue the connections when the host answers again.
    """
    for descriptor in list(Path("/proc/self/fd").iterdir()):
        try:
            if not descriptor.readlink().name.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(descriptor.name))) as copy:
                if copy.family == socket.AF_INET and copy.getsockname()[0] == address:
                    copy.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        except FileNotFoundError:
            continue  # the list contains the descriptor with which it was read


def _attribute(kind: int, value: bytes) -> bytes:
    """Return a netlink attribute, padded to a multiple of four bytes."""
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
