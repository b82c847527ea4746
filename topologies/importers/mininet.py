"""Mininet's ``Topo`` classes: the hosts, switches and links of a Python file, with the options of ``TCLink``.

The hosts of the topology are those of the run, with their names. Its switches, and nodes of a class that is no
``mininet.node.Host``, such as a router or NAT, only forward packets. Hosts do not forward. Packets take the shortest
path by delay. Controllers, spanning trees, routes, addresses and ports have no meaning here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mininet.node import Host
from mininet.topo import Topo

from topologies.importers import Options
from topologies.importers.imported import Imported
from topologies.importers.tc_links import TcLink, TcNetwork, import_network
from topologies.importers.topo_classes import load_topo
from topologies.provenance import Provenance


def read_file(path: Path | None, options: Options) -> Imported:
    """Make a topology and read it. ``options.topo`` is its name and arguments.

    Raises:
        InputError: the file is missing or fails, an option of a link is malformed, or the hosts are not connected.
    """
    assert options.topo is not None, "the rules between keys ask for it"
    loaded = load_topo(path, options.topo)
    provenance = Provenance(sha256=loaded.sha256, notes=(f"topo: {options.topo}",))
    return import_network("mininet", path or Path(options.topo), describe_topo(loaded.topo), options, provenance)


def describe_topo(topo: Topo) -> TcNetwork:
    """Return the nodes of a topology in Mininet's order, and its links."""
    forwarding = [node for node in topo.nodes() if topo.isSwitch(node) or not _is_host(topo.nodeInfo(node).get("cls"))]
    hosts = [str(node) for node in topo.nodes() if node not in forwarding]
    links = [TcLink(str(one), str(other), options) for one, other, options in topo.links(sort=True, withInfo=True)]
    return TcNetwork(hosts, [str(node) for node in forwarding], links)


def _is_host(kind: Any) -> bool:  # noqa: ANN401 - whatever a Topo has as its cls
    """Return whether nodes of a class, which may be wrapped by ``functools.partial``, are hosts."""
    kind = getattr(kind, "func", kind)
    return not isinstance(kind, type) or issubclass(kind, Host)
