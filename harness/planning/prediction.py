"""What a run will need, predicted before it starts; what cannot fit this machine is refused.

The needs are sums over the constants below; docs/experiment-spec.md lists them. Frames are counted: a sample of the
schedule is flooded, by the rule of the dissemination, over a random graph of the same kind as the overlay's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random

from harness.errors import ExperimentError
from harness.experiment import Experiment
from harness.plan import Prediction
from harness.planning.capacity import Capacity, this_machine
from harness.workload.churn import mean_off_s
from harness.workload.interests import Interests
from harness.workload.streams import NETWORK
from peer.core.frames import UNLIMITED_TTL
from peer.core.randomness import substream
from peer.runtime.lifecycle import PUBLISH
from peer.runtime.spec import Action
from topologies.model import Underlay

PEER_MIB = 7.0
"""Memory (PSS) of a forked Python peer with its sockets, trace buffer and metrics endpoint."""

SUPPORT_MIB = 400.0
"""Memory of all that a run has once: launcher, data plane, the agent's preloaded parent, sshd, Prometheus."""

PAIR_BYTES = 400
"""Memory for a directed pair: 180 bytes each in the launcher and in the running stage, 40 in the data plane."""

HOST_PROCESSES = 2
"""Processes of a host: the peer, and the one that keeps the host's namespace."""

SUPPORT_PROCESSES = 10
"""Processes that a run has once."""

HOST_FILES = 4
"""Files that the busiest process opens for a host: the end of its device, and the pipes of its process."""

SUPPORT_FILES = 64
"""Files that any process has open anyway: libraries, logs, captures."""

BOOT_S = 3.0
"""Wall time to make the sandbox and to start what it has once."""

HOST_BOOT_S = 0.02
"""Wall time to make a host with its interfaces and to start its peer."""

PROBES_PER_S = 8_000
"""Echo requests a second while all pairs are probed."""

COLLECT_S = 4.0
"""Wall time to stop the peers, collect their files and close the run; the analysis comes on top."""

SAMPLED_MESSAGES = 50
"""Messages of the schedule whose copies are counted; their mean stands for all."""

SAMPLED_LINKS = 1_000_000
"""Links that all sampled messages together may cross: dense overlays get a smaller sample."""

MAX_ACTIONS = 5_000_000
"""The longest schedule that is drawn."""


def predict(experiment: Experiment, underlay: Underlay, interests: Interests, schedule: Sequence[Action]) -> Prediction:
    """What the run needs, on any machine."""
    needs = _needs(experiment, underlay.size)
    published = [action for action in schedule if action.action == PUBLISH]
    copies = expected_copies(experiment, interests, published)
    return Prediction(
        processes=int(needs.processes),
        memory_mib=needs.memory_mib,
        open_files=int(needs.open_files),
        wall_s=_wall_s(experiment, underlay.size),
        frames_per_s=round(copies * experiment.workload.publish_rate_per_s / _dilation(experiment), 1),
    )


def refuse_oversized(experiment: Experiment, hosts: int) -> None:
    """Refuse what cannot fit this machine, before anything large is computed.

    Raises:
        ExperimentError: the place and the numbers.
    """
    actions = experiment.workload.publish_rate_per_s * experiment.workload.duration_s
    if actions > MAX_ACTIONS:
        raise ExperimentError(
            "$.workload.publish_rate_per_s",
            f"{actions:.0f} messages over {experiment.workload.duration_s:g} s, at most {MAX_ACTIONS} can be planned",
        )
    _refuse_busy_churn(experiment, hosts)
    if experiment.testbed != "emulated":
        return
    needs, has = _needs(experiment, hosts), this_machine()
    for what, need, limit in (
        ("processes", needs.processes, has.processes),
        ("MiB of memory", needs.memory_mib, has.memory_mib),
        ("open files in one process", needs.open_files, has.open_files),
    ):
        if need > limit:
            problem = f"{hosts} hosts need {need:.0f} {what}, this machine has {limit:.0f}"
            raise ExperimentError("$.underlay.hosts", problem)


