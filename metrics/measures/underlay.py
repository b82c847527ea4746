"""Measures of the links of an underlay that is a graph, as an overlay uses them: link stress, and paths.

A *link* is a link between two routers, in one direction. It is *used* if copies of messages crossed it. The *stress* of
a link is the number of copies of a message that crossed it. A multicast tree in the network itself has stress 1.

Source: Chu, Rao and Zhang, A case for end system multicast, SIGMETRICS 2000, section 4: stress and stretch.
"""

import numpy as np
from msgspec import Struct

from metrics.measures.measure import Family, Values, mean, ratio
from metrics.measures.steiner import MOST_HOSTS


class UnderlayLoad(Struct, frozen=True):
    """The effect of copies of M messages on links (L), and on paths of P pairs of nodes that sent some."""

    copies: Values  # (L,) copies that crossed the link
    messages: Values  # (L,) different messages of these copies
    most: Values  # (L,) the most copies of one message
    crossings: Values  # (M,) links that copies of the message crossed, each copy and each link counted
    bound: Values  # (M,) the least number of crossings that reaches the same nodes; nan = not computed
    stretches: Values  # for deliveries between routers: delay along the overlay path over the delay of the direct path
    busiest: Values  # (P,) the busiest link of each directed pair of nodes that sent copies through links

    @property
    def stress(self) -> Values:
        """Copies per message of each used link."""
        used = self.messages > 0
        return np.asarray(self.copies[used] / self.messages[used])

    @property
    def known(self) -> Values:
        """(M,) whether the bound is known."""
        return ~np.isnan(self.bound)


def _share_together(busiest: Values) -> float | None:
    """Return the share of the pairs whose busiest link is also the busiest link of another pair."""
    _, counts = np.unique(busiest, return_counts=True)
    return ratio(int(counts[counts > 1].sum()), len(busiest))


def _imbalance(copies: Values) -> float | None:
    used = copies[copies > 0]
    average = mean(used)
    return None if average is None else float(used.max()) / average


UNDERLAY = Family[UnderlayLoad]("messages on a graph of routers", "messages")
UNDERLAY.add(
    "link_stress_mean",
    "copies",
    "copies of a message per link between routers that it crossed, mean over used links",
    lambda it: mean(it.stress),
)
UNDERLAY.add(
    "link_stress_max",
    "copies",
    "copies of one message that crossed the same link between routers, largest",
    lambda it: int(it.most.max()) if it.messages.any() else None,
)
UNDERLAY.add(
    "used_link_ratio",
    "ratio",
    "share of the links between routers that copies of messages crossed",
    lambda it: ratio(int((it.copies > 0).sum()), len(it.copies)) if it.messages.any() else None,
)
UNDERLAY.add(
    "link_copies_max_over_mean",
    "",
    "copies that crossed the link with the most, over the mean of the used links",
    lambda it: _imbalance(it.copies),
)
UNDERLAY.add(
    "crossings_per_message",
    "crossings",
    "links that the copies of a message crossed, each copy counted, mean over messages",
    lambda it: mean(it.crossings),
)
UNDERLAY.add(
    "crossings_over_bound",
    "",
    "links crossed by all copies over a lower bound of the Steiner tree of the routers of publisher and subscribers "
    f"reached (graphs of at most {MOST_HOSTS:,} routers)",
    lambda it: ratio(float(it.crossings[it.known].sum()), float(it.bound[it.known].sum())),
)
UNDERLAY.add_statistics(
    "path_stretch",
    "",
    "delay along the overlay path of a delivery over that of the direct path between routers",
    lambda it: it.stretches,
    "mean",
    "p50",
    "p90",
)
UNDERLAY.add(
    "busiest_link_shared_ratio",
    "ratio",
    "share of the directed pairs of nodes that sent copies whose busiest link between routers is also that of another "
    "pair",
    lambda it: _share_together(it.busiest),
)
