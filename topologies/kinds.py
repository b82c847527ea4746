"""Every kind of underlays: those of Trellis, then those of plugins (``peer.plugins``)."""

from peer.plugins import add_extensions
from topologies.generators import GENERATORS as OWN_GENERATORS
from topologies.generators import Generator
from topologies.importers import IMPORTERS as OWN_IMPORTERS
from topologies.importers import Importer

IMPORTERS: dict[str, Importer] = add_extensions(OWN_IMPORTERS, "importers", Importer, OWN_GENERATORS)
"""The kinds that are read from files."""

GENERATORS: dict[str, Generator] = add_extensions(OWN_GENERATORS, "underlays", Generator, IMPORTERS)
"""The kinds that are computed."""


def carried_by(kind: str) -> frozenset[str]:
    """Return what an underlay of a kind can have besides delays."""
    return GENERATORS[kind].carries if kind in GENERATORS else IMPORTERS[kind].carries
