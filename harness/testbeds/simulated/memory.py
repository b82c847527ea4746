"""The interpreter's memory while a simulation runs: garbage is collected rarely, and what stays lies in large pages.

Where an event took 13 us among 50 nodes it took about 30 among 1000: the rest is waiting for memory.
Pages of 2 MiB in place of 4 KiB took 15 and 20 % off (1000 nodes, two runs each, alternating).

Source: docs of ``gc``; madvise(2); MADV_COLLAPSE of Linux 6.1.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MADV_COLLAPSE = 25
_LARGE_BYTES = 2 << 20
_GROWTH_BYTES = 32 << 20
_ANONYMOUS = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw-p 0+ 00:00 0\s*(?:\[heap])?$", re.MULTILINE)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect cyclic garbage rarely: a simulation holds millions of live objects and makes few cycles."""
    before = gc.get_threshold()
    gc.set_threshold(500_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class LargePages:
    """Has the kernel put this process' memory into large pages, whenever it has grown."""

    def __init__(self) -> None:
        self._seen_bytes = _resident_bytes()

    def keep(self) -> None:
        """Do so if it has grown by now; what the kernel cannot do stays as it is."""
        resident_bytes = _resident_bytes()
        if resident_bytes >= self._seen_bytes + _GROWTH_BYTES:
            _use_large_pages()
            self._seen_bytes = resident_bytes


def _resident_bytes() -> int:
    """The process' memory; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


def _use_large_pages() -> None:
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for match in _ANONYMOUS.finditer(Path("/proc/self/maps").read_text(encoding="utf-8")):
        start, end = (int(word, 16) for word in match.groups())
        first, last = -(-start // _LARGE_BYTES) * _LARGE_BYTES, end // _LARGE_BYTES * _LARGE_BYTES
        if first < last:
            madvise(first, last - first, _MADV_COLLAPSE)
