"""Chooses the dilation of a run with ``time_dilation = "auto"``: the smallest at which it fits on this machine."""

from typing import Final

from msgspec.structs import replace

from harness.errors import ExperimentError
from harness.experiment.form import Experiment
from harness.planning.plan import Prediction
from harness.planning.processors import Outlook, foresee_here
from harness.testbeds.registry import find_testbed

DILATIONS: Final = (1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0)
"""The factors among which ``time_dilation = "auto"`` chooses."""


def choose_dilation(
    experiment: Experiment, prediction: Prediction, hosts: int, here: bool
) -> tuple[Experiment, tuple[str, ...]]:
    """Return the experiment with a number as its dilation, and a sentence on what ``auto`` is.

    Args:
        experiment: its rules are checked.
        prediction: of its plan, without dilation if that is ``auto``.
        hosts: of the run.
        here: whether the run is made on this machine.

    Raises:
        ExperimentError: it is not known how many processors the run needs, or it fits at no dilation.
    """
    if not isinstance(experiment.time_dilation, str):
        return experiment, ()
    if "processes" not in find_testbed(experiment.testbed).can:  # virtual time, which is the same at any dilation
        return replace(experiment, time_dilation=experiment.dilation), ()
    outlook = foresee_here(experiment, prediction, hosts) if here else "the run is made on another machine"
    if isinstance(outlook, str):
        raise ExperimentError("$.time_dilation", f"expected a number: {outlook}")
    if (least := least_dilation(outlook)) is None:
        slowest = outlook.dilated(DILATIONS[-1])
        busy = f"{slowest.processors:.2g} of {slowest.calibration.processors:g} processors busy"
        late = f"processes wake {slowest.calibration.late_ms:.2g} ms late at p99"
        problem = f"no dilation fits: with {slowest.dilation:g}, {busy}, and {late}"
        raise ExperimentError("$.time_dilation", problem)
    busy = f"{outlook.dilated(least).processors:.2g} of {outlook.calibration.processors:g} processors busy"
    said = f'time_dilation = "auto" is {least:g}: {busy}, and {outlook.processors:.2g} at true speed'
    return replace(experiment, time_dilation=least), (said,)


def least_dilation(outlook: Outlook) -> float | None:
    """Return the smallest of ``DILATIONS`` at which a run fits; None = it fits at none of them."""
    return next((each for each in DILATIONS if outlook.dilated(each).fits), None)
