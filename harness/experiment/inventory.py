"""The machines of a testbed: SSH endpoints and the number of hosts of each.

An inventory file (``playbooks/inventories/*.toml``) names the machines of a remote testbed. The emulated testbed makes
one ``Machine`` itself, so that the same deployment drives both.
"""

import ipaddress
import json
import re
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from harness.errors import ExperimentError
from harness.experiment.document import read_toml
from harness.experiment.sections.values import Name
from metrics.rundir import read_document, write_document
from metrics.rundir.files import INVENTORY_FILE

PEER_PORT = 9000
"""The TCP port that peers listen on, on the emulated network and by default on a machine of an inventory."""

METRICS_PORT = 9100
"""The port of the Prometheus endpoints, on the control network."""

PROBE_PORT = 9300
"""The UDP port of the probers on the machines of an inventory."""

MAX_HOSTS_PER_ADDRESS = METRICS_PORT - PEER_PORT
"""Hosts that share an address differ by port; the peers' ports end where the metrics ports begin."""

_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")

Port = Annotated[int, Meta(ge=1, le=65_535)]
Text = Annotated[str, Meta(min_length=1)]


class Machine(Struct, forbid_unknown_fields=True, frozen=True):
    """One SSH endpoint.

    Attributes:
        host: the address or name that SSH connects to.
        key: the private key's file; relative to the inventory or to ``~``.
        known_hosts: the file with the machine's host key. A machine that is not in it is refused.
        python: the interpreter on the machine.
        work: a path on the machine, absolute or below the user's home (``~/...``); every run has its own folder below
            it. Only the user and root may be able to write there.
        hosts: the number of peers on this machine, unless ``addresses`` is set.
        address: the address that all peers listen on, each at its own port; default: ``host``.
        addresses: one address per peer, each at the standard ports, instead of ``hosts`` and ``address``.
        metrics_address: the address at which peers and agent serve their metrics to everyone who can connect. Use one
            that only you and the machine can reach. Without it they serve none.
        own_clock: False = it reads this computer's clocks (a namespace), so there is no offset to estimate.
        work_here: the path of ``work`` on this computer, if it is on the file system of the run directory, so that
            files need not be copied; empty = nowhere.
    """

    name: Name
    host: Text
    key: Text
    known_hosts: Text
    user: Text = "root"
    port: Port = 22
    python: Text = "python3"
    work: Annotated[str, Meta(pattern=r"^~?(/[A-Za-z0-9._-]+)+\Z", max_length=60)] = "~/.trellis"
    hosts: Annotated[int, Meta(ge=1, le=MAX_HOSTS_PER_ADDRESS)] = 1
    address: str = ""
    addresses: tuple[Text, ...] = ()
    metrics_address: str = ""
    own_clock: bool = True
    work_here: str = ""


class MachineSlot(Struct, frozen=True):
    """A slot: a machine and the endpoints of one peer on it."""

    machine: str
    listen: tuple[str, int]
    metrics: tuple[str, int] | None = None


class Inventory(Struct, forbid_unknown_fields=True, frozen=True):
    """An inventory file: ``[[machines]]``."""

    machines: Annotated[tuple[Machine, ...], Meta(min_length=1)]

    def slots(self, count: int) -> tuple[MachineSlot, ...]:
        """Return ``count`` slots, taken from the machines in turn until each is full.

        Raises:
            ExperimentError: the machines together have fewer slots.
        """
        rows = [_slots(machine) for machine in self.machines]
        rounds = max(len(row) for row in rows)
        dealt = [row[place] for place in range(rounds) for row in rows if place < len(row)]
        if len(dealt) < count:
            raise ExperimentError(
                "$.machines", f"expected at most {len(dealt)} hosts (the machines' slots), got {count}"
            )
        return tuple(dealt[:count])

    def endpoints(self) -> dict[str, tuple[tuple[str, int], ...]]:
        """Return where the peers of each machine listen when every slot is taken."""
        return {machine.name: tuple(slot.listen for slot in _slots(machine)) for machine in self.machines}


def load_inventory(path: Path) -> Inventory:
    """Read an inventory file and make its paths absolute.

    Raises:
        ExperimentError: the file is missing or invalid; the message names the place.
    """
    document = read_toml(path)
    try:
        inventory = msgspec.convert(document, Inventory)
    except msgspec.ValidationError as error:
        raise ExperimentError(*_place_of(str(error), path)) from None
    _refuse_addresses(inventory, path)
    _refuse_collisions(inventory, path)
    return Inventory(tuple(_resolve(machine, path.parent) for machine in inventory.machines))


