"""Deployment: the peer package, the agents and the files of a run, over one SSH connection a machine.

``Deployment`` is the same for every testbed; only the machines differ.
"""

from harness.deployment.agents import Site, build_agent_specs, emulated_sites
from harness.deployment.clock import ClockOffset
from harness.deployment.fleet import CLOCKS_FILE, Deployment, Versions
from harness.deployment.package import Package, build_package

__all__ = [
    "CLOCKS_FILE",
    "ClockOffset",
    "Deployment",
    "Package",
    "Site",
    "Versions",
    "build_agent_specs",
    "build_package",
    "emulated_sites",
]
