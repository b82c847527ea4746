"""The scripts of programs of gossipsub-interop: made of a schedule, or the user's own, which makes the schedule."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import UNSET, structs

from harness.errors import ExperimentError
from harness.experiment.document import input_errors
from harness.experiment.form import Experiment, section_of
from harness.experiment.loader import decode_experiment
from harness.experiment.sections.peer import PeerSpec
from harness.experiment.sections.workload import InterestsSpec, WorkloadSpec
from harness.planning.models import find_model
from harness.workload.workload import Workload
from peer.core.contract import message_id
from peer.core.schedule import Action, Publish, Subscribe
from peer.instances.spec import OverlayDocument
from peer.interop import script as instructions
from peer.interop.script import (
    Begin,
    Connect,
    IfNodeIDEquals,
    Instruction,
    Parameters,
    Script,
    ScriptError,
    SubscribeToTopic,
    WaitUntil,
    check_script,
    decode_script,
    delay_connections,
    find_ends,
    list_publications,
    walk,
)
from peer.protocols.description import section_name
from peer.runtime.connections import Connections
from topologies.reading import read_text

SECOND_NS: Final = 1_000_000_000

LARGEST_BYTES: Final = 64 << 20
"""Limit on the size of a script."""

INITIAL_DELAY_NS: Final = 100_000_000
"""The time from the start of a node to its first heartbeat, unless the protocol has another."""

HEARTBEAT_SPREAD_NS: Final = 100_000
"""By how much later the first heartbeat of each node is than that of the node before, since all start together."""

_PARAMETERS: Final = "choose_script_parameters"
_SET: Final = ("topics", "publish_interval", "publish_rate_per_s", "rate_exponent", "payload_bytes")
_TIMES: Final = ("warmup_s", "duration_s", "cooldown_s")


# ------------------------------------------------------------------------------------------------ of a schedule


def at_whole_seconds(workload: Workload) -> Workload:
    """Return the workload with each publication at the beginning of its second: scripts know no parts of seconds."""
    schedule = tuple(
        structs.replace(action, at_ns=action.at_ns // SECOND_NS * SECOND_NS) if isinstance(action, Publish) else action
        for action in workload.schedule
    )
    return workload._replace(schedule=schedule)


def make_script(experiment: Experiment, overlay: OverlayDocument, schedule: Sequence[Action]) -> Script:
    """Make the script with which programs do what the schedule says.

    Args:
        experiment: with every default resolved.
        overlay: the nodes and their subscriptions.
        schedule: publications at whole seconds.
    """
    peer, workload = experiment.peer, experiment.workload
    made: list[Instruction] = [
        IfNodeIDEquals(spec.node, Begin(_choose_parameters(experiment, spec.node))) for spec in overlay.nodes
    ]
    made.append(WaitUntil(peer.connect_at_s))
    for spec in overlay.nodes:
        if peers := Connections(overlay, spec.node, peer.connect).begin():
            made.append(IfNodeIDEquals(spec.node, Connect(tuple(peers))))
    for spec in overlay.nodes:
        made += (IfNodeIDEquals(spec.node, SubscribeToTopic(str(topic), False)) for topic in spec.topics)
    elapsed_s = peer.connect_at_s
    for number, action in enumerate(action for action in schedule if isinstance(action, Publish)):
        at_s = action.at_ns // SECOND_NS + round(workload.warmup_s)
        if at_s > elapsed_s:
            made.append(WaitUntil(elapsed_s := at_s))
        (topic,) = action.topics
        publish = instructions.Publish(number, action.payload_bytes, str(topic))
        made.append(IfNodeIDEquals(action.node, publish))
    made.append(WaitUntil(math.ceil(workload.length_s)))
    return Script(tuple(made))


def _choose_parameters(experiment: Experiment, node: int) -> Parameters:
    """Return the parameters of a node: those of the protocol, if programs have it; otherwise they use their own."""
    choose = find_model(experiment.protocol, _PARAMETERS)
    chosen = Parameters() if choose is None else choose(section_of(experiment, experiment.protocol))
    first_ns = INITIAL_DELAY_NS if chosen.HeartbeatInitialDelay is UNSET else chosen.HeartbeatInitialDelay
    return structs.replace(chosen, HeartbeatInitialDelay=first_ns + HEARTBEAT_SPREAD_NS * (node + 1))


# ------------------------------------------------------------------------------------------------ the user's own


def read_script(experiment: Experiment, nodes: int, folder: Path) -> Script | None:
    """Read the user's script, with a wait before its connections; None if there is none.

    Args:
        experiment: names the file.
        nodes: the number of nodes.
        folder: the folder of the experiment file.

    Raises:
        ExperimentError: the file cannot be read, or the nodes cannot carry out its script.
    """
    if experiment.peer.script is None:
        return None
    path = folder / experiment.peer.script
    with input_errors():
        content = read_text(path, LARGEST_BYTES)
    try:
        script = decode_script(content.encode())
        check_script(script, nodes)
    except ScriptError as error:
        raise ExperimentError(str(path), str(error)) from None
    return delay_connections(script, nodes, experiment.peer.connect_at_s)


def fit_workload(experiment: Experiment, script: Script, nodes: int) -> Experiment:
    """Set the workload's topics, phases, rate and payload to those of the script. Its zero is the first publication.

    Args:
        experiment: without keys that the script sets.
        script: the script.
        nodes: the number of nodes.

    Raises:
        ExperimentError: a key contradicts the script, it publishes nothing, or before its nodes are connected.
    """
    workload, default = experiment.workload, WorkloadSpec()
    for key in (*_SET, *_TIMES):
        if getattr(workload, key) != getattr(default, key):
            raise ExperimentError(f"$.workload.{key}", "the script sets it")
    if experiment.interests != InterestsSpec():
        raise ExperimentError("$.interests", "the script sets it")
    if experiment.peer.connect != PeerSpec().connect:
        raise ExperimentError("$.peer.connect", "the script sets it")
    name = experiment.protocol
    if find_model(name, _PARAMETERS) and section_of(experiment, name) != section_of(_plain(name), name):
        raise ExperimentError(f"$.{section_name(name)}", "the script sets it")
    publications = list_publications(script, nodes)
    if not publications:
        raise ExperimentError("$.peer.script", "it publishes no message")
    first_s, last_s, end_s = publications[0].at_s, publications[-1].at_s, max(find_ends(script, nodes))
    connected_s = max((step.at_s for step in walk(script, nodes) if isinstance(step.instruction, Connect)), default=0)
    if first_s <= connected_s:
        problem = f"it publishes {first_s} s after the start, and nodes connect after {connected_s} s"
        raise ExperimentError("$.peer.script", problem)
    duration_s = last_s - first_s + 1
    phases = {"warmup_s": float(first_s), "duration_s": float(duration_s)}
    phases["cooldown_s"] = float(max(0, end_s - first_s - duration_s))
    workload = structs.replace(
        workload,
        topics=max(_number_topics(script, nodes).values()) + 1,
        publish_rate_per_s=len(publications) / duration_s,
        payload_bytes=max(publication.publish.size_bytes for publication in publications),
        **phases,
    )
    return structs.replace(experiment, workload=workload)


def _plain(protocol: str) -> Experiment:
    """Return an experiment with a protocol and all parameters as usual."""
    return decode_experiment({"name": protocol, "protocol": protocol})


def find_workload(script: Script, nodes: int) -> Workload:
    """Return what the script makes nodes do: their subscriptions at its first publication, and all that follows."""
    topics = _number_topics(script, nodes)
    publications = list_publications(script, nodes)
    zero_s = publications[0].at_s
    interests: list[set[int]] = [set() for _ in range(nodes)]
    subscribed: list[set[int]] = [set() for _ in range(nodes)]
    later: list[Action] = []
    for step in walk(script, nodes):
        if not isinstance(step.instruction, SubscribeToTopic):
            continue
        topic = topics[step.instruction.topic_id]
        if topic in subscribed[step.node]:
            continue
        subscribed[step.node].add(topic)
        if step.at_s <= zero_s:
            interests[step.node].add(topic)
        else:
            later.append(Subscribe((step.at_s - zero_s) * SECOND_NS, step.node, (topic,)))
    schedule = sorted([*later, *_publish(script, nodes, topics)], key=lambda action: action.at_ns)
    return Workload((True,) * nodes, tuple(tuple(sorted(each)) for each in interests), tuple(schedule))


def _publish(script: Script, nodes: int, topics: dict[str, int]) -> Iterator[Publish]:
    """Yield the script's publications as actions of a schedule."""
    publications = list_publications(script, nodes)
    counts: Counter[tuple[int, int]] = Counter()
    for number, (at_s, node, publish) in enumerate(publications):
        topic = topics[publish.topic_id]
        at_ns = (at_s - publications[0].at_s) * SECOND_NS
        identifier, sequence = message_id(node, number), counts[node, topic]
        yield Publish(at_ns, node, identifier, (topic,), publish.size_bytes, sequence)
        counts[node, topic] += 1


def _number_topics(script: Script, nodes: int) -> dict[str, int]:
    """Return the numbers of topics: that of the name if all names are numbers, otherwise their place in the script."""
    named = [
        step.instruction.topic_id
        for step in walk(script, nodes)
        if isinstance(step.instruction, SubscribeToTopic | instructions.Publish)
    ]
    names = list(dict.fromkeys(named))
    if all(name.isascii() and name.isdecimal() and str(int(name)) == name and int(name) < 100_000 for name in names):
        return {name: int(name) for name in names}
    return {name: number for number, name in enumerate(names)}
