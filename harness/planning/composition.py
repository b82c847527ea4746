"""Chooses the parts of an experiment's nodes."""

from collections.abc import Collection
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from harness.experiment.form import Experiment, section_of
from peer.protocols.description import Choice, Composition
from peer.protocols.registry import ADVERSARIES, PROTOCOLS


def choose_parts(experiment: Experiment) -> Composition:
    """Return the protocol's composition with the parts and parameters of the experiment.

    ``harness.experiment.loader`` has already applied the protocol's own settings.
    """
    default = PROTOCOLS[experiment.protocol].composition
    overlay = _choice(experiment, str(default.overlay["name"]), default.overlay)
    spread = default.dissemination
    if experiment.dissemination.kind != "protocol":
        spread = {"name": experiment.dissemination.kind}
    dissemination = _choice(experiment, str(spread["name"]), spread)
    membership = _choice(experiment, experiment.membership.kind, {})
    return replace(default, overlay=overlay, dissemination=dissemination, membership=membership)


def choose_behaviour(experiment: Experiment, adversaries: Collection[int]) -> Choice:
    """Return the behaviour of the adversaries and its parameters."""
    spec = experiment.adversary
    adversary = ADVERSARIES[spec.kind]
    section = section_of(experiment, spec.kind) if adversary.parameters is not None else None
    given = asdict(spec) | (asdict(section) if section is not None else {})
    given |= {"accomplices": tuple(sorted(adversaries)), "topics": experiment.workload.topics}
    behaviour: Any = adversary.behaviour
    return {"name": spec.kind} | {key: given[key] for key in behaviour.Parameters.__struct_fields__}


def _choice(experiment: Experiment, name: str, default: Choice) -> Choice:
    """Return a part with the parameters of its section; a part without a section has those of the protocol."""
    section = section_of(experiment, name)
    return {"name": name} | (msgspec.to_builtins(section) if section is not None else default)
