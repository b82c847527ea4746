"""Watching the parts of a run while it lasts: one that dies is noticed within two seconds, and said at once."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Literal

from peer.runtime.clock import Clock

POLL_S = 1.0
"""Real time between two looks. A look reads exit statuses that the kernel keeps and asks nobody anything."""

OnLoss = Literal["abort", "continue"]
Look = Callable[[], Mapping[str, str]]


class PartLostError(Exception):
    """A part of the run is lost, and the experiment wants no run without it."""


class Supervision:
    """The parts of a run that must not end before it does.

    Attributes:
        problems: of each lost part a sentence, with when it was noticed.
    """

    def __init__(self, on_loss: OnLoss, clock: Clock) -> None:
        self.problems: list[str] = []
        self._on_loss = on_loss
        self._clock = clock
        self._looks: list[Look] = []
        self._lost: set[str] = set()

    def add(self, look: Look) -> None:
        """Watch some parts. ``look`` says which of them are lost: a part's name -> what is known of its end."""
        self._looks.append(look)

    def look(self) -> None:
        """See whether a part has been lost since the last look; say so on standard error.

        Raises:
            PartLostError: one has, and the run is to end with it.
        """
        found = {name: words for look in self._looks for name, words in look().items() if name not in self._lost}
        for name, words in found.items():
            self._lost.add(name)
            sentence = f"{name}: {words}"
            self.problems.append(sentence)
            at = datetime.now().astimezone().strftime("%H:%M:%S")
            then = "the run ends here" if self._on_loss == "abort" else "the run goes on"
            print(f"trellis run: {at} {sentence}; {then}", file=sys.stderr, flush=True)
        if found and self._on_loss == "abort":
            raise PartLostError("; ".join(self.problems))

    def wait_until(self, instant_ns: int) -> None:
        """Wait for a virtual instant, and look every ``POLL_S`` meanwhile.

        Raises:
            PartLostError: a part is lost before, and the run is to end with it.
        """
        while (left_s := self._clock.left_s(instant_ns)) > 0:
            self.look()
            time.sleep(min(left_s, POLL_S))
        self.look()
