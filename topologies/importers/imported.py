"""What every importer returns."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from topologies.limits import MOST_HOSTS
from topologies.model import Host, Underlay
from topologies.provenance import Provenance
from topologies.reading import InputError


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


def left_out(imported: Imported, form: str, carries: Sequence[str]) -> list[str]:
    """Return a sentence for everything that a file of a form cannot hold.

    Args:
        imported: what is written.
        form: the form's name.
        carries: what it can hold: ``jitter``, ``loss``, ``hosts`` (countries and positions).
    """
    underlay = imported.underlay
    found = {
        "jitter": bool(underlay.jitter_ms.any()),
        "loss": bool(underlay.loss_ratio.any()),
        "hosts": any(host != Host(name=host.name, site=host.site) for host in underlay.hosts),
    }
    words = {"jitter": "jitter", "loss": "loss", "hosts": "countries and positions of hosts"}
    return [f"{words[name]}: not in a {form} file" for name in found if found[name] and name not in carries]


def rounded(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return values with the six decimals that files have: 1 ns in ms."""
    return np.asarray(np.round(values, 6))
