"""What a reader of a plan should know before the run: it is allowed, but may not show what was meant."""

import shutil
from collections.abc import Iterator
from math import ceil, log
from pathlib import Path

from msgspec.structs import replace

from harness.experiment.abilities import ignored_keys
from harness.experiment.form import resolve, section_of
from harness.experiment.shadow import shadow_remarks
from harness.machine.sandbox import PRIVATE_FOLDERS
from harness.planning.plan import PlannedRun
from harness.planning.processors import SHARE_LIMIT, SHARING, Outlook, estimate_load
from harness.planning.transfers import CARRIED_MBIT
from harness.testbeds.registry import find_lack, find_testbed
from metrics.degenerate import find_degeneracies
from peer.protocols.registry import PROTOCOLS
from topologies.bottlenecks import Bottlenecks


def remarks_on(planned: PlannedRun, outlook: Outlook | None = None) -> Iterator[str]:
    """Yield a sentence for every key that has no effect, and for everything that leaves little to observe.

    Args:
        planned: the run.
        outlook: what is predicted for it on the machine that it is made on; None = nothing.
    """
    experiment = planned.plan.experiment
    yield from planned.chosen
    if outlook is not None:
        yield from _overload(outlook, planned)
    yield from shadow_remarks(planned.source)
    yield from ignored_keys(experiment)
    yield from _unseen_programs(planned)
    if experiment.peer.events == "none":
        yield from _fast_hosts(planned)
        return
    yield from find_degeneracies(resolve(experiment), planned.plan.prediction.links_per_node)
    yield from _forgotten_messages(planned)
    yield from _unused_rates(planned)


def _overload(outlook: Outlook, planned: PlannedRun) -> Iterator[str]:
    """Yield a sentence for everything that makes it likely that the run is not valid on this machine."""
    calibration, experiment = outlook.calibration, planned.plan.experiment
    most = SHARE_LIMIT * calibration.processors
    if not outlook.is_carried:
        rate = outlook.largest_rate * experiment.workload.publish_rate_per_s
        fitting = f"{rate:.2g} messages/s would fit" if rate else "no rate fits"
        busy = f"{outlook.processors:.2g} of {calibration.processors:g} processors busy, of at most {most:.2g}"
        yield f"likely not valid here: {busy}; {fitting}"
        if not experiment.peer.programs and experiment.peer.per_process < SHARING:
            shared = replace(experiment, peer=replace(experiment.peer, per_process=SHARING))
            load = estimate_load(shared, planned.plan.prediction, len(planned.underlay.hosts))
            less = replace(outlook, load=load).processors
            if less < outlook.processors:  # crashes, for example, need a process per peer
                yield f"peer.per_process = {SHARING} would keep {less:.2g} processors busy, of at most {most:.2g}"
    if not outlook.is_on_time:
        late = f"{calibration.late_ms:.2g} ms late at p99, of at most {outlook.late_limit_ms * outlook.dilation:.2g}"
        yield f"likely not valid here: processes wake {late}"


def _unseen_programs(planned: PlannedRun) -> Iterator[str]:
    """Yield a sentence if the programs of peers are not on this machine, or in a folder that peers do not see."""
    experiment = planned.plan.experiment
    peer, testbed = experiment.peer, find_testbed(experiment.testbed, experiment.plane)
    commands = {peer.command, *(program.command for program in peer.programs)} - {None}
    if not testbed.here or "processes" not in testbed.can:
        return
    for program, *arguments in sorted(filter(None, commands)):
        if shutil.which(program) is None:
            yield f"there is no program {program} here that can be executed: the run would end before its start"
        for word in (program, *arguments):
            path = Path(word)
            private = any(path.is_relative_to(folder) for folder in PRIVATE_FOLDERS)
            if private and path.exists() and not path.is_relative_to(Path.cwd()):
                yield f"peers do not see {word}: {', '.join(PRIVATE_FOLDERS)} are empty for them"


def _fast_hosts(planned: PlannedRun) -> Iterator[str]:
    """Yield a sentence if hosts may send more than the data plane has carried: it is not known what programs send."""
    rate_mbit = planned.underlay.rate_mbit
    fast = int(((rate_mbit == 0) | (rate_mbit > CARRIED_MBIT)).any(axis=0).sum())
    if fast and planned.plan.experiment.plane == "userspace":
        yield (
            f"{fast:,} of {planned.underlay.size:,} hosts may send or receive more than the {CARRIED_MBIT:g} Mbit/s "
            "that the data plane carried in a flow (docs/benchmarks.md): a run in which a program does so is invalid"
        )


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
    links = planned.plan.prediction.links_per_node or 0.0
    hops = ceil(log(planned.underlay.size) / log(max(2.0, links)))
    path_s = hops * float(planned.underlay.delay_ms.max()) / 1000 + forgetting.held_s
    if forgetting.after_s < path_s:
        yield (
            f"{protocol.section}.{forgetting.key} = {forgetting.after_s:g} is less than the {path_s:.2g} s that a late "
            "copy may take: messages are delivered again when they come back (repeated_deliveries counts them)"
        )
