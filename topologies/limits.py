"""Limits that hold for every underlay."""

LARGEST_DELAY_MS = 60_000
"""Limit on a one-way delay, in experiments and in files of latencies."""

SLOWEST_MBIT, FASTEST_MBIT = 0.001, 1e6
"""Limits on the rate of an access link that has one, likewise. ``underlay.json`` rounds rates to 0.000001."""

MOST_HOSTS = 10_000
"""Limit on the hosts of an underlay."""
