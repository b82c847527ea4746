"""How many files a process may have open.

The kernel refuses a process more than its soft limit, which a process may raise itself up to its hard limit. The soft
limit is often 1024, for programs that call select(2); the hard limit is what a run is planned by.
"""

from __future__ import annotations

import resource

HOST_FILES = 4
"""Files that a process opens per host: the data plane its device and pipes, Mininet two ends of a terminal, an agent
a control socket and a process descriptor, a peer a connection or, while links are exchanged, two."""

SUPPORT_FILES = 64
"""Files that any process has open anyway: libraries, logs, captures."""


def needed_files(hosts: int) -> int:
    """Files that the busiest process of a run with so many hosts has open."""
    return hosts * HOST_FILES + SUPPORT_FILES


def allow_open_files(hosts: int) -> None:
    """Raise this process's soft limit to ``needed_files(hosts)``, or to its hard limit where that is lower.

    Not to the hard limit as such: what is started inherits the limit, and programs that close every descriptor up to it
    (Mininet's ``mnexec`` does) would take seconds where it is a million or more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed_files(hosts) if hard == resource.RLIM_INFINITY else min(needed_files(hosts), hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
