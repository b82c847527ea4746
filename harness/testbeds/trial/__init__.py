"""Machines to try the remote testbed on: namespaces of this computer, each with an SSH server of its own.

``opening`` makes them from the experimenter's side, ``fleet`` runs in their common sandbox, and ``machine`` is the
first process of each of them.
"""
