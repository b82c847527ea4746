"""Large pages: asked for when the process has grown, and not before."""

import gc
import os
import re
from pathlib import Path

import pytest

from harness.simulator import memory


def large_bytes() -> int:
    """This process' memory in large pages."""
    [kibibytes] = re.findall(r"AnonHugePages:\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text())
    return int(kibibytes) << 10


def collapses() -> bool:
    """Whether this kernel has transparent large pages, and collapses memory into them on request (Linux 6.1)."""
    release = tuple(int(word) for word in re.findall(r"\d+", os.uname().release)[:2])
    return release >= (6, 1) and Path("/sys/kernel/mm/transparent_hugepage").exists()


@pytest.mark.skipif(not collapses(), reason="this kernel collapses no memory into large pages")
def test_what_has_grown_lies_in_large_pages():
    pages = memory.LargePages()
    before = large_bytes()
    pages.keep()
    assert large_bytes() == before
    grown = [bytes(4096 - 64) for _ in range(40_000)]
    pages.keep()
    assert large_bytes() > before + 64 * 2**20
    assert len(grown) == 40_000


def test_rare_collections_end_with_their_block():
    before = gc.get_threshold()
    with memory.rare_collections():
        assert gc.get_threshold() > before
    assert gc.get_threshold() == before
