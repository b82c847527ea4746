"""Runs code inside another network namespace."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from peer.runtime.namespaces import enter_network


@contextmanager
def entered(descriptor: int) -> Iterator[None]:
    """Move this thread into the descriptor's network namespace, and back at the end.

    Raises:
        OSError: the kernel refused.
    """
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        enter_network(f"/proc/self/fd/{descriptor}")
        try:
            yield
        finally:
            enter_network(f"/proc/self/fd/{own}")
    finally:
        os.close(own)
