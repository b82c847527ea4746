"""The model of implicit group messaging: addresses, extents and targets.

A peer's address is the Bloom filter of its attributes (``bloom``). The address is read as digits of base 2**d that
index a d-dimensional PR quadtree whose surface is a torus (``extent``). Peers manage sets of extents (``region``). A
publisher writes an expression over attributes (``peer.core.addressing.expression``), which becomes a pattern of
addresses (``target``), and the extents that the pattern matches are divided by their direction from the peer
(``geometry``, ``clustering``).

Source: Cutting, Landfeldt, Quigley: *Implicit group messaging in peer-to-peer networks*, sections 2 and 3, and
docs/protocols/implicit-groups.md.
"""
