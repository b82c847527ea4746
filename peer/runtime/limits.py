"""The number of files that a process may have open.

The kernel enforces the soft limit, which a process may raise up to its hard limit. The soft limit is often 1024, for
programs that call select(2); plans use the hard limit.
"""

import resource

HOST_FILES = 4
"""Files that a process opens per host: the data plane a device and pipes, Mininet two ends of a terminal, an agent a
control socket and a process descriptor, a peer one connection, or two during a simultaneous open."""

SUPPORT_FILES = 64
"""Other files that any process has open: libraries, logs, captures."""


def needed_files(hosts: int) -> int:
    """Return the number of files that the busiest process of a run with ``hosts`` hosts has open."""
    return hosts * HOST_FILES + SUPPORT_FILES


def allow_open_files(hosts: int) -> None:
    """Raise this process's soft limit to ``needed_files(hosts)``, or to its hard limit if that is lower.

    It does not always use the hard limit: child processes inherit the limit, and programs that close every descriptor
    up to it (such as Mininet's ``mnexec``) would take seconds if it is a million or more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed_files(hosts) if hard == resource.RLIM_INFINITY else min(needed_files(hosts), hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