def _refuse_busy_churn(experiment: Experiment, hosts: int) -> None:
    churn, workload = experiment.churn, experiment.workload
    span_s = workload.warmup_s + workload.duration_s + workload.cooldown_s
    changes = 2 * hosts * span_s / (churn.on_s + mean_off_s(churn))
    if churn.kind == "exponential" and changes > MAX_ACTIONS:
        problem = f"{changes:.0f} joins and leaves over {span_s:g} s, at most {MAX_ACTIONS} can be planned"
        raise ExperimentError("$.churn.on_s", problem)


def _needs(experiment: Experiment, hosts: int) -> Capacity:
    links = 2 * experiment.random.degree if experiment.protocol == "random" else hosts - 1
    return Capacity(
        processes=hosts * HOST_PROCESSES + SUPPORT_PROCESSES,
        memory_mib=round(SUPPORT_MIB + hosts * PEER_MIB + hosts**2 * PAIR_BYTES / 2**20, 1),
        open_files=max(links, HOST_FILES * hosts) + SUPPORT_FILES,
    )


def _wall_s(experiment: Experiment, hosts: int) -> float:
    workload = experiment.workload
    probing_s = 2 * hosts * (hosts - 1) * experiment.probes.packets_per_pair / PROBES_PER_S
    running_s = (workload.warmup_s + workload.duration_s + workload.cooldown_s) * _dilation(experiment)
    return round(BOOT_S + hosts * HOST_BOOT_S + probing_s + running_s + COLLECT_S, 1)


def _dilation(experiment: Experiment) -> float:
    """Real seconds in a virtual one; the simulator has no real ones."""
    return 1.0 if experiment.testbed == "simulated" else experiment.time_dilation


def expected_copies(experiment: Experiment, interests: Interests, schedule: Sequence[Action]) -> float:
    """Data frames that one message causes on average: every copy on every link, duplicates included.

    Floods a sample of the schedule over one random graph drawn like the overlay's. Copies advance by hops, where the
    real ones advance by delays, so a copy with a smaller TTL may win elsewhere than in the run.
    """
    random = substream(experiment.seed, NETWORK, "prediction")
    neighbours = _draw_graph(experiment, len(interests), random)
    subscribed = [frozenset(topics) for topics in interests]
    size = max(1, min(SAMPLED_MESSAGES, len(schedule), SAMPLED_LINKS // sum(map(len, neighbours))))
    ttl = experiment.flood.ttl
    sample = random.sample(schedule, size)
    return sum(count_copies(neighbours, subscribed, it.node, it.topics, ttl) for it in sample) / size


def count_copies(
    neighbours: Sequence[Sequence[int]],
    subscribed: Sequence[frozenset[int]],
    publisher: int,
    topics: Sequence[int],
    ttl: int,
) -> int:
    """The copies of one flooded message, by the rule of dissemination ``flood``.

    An uninterested receiver takes one off the TTL. A node with TTL left sends to all neighbours but the one that it
    got the message from, a node without only to the interested ones.
    """
    interested = [not subscribed_to.isdisjoint(topics) for subscribed_to in subscribed]
    seen = {publisher}
    queue = deque([(publisher, publisher, ttl)])
    copies = 0
    while queue:
        node, sender, left = queue.popleft()
        for neighbour in neighbours[node]:
            if neighbour == sender or not (left or interested[neighbour]):
                continue
            copies += 1
            if neighbour not in seen:
                seen.add(neighbour)
                queue.append((neighbour, node, _decrement(left, interested[neighbour])))
    return copies


def _decrement(ttl: int, interested: bool) -> int:
    return ttl if interested or ttl == UNLIMITED_TTL else max(ttl - 1, 0)


def _draw_graph(experiment: Experiment, nodes: int, random: Random) -> list[list[int]]:
    """Every node's neighbours: all others, or those it opened a link to or that opened one to it."""
    if experiment.protocol == "complete":
        return [[other for other in range(nodes) if other != node] for node in range(nodes)]
    neighbours: list[set[int]] = [set() for _ in range(nodes)]
    for node in range(nodes):
        for drawn in random.sample(range(nodes - 1), experiment.random.degree):
            other = drawn + (drawn >= node)
            neighbours[node].add(other)
            neighbours[other].add(node)
    return [sorted(others) for others in neighbours]
