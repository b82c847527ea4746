"""The contract of libp2p's gossipsub-interop between a program and the testbed that runs it, without I/O.

A program reads a script of instructions (``script``), and prints what happens to its node as lines of JSON
(``output``). Its key follows from its node's number (``identity``). docs/gossipsub-interop.md explains the contract.
"""

from typing import Final

CONTRACT: Final = "gossipsub-interop"
"""The value of ``peer.events`` for programs of this contract."""
