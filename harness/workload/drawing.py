"""From an experiment to its whole workload: initial interests, and one schedule of all that happens."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from harness.experiment import Experiment
from harness.workload.adversaries import draw_silent, infiltrate
from harness.workload.churn import Span, draw_sessions
from harness.workload.interests import Interests, make_model
from harness.workload.membership import Membership, follow_script, follow_sessions
from harness.workload.publications import draw_schedule
from peer.core.schedule import Action


class Workload(NamedTuple):
    """What nodes do whatever their protocol.

    Attributes:
        up: which nodes run from the start.
        interests: their topics at the start; none where a node is not up.
        schedule: publications and changes in the order of their instants.
    """

    up: tuple[bool, ...]
    interests: Interests
    schedule: tuple[Action, ...]


def draw_workload(experiment: Experiment, nodes: int, folder: Path) -> Workload:
    """Draw everything from the experiment's seed.

    Args:
        experiment: it has passed ``check_rules``.
        nodes: number of nodes.
        folder: where the experiment file is; its paths are relative to it.

    Raises:
        ExperimentError: a file is missing or wrong, the script is impossible, or nothing can ever be published.
    """
    workload = experiment.workload
    span = Span(-round(workload.warmup_s * 1e9), round((workload.duration_s + workload.cooldown_s) * 1e9))
    membership = draw_membership(experiment, nodes, folder, span)
    silent = draw_silent(experiment.adversary, nodes, experiment.seed)
    schedule = draw_schedule(workload, membership, experiment.seed, silent)
    return Workload(membership.up, membership.interests, schedule)


def draw_membership(experiment: Experiment, nodes: int, folder: Path, span: Span) -> Membership:
    """Draw who is up with which interests, and how that changes within the span.

    Raises:
        ExperimentError: a file is missing or wrong, or the script is impossible.
    """
    churn, topics, seed = experiment.churn, experiment.workload.topics, experiment.seed
    model = infiltrate(make_model(experiment.interests, topics, nodes, seed, folder), experiment.adversary, nodes, seed)
    if churn.kind == "script":
        return follow_script(churn.script, model, nodes, topics, span)
    sessions = draw_sessions(churn, nodes, span, seed, folder)
    return follow_sessions(sessions, model, span, churn.new_interests)
