"""The protocols, one package each.

A package's ``PROTOCOL`` says everything that the rest of Trellis needs to know of the protocol
(``peer.protocols.description``), and ``peer.protocols.registry`` lists them. Inside a package, ``overlay`` is the part
that chooses the neighbours, and ``frames`` are the frames. Parts that any protocol can use, such as memberships and
flooding, are in ``peer.core``, which names no protocol.
"""
