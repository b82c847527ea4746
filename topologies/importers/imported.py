"""What every importer returns."""

from collections.abc import Iterable, Sequence
from typing import Annotated

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from topologies.limits import FASTEST_MBIT, MOST_HOSTS, SLOWEST_MBIT
from topologies.model import Host, Matrix, Underlay
from topologies.provenance import Provenance
from topologies.reading import InputError

Rate = Annotated[float, Meta(ge=0, le=FASTEST_MBIT)]
"""The rate of an access link, in Mbit/s; 0 = unlimited. ``access_rates`` refuses rates that are too low."""


class Imported(Struct, frozen=True):
    """Latencies between n sites.

    Attributes:
        underlay: one host per site.
        regions: the region of every site, over which a sample is spread; empty texts = one region.
        provenance: where the data come from, and what became of them.
    """

    underlay: Underlay
    regions: tuple[str, ...]
    provenance: Provenance


def named_hosts(names: Sequence[str]) -> tuple[Host, ...]:
    """Return hosts of which only the names are known."""
    return tuple(Host(name=name, site=name) for name in names)


def check_count(place: str, hosts: int) -> None:
    """Refuse more hosts than an underlay may have.

    Raises:
        InputError: there are more.
    """
    if hosts > MOST_HOSTS:
        raise InputError(place, f"expected at most {MOST_HOSTS:,} hosts, got more")


def check_distinct(place: str, what: str, values: Sequence[object]) -> None:
    """Refuse nodes of which two have the same value.

    Raises:
        InputError: there are such nodes.
    """
    if len(set(values)) != len(values):
        raise InputError(place, f"two nodes have the same {what}")


def access_rates(hosts: Iterable[tuple[str, float, float]]) -> Matrix:
    """Return (2, n): the rates of access links, ``UP`` and ``DOWN``.

    Args:
        hosts: place of each host for errors, rate up, rate down (Mbit/s).

    Raises:
        InputError: a rate is too low.
    """
    rates = []
    for place, up_mbit, down_mbit in hosts:
        slowest = min((rate for rate in (up_mbit, down_mbit) if rate), default=SLOWEST_MBIT)
        if slowest < SLOWEST_MBIT:
            raise InputError(place, f"expected a rate of 0 or at least {SLOWEST_MBIT:g} Mbit/s, got {slowest:g}")
        rates.append((up_mbit, down_mbit))
    return np.array(rates).T


def left_out(imported: Imported, form: str, carries: Sequence[str]) -> list[str]:
    """Return a sentence for everything that a file of a form cannot hold.

    Args:
        imported: what is written.
        form: the form's name.
        carries: what it can hold: ``jitter``, ``loss``, ``rates``, ``hosts`` (countries and positions).
    """
    underlay = imported.underlay
    found = {
        "jitter": bool(underlay.jitter_ms.any()),
        "loss": bool(underlay.loss_ratio.any()),
        "rates": bool(underlay.rate_mbit.any()),
        "hosts": any(host != Host(name=host.name, site=host.site) for host in underlay.hosts),
    }
    words = {
        "jitter": "jitter",
        "loss": "loss",
        "rates": "rates of access links",
        "hosts": "countries and positions of hosts",
    }
    return [f"{words[name]}: not in a {form} file" for name in found if found[name] and name not in carries]


def rounded(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return values with the six decimals that files have: 1 ns in ms."""
    return np.asarray(np.round(values, 6))
