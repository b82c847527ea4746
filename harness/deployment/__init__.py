"""Deployment: the peer package, the agents and the files of a run, over one SSH connection per machine.

``Deployment`` is the same for every testbed; only the machines differ.
"""

from harness.deployment.agents import Site, build_agent_specs, emulated_sites, nodes_by_machine
from harness.deployment.fleet import Deployment, Versions, make_token
from harness.deployment.package import Package, build_package
from harness.deployment.record import Record, read_record, write_record

__all__ = [
    "Deployment",
    "Package",
    "Record",
    "Site",
    "Versions",
    "build_agent_specs",
    "build_package",
    "emulated_sites",
    "make_token",
    "nodes_by_machine",
    "read_record",
    "write_record",
]
