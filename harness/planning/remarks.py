"""What a reader of a plan should know before the run: it is allowed, but may not show what was meant."""

from collections.abc import Iterator
from math import ceil, log

from harness.experiment.abilities import ignored_keys
from harness.experiment.form import resolve, section_of
from harness.planning.plan import PlannedRun
from harness.testbeds.registry import find_lack
from metrics.degenerate import find_degeneracies
from peer.protocols.registry import PROTOCOLS
from topologies.bottlenecks import Bottlenecks


def remarks_on(planned: PlannedRun) -> Iterator[str]:
    """Yield a sentence for every key that has no effect, and for everything that leaves little to observe."""
    experiment = planned.plan.experiment
    yield from ignored_keys(experiment)
    yield from find_degeneracies(resolve(experiment), planned.plan.prediction.links_per_node)
    yield from _forgotten_messages(planned)
    yield from _unused_rates(planned)


def _unused_rates(planned: PlannedRun) -> Iterator[str]:
    """Yield a sentence if links of the data's graph have rates, and the testbed limits no rates."""
    testbed, links = planned.plan.experiment.testbed, len(Bottlenecks.of(planned.underlay))
    if links and (reason := find_lack(testbed, "rate")) is not None:
        yield f'the rates of {links:,} links of the graph have no effect with testbed = "{testbed}": {reason}'


def _forgotten_messages(planned: PlannedRun) -> Iterator[str]:
    """Yield a sentence if nodes forget messages while copies of them are still under way.

    A late copy takes as many links of the largest delay as a graph of this degree has between most nodes.
    """
    experiment = planned.plan.experiment
    protocol = PROTOCOLS[experiment.protocol]
    if protocol.forgetting is None:
        return
    forgetting = protocol.forgetting(section_of(experiment, protocol.name))
    hops = ceil(log(planned.underlay.size) / log(max(2.0, planned.plan.prediction.links_per_node)))
    path_s = hops * float(planned.underlay.delay_ms.max()) / 1000 + forgetting.held_s
    if forgetting.after_s < path_s:
        yield (
            f"{protocol.section}.{forgetting.key} = {forgetting.after_s:g} is less than the {path_s:.2g} s that a late "
            "copy may take: messages are delivered again when they come back (repeated_deliveries counts them)"
        )
