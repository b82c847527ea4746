"""Watches the parts of a run, and reports a part that ends early within two seconds."""

import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Literal

from peer.runtime.clock import Clock

POLL_S = 1.0
"""Real time between two looks. A look only reads exit statuses from the kernel."""

OnLoss = Literal["abort", "continue"]
Look = Callable[[], Mapping[str, str]]


class PartLostError(Exception):
    """A part of the run was lost, and the experiment says to abort."""


class Supervision:
    """The parts of a run that must not end before it.

    Attributes:
        problems: one sentence per lost part.
    """

    def __init__(self, on_loss: OnLoss, clock: Clock) -> None:
        self.problems: list[str] = []
        self._on_loss = on_loss
        self._clock = clock
        self._looks: list[Look] = []
        self._lost: set[str] = set()

    def add(self, look: Look) -> None:
        """Watch some parts. ``look`` returns the lost ones: name of the part -> how it ended."""
        self._looks.append(look)

    def look(self) -> None:
        """Report on standard error the parts that were lost since the last look.

        Raises:
            PartLostError: a part was lost, and the experiment says to abort.
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
        """Wait until a virtual instant, and look every ``POLL_S``.

        Raises:
            PartLostError: a part was lost, and the experiment says to abort.
        """
        while (left_s := self._clock.left_s(instant_ns)) > 0:
            self.look()
            time.sleep(min(left_s, POLL_S))
        self.look()
