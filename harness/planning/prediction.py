"""Predicts what a run needs before it starts, and refuses a run that needs more than this machine has.

``needs`` estimates processes, memory, files and wall time. Links and frames are counted on a model of the overlay in
which all nodes are up.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from harness.errors import ExperimentError
from harness.experiment.form import Experiment
from harness.machine.capacity import this_machine
from harness.planning.composition import choose_parts
from harness.planning.copies import count_copies
from harness.planning.models import find_model
from harness.planning.needs import estimate_needs
from harness.planning.overlay_models import OverlayModel, model_overlay
from harness.planning.plan import Prediction
from harness.testbeds.description import Description
from harness.testbeds.registry import find_testbed
from harness.workload.churn import mean_off_s
from harness.workload.interests import Interests, expected_draws
from metrics.processors import usable_processors
from peer.core.randomness import NETWORK, substream
from peer.core.schedule import Action, Publish
from peer.interop import CONTRACT
from peer.protocols.description import Choice
from peer.runtime.limits import most_peers, needed_files
from peer.runtime.line_programs import READY_S
from topologies.model import Underlay

SAMPLED_MESSAGES = 50
"""Messages of the schedule whose copies are counted; their mean is used for all."""

SAMPLED_GROUP_NODES = 1_000
"""Limit on nodes times sampled messages, where nodes themselves say what becomes of a message to an expression."""

SAMPLED_LINKS = 1_000_000
"""Limit on links of the model times sampled messages: dense overlays get a smaller sample."""

OPEN_FILES = "open files in one process"

MAX_ACTIONS = 5_000_000
"""Most actions of a schedule."""

MAX_SUBSCRIPTIONS = 10_000_000
"""Most subscriptions that are drawn for all nodes at all their joins, and most topics of all messages."""

MAX_DRAWS = 2_000_000_000
"""Most random numbers that are drawn for the topics of nodes, or for the topics of messages."""


def predict(experiment: Experiment, underlay: Underlay, interests: Interests, schedule: Sequence[Action]) -> Prediction:
    """Predict what the run needs, on any machine."""
    needs = estimate_needs(experiment, underlay.size)
    prediction = Prediction(
        processes=int(needs.capacity.processes),
        memory_mib=needs.capacity.memory_mib,
        open_files=int(needs.capacity.open_files),
        wall_s=needs.wall_s,
        links_per_node=None,
        frames_per_s=None,
    )
    if experiment.peer.events == "none":
        return prediction  # it is not known what the programs do
    published = [action for action in schedule if isinstance(action, Publish)]
    parts = choose_parts(experiment)
    model = model_overlay(parts, interests, experiment.seed)
    copies = expected_copies(parts.dissemination, model, interests, published, experiment.seed)
    rate = experiment.workload.publish_rate_per_s / needs.dilation
    return replace(
        prediction,
        links_per_node=round(model.degree, 1),
        frames_per_s=None if copies is None else round(copies * rate, 1),
    )


def refuse_oversized(experiment: Experiment, hosts: int, here: bool = True) -> None:
    """Refuse a run that needs more than this machine has, before anything large is computed.

    Args:
        experiment: with every default resolved.
        hosts: of the run.
        here: whether the run is made on this machine. What planning itself needs is always refused.

    Raises:
        ExperimentError: the run needs too much; the message names the place and the numbers.
    """
    _refuse_many(_drawn(experiment, hosts))
    testbed = find_testbed(experiment.testbed, experiment.plane)
    if problem := exceeded_limit(testbed, hosts):
        raise ExperimentError("$.underlay.hosts", problem)
    if not (here and testbed.here):
        return
    needs, has = estimate_needs(experiment, hosts).capacity, this_machine()
    for what, need, limit in (
        ("processes", needs.processes, has.processes),
        ("MiB of memory", needs.memory_mib, has.memory_mib),
        (OPEN_FILES, needs.open_files, has.open_files),
    ):
        if need > limit:
            if what == OPEN_FILES and "processes" in testbed.can:
                _refuse_shared(experiment.peer.per_process, hosts, int(limit))
            problem = f"{hosts} hosts need {need:.0f} {what}, this machine has {limit:.0f}"
            raise ExperimentError("$.underlay.hosts", problem)
    starting_s = hosts * experiment.peer.start_cpu_s / usable_processors()
    limit_s = experiment.peer.connect_at_s if experiment.peer.events == CONTRACT else READY_S
    if starting_s > limit_s:
        problem = f"{hosts} programs need {starting_s:.0f} s to start here, and must be ready within {limit_s:g} s"
        raise ExperimentError("$.underlay.hosts", problem)


def _refuse_shared(per_process: int, hosts: int, files: int) -> None:
    """Refuse processes of so many peers if fewer would have few enough files open.

    Args:
        per_process: the peers of a process.
        hosts: of the run.
        files: the most that a process may have open, which is too few for these.
    """
    if most := most_peers(hosts, files):
        need = f"{needed_files(hosts, min(per_process, hosts))} {OPEN_FILES}, this machine has {files}"
        problem = f"expected at most {most} with {hosts} hosts on this machine, got {per_process}: they need {need}"
        raise ExperimentError("$.peer.per_process", problem)


def exceeded_limit(testbed: Description, hosts: int) -> str:
    """Return a sentence if a testbed has no room for so many hosts; otherwise nothing."""
    limit = testbed.limit
    return f"expected at most {limit.hosts} hosts {limit.place}, got {hosts}" if limit and hosts > limit.hosts else ""


class _Drawn(NamedTuple):
    """An expected number of draws, and its limit."""

    place: str
    amount: float
    limit: int
    what: str
    span: str = ""


def _refuse_many(drawn: Iterator[_Drawn]) -> None:
    for place, amount, limit, what, span in drawn:
        if amount > limit:
            raise ExperimentError(place, f"expected at most {limit} {what}, got {_plain(amount)}{span}")


def _plain(amount: float) -> str:
    """Return a number of things without an exponent, unless it is absurd."""
    return f"{amount:.0f}" if amount < 1e15 else f"{amount:.3g}"


def _drawn(experiment: Experiment, hosts: int) -> Iterator[_Drawn]:
    """Yield what the plan will draw."""
    churn, workload = experiment.churn, experiment.workload
    rate, span = "$.workload.publish_rate_per_s", f" in {workload.duration_s:g} s"
    messages = workload.publish_rate_per_s * workload.duration_s
    yield _Drawn(rate, messages, MAX_ACTIONS, "messages", span)
    per_message = workload.topics_per_message
    yield _Drawn("$.workload.topics_per_message", messages * per_message, MAX_SUBSCRIPTIONS, "topics of messages")
    if workload.rate_exponent:
        amount = messages * workload.topics
        yield _Drawn("$.workload.rate_exponent", amount, MAX_DRAWS, "random numbers (messages x topics)")
    changes = 0.0
    if churn.kind == "exponential":
        changes = 2 * hosts * workload.length_s / (churn.on_s + mean_off_s(churn))
        yield _Drawn("$.churn.on_s", changes, MAX_ACTIONS, "joins and leaves", f" in {workload.length_s:g} s")
    instances = hosts + changes / 2 * churn.new_interests
    expected = expected_draws(experiment.interests, workload.topics)
    yield _Drawn("$.interests.copies_max", expected.common, MAX_SUBSCRIPTIONS, "copies of topics")
    amount = instances * expected.subscriptions
    yield _Drawn("$.interests", amount, MAX_SUBSCRIPTIONS, f"subscriptions of {_plain(instances)} instances of nodes")
    amount = instances * expected.numbers
    yield _Drawn("$.interests", amount, MAX_DRAWS, f"random numbers for {_plain(instances)} instances of nodes")


def expected_copies(
    dissemination: Choice, model: OverlayModel, interests: Interests, published: Sequence[Publish], seed: int
) -> float | None:
    """Return the mean number of data frames per message: every copy on every link, duplicates included.

    It counts a sample of the publications. A publisher that subscribes to the topic only during the run is replaced by
    one of the topic's subscribers.

    Returns:
        None if no model counts the copies of this dissemination.
    """
    if of_groups := find_model(dissemination["name"], "count_group_copies"):
        size = max(1, min(SAMPLED_MESSAGES, len(published), SAMPLED_GROUP_NODES // len(interests)))
        sample = substream(seed, NETWORK, "prediction/messages").sample(published, size)
        total: int = sum(of_groups(model, number, it) for number, it in enumerate(sample))
        return total / size
    subscribed = [frozenset(topics) for topics in interests]
    links = max(1, sum(map(len, model.neighbours)))
    size = max(1, min(SAMPLED_MESSAGES, len(published), SAMPLED_LINKS // links))
    sample = substream(seed, NETWORK, "prediction/messages").sample(published, size)
    counts = [count_copies(dissemination, model, subscribed, _publisher(it, subscribed), it.topics) for it in sample]
    return None if None in counts else sum(count or 0 for count in counts) / size


def _publisher(publication: Publish, subscribed: Sequence[frozenset[int]]) -> int:
    if publication.topics[0] in subscribed[publication.node]:
        return publication.node
    first = publication.topics[0]
    return next((node for node, topics in enumerate(subscribed) if first in topics), publication.node)
