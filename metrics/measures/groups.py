"""Measures of messages with expressions: which nodes they reached, and what that cost.

The *group* of a message consists of the nodes other than the publisher that satisfied its expression when it was
published: its *members*. Source of the questions: Cutting, Landfeldt and Quigley, Implicit group messaging in
peer-to-peer networks, Figure 1.
"""

import numpy as np
from msgspec import Struct

from metrics.measures.measure import Family, Values, ratio
from metrics.measures.steiner import MOST_HOSTS

NEWCOMER_S = 10
"""A node that joins this long after a publication, or earlier, counts as a newcomer that may want a replay."""


class GroupMessages(Struct, frozen=True):
    """Messages with expressions, an entry per message (M), among honest nodes."""

    members: Values  # (M,) nodes in the group
    reached: Values  # (M,) members that handed it to their application
    latecomers: Values  # (M,) other nodes that satisfied the expression only when it was handed to their application
    false_positives: Values  # (M,) other nodes that handed it to their application but did not satisfy it then
    false_positives_predicted: Values  # (M,) false positives that the protocol predicts; nan = it predicts nothing
    relays: Values  # (M,) other nodes that took it only to pass it on
    others: Values  # (M,) nodes that were up at the publication, without members and publisher
    copies: Values  # (M,) copies that nodes received
    delay_ms: Values  # (M,) the sum of the one-way delays of these copies' links
    bound_ms: Values  # (M,) the least that this sum can be (``metrics.measures.steiner``); nan = not computed
    sent: Values  # (n,) copies that each node sent
    expressions: Values  # (l,) different expressions of the copies on each link that carried any

    @property
    def known(self) -> Values:
        """(M,) whether the bound is known."""
        return ~np.isnan(self.bound_ms)


def gini(values: Values) -> float | None:
    """Return the Gini coefficient: 0 if all are equal, 1 - 1/n if one of n has all; None if the sum is 0.

    It is half the mean absolute difference of all pairs over the mean.
    """
    ordered = np.sort(values)
    total = float(ordered.sum())
    ranks = 2 * np.arange(1, len(ordered) + 1) - len(ordered) - 1
    return float(ranks @ ordered) / (len(ordered) * total) if total else None


GROUPS = Family[GroupMessages]("messages with expressions", "messages")
GROUPS.add_statistics(
    "group_size", "nodes", "members of a message's group", lambda it: it.members, "mean", "p50", "p90", "max"
)
GROUPS.add(
    "members_reached_ratio",
    "ratio",
    "share of the members at the publication that received the message",
    lambda it: ratio(int(it.reached.sum()), int(it.members.sum())),
)
GROUPS.add(
    "latecomers_per_message",
    "nodes",
    "nodes per message that received it and satisfied its expression then, but not when it was published",
    lambda it: ratio(int(it.latecomers.sum()), len(it.members)),
)
GROUPS.add(
    "relays_per_message",
    "nodes",
    "nodes per message that are no members and took it only to pass it on",
    lambda it: ratio(int(it.relays.sum()), len(it.members)),
)
GROUPS.add(
    "false_positives_per_message",
    "nodes",
    "nodes per message to whose application it was handed although they did not satisfy its expression",
    lambda it: ratio(int(it.false_positives.sum()), len(it.members)),
)
GROUPS.add(
    "false_positive_ratio",
    "ratio",
    "false positives among nodes that are up and no members",
    lambda it: ratio(int(it.false_positives.sum()), int(it.others.sum())),
)
GROUPS.add(
    "false_positive_ratio_predicted",
    "ratio",
    "false positives that the protocol predicts among nodes that are up and no members",
    lambda it: (
        None
        if np.isnan(it.false_positives_predicted).any()
        else ratio(float(it.false_positives_predicted.sum()), int(it.others.sum()))
    ),
)
GROUPS.add(
    "non_members_reached_ratio",
    "ratio",
    "relays and false positives among nodes that are up and no members",
    lambda it: ratio(int((it.relays + it.false_positives).sum()), int(it.others.sum())),
)
GROUPS.add(
    "copies_per_message",
    "copies",
    "copies received by any node per message",
    lambda it: ratio(int(it.copies.sum()), len(it.members)),
)
GROUPS.add(
    "copies_per_member_reached",
    "copies",
    "copies received by any node per member reached; at least 1",
    lambda it: ratio(int(it.copies.sum()), int(it.reached.sum())),
)
GROUPS.add(
    "copy_delay_ms_mean",
    "ms",
    "one-way delay of the links that copies crossed, mean over copies",
    lambda it: ratio(float(it.delay_ms.sum()), int(it.copies.sum())),
)
GROUPS.add(
    "delay_cost_over_bound",
    "",
    "one-way delays of all copies over a lower bound of the Steiner tree of publisher and members reached "
    f"(networks of at most {MOST_HOSTS:,} hosts)",
    lambda it: ratio(float(it.delay_ms[it.known].sum()), float(it.bound_ms[it.known].sum())),
)
GROUPS.add("sent_copies_gini", "", "Gini coefficient of the copies that nodes sent", lambda it: gini(it.sent))
GROUPS.add(
    "sent_copies_max_over_mean",
    "",
    "copies sent by the node that sent the most, over the mean of all nodes",
    lambda it: ratio(float(it.sent.max()) * len(it.sent), float(it.sent.sum())) if len(it.sent) else None,
)
GROUPS.add(
    "expressions_per_link_mean",
    "expressions",
    "link sharing: different expressions of the messages that a link between two nodes carried, mean over the links "
    "that carried any",
    lambda it: ratio(int(it.expressions.sum()), len(it.expressions)),
)


class Newcomers(Struct, frozen=True):
    """Honest nodes that joined at most ``NEWCOMER_S`` after a message with an expression that they satisfied.

    They were down when it was published. The measure counts pairs of a message and a node.
    """

    joined: int
    reached: int  # pairs in which the node handed the message to its application


NEWCOMERS = Family[Newcomers]("replay of messages with expressions", "messages")
NEWCOMERS.add(
    "newcomers",
    "nodes",
    f"nodes that joined at most {NEWCOMER_S} s after a message whose expression they satisfied, over all messages",
    lambda it: it.joined,
)
NEWCOMERS.add(
    "newcomers_reached_ratio",
    "ratio",
    "share of them that received the message nevertheless, as a replay",
    lambda it: ratio(it.reached, it.joined),
)

BOUNDED = frozenset({"delay_cost_over_bound"})
"""The measures that need ``bound_ms``."""
