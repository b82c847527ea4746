"""Models of single protocols, for predictions and scripts: one module per protocol, with the name of its section.

A module has one or more of these functions:

- ``model_overlay(parameters, network) -> OverlayModel``: the overlay at rest. Without it the prediction uses
  the links that the nodes open at the start.
- ``count_copies(parameters, model, subscribed, publisher, topics) -> int``: the number of copies of a message that the
  protocol's own dissemination sends over a model. Without it no frames are predicted.
- ``count_group_copies(model, sequence, publication) -> int``: the same where messages are for expressions.
- ``choose_script_parameters(parameters) -> Parameters``: the parameters for programs that follow a script
  (``harness.planning.scripts``). Without it they use their own.

``parameters`` are those of the part. ``harness.planning.overlay_models`` and ``copies`` have the types and the shared
functions.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from peer.protocols.description import section_name


@cache
def find_model(part: str, function: str) -> Callable[..., Any] | None:
    """Return a function of the model of a part's protocol; None if the model does not have it.

    Args:
        part: the name of the part and of its protocol.
        function: one of those above.
    """
    module = f"{__name__}.{section_name(part)}"
    if find_spec(module) is None:
        return None
    found: Callable[..., Any] | None = getattr(import_module(module), function, None)
    return found
