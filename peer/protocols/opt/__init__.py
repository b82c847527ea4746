"""OPT: an overlay per topic that uses the correlation of subscriptions, the second baseline of Vitis.

It follows the paper of Vitis, not SpiderCast: it has the same peer sampling and exchange of tables as Vitis.

Source: docs/protocols/opt.md.
"""

from peer.protocols.description import Composition, Description
from peer.protocols.opt.contacts import draw_initial_state
from peer.protocols.opt.overlay import Opt, OptParameters
from peer.protocols.tman.frames import Profile, TManReply, TManRequest

PROTOCOL = Description(
    name="opt",
    composition=Composition(
        overlay={"name": "opt"},
        dissemination={"name": "notify-pull"},
        membership={"name": "newscast"},
        interests="private",
    ),
    parts={"overlay": Opt},
    parameters=OptParameters,
    draw_initial_state=draw_initial_state,
    background_frames=(TManRequest, TManReply, Profile),
)
