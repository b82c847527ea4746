"""Chooses the parts of an experiment's nodes."""

from collections.abc import Collection
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from harness.experiment.form import AdversarySpec, Experiment, section_of
from peer.core.adversary import ADVERSARIES
from peer.protocols.description import Choice, Composition
from peer.protocols.registry import PROTOCOLS


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


def choose_behaviour(spec: AdversarySpec, adversaries: Collection[int], topics: int) -> Choice:
    """Return the behaviour of the adversaries and its parameters. ``topics``: the number of topics."""
    given = asdict(spec) | {"accomplices": tuple(sorted(adversaries)), "topics": topics}
    behaviour: Any = ADVERSARIES[spec.kind]
    return {"name": spec.kind} | {key: given[key] for key in behaviour.Parameters.__struct_fields__}


def _choice(experiment: Experiment, name: str, default: Choice) -> Choice:
    """Return a part with the parameters of its section; a part without a section has those of the protocol."""
    section = section_of(experiment, name)
    return {"name": name} | (msgspec.to_builtins(section) if section is not None else default)
