"""Vitis: clusters of nodes with similar subscriptions in one overlay, connected by rendezvous routing.

Source: docs/protocols/vitis.md.
"""

from peer.protocols.description import Composition, Description
from peer.protocols.tman.frames import TManReply, TManRequest
from peer.protocols.tman.rendezvous import RelayRequest
from peer.protocols.vitis.frames import VitisProfile
from peer.protocols.vitis.friends import draw_initial_state
from peer.protocols.vitis.overlay import Vitis, VitisParameters

PROTOCOL = Description(
    name="vitis",
    composition=Composition(
        overlay={"name": "vitis"},
        dissemination={"name": "notify-pull"},
        membership={"name": "newscast"},
        interests="private",
    ),
    parts={"overlay": Vitis},
    parameters=VitisParameters,
    draw_initial_state=draw_initial_state,
    needs_rates=True,
    background_frames=(TManRequest, TManReply, VitisProfile, RelayRequest),
)
