"""Do the traces account for every copy of a message, and does every single node work in time?"""

from metrics.checks import evidence
from metrics.checks.rule import Absent, Judgement, Limit, Rules, none_of
from metrics.recorded.stalls import Late
from metrics.rundir import SUSPECT

RULES = Rules()

NODE_DELAY = Limit(3.0, "ms")
"""At least ten times the median of a node on a machine that is fast enough, and a small part of a WAN delay."""

NODE_SHARE = Limit(0.5, "ratio")
"""The share of a node's samples that may be later than ``NODE_DELAY``. With a larger share, the median is later."""

NODE_SAMPLES = 10
"""A node with fewer samples is not judged, since a median of so few samples says little."""


@RULES.add("consistency", SUSPECT, scope="deliveries")
def copies_accounted(accounts: evidence.Accounts) -> Judgement | Absent:
    """Fails if a node's trace does not have exactly one event for each copy of a message that the node read. At most
    one of these events is a `deliver`, and at most one a `relay`. The others are `duplicate`, or `reject` if the node
    refuses the copy. A `duplicate` needs a first copy, unless the message is the node's own. A `deliver` needs a
    subscription to one of the message's topics (except where nodes know interests only approximately). A `relay` needs
    that there is no such subscription (except for messages with expressions). Within 100 ms of a change of the
    subscription, both events are right. The tolerance is 0. A copy needs no event if the node had no link with the
    sender when it read the copy, or if the link ended no later than 100 ms after the node was to handle the copy.
    Instances of a node count separately. Nodes whose trace is incomplete or has no frames are left out.

    Only the nodes' own traces have deliveries, relays and duplicates. The frames that a node read are also known from
    their senders and from the captures.
    """
    if not accounts.tested:
        return Absent("no trace says that its peer read a copy of a message")
    found = {what: number for what, number in accounts.deviations.items() if number}
    detail = "; ".join(f"{number:,} {what}" for what, number in found.items())
    return none_of(accounts.tested, sum(found.values()), "copies", detail)


@RULES.add("consistency", SUSPECT, scope="deliveries")
def counters_traced(counters: evidence.Counters) -> Judgement:
    """Fails if, at a peer's last scrape, the value of `trellis_publications_total`, `trellis_deliveries_total`,
    `trellis_duplicates_total` or `trellis_relays_total` differs from the number of such events in the peer's trace at
    every instant from one scrape interval before the scrape to one interval after it, or to its end if it took longer.
    Peers that crash, and peers whose trace is incomplete, are left out. Not applicable if nothing was scraped.

    A peer counts the events that it traces. If both differ, lines of the trace or samples are missing, or they are of
    another run.
    """
    detail = f"{counters.failed:,} counters differ from the traces, the most {counters.worst_counter}"
    failed = counters.failed
    return none_of(counters.tested, failed, "events", detail if failed else "", counters.worst, counters.counters)


def _judge_nodes(counts: dict[int, evidence.LateCounts], what: str) -> Judgement | Absent:
    """Judge that no single node has more than half of its samples late; ``what`` says what the samples are."""
    judged = {node: each for node, each in counts.items() if each.samples >= NODE_SAMPLES}
    if not judged:
        return Absent(f"no node has {NODE_SAMPLES} samples")
    slow = {node: each for node, each in judged.items() if each.late > NODE_SHARE.value * each.samples}
    explained = sum(each.late - each.explained <= NODE_SHARE.value * each.samples for each in slow.values())
    worst = max((each.late / each.samples for each in judged.values()), default=0.0)
    named = ", ".join(f"node {node} ({each.late:,} of {each.samples:,})" for node, each in list(slow.items())[:5])
    detail = f"{what} later than {NODE_DELAY}: {named}" if slow else ""
    return Judgement(len(judged), len(slow), worst, NODE_SHARE, detail, Late(len(slow), explained))


@RULES.add("overload", SUSPECT, NODE_DELAY, NODE_SHARE, Limit(NODE_SAMPLES, "frames"), things="nodes")
def node_send_delay(node_sends: dict[int, evidence.LateCounts]) -> Judgement | Absent:
    """Fails if, at any node, more than {1} of the frames have a ``d_sndbuf`` above {0}. Frames that TCP held back
    ([below](#waits-for-tcp)) do not count. A node with fewer than {2} is not judged.

    The distribution over all nodes does not show a single slow node, although all frames of that node are late.

    Late: a node with more than half of its frames late; of each frame ``log_send_ns``, ``tap_tx_ns``.
    """
    return _judge_nodes(node_sends, "more than half of a node's frames left its host after the write")


@RULES.add("overload", SUSPECT, NODE_DELAY, NODE_SHARE, Limit(NODE_SAMPLES, "frames"), things="nodes")
def node_receive_delay(node_receives: dict[int, evidence.LateCounts]) -> Judgement | Absent:
    """Fails if, at any node, more than {1} of the frames have a ``d_rcv`` above {0}. A node with fewer than {2} is not
    judged.

    As ``node_send_delay``, for the receiving side.

    Late: a node with more than half of its frames late; of each frame ``tap_rx_ns``, ``log_recv_ns``.
    """
    return _judge_nodes(node_receives, "more than half of a node's frames were read after their arrival")


@RULES.add("overload", SUSPECT, NODE_DELAY, NODE_SHARE, Limit(NODE_SAMPLES, "deliveries"), things="nodes")
def node_handling_delay(node_handlings: dict[int, evidence.LateCounts]) -> Judgement | Absent:
    """Fails if, at any node, more than {1} of the deliveries came more than {0} after the node had read the message's
    first copy and the processing delay asked for had passed. A node with fewer than {2} is not judged.

    Only the node's own work lies between the read and the delivery. `delay_agreement` allows more, since it cannot
    distinguish the two hosts.

    Late: a node with more than half of its deliveries late; of each delivery ``log_recv_ns`` and the processing delay,
    ``delivered_ns``.
    """
    return _judge_nodes(node_handlings, "more than half of a node's deliveries came after the read")
