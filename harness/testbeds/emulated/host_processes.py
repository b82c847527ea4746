"""The processes in emulated hosts, found by their network namespaces."""

from collections.abc import Collection
from pathlib import Path


def find_processes(shells: Collection[int]) -> list[int]:
    """Return the processes in the network namespaces of Mininet's shells, except the shells."""
    inside = {Path(f"/proc/{shell}/ns/net").readlink() for shell in shells}
    found = []
    for namespace in Path("/proc").glob("[0-9]*/ns/net"):
        process = int(namespace.parts[2])
        try:
            if process not in shells and namespace.readlink() in inside:
                found.append(process)
        except OSError:
            continue  # it has ended
    return found
