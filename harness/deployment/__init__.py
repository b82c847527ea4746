"""Deployment: the peer package, the agents and the files of a run, over one SSH connection a machine.

``Deployment`` is the same for every testbed; only the machines differ.
"""

from harness.deployment.agents import build_agent_specs as build_agent_specs
from harness.deployment.agents import nodes_by_machine as nodes_by_machine
from harness.deployment.fleet import Deployment as Deployment
from harness.deployment.fleet import make_token as make_token
from harness.deployment.package import Package as Package
from harness.deployment.package import build_package as build_package
