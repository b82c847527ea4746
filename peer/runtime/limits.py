"""The number of files that a process may have open.

The kernel enforces the soft limit, which a process may raise up to its hard limit. The soft limit is often 1024, for
programs that call select(2); plans use the hard limit.
"""

import resource

HOST_FILES = 4
"""Files that a process opens per host: the data plane a device and pipes, Mininet two ends of a terminal, an agent a
control socket and a process descriptor, a peer one connection, or two during a simultaneous open."""

CONNECTIONS = 2
"""Connections that a peer has at most with each host. No protocol bounds how many hosts: other nodes choose, too."""

SUPPORT_FILES = 64
"""Other files that any process has open: libraries, logs, captures."""


def needed_files(hosts: int, peers: int = 1) -> int:
    """Return the number of files that the busiest process of a run has open.

    Args:
        hosts: of the run.
        peers: the most peers in one process.
    """
    return hosts * max(HOST_FILES, CONNECTIONS * peers) + SUPPORT_FILES


def most_peers(hosts: int, files: int) -> int:
    """Return the most peers of a process that has at most some files open; 0 if the run's busiest process needs more.

    Args:
        hosts: of the run.
        files: the most that a process may have open.
    """
    return (files - SUPPORT_FILES) // (CONNECTIONS * hosts) if needed_files(hosts) <= files else 0


def allow_open_files(hosts: int, peers: int = 1) -> None:
    """Raise this process's soft limit to ``needed_files(hosts, peers)``, or to its hard limit if that is lower.

    It does not always use the hard limit: child processes inherit the limit, and programs that close every descriptor
    up to it (such as Mininet's ``mnexec``) would take seconds if it is a million or more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = needed_files(hosts, peers)
    wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
