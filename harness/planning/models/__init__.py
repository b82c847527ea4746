"""Models of single protocols, for predictions: a module each, called as the protocol's section of an experiment.

A module has one of these functions, or both:

- ``model_overlay(parameters, network, draws, first_links) -> OverlayModel``: the overlay at rest. A protocol without it
  is predicted by the links that its nodes ask for at the start.
- ``count_copies(parameters, model, subscribed, publisher, topics) -> int``: how many copies of a message the protocol's
  own dissemination sends over a model. Without it no frames are predicted.

``parameters`` are those of the part. ``harness.planning.overlay_models`` and ``copies`` have the types, and what models
share.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from peer.protocols.description import section_name


@cache
def find_model(part: str, function: str) -> Callable[..., Any] | None:
    """A function of the model of a part's protocol; None where there is none.

    Args:
        part: the part's name, which is its protocol's.
        function: ``model_overlay`` or ``count_copies``.
    """
    module = f"{__name__}.{section_name(part)}"
    if find_spec(module) is None:
        return None
    found: Callable[..., Any] | None = getattr(import_module(module), function, None)
    return found
