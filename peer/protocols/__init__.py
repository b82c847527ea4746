"""The protocols, one package each.

A package's ``PROTOCOL`` describes everything that the rest of Trellis needs to know about the protocol
(``peer.protocols.description``), and ``peer.protocols.registry`` lists the protocols. In a package, the module
``overlay`` has the part that chooses the neighbours, and ``frames`` has the frames. Parts that any protocol can use,
such as memberships and flooding, are in ``peer.core``, which names no protocol.
"""
