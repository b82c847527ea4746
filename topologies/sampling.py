"""Chooses sites for hosts: some sites of a data set, or several hosts per site."""

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from topologies.model import Underlay, between

Draws = Callable[[str], Random]
"""From a purpose to the stream of its random numbers; the same purpose gives the same stream from its beginning."""


def choose_sites(regions: Sequence[str], weights: Sequence[float], hosts: int | None, draws: Draws) -> list[int]:
    """Choose one site per host: all sites, a sample spread over the regions, or, for more hosts, each in turn.

    Args:
        regions: the region of every site.
        weights: the weight of every site, above 0.
        hosts: number of hosts; None = as many as there are sites.
        draws: the streams of random numbers.
    """
    sites = len(regions)
    if hosts is None:
        return list(range(sites))
    if hosts < sites:
        return spread_sample(regions, weights, hosts, draws("sites"))
    return [host % sites for host in range(hosts)]


def spread_sample(regions: Sequence[str], weights: Sequence[float], count: int, random: Random) -> list[int]:
    """Return ``count`` distinct indices, spread over the regions, in ascending order.

    The share of a region is proportional to its number of sites, rounded so that the shares add up. Each region gets at
    least one, the largest regions first, as far as the count suffices. Within a region sites are drawn without
    replacement, with probabilities proportional to their weights.

    Args:
        regions: the region of every site.
        weights: the weight of every site, above 0.
        count: from 1 to the number of sites.
        random: the source of all draws.
    """
    members: dict[str, list[int]] = {}
    for index, region in enumerate(regions):
        members.setdefault(region, []).append(index)
    chosen: list[int] = []
    shares = _shares({region: len(sites) for region, sites in members.items()}, count)
    for region in sorted(members):
        keys = {site: math.log(1.0 - random.random()) / weights[site] for site in members[region]}
        chosen += sorted(members[region], key=lambda site: (-keys[site], site))[: shares[region]]
    return sorted(chosen)


def _shares(sizes: dict[str, int], count: int) -> dict[str, int]:
    """Return each region's part of ``count``: one each, then one at a time to the region furthest below its share."""
    total = sum(sizes.values())
    order = sorted(sizes, key=lambda region: (-sizes[region], region))
    shares = {region: int(rank < count) for rank, region in enumerate(order)}
    while sum(shares.values()) < count:
        open_regions = [region for region in order if shares[region] < sizes[region]]
        neediest = max(open_regions, key=lambda region: count * sizes[region] / total - shares[region])
        shares[neediest] += 1
    return shares


def place_hosts(underlay: Underlay, sites: Sequence[int], access_delay_ms: float) -> Underlay:
    """Return the underlay whose host i is at site ``sites[i]`` of ``underlay``.

    Hosts at different sites have the sites' values. The delay between two hosts at the same site is twice the access
    delay (once at each end), without jitter.
    """
    index = np.asarray(sites, dtype=np.intp)
    together = index[:, None] == index
    np.fill_diagonal(together, val=False)
    delay_ms, jitter_ms = underlay.delay_ms[np.ix_(index, index)], _of_sites(underlay.jitter_ms, index)
    delay_ms[together] = 2 * access_delay_ms
    if jitter_ms.any():
        jitter_ms[together] = 0.0
    names = _host_names([underlay.hosts[site].name for site in sites])
    return replace(
        underlay,
        hosts=tuple(replace(underlay.hosts[site], name=name) for site, name in zip(sites, names, strict=True)),
        delay_ms=delay_ms,
        jitter_ms=jitter_ms,
        loss_ratio=_of_sites(underlay.loss_ratio, index),
        rate_mbit=underlay.rate_mbit[:, index],
        queue_ms=underlay.queue_ms[:, index],
        filled=_of_sites(underlay.filled, index),
        routers=tuple(underlay.routers[site] for site in sites) if underlay.graph else (),
    )


def _of_sites(matrix: npt.NDArray[Any], index: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
    return matrix[np.ix_(index, index)] if matrix.any() else between(len(index), 0, matrix.dtype)


def _host_names(sites: Sequence[str]) -> list[str]:
    """Return the hosts' names: the site's name for its first host, ``name 2`` for its second, and so on."""
    seen: dict[str, int] = {}
    names = []
    for site in sites:
        seen[site] = seen.get(site, 0) + 1
        names.append(site if seen[site] == 1 else f"{site} {seen[site]}")
    return names
