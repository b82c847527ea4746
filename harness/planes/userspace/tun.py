"""TUN devices inside the hosts' namespaces.

TUN carries IP packets without Ethernet headers, so no address is resolved: an ARP exchange with the emulated delay
would make the first packet of every flow late. Devices are configured by ioctl, since one ``ip`` process per host would
take longer than everything else.

Source: Documentation/networking/tuntap.rst, linux/if_tun.h, netdevice(7).
"""

import fcntl
import ipaddress
import os
import socket
import struct
import subprocess
from pathlib import Path

from harness.errors import TestbedError
from harness.machine.netns import entered
from harness.planes.plane import Port

TUN_PATH = "/dev/net/tun"
QUEUE_FRAMES = 10_000
"""Frames that a device holds before the kernel drops further ones (``overruns``): 0.1 s at full speed."""

_TUNSETIFF, _TUNGETDEVNETNS = 0x400454CA, 0x54E3
_IFF_TUN, _IFF_NO_PI, _IFF_UP = 0x0001, 0x1000, 0x1
_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFMTU, _SIOCSIFTXQLEN = 0x8914, 0x8916, 0x891C, 0x8922, 0x8943


def open_device(port: Port) -> int:
    """Make the port's device in its namespace, assign its address and bring it up.

    Returns:
        A non-blocking descriptor: a read returns one packet that the host sent, a write delivers one to it. Closing it
        removes the device.

    Raises:
        TestbedError: TUN devices are unavailable, or the kernel refused a step.
    """
    asked = f"make {port.device} for host {port.host}"
    try:
        namespace = os.open(port.netns, os.O_RDONLY)
        try:
            with entered(namespace):
                return _make(port)
        finally:
            os.close(namespace)
    except OSError as error:
        raise TestbedError(asked, f"{error.filename or port.netns}: {error.strerror}") from error


def read_overruns(descriptor: int, device: str) -> int:
    """Return how many frames the host's kernel dropped because the device's queue was full; 0 if the device is gone."""
    try:
        namespace = fcntl.ioctl(descriptor, _TUNGETDEVNETNS)
    except OSError:
        return 0
    try:
        with entered(namespace):
            table = Path("/proc/thread-self/net/dev").read_text(encoding="utf-8")
    finally:
        os.close(namespace)
    rows = dict(line.split(":", 1) for line in table.splitlines() if ":" in line)
    named = {name.strip(): row.split() for name, row in rows.items()}
    return int(named[device][11])


def _make(port: Port) -> int:
    descriptor = open_clone()
    try:
        request = struct.pack("16sH22x", port.device.encode(), _IFF_TUN | _IFF_NO_PI)
        fcntl.ioctl(descriptor, _TUNSETIFF, request)
        _configure(port)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def open_clone() -> int:
    """Open the device file of TUN devices.

    Raises:
        TestbedError: it is missing, or this user may not open it.
    """
    try:
        return os.open(TUN_PATH, os.O_RDWR | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise TestbedError(
            f"open {TUN_PATH}", "no such device; load the module (modprobe tun), or give the container the device"
        ) from error
    except PermissionError as error:
        mode = f"{Path(TUN_PATH).stat().st_mode & 0o777:04o}"
        raise TestbedError(
            f"open {TUN_PATH}", f"permission denied (mode {mode}); run as root, or chmod 0666 {TUN_PATH}"
        ) from error


def _configure(port: Port) -> None:
    mask = str(ipaddress.IPv4Network(f"0.0.0.0/{port.prefix}").netmask)
    steps = [
        (_SIOCSIFADDR, _socket_address(port.address)),
        (_SIOCSIFNETMASK, _socket_address(mask)),
        (_SIOCSIFMTU, struct.pack("i", port.mtu)),
        (_SIOCSIFFLAGS, struct.pack("H", _IFF_UP)),
    ]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for request, argument in steps:
            fcntl.ioctl(control, request, struct.pack("16s24s", port.device.encode(), argument))
        _lengthen_queue(port, control)


def _lengthen_queue(port: Port, control: socket.socket) -> None:
    """Set the queue length. Without root the kernel refuses the ioctl but accepts netlink, which needs a process."""
    try:
        fcntl.ioctl(control, _SIOCSIFTXQLEN, struct.pack("16si20x", port.device.encode(), QUEUE_FRAMES))
    except PermissionError:
        command = ["ip", "link", "set", port.device, "txqueuelen", str(QUEUE_FRAMES)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise TestbedError(" ".join(command), done.stderr.strip()) from None


def _socket_address(address: str) -> bytes:
    return struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
