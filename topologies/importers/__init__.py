"""The forms of measured latencies that Trellis reads and writes: one registry, one module per form.

A form's module has ``read_file(path, options) -> Imported`` and, if Trellis writes the form,
``write_file(path, imported) -> list[str]``, which returns a sentence for everything that the form cannot hold. The
module is imported when it is used, since the registry is read with every experiment file. ``[underlay] kind``,
``trellis import`` and the rules between keys follow from ``IMPORTERS``. To add a form, write its module and enter it
here.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from topologies.importers.imported import Imported

Times = Literal["rtt", "one-way"]
"""What the times of a file are."""

Missing = Literal["refuse", "reverse", "relay", "path", "drop"]
"""What becomes of pairs without a time (``topologies.holes``)."""


class Options(Struct, frozen=True):
    """What a reader is told about a file; None = as the form or the file says.

    Attributes:
        times: whether times are round trips or one way.
        directed: whether a row is about one direction, not about both.
        missing: what becomes of pairs without a time.
        topo: which topology of a Python file is meant, and its arguments, as for ``mn --topo``.
    """

    times: Times | None = None
    directed: bool | None = None
    missing: Missing = "refuse"
    topo: str | None = None


class Importer(Struct, frozen=True):
    """A form of latencies.

    Attributes:
        name: ``[underlay] kind``, and the form's name in ``trellis import``.
        help: what it is, for the command line.
        path: whether the data ship with Trellis, can be below ``$TRELLIS_DATA``, have to be named, or are made by a
            Python file that the option ``topo`` names.
        options: the options that it takes.
        carries: what it can have besides delays: ``jitter`` and ``loss`` of every pair, ``rates`` of access links, a
            ``graph`` of routers and links.
        writes: whether Trellis writes the form, too.
        module: the module that reads and writes it; empty = the one of its name in this package.
    """

    name: str
    help: str
    path: Literal["shipped", "data", "named", "code"] = "named"
    options: frozenset[str] = frozenset()
    carries: frozenset[str] = frozenset()
    writes: bool = False
    module: str = ""

    def read(self, path: Path | None, options: Options) -> Imported:
        """Read data.

        Args:
            path: the file or folder; None if the data ship with Trellis or with a package.
            options: those of ``self.options`` count.

        Raises:
            InputError: the data are missing or malformed; the place is the file, line and column.
        """
        imported: Imported = self._module().read_file(path, options)
        return imported

    def write(self, path: Path, imported: Imported) -> list[str]:
        """Write a file of this form, and return a sentence for everything that it cannot hold.

        Raises:
            OSError: the file cannot be written.
        """
        left_out: list[str] = self._module().write_file(path, imported)
        return left_out

    def _module(self) -> ModuleType:
        return import_module(self.module or f"{__name__}.{self.name.replace('-', '_')}")


_ALL = frozenset({"times", "directed", "missing"})
_BOTH = frozenset({"jitter", "loss"})
_GRAPH = frozenset({"graph"})

IMPORTERS: dict[str, Importer] = {
    importer.name: importer
    for importer in (
        Importer("measured-cities", "the matrix of 217 cities that ships with Trellis", path="shipped"),
        Importer(
            "wondernetwork",
            "WonderNetwork's pings from a folder or a file",
            path="data",
            carries=frozenset({"jitter"}),
        ),
        Importer("matrix", "a square matrix as text", options=frozenset({"times"}), writes=True),
        Importer("pairs", "a list of pairs as text", options=_ALL, carries=_BOTH, writes=True),
        Importer("mesh", "nodes and edges as JSON", options=_ALL, carries=_BOTH | {"rates"}, writes=True),
        Importer(
            "ethp2p",
            "the topology.json of ethp2p's simulations",
            options=frozenset({"missing"}),
            carries=frozenset({"rates"}),
        ),
        Importer(
            "graphml",
            "routers and links in GraphML, as in the Topology Zoo",
            options=frozenset({"missing"}),
            carries=_GRAPH,
        ),
        Importer(
            "gml",
            "routers and links in GML, as in Shadow's experiments",
            options=frozenset({"missing"}),
            carries=_BOTH | {"rates"} | _GRAPH,
        ),
        Importer(
            "shadow",
            "the hosts and the network of a Shadow experiment (shadow.yaml)",
            carries=frozenset({"loss", "rates"}),
        ),
        Importer(
            "rocketfuel",
            "routers and links with latencies by Rocketfuel",
            options=frozenset({"missing"}),
            carries=_GRAPH,
        ),
        Importer(
            "mininet",
            "a Topo class of Mininet from a Python file, which is run",
            path="code",
            options=frozenset({"missing", "topo"}),
            carries=_BOTH | _GRAPH,
        ),
        Importer("miniedit", "a file of MiniEdit", options=frozenset({"missing"}), carries=_BOTH | _GRAPH),
    )
}
"""Those of Trellis; ``topologies.kinds`` has all."""


class TopoReference(NamedTuple):
    """What ``[underlay] topo`` names.

    Attributes:
        file: the Python file; None = the topology is one of Mininet's own.
        call: the topology's name and arguments.
    """

    file: str | None
    call: str

    @classmethod
    def parse(cls, text: str) -> TopoReference:
        """Return what a text such as ``mytopo.py:MyTopo,3`` or ``tree,2,3`` names."""
        file, separator, call = text.rpartition(".py:")
        return cls(f"{file}.py", call) if separator else cls(None, text)