def inventory_text(inventory: Inventory) -> str:
    """Return the inventory as the text of an inventory file, without the fields that have their defaults."""
    tables = []
    for machine in inventory.machines:
        fields = msgspec.to_builtins(machine)
        defaults = {field.name: field.default for field in msgspec.structs.fields(machine)}
        rows = [f"{name} = {json.dumps(value)}" for name, value in fields.items() if value != defaults[name]]
        tables.append("\n".join(["[[machines]]", *rows]))
    return "\n\n".join(tables) + "\n"


def save_inventory(inventory: Inventory, run_dir: Path) -> None:
    """Write the inventory, with absolute paths, into the run directory."""
    write_document(run_dir / INVENTORY_FILE, inventory)


def saved_inventory(run_dir: Path) -> Inventory:
    """Return the inventory that ``save_inventory`` wrote.

    Raises:
        RunDirError: the file is missing or invalid.
    """
    return read_document(run_dir / INVENTORY_FILE, msgspec.json.Decoder(Inventory).decode)


def _slots(machine: Machine) -> list[MachineSlot]:
    text = machine.address or machine.host
    listens = [(text, PEER_PORT + place) for place in range(machine.hosts)]
    if machine.addresses:
        listens = [(text, PEER_PORT) for text in machine.addresses]
    address = machine.metrics_address
    return [
        MachineSlot(machine.name, listen, (address, METRICS_PORT + place) if address else None)
        for place, listen in enumerate(listens)
    ]


def _place_of(message: str, path: Path) -> tuple[str, str]:
    """Split msgspec's ``problem - at `$.place``` into (file: place, problem)."""
    problem, _, place = message.partition(" - at ")
    return f"{path}: {place.strip('`') or '$'}", problem


def _refuse_addresses(inventory: Inventory, path: Path) -> None:
    for index, machine in enumerate(inventory.machines):
        texts = {"host": machine.host, "address": machine.address, "metrics_address": machine.metrics_address}
        texts |= {f"addresses[{place}]": text for place, text in enumerate(machine.addresses)}
        for field, text in texts.items():
            if text and not (_HOST_NAME.fullmatch(text) or _is_address(text)):
                hint = _hint_at_fields(text) if field == "host" else ""
                problem = f"expected a host name or an address, got {text!r}{hint}"
                raise ExperimentError(f"{path}: $.machines[{index}].{field}", problem)


def _hint_at_fields(host: str) -> str:
    """Return which fields the parts of ``user@host:port`` belong to; empty = there are no such parts."""
    user, at, rest = host.rpartition("@")
    name, _, port = rest.rpartition(":")
    name = name.strip("[]")
    with_port = re.fullmatch(r"[0-9]+", port) and (_HOST_NAME.fullmatch(name) or _is_address(name))
    fields = [*([f"user = {user!r}"] if at else []), *([f"port = {port}"] if with_port else [])]
    return f"; set {' and '.join(fields)} instead" if fields else ""


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _refuse_collisions(inventory: Inventory, path: Path) -> None:
    names: dict[str, int] = {}
    metered: dict[str, str] = {}
    endpoints: dict[tuple[str, int], str] = {}
    for index, machine in enumerate(inventory.machines):
        place = f"{path}: $.machines[{index}]"
        if machine.name in names:
            raise ExperimentError(f"{place}.name", f"{machine.name!r} is the name of machine {names[machine.name]}")
        names[machine.name] = index
        if machine.addresses and (machine.address or machine.hosts != 1):
            raise ExperimentError(f"{place}.addresses", "cannot be combined with `hosts` or `address`")
        if address := machine.metrics_address:
            if len(machine.addresses) > MAX_HOSTS_PER_ADDRESS:
                raise ExperimentError(f"{place}.metrics_address", f"serves at most {MAX_HOSTS_PER_ADDRESS} peers")
            if metered.setdefault(address, machine.name) != machine.name:
                raise ExperimentError(f"{place}.metrics_address", f"is also that of machine {metered[address]!r}")
        for slot in _slots(machine):
            owner = endpoints.setdefault(slot.listen, machine.name)
            if owner != machine.name or len(set(machine.addresses)) != len(machine.addresses):
                raise ExperimentError(f"{place}.addresses", f"{slot.listen[0]}:{slot.listen[1]} is given twice")


def _resolve(machine: Machine, folder: Path) -> Machine:
    return msgspec.structs.replace(
        machine,
        key=str(folder.absolute() / Path(machine.key).expanduser()),
        known_hosts=str(folder.absolute() / Path(machine.known_hosts).expanduser()),
    )
