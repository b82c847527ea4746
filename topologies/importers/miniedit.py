"""Files that MiniEdit saves (``.mn``): hosts, switches and links as JSON, with the options of ``TCLink``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from topologies.importers import Options
from topologies.importers.imported import Imported, check_distinct
from topologies.importers.tc_links import TcLink, TcNetwork, import_network
from topologies.provenance import Provenance, hash_files
from topologies.reading import InputError, read_text


class _NodeOptions(Struct, frozen=True):
    hostname: str = ""


class _Node(Struct):
    number: str = ""
    opts: _NodeOptions = _NodeOptions()


class _Link(Struct):
    src: str
    dest: str
    opts: dict[str, Any] = {}


class _Document(Struct):
    hosts: list[_Node]
    switches: list[_Node] = []
    links: list[_Link] = []


def read_file(path: Path, options: Options) -> Imported:
    """Read a file of MiniEdit. Its controllers have no meaning here.

    Raises:
        InputError: the file is missing or malformed, two nodes have the same name, or the hosts are not connected.
    """
    try:
        read = msgspec.json.decode(read_text(path), type=_Document)
    except msgspec.DecodeError as error:
        raise InputError(str(path), f"expected a file of MiniEdit: {error}") from None
    hosts = [node.opts.hostname or f"h{node.number}" for node in read.hosts]
    switches = [node.opts.hostname or f"s{node.number}" for node in read.switches]
    check_distinct(str(path), "name", [*hosts, *switches])
    for link in read.links:
        if unknown := {link.src, link.dest}.difference(hosts, switches):
            raise InputError(f"{path}: link {link.src} - {link.dest}", f"there is no host or switch {min(unknown)}")
    links = [TcLink(link.src, link.dest, link.opts) for link in read.links]
    provenance = Provenance(sha256=hash_files(path))
    return import_network("miniedit", path, TcNetwork(hosts, switches, links), options, provenance)
