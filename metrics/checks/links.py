"""Are the links of the traces those that the captures show? ``metrics.tables.agreement`` compares them."""

from __future__ import annotations

from metrics.checks.evidence import Links
from metrics.checks.rule import Judgement, Limit, none_of, rule
from metrics.rundata import SUSPECT

SETTLE = Limit(100, "ms")
"""The most that may pass between the stamp of a node's ``Bye`` and that of its link's end."""

IDLE = Limit(2, "s")
"""So long after both ``Hello`` a node knows a link on which it has sent nothing. Nodes that all open their links at
once wait for the processor for half a second and more between the stamp of a frame and that of what they make of it."""

BROKEN = Limit(60, "s")
"""After the last packet of a connection that broke, each end has noticed by then: keep-alives and TCP's time-out see to
that (``peer.runtime.link``)."""

WORD = Limit(2, "s")
"""What a node said has reached its neighbour by then, whatever the round-trip time."""


@rule(
    "at some full second a node's trace and the captures do not have the same physical links. A link must be in the "
    "trace from the first frame that the node sends on it after its `Hello` ({0} after both `Hello` at the latest) "
    "until a `Bye` enters or leaves its host; it must not be there before the other side's `Hello` reached the host, "
    "nor {1} after a `Bye` was sent or read. A connection that broke has no `Bye`: it must be in the trace until the "
    "node's last frame on it, and be gone from it {2} after its last packet",
    SUSPECT,
    "consistency",
    limits=(IDLE, SETTLE, BROKEN),
)
def link_agreement(links: Links) -> Judgement:
    """A frame's stamp and the link's differ while it is inside the host: in between both answers are right."""
    found = links.physical
    failed = found.only_on_wire + found.only_traced
    detail = f"{found.changing:,} traced ones were just beginning, ending or breaking on the wire"
    if failed:
        detail += f"; {found.only_on_wire:,} only on the wire, {found.only_traced:,} only in traces"
    return none_of(found.tested, failed, "links", detail)


@rule(
    "a logical link that carried data on the wire is in no trace. Looked at: first and last copy with the same topics "
    "on a connection, between nodes that both subscribe to just one of them; the sender must have traced the link when "
    "it sent, or the receiver one back (which it may have ended up to {0} before, when the sender had not heard of it)",
    SUSPECT,
    "consistency",
    limits=(WORD,),
)
def logical_links(links: Links) -> Judgement:
    """Only where nodes flood along topics, to interested neighbours only, or tell all neighbours their interests.

    Elsewhere copies rightly travel without a logical link.
    """
    shown = links.logical
    if shown is None:
        aside = "here nodes send copies also where there is no logical link: nothing was compared"
        return none_of(0, 0, "links", aside)
    detail = f"{shown.failed:,} logical links in use on the wire were in no trace" if shown.failed else ""
    return none_of(shown.tested, shown.failed, "links", detail)
