"""Read captures into the table ``flows``: the files and hosts there are, and the tasks that read them.

A task reads all captures and keeps the packets of its share of the pairs of addresses, so that no packet moves from
task to task. Reading costs a fifth of the work on the packets that are kept.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Final

import pyarrow as pa

from metrics.flows.tables import build_flows
from metrics.flows.vantages import read_share
from metrics.pcap.files import Capture
from metrics.pcap.listing import list_captures
from metrics.storage import Place

_TASK_BYTES: Final = 32 << 20
"""Bytes of captures. There are fewer tasks than workers if each would have less."""

_MOST_BYTES: Final = 256 << 20
"""Bytes of captures in a task. There are more tasks than workers if each would have more."""

_COLUMNS: Final = ["address", "host"]


class HostsError(Exception):
    """A file of hosts does not have the form that it should have."""


@dataclass(frozen=True)
class FlowTask:
    """A share of the pairs of addresses of some captures."""

    captures: tuple[Capture, ...]
    hosts: Mapping[str, str]  # the host of each address
    share: int
    shares: int

    def read(self) -> pa.Table:
        """Return the table ``flows`` of the share."""
        return build_flows(read_share(self.captures, self.share, self.shares), self.hosts)


def list_all(paths: Sequence[Place | str]) -> tuple[list[Capture], list[str]]:
    """Find the captures that paths stand for, and what is left out, one sentence per path.

    If there are several paths, each is part of the names of its captures.

    Args:
        paths: files, folders or patterns.

    Raises:
        FileNotFoundError: there is no capture at one of them.
        CaptureError: a file is not a capture.
    """
    found, said = [], []
    for path in paths:
        listing = list_captures(path)
        found += [each if len(paths) == 1 else replace(each, name=str(each.path)) for each in listing.captures]
        said += [f"{path}: {words}" for words in [listing.describe_left_out()] if words]
    return list({each.name: each for each in found}.values()), said


def read_hosts(path: Place) -> dict[str, str]:
    """Read which host has which addresses.

    Args:
        path: a CSV file with the columns ``address`` and ``host``; a host may have several addresses.

    Raises:
        HostsError: it has another form; the message names the line.
    """
    with path.open("rb") as file:
        lines = file.read().decode("utf-8-sig").splitlines()
    rows = csv.DictReader(lines, skipinitialspace=True)
    if rows.fieldnames is None or not set(_COLUMNS) <= set(rows.fieldnames):
        raise HostsError(f"{path}: expected the columns {' and '.join(_COLUMNS)} in the first line")
    hosts: dict[str, str] = {}
    for row in rows:
        try:
            address, host = str(ip_address(row["address"].strip())), (row["host"] or "").strip()
        except (ValueError, AttributeError) as error:
            raise HostsError(f"{path}, line {rows.line_num}: {error}") from None
        if not host or hosts.setdefault(address, host) != host:
            problem = f"{address} has no host" if not host else f"{address} is of {hosts[address]} and of {host}"
            raise HostsError(f"{path}, line {rows.line_num}: {problem}")
    return hosts


def plan_flow_tasks(captures: Sequence[Capture], hosts: Mapping[str, str], workers: int) -> list[FlowTask]:
    """Return the tasks that read all flows of captures.

    Args:
        captures: one or more.
        hosts: the host of each address.
        workers: how many tasks run at a time.
    """
    size = sum(each.path.stat().st_size for each in captures)
    shares = max(-(-size // _MOST_BYTES), min(workers, -(-size // _TASK_BYTES)), 1)
    return [FlowTask(tuple(captures), hosts, share, shares) for share in range(shares)]
