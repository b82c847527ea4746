"""Draws the workload of an experiment: initial interests, and one schedule of publications and changes."""

from pathlib import Path
from typing import NamedTuple

from harness.experiment.form import Experiment
from harness.workload.adversaries import draw_adversaries, infiltrate
from harness.workload.churn import Span, draw_sessions
from harness.workload.expressions import draw_for_groups
from harness.workload.interests import Interests, make_model
from harness.workload.membership import MembershipPlan, follow_script, follow_sessions
from harness.workload.publications import draw_schedule, publish_rule
from peer.core.schedule import Action


class Workload(NamedTuple):
    """What nodes do, independent of their protocol.

    Attributes:
        up: whether each node is up at the start.
        interests: each node's topics at the start; empty for a node that is down.
        schedule: publications and changes in order of time.
    """

    up: tuple[bool, ...]
    interests: Interests
    schedule: tuple[Action, ...]


def draw_workload(experiment: Experiment, nodes: int, folder: Path) -> Workload:
    """Draw the workload from the experiment's seed; nothing, if programs say nothing of what they do.

    Args:
        experiment: an experiment that has passed ``check_rules``.
        nodes: number of nodes.
        folder: the folder of the experiment file; its paths are relative to it.

    Raises:
        ExperimentError: a file is missing or invalid, the script is impossible, or nothing can be published.
    """
    workload = experiment.workload
    span = Span(-round(workload.warmup_s * 1e9), round((workload.duration_s + workload.cooldown_s) * 1e9))
    membership = draw_membership(experiment, nodes, folder, span)
    if experiment.peer.events == "none":
        return Workload(membership.up, ((),) * nodes, ())
    adversary = experiment.adversary
    silent = frozenset[int]() if adversary.publish else draw_adversaries(adversary, nodes, experiment.seed)
    if experiment.expressions.kind == "none":
        schedule = draw_schedule(workload, membership, experiment.seed, publish_rule(experiment.interests, silent))
    else:
        schedule = draw_for_groups(workload, experiment.expressions, membership, experiment.seed, silent)
    return Workload(membership.up, membership.interests, schedule)


def draw_membership(experiment: Experiment, nodes: int, folder: Path, span: Span) -> MembershipPlan:
    """Draw the population at the start, and its changes within the span.

    Raises:
        ExperimentError: a file is missing or invalid, or the script is impossible.
    """
    churn, topics, seed = experiment.churn, experiment.workload.topics, experiment.seed
    model = infiltrate(make_model(experiment.interests, topics, nodes, seed, folder), experiment.adversary, nodes, seed)
    if churn.kind == "script":
        return follow_script(churn.script, model, nodes, topics, span)
    sessions = draw_sessions(churn, nodes, span, seed, folder)
    return follow_sessions(sessions, model, span, churn.new_interests)
