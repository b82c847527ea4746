"""The contract of libp2p's gossipsub-interop between a program and the testbed that runs it, without I/O.

A program reads a script of instructions (``script``), and prints what happens to its node as lines of JSON
(``output``). Its key follows from its node's number (``identity``). docs/gossipsub-interop.md explains the contract.
"""

from typing import Final, Literal, TypeAlias

Contract: TypeAlias = Literal["lines", "gossipsub-interop"]
"""How a program is driven that tells what happens to its node."""

Events: TypeAlias = Literal["trace", "lines", "gossipsub-interop", "none"]
"""The values of ``peer.events``: a contract, ``trace`` for a program that writes the trace itself, or ``none``."""

CONTRACT: Final = "gossipsub-interop"
"""The contract of this package."""
