"""The instances of nodes, sans-I/O: what a node is made from, what it is told, and what the schedule does to it.

Processes (``peer.runtime``) and the simulator (``harness.simulator``) carry it out alike. In a process,
``peer.runtime.instances`` does it for a Python node, with sockets, clock and trace.
"""
