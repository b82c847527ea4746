"""The model of implicit group messaging: addresses, extents, expressions and targets.

A peer's address is the Bloom filter of its attributes (`bloom`). The address consists of digits of base 2**d that index
a d-dimensional PR quadtree whose surface is a torus (`extent`). Peers manage sets of extents (`region`). A publisher
gives a message an expression over attributes (`expression`). The expression becomes a pattern of addresses (`target`),
and a peer divides the extents that match it by their direction (`geometry`, `clustering`).

Source: Cutting, Landfeldt, Quigley: *Implicit group messaging in peer-to-peer networks*, section 2, and
docs/protocols/implicit-groups.md.
"""
