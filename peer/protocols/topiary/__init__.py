"""Topiary: nodes that learn their neighbours from the arrival times of messages.

A node opens a fixed number of links. In each epoch, it observes when each outgoing neighbour brings each message
(``observation``). At the end, it scores every subset of these neighbours by missed messages, delay and wasted
bandwidth (``scores``, ``estimates``). It keeps the best subset and draws new neighbours in place of the others; it
prefers nodes that share the topics on which the kept neighbours do less well (``overlay``). Messages are flooded with
a TTL.

Source: docs/protocols/topiary.md.
"""

from collections.abc import Mapping
from typing import Any

from peer.protocols.description import Composition, Description
from peer.protocols.topiary.overlay import Topiary, TopiaryParameters


def note_reading(section: Mapping[str, Any]) -> str:
    """Return a note that says which of the two readings of the contradictory paper a run followed.

    Source: docs/protocols/topiary.md, Resolutions.
    """
    if section["literal"]:
        return (
            "Topiary's score is read as the paper prints it (topiary.literal): coverage counts the messages that a "
            "subset of the neighbours brings, and the subset with the highest score is kept. The paper's text "
            "contradicts that, and it makes the overlay worse: it is here for the record."
        )
    return (
        "Topiary's score is read as the paper's text has it, against its printed formulas: coverage counts the "
        "messages that a subset of the neighbours misses, and the subset with the lowest score is kept."
    )


PROTOCOL = Description(
    name="topiary",
    composition=Composition(overlay={"name": "topiary"}),
    parts={"overlay": Topiary},
    parameters=TopiaryParameters,
    report_note=note_reading,
)
