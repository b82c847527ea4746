"""template-protocol: what it does, in two sentences that a newcomer understands.

As it stands, a node forwards each new message to ``fanout`` neighbours, which it draws at random. The neighbours are
those of the protocol ``random``.
"""

from peer.protocols.description import Composition, Description

from .dissemination import TemplateProtocol, TemplateProtocolParameters

PROTOCOL = Description(
    name="template-protocol",
    composition=Composition(
        overlay={"name": "random", "degree": 6},
        dissemination={"name": "template-protocol"},
    ),
    parts={"dissemination": TemplateProtocol},
    parameters=TemplateProtocolParameters,
)
