"""Limits that hold for every underlay."""

from typing import Annotated

from msgspec import Meta

LARGEST_DELAY_MS = 60_000
"""Limit on a one-way delay, in experiments and in files of latencies."""

SLOWEST_MBIT, FASTEST_MBIT = 0.001, 1e6
"""Limits on the rate of an access link that has one, likewise. ``underlay.json`` rounds rates to 0.000001."""

MOST_HOSTS = 10_000
"""Limit on the hosts of an underlay."""

Name = Annotated[str, Meta(max_length=200)]
"""The name of a host, a site or a router."""
