"""RVR: rendezvous routing with a tree per topic, the first baseline of Vitis.

Source: docs/protocols/rvr.md.
"""

from peer.protocols.description import Composition, Description
from peer.protocols.rvr.overlay import Rvr, RvrParameters, draw_initial_state
from peer.protocols.tman.frames import Profile, TManReply, TManRequest
from peer.protocols.tman.rendezvous import RelayRequest

PROTOCOL = Description(
    name="rvr",
    composition=Composition(
        overlay={"name": "rvr"},
        dissemination={"name": "notify-pull"},
        membership={"name": "newscast"},
        interests="private",
        needs_interests=False,
    ),
    parts={"overlay": Rvr},
    parameters=RvrParameters,
    draw_initial_state=draw_initial_state,
    background_frames=(TManRequest, TManReply, Profile, RelayRequest),
)
