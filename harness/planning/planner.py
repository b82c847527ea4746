"""Makes a plan: the same file, overrides and seed give the same plan on any machine."""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from harness.errors import ExperimentError
from harness.experiment.document import naming_origin
from harness.experiment.form import Experiment, ProcessingSpec, section_of
from harness.experiment.implementations import assign_programs
from harness.experiment.loader import check_rules
from harness.planning.composition import choose_behaviour, choose_parts
from harness.planning.dilation import choose_dilation
from harness.planning.documents import hash_documents
from harness.planning.faults import compile_faults
from harness.planning.placement import place_nodes
from harness.planning.plan import Plan, PlannedRun
from harness.planning.planes import choose_plane
from harness.planning.prediction import predict, refuse_oversized
from harness.planning.scripts import at_whole_seconds, find_workload, fit_workload, make_script, read_script
from harness.planning.transfers import refuse_transfers
from harness.planning.underlays import make_underlay
from harness.workload.adversaries import draw_adversaries
from harness.workload.interests import Interests
from harness.workload.publications import rate_law
from harness.workload.workload import Workload, draw_workload
from metrics.rundir import Placement
from peer.core.randomness import substream
from peer.core.schedule import Join, Publish
from peer.instances.spec import NodeSpec, OverlayDocument
from peer.interop import CONTRACT
from peer.interop.script import Script, encode_script
from peer.protocols.description import Choice, FirstNetwork, ParameterError
from peer.protocols.registry import PROTOCOLS
from topologies.network import Network

LONGEST_PROCESSING_MS = 60_000.0


def make_plan(experiment: Experiment, source: Path, overrides: Sequence[str] = (), *, here: bool = True) -> PlannedRun:
    """Resolve every default, make all random draws, and predict what the run needs.

    Only ``plane = "auto"`` and ``time_dilation = "auto"`` depend on the machine.

    Args:
        experiment: from ``load_experiment``.
        source: the experiment file; its paths are relative to its folder.
        overrides: the ``key=value`` with which it was loaded, for error messages.
        here: whether the run is made on this machine.

    Raises:
        ExperimentError: the data is missing or invalid, or the run needs more than this machine has.
    """
    with naming_origin(source, overrides):
        return _make_plan(experiment, source, here)


def _make_plan(experiment: Experiment, source: Path, here: bool) -> PlannedRun:
    if experiment.underlay.hosts is not None:
        refuse_oversized(experiment, experiment.underlay.hosts, here)
    underlay, provenance = make_underlay(experiment, source.parent)
    experiment = replace(experiment, underlay=replace(experiment.underlay, hosts=underlay.size))
    script = read_script(experiment, underlay.size, source.parent)
    if script is not None:
        experiment = fit_workload(experiment, script, underlay.size)
    check_rules(experiment)
    experiment = choose_plane(experiment, underlay, here)
    refuse_oversized(experiment, underlay.size, here)
    workload = _find_workload(experiment, script, underlay.size, source.parent)
    publishes = experiment.peer.events != "none"
    if publishes and not any(isinstance(action, Publish) for action in workload.schedule):
        raise ExperimentError(
            "$.workload.publish_rate_per_s", "no message is published within the window with this seed"
        )
    prediction = predict(experiment, underlay, workload.interests, workload.schedule)
    experiment, chosen = choose_dilation(experiment, prediction, underlay.size, here)
    if chosen:
        prediction = predict(experiment, underlay, workload.interests, workload.schedule)
    plan = Plan(
        name=experiment.name,
        seed=experiment.seed,
        experiment=experiment,
        placement=_place(experiment, source, underlay.size),
        prediction=prediction,
        hashes={},
        provenance=provenance,
    )
    overlay = make_overlay(experiment, workload, partial(_round_trip_ns, Network.of(underlay)))
    if experiment.peer.events == CONTRACT:
        script = script or make_script(experiment, overlay, workload.schedule)
    content = b"" if script is None else encode_script(script)
    changes = compile_faults(experiment, underlay)
    planned = PlannedRun(plan, underlay, overlay, workload.schedule, source, changes, content, chosen)
    refuse_transfers(planned, here)
    return replace(planned, plan=replace(plan, hashes=hash_documents(planned)))


def _find_workload(experiment: Experiment, script: Script | None, nodes: int, folder: Path) -> Workload:
    """Return what nodes do: what the script says, or what is drawn from the seed."""
    if script is not None:
        return find_workload(script, nodes)
    workload = draw_workload(experiment, nodes, folder)
    return at_whole_seconds(workload) if experiment.peer.events == CONTRACT else workload


