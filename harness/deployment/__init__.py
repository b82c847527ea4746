"""Deployment: the peer package, the agents and the files of a run, over one SSH connection per machine.

``fleet.Deployment`` is the same for every testbed; only the machines differ. Importing this package imports nothing
else: the libraries for SSH take long, and only what deploys needs them.
"""
