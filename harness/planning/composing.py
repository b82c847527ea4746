"""From an experiment's sections to the parts that its nodes are made of."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from msgspec.structs import replace

from harness.experiment import AdversarySpec, Experiment, section_of
from peer.protocols.registry import PROTOCOLS, Choice, Composition


def choose_parts(experiment: Experiment) -> Composition:
    """The protocol's composition with the parts and parameters of the experiment.

    It has the protocol's own settings already, where its file sets nothing else (``harness.loading``).
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
    """What the adversaries do, with what they need to know for it; ``topics``: how many there are."""
    own: dict[str, Choice] = {
        "topic-attacker": {"victim_topics": spec.victim_topics},
        "eclipse": {"accomplices": tuple(sorted(adversaries))},
        "slow": {"delay_ms": spec.delay_ms},
        "dropper": {"drop_ratio": spec.drop_ratio},
        "asker": {"topics": topics, "ask_interval_ms": spec.ask_interval_ms},
    }
    return {"name": spec.kind} | own.get(spec.kind, {})


def _choice(experiment: Experiment, name: str, default: Choice) -> Choice:
    """A part with the parameters of the section of its name; without one, as the protocol has it."""
    section = section_of(experiment, name)
    return {"name": name} | (msgspec.to_builtins(section) if section is not None else default)
