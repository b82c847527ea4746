"""Offloads of a device: with them, a packet in a queue or a capture would be several on a wire.

Source: linux/ethtool.h, linux/sockios.h, ethtool(8).
"""

import array
import fcntl
import os
import socket
import struct

from harness.errors import TestbedError
from harness.machine.netns import entered

_SIOCETHTOOL = 0x8946
_COMMANDS = {"TSO": (0x1E, 0x1F), "GSO": (0x23, 0x24), "GRO": (0x2B, 0x2C), "TX checksums": (0x16, 0x17)}
"""The commands that read and set each offload."""


def switch_off(device: str, netns: str) -> None:
    """Switch a device's offloads off, and read them back.

    Args:
        device: its name.
        netns: the path of its network namespace.

    Raises:
        TestbedError: the kernel refused, or an offload is still on.
    """
    asked = f"switch off the offloads of {device} in {netns}"
    try:
        namespace = os.open(netns, os.O_RDONLY)
        try:
            with entered(namespace), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
                for _, setter in _COMMANDS.values():
                    _ask(control, device, setter)
                still_on = [name for name, (getter, _) in _COMMANDS.items() if _ask(control, device, getter)]
        finally:
            os.close(namespace)
    except OSError as error:
        raise TestbedError(asked, error.strerror or str(error)) from error
    if still_on:
        raise TestbedError(asked, f"{', '.join(still_on)} stayed on")


def _ask(control: socket.socket, device: str, command: int) -> int:
    """Give the kernel an ethtool command with the value 0, and return the value that it leaves."""
    value = array.array("I", [command, 0])
    address, _ = value.buffer_info()
    fcntl.ioctl(control, _SIOCETHTOOL, struct.pack("16sP16x", device.encode(), address))
    return value[1]
