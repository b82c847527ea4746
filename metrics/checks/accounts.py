"""Do the traces say of every copy what became of it, and is every single node in time?"""

from metrics.checks import evidence
from metrics.checks.rule import Absent, Judgement, Limit, Rules, none_of
from metrics.rundir import SUSPECT
from metrics.stalls import Late

RULES = Rules()

NODE_DELAY = Limit(3.0, "ms")
"""Ten times and more what the median of a node is on a machine that is fast enough, and a small part of a WAN delay."""

NODE_SHARE = Limit(0.5, "ratio")
"""Share of a node's samples that may be later than ``NODE_DELAY``: beyond it, its median is."""

NODE_SAMPLES = 10
"""A node with fewer samples is not judged: half of a few is no median."""


@RULES.add("consistency", SUSPECT, scope="deliveries")
def copies_accounted(accounts: evidence.Accounts) -> Judgement | Absent:
    """Fails if a node's trace does not have as many events for a message as the node read copies of it: at most one
    `deliver` and one `relay`, and for the others `duplicate`, or `reject` where the node refuses the copy. A
    `duplicate` needs a first copy, unless the message is the node's own. A `deliver` needs a subscription to one of the
    message's topics (not where nodes know interests only approximately), and a `relay` that there is none (not for
    messages with expressions); within 100 ms of a change of the subscription both are right. Tolerance 0. A copy may
    have no event if the node had no link with the sender when it read the copy, or the link had ended by 100 ms after
    the node was to handle it. Instances of a node count separately. Nodes whose trace is incomplete, or has no frames,
    are left out.

    What is computed from deliveries, relays and duplicates is the node's word. The frames that it read are known from
    their senders and from the captures, too.
    """
    if not accounts.tested:
        return Absent("no trace says that its peer read a copy of a message")
    found = {what: number for what, number in accounts.deviations.items() if number}
    detail = "; ".join(f"{number:,} {what}" for what, number in found.items())
    return none_of(accounts.tested, sum(found.values()), "copies", detail)


@RULES.add("consistency", SUSPECT, scope="deliveries")
def counters_traced(counters: evidence.Counters) -> Judgement:
    """Fails if a peer's `trellis_publications_total`, `trellis_deliveries_total`, `trellis_duplicates_total` or
    `trellis_relays_total` has at its last scrape a value that is not the number of such events in its trace at any
    instant from one scrape interval before the scrape to one interval after it. Peers whose trace is incomplete, or
    that crash, are left out. Not applicable if nothing was scraped.

    The peer counts what it traces. If both differ, lines of the trace or samples are missing, or of another run.
    """
    detail = f"{counters.failed:,} counters differ from the traces, the most {counters.worst_counter}"
    failed = counters.failed
    return none_of(counters.tested, failed, "events", detail if failed else "", counters.worst, counters.counters)


def _judge_nodes(counts: dict[int, evidence.LateCounts], what: str) -> Judgement | Absent:
    """Judge that at no single node more than half of the samples are late; ``what`` says what they are."""
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
    """Fails if at a node more than {1} of the frames have a ``d_sndbuf`` above {0}. Frames that TCP held back
    ([below](#waits-for-tcp)) do not count. A node with fewer than {2} is not judged.

    One slow node is lost in the distribution over all nodes, but all that it sends is late.

    Late: a node whose frames are late by more than half; of each frame ``log_send_ns``, ``tap_tx_ns``.
    """
    return _judge_nodes(node_sends, "more than half of a node's frames left its host after the write")


@RULES.add("overload", SUSPECT, NODE_DELAY, NODE_SHARE, Limit(NODE_SAMPLES, "frames"), things="nodes")
def node_receive_delay(node_receives: dict[int, evidence.LateCounts]) -> Judgement | Absent:
    """Fails if at a node more than {1} of the frames have a ``d_rcv`` above {0}. A node with fewer than {2} is not
    judged.

    The same on the receiving side.

    Late: a node whose frames are late by more than half; of each frame ``tap_rx_ns``, ``log_recv_ns``.
    """
    return _judge_nodes(node_receives, "more than half of a node's frames were read after their arrival")


@RULES.add("overload", SUSPECT, NODE_DELAY, NODE_SHARE, Limit(NODE_SAMPLES, "deliveries"), things="nodes")
def node_handling_delay(node_handlings: dict[int, evidence.LateCounts]) -> Judgement | Absent:
    """Fails if at a node more than {1} of the deliveries came more than {0} after the reading of the message's first
    copy (and after the processing delay that was asked for). A node with fewer than {2} is not judged.

    Between a read and the delivery lies nothing but the node's own work. `delay_agreement` allows more, since it cannot
    tell the two hosts apart.

    Late: a node whose deliveries are late by more than half; of each delivery ``log_recv_ns`` and the processing delay,
    ``delivered_ns``.
    """
    return _judge_nodes(node_handlings, "more than half of a node's deliveries came after the read")
