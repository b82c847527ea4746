"""Limits that hold for every underlay."""

LARGEST_DELAY_MS = 60_000
"""Limit on a one-way delay, in experiments and in files of latencies."""

MOST_HOSTS = 10_000
"""Limit on the hosts of an underlay."""