def make_overlay(
    experiment: Experiment, workload: Workload, round_trip_ns: Callable[[int, int], int] | None = None
) -> OverlayDocument:
    """Return every node's specification: all that a testbed needs to know of the overlay.

    Args:
        experiment: with every default resolved.
        workload: its draws.
        round_trip_ns: between two hosts, for nodes that begin with what they would have measured; None = unknown.
    """
    parts = choose_parts(experiment)
    adversaries = draw_adversaries(experiment.adversary, len(workload.interests), experiment.seed)
    common = parts.overlay | _rates(experiment)
    overlays = [common | given if given else common for given in _initial_state(experiment, workload, round_trip_ns)]
    behaviour = choose_behaviour(experiment, adversaries) if adversaries else None
    return OverlayDocument(
        run=_run_number(experiment),
        protocol=experiment.protocol,
        nodes=tuple(
            NodeSpec(
                node,
                experiment.seed,
                topics,
                overlays[node],
                parts.dissemination,
                membership=parts.membership,
                interests=parts.interests,
                up=workload.up[node],
                behaviour=behaviour if node in adversaries else None,
                processing_ns=_draw_processing_ns(experiment.processing, node, experiment.seed),
                nodes=len(workload.interests),
            )
            for node, topics in enumerate(workload.interests)
        ),
        discloses=parts.interests != "private" or parts.needs_interests,
        refresh_ns=round(experiment.membership.refresh_s * 1e9),
    )


def _rates(experiment: Experiment) -> Choice:
    """Return what the overlay is told of the topics' rates; empty if they are equal or the protocol does not ask."""
    law = rate_law(experiment.workload, experiment.seed)
    if law is None or not PROTOCOLS[experiment.protocol].needs_rates:
        return {}
    return {"rates": msgspec.to_builtins(law)}


def _round_trip_ns(network: Network, one: int, other: int) -> int:
    """Return the delays between two hosts both ways, each in whole ns."""
    return round(network.delay_ms(one, other) * 1e6) + round(network.delay_ms(other, one) * 1e6)


def _initial_state(
    experiment: Experiment, workload: Workload, round_trip_ns: Callable[[int, int], int] | None
) -> list[Choice]:
    """Return what each node's overlay gets besides its parameters; empty if the protocol draws no initial state."""
    protocol = PROTOCOLS[experiment.protocol]
    if protocol.draw_initial_state is None:
        return [{}] * len(workload.interests)
    rates = rate_law(experiment.workload, experiment.seed)
    network = FirstNetwork(_first_interests(workload), workload.up, experiment.seed, rates, round_trip_ns)
    try:
        return protocol.draw_initial_state(network, section_of(experiment, protocol.name))
    except ParameterError as error:
        raise ExperimentError(f"$.{protocol.section}.{error.key}", error.problem) from None


def _first_interests(workload: Workload) -> Interests:
    """Return the topics of every node's first instance, whether it is up at the start or joins later."""
    joins = {action.node: action.topics for action in reversed(workload.schedule) if isinstance(action, Join)}
    return tuple(
        topics if up else joins.get(node, ())
        for node, (up, topics) in enumerate(zip(workload.up, workload.interests, strict=True))
    )


def _draw_processing_ns(spec: ProcessingSpec, node: int, seed: int) -> int:
    """Draw the time in ns that a node takes to handle a frame.

    Source: Topiary section II-A, which leaves the distribution of delta_v open.
    """
    draws = substream(seed, node, "processing")
    delay_ms = {
        "none": lambda: 0.0,
        "constant": lambda: spec.mean_ms,
        "uniform": lambda: draws.uniform(0, 2 * spec.mean_ms),
        "exponential": lambda: draws.expovariate(1 / spec.mean_ms),
    }[spec.kind]()
    return round(min(delay_ms, LONGEST_PROCESSING_MS) * 1e6)


def _run_number(experiment: Experiment) -> int:
    """Return the number that distinguishes this run's peers from another's; it fits into JSON's 53 bits."""
    digest = hashlib.sha256(f"{experiment.name}/{experiment.seed}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 11


def _place(experiment: Experiment, source: Path, nodes: int) -> tuple[Placement, ...]:
    """Place nodes, and say which implementation each is."""
    placement, peer = place_nodes(experiment, source, nodes), experiment.peer
    assigned = assign_programs(peer, nodes, experiment.seed)
    if not assigned:
        return placement
    return tuple(
        replace(place, implementation=peer.programs[assigned[place.node]].implementation) for place in placement
    )
